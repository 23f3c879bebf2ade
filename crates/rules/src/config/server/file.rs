//! Reads the file of `--config`: the settings of flags and variables, with the names of the flags as keys (reference
//! 10). The file may contain secrets, so messages never show a line with a secret.

use std::collections::BTreeMap;

use super::SETTINGS;
use super::absent::{ABSENT, UnsupportedFlag};
use super::problems::{StartupProblem, StartupWarning};
use super::setting::{Setting, ValueKind};
use super::unknown::nearest_flag;
use crate::config::yaml::{self, FilePosition, Located, YamlNode, YamlValue, shown};

/// Content of a settings file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SettingsFile {
    path: String,
    entries: BTreeMap<&'static str, FileSetting>,
    readable_by_all: bool,
}

/// Value of one setting, and its place in the file.
#[derive(Clone, PartialEq, Eq)]
struct FileSetting {
    text: String,
    place: FilePosition,
    /// The line and the underlined part. Empty if it could show a secret.
    excerpt: Vec<String>,
}

/// The setting or missing flag that a key names.
enum KnownKey {
    Setting(&'static Setting),
    Absent(&'static UnsupportedFlag),
}

impl KnownKey {
    fn find(name: &str) -> Option<Self> {
        let is_it = |setting: &&Setting| setting.flag == name || setting.aliases.contains(&name);
        let setting = SETTINGS.iter().find(is_it).map(Self::Setting);
        setting.or_else(|| {
            ABSENT
                .iter()
                .find(|absent| absent.flag == name)
                .map(Self::Absent)
        })
    }

    fn flag(&self) -> &'static str {
        match self {
            Self::Setting(setting) => setting.flag,
            Self::Absent(absent) => absent.flag,
        }
    }

    fn kind(&self) -> ValueKind {
        match self {
            Self::Setting(setting) => setting.kind,
            Self::Absent(absent) => absent.kind,
        }
    }
}

impl SettingsFile {
    /// Maximum size of the file, in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Parses the file. Returns its problems together with the settings that could be read, so that they appear in
    /// one list with the problems of the flags.
    pub fn parse(path: &str, text: &str) -> (Self, Vec<StartupProblem>) {
        let mut file = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let mut problems = Vec::new();
        if text.len() > Self::MAX_BYTES {
            let what = format!("the file is larger than {} bytes", Self::MAX_BYTES);
            problems.push(StartupProblem::about(
                path,
                what,
                "write one line per setting",
            ));
            return (file, problems);
        }
        match yaml::read(text) {
            Ok(None) => {}
            Ok(Some(YamlNode { value: YamlValue::Map(entries), .. })) => {
                let problem = |(key, node): &(Located, YamlNode)| file.take(text, key, node).err();
                problems.extend(entries.iter().filter_map(problem));
            }
            Ok(Some(node)) => problems.push(file.wrong_at(
                node.place,
                "the file is not a mapping",
                "write `flag: value` lines, such as `port: 4141`",
            )),
            // Messages of the YAML reader can repeat text of the file, so they are not shown.
            Err(yaml::YamlProblem { place, .. }) => problems.push(file.wrong_at(
                place.unwrap_or(FilePosition::START),
                "this is not valid YAML, or a key is given twice",
                "check this place and the line before it; put texts with special characters in quotes",
            )),
        }
        (file, problems)
    }

    /// Marks the file as readable by every account of the machine.
    #[must_use]
    pub fn readable_by_all(self) -> Self {
        Self {
            readable_by_all: true,
            ..self
        }
    }

    /// Returns the value of a flag and its place in the file. An empty value counts as not set.
    pub(super) fn value(&self, flag: &str) -> Option<(&str, String)> {
        let entry = self
            .entries
            .get(flag)
            .filter(|entry| !entry.text.is_empty())?;
        Some((&entry.text, self.position(entry.place)))
    }

    /// Returns the lines of the file to show for a flag.
    pub(super) fn excerpt(&self, flag: &str) -> Vec<String> {
        self.entries
            .get(flag)
            .map(|entry| entry.excerpt.clone())
            .unwrap_or_default()
    }

    /// Returns a warning if every account of the machine can read secrets in the file.
    pub(super) fn warning(&self) -> Option<StartupWarning> {
        let is_secret =
            |flag: &&&str| KnownKey::find(flag).is_some_and(|known| known.kind().is_secret());
        let first = self
            .entries
            .keys()
            .find(is_secret)
            .filter(|_| self.readable_by_all)?;
        let sentence = "every user of this machine can read it; remove that right with: chmod o-r";
        Some(StartupWarning::about(format!(
            "{} contains secrets (`{first}`), and {sentence} {}",
            self.path, self.path
        )))
    }

    fn take(&mut self, source: &str, key: &Located, node: &YamlNode) -> Result<(), StartupProblem> {
        let known = self.known(key)?;
        let text = value_text(known.kind(), node).map_err(|expected| {
            let what = format!("`{}` must be {expected}", known.flag());
            self.wrong_at(node.place, &what, &format!("write {expected} here"))
        })?;
        let excerpt = if known.kind().is_secret() {
            Vec::new()
        } else {
            yaml::excerpt(source, node.place)
        };
        let entry = FileSetting {
            text,
            place: node.place,
            excerpt,
        };
        match self.entries.insert(known.flag(), entry) {
            None => Ok(()),
            Some(_) => Err(self.wrong_at(
                key.place,
                &format!("`{}` is given twice", known.flag()),
                "keep one of the two",
            )),
        }
    }

    fn known(&self, key: &Located) -> Result<KnownKey, StartupProblem> {
        let name = key.text.as_str();
        match (name, KnownKey::find(name)) {
            ("config", _) => Err(self.wrong_at(key.place, "`config` cannot be set in the file that it names", "remove it")),
            ("webhooks", _) => Err(self.wrong_at(
                key.place,
                "`webhooks` (messages about applies to other programs) are not available in this version yet",
                "remove it",
            )),
            (_, Some(known)) => Ok(known),
            (_, None) => {
                let fix = match nearest_flag(&name.replace('_', "-").to_ascii_lowercase()) {
                    Some(flag) => format!("did you mean `{flag}`?"),
                    None => "remove it; the keys are the names of flags, see `lockkeeper server --help`".to_owned(),
                };
                Err(self.wrong_at(key.place, &format!("the setting `{}` does not exist", shown(name)), &fix))
            }
        }
    }

    fn position(&self, FilePosition { line, column, .. }: FilePosition) -> String {
        format!("{}:{line}:{column}", self.path)
    }

    fn wrong_at(&self, place: FilePosition, what: &str, fix: &str) -> StartupProblem {
        StartupProblem::about(self.position(place), what, fix)
    }
}

/// Returns the value in the syntax of a flag, or a description of the expected value.
fn value_text(kind: ValueKind, node: &YamlNode) -> Result<String, &'static str> {
    match (&node.value, separator(kind)) {
        (YamlValue::Null, _) => Ok(String::new()),
        (YamlValue::Scalar(_, text), _) => Ok(text.clone()),
        (YamlValue::List(items), Some(separator)) => {
            let texts: Option<Vec<&str>> = items.iter().map(scalar).collect();
            texts
                .map(|texts| texts.join(separator))
                .ok_or("a text, or a list of texts")
        }
        (_, Some(_)) => Err("a text, or a list of texts"),
        (_, None) => Err(match kind {
            ValueKind::Switch => "`true` or `false`",
            ValueKind::Number(..) => "a number",
            ValueKind::Text
            | ValueKind::Secret
            | ValueKind::Secrets
            | ValueKind::List
            | ValueKind::Duration
            | ValueKind::Size
            | ValueKind::Path
            | ValueKind::Choice(_) => "a text",
        }),
    }
}

fn scalar(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Scalar(_, text) => Some(text),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}

/// Returns the separator between several values of one setting.
fn separator(kind: ValueKind) -> Option<&'static str> {
    match kind {
        ValueKind::List => Some(","),
        ValueKind::Secrets => Some("\n"),
        ValueKind::Text
        | ValueKind::Secret
        | ValueKind::Switch
        | ValueKind::Number(..)
        | ValueKind::Duration
        | ValueKind::Size
        | ValueKind::Path
        | ValueKind::Choice(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let (_, problems) = SettingsFile::parse("server.yaml", text);
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn values_of_every_kind_are_read() {
        let text = "port: 80\nallow-fork-prs: yes\nrepo-allowlist: [github.com/a/*, github.com/b/*]\nlog-level:\n\
                    gh-webhook-secret: [a, 'b']\npublic-url: https://x\nvar-file-allowlist: /a,/b\n";
        let (file, problems) = SettingsFile::parse("s.yaml", text);
        assert_eq!(problems, []);
        for (flag, expected) in [
            ("port", Some(("80", "s.yaml:1:7"))),
            ("allow-fork-prs", Some(("yes", "s.yaml:2:17"))),
            (
                "repo-allowlist",
                Some(("github.com/a/*,github.com/b/*", "s.yaml:3:17")),
            ),
            ("log-level", None),
            ("gh-webhook-secret", Some(("a\nb", "s.yaml:5:20"))),
            ("atlantis-url", Some(("https://x", "s.yaml:6:13"))),
            ("var-file-allowlist", Some(("/a,/b", "s.yaml:7:21"))),
            ("gh-user", None),
        ] {
            let value = file.value(flag);
            assert_eq!(
                value.as_ref().map(|(text, place)| (*text, place.as_str())),
                expected,
                "{flag}"
            );
        }
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let text = "gh_user: kim\nprot: 80\nwebhooks: []\nconfig: x\nport: [80]\nallow-fork-prs: {}\nzzz: 1\n\
                    public-url: a\natlantis-url: b\nrepo-allowlist: [[a]]\n";
        insta::assert_snapshot!(problems(text), @"
        server.yaml:1:1: the setting `gh_user` does not exist
             Fix: did you mean `gh-user`?
        server.yaml:2:1: the setting `prot` does not exist
             Fix: did you mean `port`?
        server.yaml:3:1: `webhooks` (messages about applies to other programs) are not available in this version yet
             Fix: remove it
        server.yaml:4:1: `config` cannot be set in the file that it names
             Fix: remove it
        server.yaml:5:7: `port` must be a number
             Fix: write a number here
        server.yaml:6:17: `allow-fork-prs` must be `true` or `false`
             Fix: write `true` or `false` here
        server.yaml:7:1: the setting `zzz` does not exist
             Fix: remove it; the keys are the names of flags, see `lockkeeper server --help`
        server.yaml:9:1: `atlantis-url` is given twice
             Fix: keep one of the two
        server.yaml:10:17: `repo-allowlist` must be a text, or a list of texts
             Fix: write a text, or a list of texts here
        ");
    }

    #[test]
    fn a_file_that_is_no_mapping_is_refused_and_an_empty_one_says_nothing() {
        assert_eq!(
            (problems(""), problems("# nothing\n")),
            (String::new(), String::new())
        );
        insta::assert_snapshot!(problems("- port: 80\n"), @"
        server.yaml:1:1: the file is not a mapping
             Fix: write `flag: value` lines, such as `port: 4141`
        ");
        let large = " ".repeat(SettingsFile::MAX_BYTES + 1);
        assert!(problems(&large).contains("the file is larger than 1048576 bytes"));
    }

    #[test]
    fn no_mistake_shows_what_may_be_a_secret() {
        for text in [
            "gh-token: {hunter2: x}",
            "gh-token: *hunter2",
            "gh-token: 'hunter2",
            "gh-tokn: hunter2",
            "gh-token: [hunter2",
            "gh-token: hunter2\ngh-token: hunter2",
            "gh-token: \"\\xhunter2\"",
            "gh-token: !hunter2 x",
            "hunter2",
            "gh-webhook-secret: [[hunter2]]",
        ] {
            let problems = problems(text);
            assert!(
                !problems.is_empty() && !problems.contains("hunter2"),
                "{text}: {problems}"
            );
        }
    }

    #[test]
    fn secrets_that_everybody_can_read_are_worth_a_warning() {
        let warning = |text, open| {
            let (file, _) = SettingsFile::parse("s.yaml", text);
            let file = if open { file.readable_by_all() } else { file };
            file.warning().map(|warning| warning.to_string())
        };
        assert_eq!(warning("gh-token: x", false), None);
        assert_eq!(warning("port: 80", true), None);
        let told = "s.yaml contains secrets (`gh-token`), and every user of this machine can read it; remove that right \
                    with: chmod o-r s.yaml";
        assert_eq!(warning("gh-token: x", true).as_deref(), Some(told));
    }
}
