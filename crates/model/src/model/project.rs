//! Projects: a directory, a workspace and an optional name.

use std::fmt;
use std::str::FromStr;

use super::path::RepoPath;
use super::text::text_type;
use super::words::{is_hidden, literal_dir, quote};

/// Error for a text that is not a workspace or project name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {text:?}: {rule}")]
pub struct InvalidName {
    what: &'static str,
    text: String,
    rule: &'static str,
}

/// A Terraform workspace that is safe as a path segment and as an argument (reference 1.1, step 14).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceName(String);

impl WorkspaceName {
    /// Checks a name. The empty text stands for `default`.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let invalid = |rule| {
            Err(InvalidName {
                what: "workspace",
                text: text.to_owned(),
                rule,
            })
        };
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() > 255 {
            return invalid("it is longer than 255 bytes");
        }
        if text.contains(['/', '\\']) {
            return invalid("it must not contain a slash or backslash");
        }
        if text == "." || text.contains("..") {
            return invalid("it must not be `.` or contain `..`");
        }
        if text.starts_with(['-', '~']) {
            return invalid("it must not start with `-` or `~`");
        }
        if text.contains('$') || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return invalid("it must not contain `$`, white space or control characters");
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for `default`.
    pub fn is_default(&self) -> bool {
        self.0 == "default"
    }
}

impl Default for WorkspaceName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for WorkspaceName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(WorkspaceName);

/// A project's name from the repository configuration (reference 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectName(String);

impl ProjectName {
    /// Checks a name: letters, digits, `-`, `_`, `.`, `~` and `/`; not empty.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '/');
        if text.is_empty() || text.len() > 255 || !text.chars().all(fine) {
            return Err(InvalidName {
                what: "project name",
                text: text.to_owned(),
                rule: "1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/` are allowed",
            });
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ProjectName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(ProjectName);

/// Key of a project in its repository.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ProjectKey {
    /// Directory with Terraform code.
    pub dir: RepoPath,
    /// Workspace of the project.
    pub workspace: WorkspaceName,
    /// Name from the repository configuration.
    pub name: Option<ProjectName>,
}

impl ProjectKey {
    /// Returns the project of a directory in the default workspace, without a name.
    pub fn of_dir(dir: RepoPath) -> Self {
        Self {
            dir,
            workspace: WorkspaceName::default(),
            name: None,
        }
    }

    /// Returns the name, or else `dir/workspace`: the last part of a per-project status (reference 9.1).
    pub fn status_id(&self) -> String {
        self.name.as_ref().map_or_else(
            || format!("{}/{}", self.dir, self.workspace),
            ToString::to_string,
        )
    }

    /// Returns the shortest flags that name this project in a comment (reference 1.4), quoted as comments are read:
    /// `-p net`, `-d .`, `-d a -w prod`. `None` means that no comment can name it, because of an invisible character.
    pub fn flags(&self) -> Option<String> {
        if let Some(name) = &self.name {
            return Some(flag('p', "project", name.as_str()));
        }
        if self.dir.as_str().contains(is_hidden) || self.workspace.as_str().contains(is_hidden) {
            return None;
        }
        let (dir, workspace) = (literal_dir(self.dir.as_str()), self.workspace.as_str());
        Some(match (self.dir.is_root(), self.workspace.is_default()) {
            (_, true) => flag('d', "dir", &dir),
            (true, false) => flag('w', "workspace", workspace),
            (false, false) => format!(
                "{} {}",
                flag('d', "dir", &dir),
                flag('w', "workspace", workspace)
            ),
        })
    }
}

/// Formats a flag with its value, in one word if the value could be read as a flag itself.
fn flag(short: char, long: &str, value: &str) -> String {
    if value.starts_with('-') {
        format!("--{long}={}", quote(value))
    } else {
        format!("-{short} {}", quote(value))
    }
}

impl fmt::Display for ProjectKey {
    /// Formats the label in comments: ``project: `net` dir: `infra/net` workspace: `default` ``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "project: `{name}` ")?;
        }
        write!(f, "dir: `{}` workspace: `{}`", self.dir, self.workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_rules_of_the_reference() {
        for text in [
            "a/b", "..", ".", "-x", "~x", "$x", "a b", "a\\b", "a\tb", "a..b",
        ] {
            assert!(WorkspaceName::new(text).is_err(), "{text:?}");
        }
        assert_eq!(WorkspaceName::new("a&b").unwrap().as_str(), "a&b");
        assert!(WorkspaceName::new("").unwrap().is_default());
    }

    #[test]
    fn flags_are_the_shortest_that_name_the_project() {
        let key = |dir: &str, ws: &str, name: Option<&str>| ProjectKey {
            dir: dir.parse().unwrap(),
            workspace: ws.parse().unwrap(),
            name: name.map(|n| n.parse().unwrap()),
        };
        for (dir, workspace, name, flags) in [
            (".", "default", None, Some("-d .")),
            (".", "prod", None, Some("-w prod")),
            ("a b", "default", None, Some("-d 'a b'")),
            ("a", "prod", None, Some("-d a -w prod")),
            ("a", "prod", Some("net"), Some("-p net")),
            ("a", "prod", Some("-p"), Some("--project=-p")),
            ("quo'te", "default", None, Some("-d \"quo'te\"")),
            ("f \"g", "default", None, Some("-d 'f \"g'")),
            ("br[0]", "default", None, Some("-d \"br\\\\[0]\"")),
            ("-destroy", "default", None, Some("--dir=-destroy")),
            ("a\u{202e}b", "default", None, None),
        ] {
            assert_eq!(key(dir, workspace, name).flags().as_deref(), flags, "{dir}");
        }
    }
}
