//! Finds uses of the registry in the files of a commit.

use std::collections::BTreeSet;

use lockkeeper_registry::go_mod::required_modules;
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::versions::VersionKey;

use super::store::BranchUse;
use crate::discovery::{RemoteCall, VersionConstraint, remote_calls};
use crate::model::RepoPath;

/// Endings of files with code.
const ENDINGS: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
/// File with the requirements of a Go module.
const GO_MOD: &str = "go.mod";
/// Directory of Terraform. What it has belongs to nobody's code.
const TOOL_DIRECTORY: &str = ".terraform";
/// Maximum length of a constraint, and of a name, in bytes. Nobody writes longer ones, and an index has both.
const MAX_WANTED: usize = 150;
const MAX_NAME: usize = 512;

/// Returns true for files that may use the registry.
pub(super) fn is_wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let may_use = name == GO_MOD || ENDINGS.iter().any(|ending| name.ends_with(ending));
    may_use && !path.split('/').any(|part| part == TOOL_DIRECTORY)
}

/// Returns everything that the files use: modules with this host in their sources, and all required Go modules. Files that
/// cannot be read use nothing. The search ends at `most` uses, because a small repository can have the same file in many
/// directories.
pub(super) fn uses_in(
    host: &str,
    files: &[(RepoPath, Vec<u8>)],
    most: usize,
) -> BTreeSet<BranchUse> {
    let mut uses = BTreeSet::new();
    for (path, content) in files {
        for used in uses_of_file(host, path, content) {
            if uses.len() >= most {
                return uses;
            }
            uses.insert(used);
        }
    }
    uses
}

fn uses_of_file(host: &str, path: &RepoPath, content: &[u8]) -> Vec<BranchUse> {
    let dir = path.parent();
    if path.file_name() == GO_MOD {
        let required = required_modules(content).unwrap_or_default();
        required
            .iter()
            .filter_map(|(name, version)| of_go(&dir, name, version))
            .collect()
    } else if let Ok(text) = std::str::from_utf8(content) {
        let calls = remote_calls(path, text);
        calls
            .iter()
            .filter_map(|call| of_call(host, &dir, call))
            .collect()
    } else {
        Vec::new()
    }
}

fn of_go(dir: &RepoPath, name: &str, version: &str) -> Option<BranchUse> {
    let name = read_name(NameKind::Go, name)?;
    let key = VersionKey::new(name.clone(), version).ok()?;
    (key.version().len() <= MAX_WANTED).then(|| BranchUse {
        dir: dir.clone(),
        name,
        wanted: key.version(),
        version: Some(key),
    })
}

fn of_call(host: &str, dir: &RepoPath, call: &RemoteCall) -> Option<BranchUse> {
    let (source_host, rest) = call.source.split_once('/')?;
    if !source_host.eq_ignore_ascii_case(host) {
        return None;
    }
    // A directory of the package follows.
    let name = rest.split("//").next().unwrap_or_default();
    let name = read_name(NameKind::Module, name)?;
    let wanted = call.version.as_deref().unwrap_or_default().trim();
    let wanted = wanted.chars().filter(|c| matches!(c, ' '..='~'));
    let wanted: String = wanted.take(MAX_WANTED).collect();
    let constraint: Option<VersionConstraint> = wanted.parse().ok();
    let version = constraint.and_then(|constraint| {
        let exact = constraint.exact()?.to_string();
        VersionKey::new(name.clone(), &exact).ok()
    });
    Some(BranchUse {
        dir: dir.clone(),
        name,
        wanted,
        version,
    })
}

fn read_name(kind: NameKind, name: &str) -> Option<RegistryName> {
    let name = RegistryName::new(kind, name).ok();
    name.filter(|name| name.as_str().len() <= MAX_NAME)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    fn contents(files: &[(&str, &str)]) -> Vec<(RepoPath, Vec<u8>)> {
        files
            .iter()
            .map(|(path, text)| (path.parse().unwrap(), text.as_bytes().to_vec()))
            .collect()
    }

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let shown = |used: &BranchUse| {
            let version = used.version.as_ref().map(VersionKey::version);
            let version = version.unwrap_or_else(|| "several".to_owned());
            let (dir, name) = (&used.dir, used.name.as_str());
            format!("{dir} {name} [{}] {version}", used.wanted)
        };
        uses_in("mods.example.com", &contents(files), usize::MAX)
            .iter()
            .map(shown)
            .collect()
    }

    fn call(source: &str, version: &str) -> String {
        format!("module \"x\" {{\n  source  = \"{source}\"\n  version = \"{version}\"\n}}\n")
    }

    #[test]
    fn modules_with_the_host_of_the_registry_count() {
        let live = [
            call("mods.example.com/acme/vpc/aws", "1.2.3"),
            call("MODS.example.com/acme/vpc/aws//modules/sub", "~> 1.2"),
            call("mods.example.com/acme/vpc/aws", "= 1.2.3"),
            call("mods.example.com/acme/dns/aws", ""),
            call("mods.example.com.evil/acme/vpc/aws", "1.0.0"),
            call("registry.terraform.io/acme/vpc/aws", "1.0.0"),
            call("acme/vpc/aws", "1.0.0"),
            call("mods.example.com/acme", "1.0.0"),
            call("git::https://mods.example.com/acme/vpc.git", ""),
        ];
        assert_eq!(
            uses(&[("live/main.tf", &live.concat()), ("other/x.tf", &live[0])]),
            [
                "live acme/dns/aws [] several",
                "live acme/vpc/aws [1.2.3] 1.2.3",
                "live acme/vpc/aws [= 1.2.3] 1.2.3",
                "live acme/vpc/aws [~> 1.2] several",
                "other acme/vpc/aws [1.2.3] 1.2.3",
            ]
        );
    }

    #[test]
    fn required_go_modules_count() {
        let file = "module example.com/app\n\nrequire (\n\texample.com/net v1.0.0\n\texample.org/x v0.0.0-20240101000000-abcdefabcdef // indirect\n)\n";
        assert_eq!(
            uses(&[("go.mod", file), ("broken/go.mod", "require x\n")]),
            [
                ". example.com/net [v1.0.0] v1.0.0",
                ". example.org/x [v0.0.0-20240101000000-abcdefabcdef] v0.0.0-20240101000000-abcdefabcdef",
            ]
        );
    }

    #[test]
    fn the_search_ends_at_a_number_of_uses() {
        let calls = call("mods.example.com/acme/vpc/aws", "1.0.0");
        let file = "require (\n\texample.com/a v1.0.0\n\texample.com/b v1.0.0\n)\n";
        let files = contents(&[
            ("a/go.mod", file),
            ("b/go.mod", file),
            ("c/main.tf", &calls),
        ]);
        for (most, found) in [(0, 0), (3, 3), (5, 5), (6, 5)] {
            assert_eq!(uses_in("mods.example.com", &files, most).len(), found);
        }
    }

    #[test]
    fn only_code_is_read() {
        for path in ["main.tf", "a/b.tofu.json", "a/go.mod"] {
            assert!(is_wanted(path), "{path}");
        }
        for path in [
            "README.md",
            "a/.terraform/modules/x/main.tf",
            "my-go.mod",
            "go.mod/x",
        ] {
            assert!(!is_wanted(path), "{path}");
        }
    }

    /// Pieces of code and of `go.mod` files.
    const PIECES: &[&str] = &[
        "module",
        " \"x\" {\n",
        "}\n",
        "source = ",
        "version = ",
        "\"mods.example.com/acme/vpc/aws\"\n",
        "\"mods.example.com/acme/vpc/aws//a//b\"\n",
        "\"mods.example.com/\"\n",
        "\"~> 1.2, != 1.2.3\"\n",
        "\"1.2.3\"\n",
        "{\"module\": {\"x\": ",
        "{\"source\": \"mods.example.com/a/b/c\", \"version\": \"1.0\"}",
        "}}",
        "[",
        "]",
        "require",
        " (\n",
        ")\n",
        "example.com/m v1.0.0\n",
        "example.com/m/v2 v2.0.0 // indirect\n",
        "\u{feff}",
    ];

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_files_have_uses_of_a_limited_size(text in texts_of(PIECES), most in 0..8_usize) {
            let files = ["a/main.tf", "a/b.tofu", "main.tf.json", "go.mod"].map(|path| (path, text.as_str()));
            let uses = uses_in("mods.example.com", &contents(&files), most);
            prop_assert!(uses.len() <= most);
            for used in uses {
                prop_assert!(used.wanted.len() <= MAX_WANTED && used.wanted.is_ascii(), "{used:?}");
                prop_assert!(used.name.as_str().len() <= MAX_NAME, "{used:?}");
                let of_name = used.version.is_none_or(|version| version.name() == used.name);
                prop_assert!(of_name, "a version of another name");
            }
        }
    }
}
