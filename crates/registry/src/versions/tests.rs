use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::testing::{fixed_seed, go_vectors};

fn go(version: &str) -> GoVersion {
    version.parse().unwrap()
}

fn module(version: &str) -> ModuleVersion {
    version.parse().unwrap()
}

#[test]
fn go_finds_the_same_versions_canonical() {
    for vector in go_vectors("canonical") {
        let [text, expected] = vector[..] else {
            panic!("{vector:?}");
        };
        match text.parse::<GoVersion>() {
            Ok(version) => assert_eq!(version.to_string(), expected),
            Err(error) => assert_eq!(expected, "!", "{text}: {error}"),
        }
    }
}

#[test]
fn go_reads_the_same_from_a_pseudo_version() {
    for vector in go_vectors("pseudo") {
        match vector.as_slice() {
            [text, "!"] => {
                assert!(!go(text).is_pseudo(), "{text}");
                assert_eq!(go(text).pseudo(), Ok(None));
            }
            [text, base, time, revision] => {
                assert!(go(text).is_pseudo(), "{text}");
                match go(text).pseudo() {
                    Ok(pseudo) => {
                        let pseudo = pseudo.unwrap();
                        let found = pseudo.base.map(|base| base.to_string());
                        assert_eq!(found.unwrap_or_default(), *base, "{text}");
                        let found = pseudo.time.format("%Y-%m-%dT%H:%M:%SZ").to_string();
                        assert_eq!(found, *time);
                        assert_eq!(pseudo.revision, *revision);
                    }
                    Err(InvalidPseudoVersion::Time) => assert_eq!(*time, "!", "{text}"),
                    Err(InvalidPseudoVersion::Base) => assert_eq!(*base, "!", "{text}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn go_orders_versions_alike() {
    for vector in go_vectors("order") {
        let [one, other, expected] = vector[..] else {
            panic!("{vector:?}");
        };
        let (one, other) = (go(one), go(other));
        let compared = one.compare(&other);
        assert_eq!((compared as i8).to_string(), expected, "{one} {other}");
        assert!(compared == Ordering::Equal || one.cmp(&other) == compared);
    }
}

#[test]
fn go_takes_the_same_versions_of_a_path() {
    for vector in go_vectors("check") {
        let [path, version, expected] = vector[..] else {
            panic!("{vector:?}");
        };
        let key = VersionKey::go(path.parse().unwrap(), go(version));
        assert_eq!(key.is_ok().to_string(), expected, "{path} {version}");
    }
}

#[test]
fn a_version_that_go_refuses_is_refused_with_a_reason() {
    let error = |text: &str| text.parse::<GoVersion>().unwrap_err().to_string();
    for text in ["latest", "v1.2", "1.2.3", "v1.2.3 ", "v1.2.3+", ""] {
        assert_eq!(
            error(text),
            "a version of a Go module is written as `v1.2.3` or `v1.2.3-rc.1`"
        );
    }
    assert_eq!(
        error("v1.2.3+meta"),
        "a version of a Go module has no build metadata but `+incompatible`: write `v1.2.3`"
    );
    assert_eq!(
        error(&format!("v1.2.3-{}", "a".repeat(122))),
        "a version has at most 128 bytes"
    );
    let error = |text: &str| text.parse::<VersionKey>().unwrap_err().to_string();
    assert_eq!(
        error("go example.com/m/v2 v1.0.0"),
        "`example.com/m/v2` has versions `v2`, and `v1.0.0` is none of them"
    );
    assert_eq!(
        error("go example.com/m v2.0.0"),
        "`example.com/m` has versions `v0` and `v1`, and higher ones with `+incompatible`, and `v2.0.0` is none of them"
    );
    assert_eq!(
        error("go example.com/m v1.0.0+incompatible"),
        "`v1.0.0+incompatible` agrees with its module path, so it has no `+incompatible`"
    );
}

#[test]
fn a_version_of_terraform_is_one_of_semver() {
    let error = |text: &str| text.parse::<ModuleVersion>().unwrap_err().to_string();
    assert_eq!(
        error("v1.2.3"),
        "a version of a module has no leading `v`: write `1.2.3`"
    );
    for text in [
        "", "1", "1.2", "01.2.3", "1.2.3-01", "1.2.3.4", "v1", "1.2.3 ", "V1.2.3", "-1.2.3",
    ] {
        assert_eq!(
            error(text),
            "a version of a module is written as `1.2.3` or `1.2.3-rc.1`, by the rules of SemVer 2.0"
        );
    }
    assert_eq!(error(&"1".repeat(129)), "a version has at most 128 bytes");
}

#[test]
fn build_metadata_makes_no_second_version() {
    assert_eq!(module("1.2.3+linux"), module("1.2.3"));
    assert_eq!(module("1.2.3-rc.1+linux").to_string(), "1.2.3-rc.1");
}

#[test]
fn versions_of_terraform_are_ordered_by_precedence() {
    // The example of SemVer 2.0, and two releases.
    let ordered = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.2.0",
        "1.10.0",
    ];
    assert!(ordered.map(module).is_sorted());
    assert!(module("1.0.0-rc.1").is_prerelease() && !module("1.0.0").is_prerelease());
}

#[test]
fn the_latest_version_is_a_release_if_there_is_one() {
    let latest = |versions: &[&str]| {
        let versions: Vec<GoVersion> = versions.iter().map(|text| go(text)).collect();
        GoVersion::latest(&versions).map(ToString::to_string)
    };
    assert_eq!(latest(&[]), None);
    let pseudo = "v2.0.0-20191109021931-daa7c04131f5";
    assert_eq!(latest(&[pseudo]), None);
    assert_eq!(
        latest(&[pseudo, "v0.1.0-rc.2", "v0.1.0-rc.10"]).as_deref(),
        Some("v0.1.0-rc.10")
    );
    assert_eq!(
        latest(&["v0.2.0", "v1.0.0-rc.1", "v0.10.0", pseudo]).as_deref(),
        Some("v0.10.0")
    );
    assert_eq!(
        latest(&["v1.0.0", "v2.0.0+incompatible"]).as_deref(),
        Some("v2.0.0+incompatible")
    );
}

#[test]
fn a_key_names_kind_name_and_version() {
    let key: VersionKey = "module Acme/vpc/aws 1.2.3".parse().unwrap();
    assert_eq!(key.to_string(), "module acme/vpc/aws 1.2.3");
    assert_eq!((key.kind(), key.as_go()), (NameKind::Module, None));
    assert_eq!(key.name().as_str(), "acme/vpc/aws");
    assert_eq!(key.version(), "1.2.3");
    let key: VersionKey = "go example.com/m/v2 v2.0.0".parse().unwrap();
    let (path, version) = key.as_go().unwrap();
    assert_eq!((path.major_suffix(), version), ("/v2", &go("v2.0.0")));
    for text in [
        "",
        "module",
        "module 1.2.3",
        "module acme/vpc/aws",
        "go example.com/m  v1.0.0",
    ] {
        assert!(text.parse::<VersionKey>().is_err(), "{text}");
    }
}

/// Returns a strategy for canonical versions of Go.
fn any_version() -> impl Strategy<Value = String> {
    "v[0-3]\\.[0-2]\\.[0-2](-(rc\\.[0-2]|0|rc\\.0\\.20191109021931-ab12|20191109021931-ab12|0\\.20191109021931-ab12))?(\\+incompatible)?"
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_version_that_is_read_is_written_alike(text in any_version().boxed().prop_union(".{0,20}".boxed())) {
        if let Ok(version) = text.parse::<GoVersion>() {
            prop_assert_eq!(version.to_string(), text.clone());
        }
        if let Ok(version) = text.parse::<ModuleVersion>() {
            prop_assert!(text.starts_with(&version.to_string()));
        }
    }

    #[test]
    fn the_order_is_total(texts in [any_version(), any_version(), any_version()]) {
        let mut versions = texts.map(|text| go(&text));
        versions.sort();
        let [a, b, c] = versions;
        prop_assert!(a <= c && a.compare(&b) != Ordering::Greater && a.compare(&c) != Ordering::Greater);
        prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
    }

    #[test]
    fn the_latest_version_does_not_depend_on_order(
        versions in proptest::collection::vec(any_version().prop_map(|text| go(&text)), 0..8),
        other in any_version().prop_map(|text| go(&text)),
    ) {
        let mut reversed = versions.clone();
        reversed.reverse();
        prop_assert_eq!(GoVersion::latest(&versions), GoVersion::latest(&reversed));
        let latest = GoVersion::latest(&versions).cloned();
        let with_other = [versions, vec![other.clone()]].concat();
        let now = GoVersion::latest(&with_other).cloned();
        prop_assert!(now == latest || now == Some(other));
    }

    #[test]
    fn the_base_of_a_pseudo_version_precedes_it(text in any_version()) {
        if let Ok(Some(PseudoVersion { base: Some(base), .. })) = go(&text).pseudo() {
            prop_assert_eq!(base.compare(&go(&text)), Ordering::Less);
        }
    }
}
