//! Texts of the command line, the environment and the settings file, before they are checked.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file::SettingsFile;
use super::setting::{Setting, ValueKind};
use crate::secret::Secret;

/// The texts of a configuration, which `cli/` reads.
#[derive(Clone, Default)]
pub struct RawSettings {
    /// Values of each flag in the order given, by the name of the flag without dashes (aliases resolved).
    pub flags: BTreeMap<String, Vec<String>>,
    /// Environment variables of the server.
    pub variables: BTreeMap<String, String>,
    /// Settings of the file of `--config`.
    pub settings_file: SettingsFile,
    /// Content of the files that settings name and that are part of the configuration, by the name of the flag. An
    /// error is the reason why a file cannot be read.
    pub files: BTreeMap<String, Result<String, String>>,
    /// Content of the files with secrets that the file of `--gh-hosts-file` names, by their absolute path. An error is
    /// the reason why a file cannot be read.
    pub secret_files: BTreeMap<PathBuf, Result<Secret, String>>,
    /// Home folder of the account that the server runs as.
    pub home: Option<PathBuf>,
    /// Folder in which the server was started.
    pub working_dir: PathBuf,
    /// Host name of this machine.
    pub hostname: String,
}

impl fmt::Debug for RawSettings {
    /// Shows the names of the flags, but no values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSettings")
            .field("flags", &self.flags.keys())
            .finish_non_exhaustive()
    }
}

/// A value and its source.
pub struct GivenValue<'a> {
    /// The value, never empty.
    pub text: &'a str,
    /// `--gh-user`, `ATLANTIS_GH_USER` or `server.yaml:3:10`.
    pub source: String,
    /// Kind of the value's source.
    pub by: SettingSource,
}

/// Sources of a setting. An earlier one overrides a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// A flag on the command line.
    Flag,
    /// A variable of the server's environment.
    Variable,
    /// The file of `--config`.
    File,
}

impl RawSettings {
    /// Returns the value of a setting: the last flag that is not empty, else the first variable that is not empty,
    /// else the value of the file.
    pub fn given(&self, setting: &Setting) -> Option<GivenValue<'_>> {
        self.flag(setting.flag)
            .or_else(|| self.variable(setting))
            .or_else(|| self.in_file(setting.flag))
    }

    pub(super) fn in_file(&self, flag: &str) -> Option<GivenValue<'_>> {
        let (text, source) = self.settings_file.value(flag)?;
        Some(GivenValue {
            text,
            source,
            by: SettingSource::File,
        })
    }

    pub(super) fn flag(&self, flag: &str) -> Option<GivenValue<'_>> {
        let text = self
            .flags
            .get(flag)?
            .iter()
            .rev()
            .find(|text| !text.is_empty())?;
        Some(GivenValue {
            text,
            source: format!("--{flag}"),
            by: SettingSource::Flag,
        })
    }

    fn variable(&self, setting: &Setting) -> Option<GivenValue<'_>> {
        let is_number = matches!(setting.kind, ValueKind::Number(..));
        setting
            .variables()
            .find_map(|name| self.named_variable(name, is_number))
    }

    /// Returns the value of a variable. An empty value counts as unset. For a number, so does the address that
    /// Kubernetes puts into `<SERVICE>_PORT` (reference 10).
    pub(super) fn named_variable(&self, name: String, is_number: bool) -> Option<GivenValue<'_>> {
        let text = self.variables.get(&name).filter(|text| !text.is_empty())?;
        (!is_number || !is_service_link(text)).then(|| GivenValue {
            text,
            source: name,
            by: SettingSource::Variable,
        })
    }

    /// Makes a path absolute: `~/` is the home folder, and a relative path starts at the working folder.
    pub fn absolute(&self, text: &str) -> PathBuf {
        match (
            text.strip_prefix("~/").or((text == "~").then_some("")),
            &self.home,
        ) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.working_dir.join(Path::new(text)),
        }
    }
}

/// Returns true for a value such as `tcp://10.0.0.1:4141`.
pub(super) fn is_service_link(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("udp://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::setting::SettingGroup;

    const PORT: Setting = Setting::number(SettingGroup::Web, "", "port", "N", 0, 65535);

    fn raw(flags: &[&str], variables: &[(&str, &str)]) -> RawSettings {
        let flags = flags.iter().map(|&text| text.to_owned()).collect();
        let variables = variables
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        RawSettings {
            flags: BTreeMap::from([("port".to_owned(), flags)]),
            variables,
            ..RawSettings::default()
        }
    }

    #[test]
    fn a_flag_wins_over_our_variable_and_that_over_the_one_of_atlantis() {
        let ours = ("LOCKKEEPER_PORT", "2");
        let theirs = ("ATLANTIS_PORT", "3");
        for (flags, variables, expected) in [
            (vec!["0", "1"], vec![ours, theirs], Some("1")),
            (vec![""], vec![ours, theirs], Some("2")),
            (vec![], vec![("LOCKKEEPER_PORT", ""), theirs], Some("3")),
            (
                vec![],
                vec![("LOCKKEEPER_PORT", "tcp://10.0.0.1:80"), theirs],
                Some("3"),
            ),
            (vec![], vec![("ATLANTIS_PORT", "udp://10.0.0.1:80")], None),
        ] {
            let raw = raw(&flags, &variables);
            assert_eq!(
                raw.given(&PORT).map(|given| given.text),
                expected,
                "{flags:?} {variables:?}"
            );
        }
    }

    #[test]
    fn paths_become_absolute() {
        let raw = RawSettings {
            home: Some("/home/kim".into()),
            working_dir: "/srv".into(),
            ..RawSettings::default()
        };
        for (text, expected) in [
            ("~/x", "/home/kim/x"),
            ("~", "/home/kim/"),
            ("a/b", "/srv/a/b"),
            ("/a", "/a"),
            ("~other/x", "/srv/~other/x"),
        ] {
            assert_eq!(raw.absolute(text), PathBuf::from(expected), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_values() {
        let raw = raw(&["ghp_flag"], &[("ATLANTIS_GH_TOKEN", "ghp_variable")]);
        assert!(!format!("{raw:?}").contains("ghp_"));
    }
}
