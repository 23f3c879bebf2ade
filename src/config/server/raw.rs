//! What was said on the command line and in the environment, before anything is made of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file::SettingsFile;
use super::setting::{Kind, Setting};

/// The texts a configuration is made from, read by `cli/` and handed in.
#[derive(Clone, Default)]
pub struct RawSettings {
    /// Values of each flag in the order given, by the name of the flag without dashes (aliases resolved).
    pub flags: BTreeMap<String, Vec<String>>,
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// What the file of `--config` says.
    pub settings_file: SettingsFile,
    /// What is in the files that settings name and that are part of the configuration, by the name of the flag; or why
    /// they cannot be read.
    pub files: BTreeMap<String, Result<String, String>>,
    /// Home folder of the account the server runs as.
    pub home: Option<PathBuf>,
    /// Folder the server was started in.
    pub working_dir: PathBuf,
    /// Name of this machine.
    pub hostname: String,
}

impl fmt::Debug for RawSettings {
    /// Shows which texts there are, not what they say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSettings")
            .field("flags", &self.flags.keys())
            .finish_non_exhaustive()
    }
}

/// A value and who said it.
pub struct Given<'a> {
    /// The value, never empty.
    pub text: &'a str,
    /// `--gh-user`, `ATLANTIS_GH_USER` or `server.yaml:3:10`.
    pub source: String,
    /// Which way it was said.
    pub by: Giver,
}

/// The ways to set something; an earlier one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// On the command line.
    Flag,
    /// In the environment.
    Variable,
    /// In the file of `--config`.
    File,
}

impl RawSettings {
    /// What somebody said about a setting: the last flag that is not empty, else the first variable that is not, else
    /// the file.
    pub fn given(&self, setting: &Setting) -> Option<Given<'_>> {
        self.flag(setting.flag)
            .or_else(|| self.variable(setting))
            .or_else(|| self.in_file(setting.flag))
    }

    pub(super) fn in_file(&self, flag: &str) -> Option<Given<'_>> {
        let (text, source) = self.settings_file.value(flag)?;
        Some(Given {
            text,
            source,
            by: Giver::File,
        })
    }

    pub(super) fn flag(&self, flag: &str) -> Option<Given<'_>> {
        let text = self
            .flags
            .get(flag)?
            .iter()
            .rev()
            .find(|text| !text.is_empty())?;
        Some(Given {
            text,
            source: format!("--{flag}"),
            by: Giver::Flag,
        })
    }

    fn variable(&self, setting: &Setting) -> Option<Given<'_>> {
        let is_number = matches!(setting.kind, Kind::Number(..));
        setting
            .variables()
            .find_map(|name| self.named_variable(name, is_number))
    }

    /// Empty means unset; so does, where a number is wanted, the address that Kubernetes puts into
    /// `<SERVICE>_PORT` (reference 10).
    pub(super) fn named_variable(&self, name: String, is_number: bool) -> Option<Given<'_>> {
        let text = self.variables.get(&name).filter(|text| !text.is_empty())?;
        (!is_number || !is_service_link(text)).then(|| Given {
            text,
            source: name,
            by: Giver::Variable,
        })
    }

    /// `~/` is the home folder, a relative path starts at the working folder.
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

/// `tcp://10.0.0.1:4141`.
pub(super) fn is_service_link(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("udp://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::setting::Group;

    const PORT: Setting = Setting::new(Group::Web, "port", "N", Kind::Number(0, 65535), "");

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
