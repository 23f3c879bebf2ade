use proptest::prelude::*;

use super::InvalidModuleName::{Name, Namespace, Parts, System};
use super::*;
use crate::testing::{fixed_seed, go_vectors};

fn prefix(text: &str) -> NamePrefix {
    text.parse().unwrap()
}

fn name(text: &str) -> RegistryName {
    text.parse().unwrap()
}

#[test]
fn go_accepts_and_escapes_the_same_paths() {
    for vector in go_vectors("path") {
        let parsed: Result<GoPath, _> = vector[0].parse();
        match vector.as_slice() {
            [text, "!"] => assert!(parsed.is_err(), "{text}"),
            [text, escaped, without_major, suffix] => {
                let path = parsed.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(path.major_suffix(), *suffix);
                assert_eq!(format!("{without_major}{suffix}"), *text);
                assert_eq!(escape_path(&path), *escaped);
                assert_eq!(unescape_path(escaped), Ok(path));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn go_escapes_the_same_versions() {
    for vector in go_vectors("version") {
        let [text, expected] = vector[..] else {
            panic!("{vector:?}");
        };
        match escape_version(text) {
            Ok(escaped) => {
                assert_eq!(escaped, expected);
                assert_eq!(unescape_version(&escaped).as_deref(), Ok(text));
            }
            Err(error) => assert_eq!(expected, "!", "{text}: {error}"),
        }
    }
}

#[test]
fn go_reads_the_same_escaped_texts() {
    for vector in go_vectors("unescape") {
        let [text, path, version] = vector[..] else {
            panic!("{vector:?}");
        };
        let ours = unescape_path(text).map_or("!".to_owned(), |path| path.to_string());
        assert_eq!(ours, path, "{text} as a path");
        let ours = unescape_version(text).unwrap_or("!".to_owned());
        assert_eq!(ours, version, "{text} as a version");
    }
}

#[test]
fn an_escape_that_go_does_not_write_is_refused_with_a_reason() {
    let error = |text: &str| unescape_path(text).unwrap_err().to_string();
    assert_eq!(
        error("github.com/Azure/x"),
        "an upper-case letter is escaped as `!` and the lower-case letter"
    );
    for text in ["github.com/!!a", "github.com/!A", "github.com/a!", "!é"] {
        assert_eq!(error(text), "a lower-case letter follows each `!`");
    }
    assert_eq!(error("é"), "'é' is not a character of ASCII");
    assert!(unescape_version(&"a".repeat(257)).is_err());
}

#[test]
fn a_path_that_go_refuses_is_refused_with_a_reason() {
    let error = |text: &str| text.parse::<GoPath>().unwrap_err().to_string();
    assert_eq!(error(""), "a module path has 1 to 512 bytes");
    assert_eq!(
        error(&format!("a.b/{}", "c".repeat(509))),
        "a module path has 1 to 512 bytes"
    );
    assert_eq!(
        error("example.com/m/v1"),
        "the major version suffix is `/v2` or higher, without leading zeros and dots"
    );
    assert_eq!(
        error("gopkg.in/yaml"),
        "a path on gopkg.in ends in its major version, such as `.v2`"
    );
    assert_eq!(
        error("example.com/a/com1.txt"),
        "Windows reserves the name `com1`"
    );
    assert_eq!(
        error("localhost/m"),
        "`localhost` is not a host: a module path begins with lower-case letters, digits, `-` and at least one dot, and not with `-`"
    );
}

#[test]
fn terraform_accepts_the_same_modules() {
    for vector in go_vectors("module") {
        let parsed: Result<ModuleName, _> = vector[0].parse();
        match vector.as_slice() {
            [text, "!"] => assert!(parsed.is_err(), "{text}"),
            [text, namespace, name, system] => {
                let parsed = parsed.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(parsed.namespace(), namespace.parse().unwrap());
                assert_eq!(parsed.name(), name.to_ascii_lowercase());
                assert_eq!(parsed.system(), *system);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_module_is_named_by_the_grammar_of_terraform() {
    let name: ModuleName = "Acme-Inc/VPC_x/aws2".parse().unwrap();
    assert_eq!(name.as_str(), "acme-inc/vpc_x/aws2");
    assert_eq!(name.namespace().as_str(), "acme-inc");
    assert_eq!((name.name(), name.system()), ("vpc_x", "aws2"));

    let long = "a".repeat(64);
    assert!(
        format!("{long}/{long}/{long}")
            .parse::<ModuleName>()
            .is_ok()
    );
    let longer = "a".repeat(65);
    for (text, expected) in [
        ("", Parts),
        ("acme/vpc", Parts),
        ("mods.example.com/acme/vpc/aws", Parts),
        ("acme/vpc/aws//sub", Parts),
        ("/vpc/aws", Namespace),
        ("-acme/vpc/aws", Namespace),
        ("acme_/vpc/aws", Namespace),
        ("a.b/vpc/aws", Namespace),
        ("é/vpc/aws", Namespace),
        (&format!("{longer}/vpc/aws"), Namespace),
        ("acme//aws", Name),
        ("acme/v pc/aws", Name),
        (&format!("acme/{longer}/aws"), Name),
        ("acme/vpc/", System),
        ("acme/vpc/AWS", System),
        ("acme/vpc/a-b", System),
        ("acme/vpc/aws\n", System),
        (&format!("acme/vpc/{longer}"), System),
    ] {
        assert_eq!(text.parse::<ModuleName>(), Err(expected), "{text}");
    }
}

#[test]
fn names_of_go_can_differ_only_in_case() {
    let lower = name("go github.com/acme/infra");
    let upper = name("go github.com/Acme/infra");
    assert_ne!(lower, upper);
    assert_eq!(name("module Acme/vpc/aws"), name("module acme/VPC/aws"));
}

#[test]
fn a_name_begins_with_its_kind() {
    for text in ["", "module", "go", "provider acme/aws", "Go example.com/m"] {
        assert_eq!(
            text.parse::<RegistryName>(),
            Err(InvalidRegistryName::Kind),
            "{text}"
        );
        assert!(text.parse::<NamePrefix>().is_err(), "{text}");
    }
    assert!("module  acme/vpc/aws".parse::<RegistryName>().is_err());
}

#[test]
fn a_prefix_covers_whole_elements() {
    let acme = prefix("go github.com/acme");
    for (text, covered) in [
        ("go github.com/acme", true),
        ("go github.com/acme/infra", true),
        ("go github.com/acme/infra/v2", true),
        ("go github.com/acme2", false),
        ("go github.com/Acme/infra", false),
        ("go github.com/other", false),
        ("module github-com/acme/aws", false),
    ] {
        assert_eq!(acme.covers(&name(text)), covered, "{text}");
    }
    assert!(prefix("module Acme").covers(&name("module acme/vpc/aws")));
    assert!(!prefix("module acm").covers(&name("module acme/vpc/aws")));
    assert!(prefix("go gopkg.in").covers(&name("go gopkg.in/yaml.v3")));
}

#[test]
fn prefixes_overlap_when_one_is_below_the_other() {
    let acme = prefix("go github.com/acme");
    assert!(acme.overlaps(&acme));
    assert!(acme.overlaps(&prefix("go github.com/Acme/infra")));
    assert!(prefix("go github.com").overlaps(&acme));
    assert!(!acme.overlaps(&prefix("go github.com/acme-inc")));
    assert!(!prefix("module acme").overlaps(&prefix("module acme2")));
    assert!("go github.com/acme/".parse::<NamePrefix>().is_err());
    assert!("module acme/vpc".parse::<NamePrefix>().is_err());
}

#[test]
fn a_pattern_matches_whole_parts_of_names() {
    for (pattern, matching, others) in [
        (
            "*",
            &["module acme/vpc/aws", "go example.com/m"][..],
            &[][..],
        ),
        ("module *", &["module acme/vpc/aws"], &["go example.com/m"]),
        ("go *", &["go example.com/m"], &["module acme/vpc/aws"]),
        (
            "module acme/*",
            &["module acme/vpc/aws", "module Acme/x/y"],
            &["module acme2/vpc/aws", "go acme.com/vpc"],
        ),
        (
            "module acme/vpc/*",
            &["module acme/vpc/aws", "module acme/VPC/google"],
            &["module acme/vpc2/aws", "module acm/vpc/aws"],
        ),
        (
            "module acme/vpc/aws",
            &["module acme/vpc/aws"],
            &["module acme/vpc/google"],
        ),
        (
            "go example.com/net/...",
            &["go example.com/net", "go example.com/net/a/v2"],
            &[
                "go example.com/network",
                "go example.com/Net",
                "go example.com",
            ],
        ),
        (
            "go example.com/net",
            &["go example.com/net"],
            &["go example.com/net/v2", "module example/net/aws"],
        ),
    ] {
        let parsed: NamePattern = pattern.parse().unwrap();
        assert_eq!(parsed.to_string(), pattern);
        for text in matching {
            assert!(parsed.matches(&name(text)), "{pattern} and {text}");
        }
        for text in others {
            assert!(!parsed.matches(&name(text)), "{pattern} and {text}");
        }
    }
    assert_eq!(
        "module Acme/VPC/*"
            .parse::<NamePattern>()
            .unwrap()
            .to_string(),
        "module acme/vpc/*"
    );
}

#[test]
fn a_pattern_is_within_those_that_have_all_of_its_names() {
    let chain = [
        "module acme/vpc/aws",
        "module acme/vpc/*",
        "module acme/*",
        "module *",
        "*",
    ];
    let go = [
        "go example.com/Net/http",
        "go example.com/net/http/...",
        "go example.com/net/...",
        "go example.com/...",
        "go *",
        "*",
    ];
    let pattern = |text: &str| text.parse::<NamePattern>().unwrap();
    for patterns in [&chain[..], &go[..]] {
        for (number, one) in patterns.iter().enumerate() {
            for (other_number, other) in patterns.iter().enumerate() {
                let expected = number <= other_number;
                let is_within = pattern(one).is_within(&pattern(other));
                assert_eq!(is_within, expected, "{one} in {other}");
                // Only the first path is written in another case.
                let is_covered = pattern(one).is_covered_by(&pattern(other));
                let is_in_case =
                    !one.contains("Net") || other.ends_with("com/...") || other.ends_with('*');
                let expected = expected && (is_in_case || one == other);
                assert_eq!(is_covered, expected, "{one} by {other}");
            }
        }
    }
    for (one, other) in [
        ("module acme/*", "module acme2/*"),
        ("module acme/*", "go *"),
        ("go example.com/network/...", "go example.com/net/..."),
        ("go example.com/net", "go example.com/net/http"),
        ("go example.com/net/...", "go example.com/net"),
    ] {
        assert!(!pattern(one).is_within(&pattern(other)), "{one} in {other}");
    }
    let namespace: NamePrefix = "go example.com/net".parse().unwrap();
    assert_eq!(
        NamePattern::from(namespace),
        pattern("go example.com/net/...")
    );
    assert!(pattern("go *").is_for_all() && !pattern("go example.com/...").is_for_all());
}

#[test]
fn texts_that_are_no_patterns_are_refused() {
    for bad in [
        "",
        "acme/*",
        "**",
        "provider acme/*",
        "module",
        "module ",
        "module acme",
        "module */vpc/aws",
        "module acme/*/aws",
        "module acme/vpc/aws/*",
        "module acme//*",
        "go ...",
        "go example.com/*",
        "go example.com/.../x",
        "go example/net/...",
        "go example.com//...",
    ] {
        assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
    }
    let error = |text: &str| text.parse::<NamePattern>().unwrap_err().to_string();
    for (text, meant) in [
        ("module acme", "module acme/*"),
        ("module acme/vpc", "module acme/vpc/*"),
    ] {
        assert_eq!(
            error(text),
            format!(
                "a module is named by three parts, `<namespace>/<name>/<system>`. For all modules with this beginning, write \
                 `{meant}`"
            )
        );
    }
    // Nothing that could be meant.
    for text in ["module a b", "module acme/vpc/aws/eks", "module "] {
        assert_eq!(
            error(text),
            "a module is named by three parts, `<namespace>/<name>/<system>`"
        );
    }
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_name_that_is_read_is_written_alike(
        text in "(go [a-z]{1,3}\\.[a-z]{1,3}(/[A-Za-z0-9._~v-]{1,4}){0,3}|module( ?[a-z0-9_-]{0,3}/?){3}|.{0,20})"
    ) {
        if let Ok(name) = text.parse::<RegistryName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn an_escaped_path_is_lower_case_and_read_back(path in "[a-z]{1,3}\\.[a-z]{1,3}(/[A-Za-z0-9_~-]{1,6}){0,3}") {
        if let Ok(path) = path.parse::<GoPath>() {
            let escaped = escape_path(&path);
            prop_assert!(!escaped.contains(|c: char| c.is_ascii_uppercase()));
            prop_assert_eq!(unescape_path(&escaped), Ok(path));
        }
    }

    #[test]
    fn a_text_has_one_escaped_form(text in "[a-zA-Z!./v-]{0,12}|.{0,12}") {
        if let Ok(path) = unescape_path(&text) {
            prop_assert_eq!(escape_path(&path), text.clone());
        }
        if let Ok(version) = unescape_version(&text) {
            prop_assert_eq!(escape_version(&version), Ok(text));
        }
    }

    #[test]
    fn a_prefix_covers_what_it_overlaps(
        prefix in "go a\\.b(/[a-cA-C]){0,2}", name in "go a\\.b(/[a-cA-C]){0,3}"
    ) {
        let prefix: NamePrefix = prefix.parse().unwrap();
        let name: RegistryName = name.parse().unwrap();
        let exact: NamePrefix = name.to_string().parse().unwrap();
        prop_assert!(!prefix.covers(&name) || prefix.overlaps(&exact));
    }
}
