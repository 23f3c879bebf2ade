//! Reads from the manifest of an `init` which modules it has installed from registries.
//!
//! The manifest is beside the code of the pull request, so it is as hostile as that code: it is read without following
//! links, up to a size, and anything that is not as Terraform writes it is an error.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::inside;

/// Manifest in the data directory of Terraform and OpenTofu.
const MANIFEST: &str = "modules/modules.json";

/// Maximum size of the manifest in bytes. One with 10,000 modules has about 2 MB.
const MAX_BYTES: u64 = 16 << 20;

/// Maximum number of modules in the manifest.
const MAX_MODULES: usize = 20_000;

/// A module that `init` has installed from a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledModule {
    /// Address of the module, such as `mods.example.com/acme/vpc/aws`, without a directory in its package.
    pub source: String,
    /// Version that was chosen.
    pub version: String,
}

/// Content of the manifest, as far as it is needed.
#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "Modules")]
    modules: ManifestEntries,
}

/// Modules in the manifest, with at most one more than [`MAX_MODULES`]. An empty entry has two characters in the file and
/// many more bytes in memory, so further ones are not kept.
struct ManifestEntries(Vec<ManifestEntry>);

impl<'de> Deserialize<'de> for ManifestEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = ManifestEntries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of modules")
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut list: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while entries.len() <= MAX_MODULES {
            let Some(entry) = list.next_element()? else {
                return Ok(ManifestEntries(entries));
            };
            entries.push(entry);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(ManifestEntries(entries))
    }
}

#[derive(Deserialize)]
struct ManifestEntry {
    #[serde(rename = "Source", default)]
    source: String,
    /// Version, for modules from registries alone.
    #[serde(rename = "Version", default)]
    version: Option<String>,
}

/// Lists the modules from registries that are installed for a project, each once. `data_dir` is the data directory of
/// the tool.
pub(super) fn read(project: &Path, data_dir: &Path) -> Result<Vec<InstalledModule>> {
    let (dir, file) = match data_dir.strip_prefix(project) {
        Ok(below) => (project, below.join(MANIFEST)),
        Err(_) => (data_dir, PathBuf::from(MANIFEST)),
    };
    match inside::read(dir, &file, MAX_BYTES) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(text)) => parse_manifest(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the text of a manifest.
pub fn parse_manifest(text: &str) -> Result<Vec<InstalledModule>> {
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| {
        // The text of the error can have all of the manifest in it.
        let what = format!("line {} is not as Terraform writes it", error.line());
        Error::new(ErrorKind::InvalidData, what)
    })?;
    let ManifestEntries(entries) = manifest.modules;
    if entries.len() > MAX_MODULES {
        let what = format!("it lists more than {MAX_MODULES} modules");
        return Err(Error::new(ErrorKind::InvalidData, what));
    }
    let installed = entries.into_iter().filter_map(|entry| {
        let version = entry.version.filter(|version| !version.is_empty())?;
        let source = entry.source.split("//").next().unwrap_or_default();
        Some(InstalledModule {
            source: source.to_owned(),
            version,
        })
    });
    let mut installed: Vec<InstalledModule> = installed.collect();
    installed.sort();
    installed.dedup();
    Ok(installed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use serde_json::json;

    use super::*;

    /// Returns a configuration with a fixed seed, or with the one of the variable `PROPTEST_RNG_SEED`.
    fn fixed_seed() -> ProptestConfig {
        let default = ProptestConfig::default();
        ProptestConfig {
            failure_persistence: None,
            rng_seed: match default.rng_seed {
                RngSeed::Random => RngSeed::Fixed(19),
                chosen @ RngSeed::Fixed(_) => chosen,
            },
            ..default
        }
    }

    /// Manifest that Terraform 1.11 has written.
    const WRITTEN: &str = r#"{"Modules":[
        {"Key":"","Source":"","Dir":"."},
        {"Key":"a","Source":"mods.example.com/acme/vpc/aws","Version":"1.2.3","Dir":".terraform/modules/a"},
        {"Key":"a.b","Source":"mods.example.com/acme/vpc/aws//modules/b","Version":"1.2.3","Dir":".terraform/modules/a.b/modules/b"},
        {"Key":"c","Source":"registry.terraform.io/x/y/z","Version":"2.0.0","Dir":".terraform/modules/c"},
        {"Key":"d","Source":"./d","Dir":"d"},
        {"Key":"e","Source":"git::https://example.com/e","Dir":".terraform/modules/e"}]}"#;

    fn shown(read: Result<Vec<InstalledModule>>) -> Result<Vec<String>> {
        let shown = |module: InstalledModule| format!("{} {}", module.source, module.version);
        read.map(|modules| modules.into_iter().map(shown).collect())
    }

    #[test]
    fn modules_of_registries_are_listed_once() {
        assert_eq!(
            shown(parse_manifest(WRITTEN)).unwrap(),
            [
                "mods.example.com/acme/vpc/aws 1.2.3",
                "registry.terraform.io/x/y/z 2.0.0"
            ]
        );
        let many = vec![r#"{"Source":"a/b/c/d","Version":"1.0.0"}"#; MAX_MODULES + 1];
        for text in [
            "",
            "[]",
            "{}",
            r#"{"Modules":{}}"#,
            r#"{"Modules":[{"Source":1}]}"#,
            &format!(r#"{{"Modules":[{}]}}"#, many.join(",")),
        ] {
            assert!(
                parse_manifest(text).is_err(),
                "{}",
                &text[..text.len().min(50)]
            );
        }
    }

    #[test]
    fn entries_that_are_too_many_are_not_kept() {
        for (count, kept) in [(MAX_MODULES, MAX_MODULES), (1_000_000, MAX_MODULES + 1)] {
            let text = format!(r#"{{"Modules":[{}]}}"#, vec!["{}"; count].join(","));
            let manifest: Manifest = serde_json::from_str(&text).unwrap();
            assert_eq!(manifest.modules.0.len(), kept);
            assert_eq!(parse_manifest(&text).is_ok(), count == MAX_MODULES);
        }
    }

    #[test]
    fn the_manifest_is_read_wherever_the_data_directory_is_and_never_behind_a_link() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        for dir in [
            "project/.terraform/modules",
            "data/modules",
            "linked/.terraform",
        ] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        for dir in ["project/.terraform", "data"] {
            std::fs::write(at(dir).join(MANIFEST), WRITTEN).unwrap();
        }
        symlink(at("data/modules"), at("linked/.terraform/modules")).unwrap();
        for (project, data_dir, expected) in [
            ("project", "project/.terraform", Some(2)),
            ("project", "data", Some(2)),
            ("project", "project/other", Some(0)),
            ("project", "elsewhere", Some(0)),
            ("linked", "linked/.terraform", None),
        ] {
            let read = read(&at(project), &at(data_dir)).ok();
            assert_eq!(read.map(|modules| modules.len()), expected, "{data_dir}");
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_makes_it_panic(text in r#"([{}\[\],:" a-z0-9]|"Modules":\[|"Source":|"Version":|"a/b//c"|null|\\u0000){0,40}"#) {
            drop(parse_manifest(&text));
        }

        #[test]
        fn modules_are_read_as_they_were_written(
            modules in proptest::collection::vec(
                ("[a-z.]{1,8}(/[a-z]{1,4}){3}", "(//[a-z]{1,4}){0,2}", proptest::option::of("[0-9.]{0,6}")),
                0..12,
            ),
        ) {
            let entries = modules.iter().map(|(source, dir, version)| match version {
                Some(version) => json!({"Key": "a", "Source": format!("{source}{dir}"), "Version": version, "Dir": "."}),
                None => json!({"Key": "a", "Source": format!("{source}{dir}"), "Dir": "."}),
            });
            let text = json!({"Modules": entries.collect::<Vec<_>>()}).to_string();
            let expected = modules.iter().filter_map(|(source, _, version)| {
                let version = version.clone().filter(|version| !version.is_empty())?;
                Some(InstalledModule { source: source.clone(), version })
            });
            let expected: BTreeSet<InstalledModule> = expected.collect();
            let expected: Vec<InstalledModule> = expected.into_iter().collect();
            prop_assert_eq!(parse_manifest(&text).unwrap(), expected);
        }
    }
}
