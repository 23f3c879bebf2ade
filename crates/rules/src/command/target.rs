//! Reads the projects of a command: all that the pull request concerns, one by name, or those of a directory and
//! workspace.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;

use super::flags::{Arguments, CommandFlag};
use super::mistake::{CommandFault, FaultKind};
use super::printer::Printer;
use super::spec::WordRules;
use super::split::SplitWord;
use crate::model::{
    InvalidPath, ProjectName, RepoPath, WorkspaceName, literal_dir, read_literal_dir,
};

pub(super) static DIR: CommandFlag = CommandFlag {
    long: "dir",
    short: Some('d'),
    value: Some("DIR"),
    about: "Only this directory; a pattern such as 'modules/*' takes several.",
};
pub(super) static WORKSPACE: CommandFlag = CommandFlag {
    long: "workspace",
    short: Some('w'),
    value: Some("WORKSPACE"),
    about: "Only in this Terraform workspace.",
};
pub(super) static PROJECT: CommandFlag = CommandFlag {
    long: "project",
    short: Some('p'),
    value: Some("PROJECT"),
    about: "Only the project of this name; not together with -d or -w.",
};
pub(super) static VERBOSE: CommandFlag = CommandFlag {
    long: "verbose",
    short: None,
    value: None,
    about: "Add the full output to the reply, including init.",
};

/// Projects that a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandTarget {
    /// All projects that the pull request concerns.
    #[default]
    Generic,
    /// The project with this name.
    Project(ProjectSelector),
    /// Projects by directory and workspace; at least one of the two is given. The default is the root or the
    /// workspace `default`.
    DirWorkspace {
        /// Directory given with `-d`.
        dir: Option<DirArgument>,
        /// Workspace given with `-w`.
        workspace: Option<WorkspaceName>,
    },
}

impl CommandTarget {
    /// Returns true if the command requests particular projects (reference 1.1, "targeted").
    pub fn is_targeted(&self) -> bool {
        match self {
            Self::Generic => false,
            Self::Project(_) | Self::DirWorkspace { .. } => true,
        }
    }

    pub(super) fn read(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Self, CommandFault> {
        let dir = arguments.value(&DIR).map(dir).transpose()?;
        let workspace = arguments.value(&WORKSPACE).map(workspace).transpose()?;
        let Some(name) = arguments.value(&PROJECT) else {
            return Ok(match (dir, workspace) {
                (None, None) => Self::Generic,
                (dir, workspace) => Self::DirWorkspace { dir, workspace },
            });
        };
        for other in [&DIR, &WORKSPACE] {
            if let Some(value) = arguments.value(other) {
                let problem = FaultKind::Conflict {
                    one: &PROJECT,
                    other,
                };
                return Err(CommandFault {
                    problem,
                    places: vec![name.span.clone(), value.span.clone()],
                });
            }
        }
        project(name, rules).map(Self::Project)
    }

    pub(super) fn print(&self, printer: &mut Printer) {
        match self {
            Self::Generic => {}
            Self::Project(name) => printer.value(&PROJECT, name.as_str()),
            Self::DirWorkspace { dir, workspace } => {
                if let Some(dir) = dir {
                    printer.value(&DIR, &dir.to_text());
                }
                if let Some(workspace) = workspace {
                    printer.value(&WORKSPACE, workspace.as_str());
                }
            }
        }
    }
}

fn dir(word: &SplitWord) -> Result<DirArgument, CommandFault> {
    DirArgument::new(&word.text)
        .map_err(|error| CommandFault::bad_value(word, &DIR, &error.to_string()))
}

fn workspace(word: &SplitWord) -> Result<WorkspaceName, CommandFault> {
    let rule = "a workspace is at most 255 bytes long, is not `.`, does not start with `-` or `~`, and contains no slash, \
                backslash, `..`, `$` or white space";
    WorkspaceName::new(&word.text).map_err(|_| CommandFault::bad_value(word, &WORKSPACE, rule))
}

fn project(word: &SplitWord, rules: &WordRules<'_>) -> Result<ProjectSelector, CommandFault> {
    const NAME: &str =
        "the name of a project consists of 1 to 255 letters, digits, `-`, `_`, `.`, `~` and `/`";
    const EXPRESSION: &str = "it must be the name of a project or a regular expression of at most 255 bytes, without \
                              white space, that can be read, such as 'app-.*'";
    let (selector, rule) = if rules.regexp {
        (ProjectSelector::expression(&word.text), EXPRESSION)
    } else {
        (ProjectSelector::new(&word.text), NAME)
    };
    selector.ok_or_else(|| CommandFault::bad_value(word, &PROJECT, rule))
}

/// Selects one project by name, or several by a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ProjectSelector(String);

impl ProjectSelector {
    /// Maximum size of an expression in bytes.
    const MAX_BYTES: usize = 255;

    /// Checks the text by the rules for project names (reference 4.2).
    pub fn new(text: &str) -> Option<Self> {
        ProjectName::new(text)
            .ok()
            .map(|name| Self(name.as_str().to_owned()))
    }

    /// Accepts a name or a regular expression (reference 3.7).
    pub fn expression(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= Self::MAX_BYTES;
        let odd = text.chars().any(|c| c.is_whitespace() || c.is_control());
        (fits && !odd && Regex::new(text).is_ok()).then(|| Self(text.to_owned()))
    }

    /// Returns the text as it was typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reason why a text after `-d` is not a directory. The message does not contain the text itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDir {
    /// The path leaves the repository.
    #[error("it leaves the repository")]
    Leaves,
    /// The text has a NUL or another control character.
    #[error("it has a control character")]
    Control,
    /// The text is longer than any real path.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// The pattern contains two dots (`..`).
    #[error("a pattern must not contain `..`")]
    PatternClimbs,
    /// The pattern is not valid.
    #[error(
        "it is not a valid pattern: `*` and `?` stand for any text and any character of one name, `**` for any \
         directories, `[ab]` for one of several characters, and every bracket must be closed"
    )]
    BadPattern,
}

/// Directory after `-d`, or a pattern of directories.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DirArgument {
    /// Path of one directory.
    Path(RepoPath),
    /// Pattern that matches several directories.
    Pattern(DirPattern),
}

impl DirArgument {
    /// Reads a text with `*`, `?` or `[` as a pattern (reference 1.1, step 13), unless a backslash precedes each of
    /// them.
    pub fn new(text: &str) -> Result<Self, InvalidDir> {
        let Some(path) = read_literal_dir(text) else {
            return DirPattern::new(text).map(Self::Pattern);
        };
        RepoPath::new(&path)
            .map(Self::Path)
            .map_err(|error| match error {
                InvalidPath::Leaves(_) => InvalidDir::Leaves,
                InvalidPath::Control(_) => InvalidDir::Control,
                InvalidPath::TooLong => InvalidDir::TooLong(RepoPath::MAX_BYTES),
            })
    }

    /// Returns the cleaned text as it is typed.
    pub fn to_text(&self) -> String {
        match self {
            Self::Path(path) => literal_dir(path.as_str()),
            Self::Pattern(pattern) => pattern.as_str().to_owned(),
        }
    }

    /// Returns true if the selector includes a project in this directory.
    pub fn matches(&self, dir: &RepoPath) -> bool {
        match self {
            Self::Path(path) => path == dir,
            Self::Pattern(pattern) => pattern.matches(dir),
        }
    }
}

impl fmt::Display for DirArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}

impl TryFrom<String> for DirArgument {
    type Error = InvalidDir;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text)
    }
}

impl From<DirArgument> for String {
    fn from(dir: DirArgument) -> Self {
        dir.to_text()
    }
}

/// A pattern of directories, cleaned and compiled: `modules/*`, `**/prod`.
#[derive(Clone, Debug)]
pub struct DirPattern {
    text: String,
    matcher: GlobMatcher,
}

impl DirPattern {
    /// Maximum size of a pattern in bytes; compiling one takes memory in proportion.
    pub const MAX_BYTES: usize = 512;

    /// Checks and compiles a pattern. Slashes at both ends and `.` segments are dropped.
    pub fn new(text: &str) -> Result<Self, InvalidDir> {
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidDir::TooLong(Self::MAX_BYTES));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidDir::Control);
        }
        if text.contains("..") {
            return Err(InvalidDir::PatternClimbs);
        }
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        let text = parts.join("/");
        let glob = GlobBuilder::new(&text)
            .literal_separator(true)
            .backslash_escape(true)
            .build();
        let matcher = glob.map_err(|_| InvalidDir::BadPattern)?.compile_matcher();
        Ok(Self { text, matcher })
    }

    /// Returns the cleaned text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the directory matches; `*` stays within one name, `**` crosses directories.
    pub fn matches(&self, dir: &RepoPath) -> bool {
        self.matcher.is_match(dir.as_str())
    }
}

impl PartialEq for DirPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for DirPattern {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{BotNames, Command, CommentReading, Grammar};
    use crate::model::ProjectKey;

    #[test]
    fn paths_and_patterns_are_told_apart_and_cleaned() {
        for (text, clean) in [
            ("/", "."),
            ("a/b/", "a/b"),
            ("/a", "a"),
            ("/..", "."),
            ("{a,b}", "{a,b}"),
        ] {
            assert_eq!(
                DirArgument::new(text),
                Ok(DirArgument::Path(RepoPath::new(clean).unwrap())),
                "{text}"
            );
        }
        for (text, clean) in [
            ("./mod/*", "mod/*"),
            ("/mod/*", "mod/*"),
            (".//mod/*/", "mod/*"),
            ("**/prod", "**/prod"),
        ] {
            let pattern = DirArgument::new(text).unwrap();
            assert!(
                matches!(&pattern, DirArgument::Pattern(p) if p.as_str() == clean),
                "{text}: {pattern:?}"
            );
        }
    }

    #[test]
    fn bad_directories_are_told_apart() {
        for (text, error) in [
            ("..", InvalidDir::Leaves),
            ("./..", InvalidDir::Leaves),
            ("a/../..", InvalidDir::Leaves),
            ("mod*/../x", InvalidDir::PatternClimbs),
            ("[a", InvalidDir::BadPattern),
            ("{a,[b]", InvalidDir::BadPattern),
            ("a\0", InvalidDir::Control),
            ("*\n", InvalidDir::Control),
        ] {
            assert_eq!(DirArgument::new(text), Err(error), "{text:?}");
        }
        assert_eq!(
            DirArgument::new(&"*".repeat(600)),
            Err(InvalidDir::TooLong(512))
        );
        assert_eq!(
            DirArgument::new(&"a".repeat(5000)),
            Err(InvalidDir::TooLong(RepoPath::MAX_BYTES))
        );
    }

    #[test]
    fn a_star_stays_within_one_name() {
        let matches = |pattern: &str, dir: &str| {
            DirArgument::new(pattern)
                .unwrap()
                .matches(&dir.parse().unwrap())
        };
        assert!(
            matches("mod/*", "mod/a") && !matches("mod/*", "mod/a/b") && !matches("mod/*", "mod")
        );
        assert!(
            matches("mod/**", "mod/a/b")
                && matches("**/prod", "a/b/prod")
                && matches("{a,b}/?", "b/x")
        );
        assert!(matches("./a/", "a") && !matches("a", "a/b"));
    }

    #[test]
    fn a_target_survives_storage() {
        for target in [
            CommandTarget::Generic,
            CommandTarget::Project(ProjectSelector::new("net/prod").unwrap()),
            CommandTarget::DirWorkspace {
                dir: Some(DirArgument::new("mod/*").unwrap()),
                workspace: Some(WorkspaceName::new("prod").unwrap()),
            },
        ] {
            let json = serde_json::to_string(&target).unwrap();
            assert_eq!(
                serde_json::from_str::<CommandTarget>(&json).unwrap(),
                target,
                "{json}"
            );
        }
        assert!(
            serde_json::from_str::<CommandTarget>(
                r#"{"dir_workspace":{"dir":"../x","workspace":null}}"#
            )
            .is_err()
        );
    }

    proptest! {
        /// Checks that every line offered for a project names that project.
        #[test]
        fn flags_of_a_project_read_as_that_project(
            dir in r#"[-a-c'"\\\\*?\[\]{} $#`~@é\u{200b}]{0,8}(/[-.a-b'*\[ ]{1,5}){0,2}"#,
            workspace in "[a-c'\"*#@é\u{200d}-]{0,5}",
            name in prop::option::of("[-a-b_.~/]{1,5}"),
        ) {
            let (Ok(dir), Ok(workspace)) = (RepoPath::new(&dir), WorkspaceName::new(&workspace)) else { return Ok(()) };
            let name = name.map(|name| ProjectName::new(&name).unwrap());
            let key = ProjectKey { dir, workspace, name };
            let Some(flags) = key.flags() else { return Ok(()) };
            let grammar = Grammar::new(BotNames::default());
            let comment = format!("```shell\nlockkeeper plan {flags}\n```");
            let CommentReading::Command(Command::Plan(plan)) = grammar.read(&comment) else {
                return Err(TestCaseError::fail(format!("{comment}: {:?}", grammar.read(&comment))));
            };
            let expected = if let Some(name) = key.name {
                CommandTarget::Project(ProjectSelector(name.as_str().to_owned()))
            } else {
                let dir = (!key.dir.is_root() || key.workspace.is_default()).then_some(DirArgument::Path(key.dir));
                let workspace = (!key.workspace.is_default()).then_some(key.workspace);
                CommandTarget::DirWorkspace { dir, workspace }
            };
            prop_assert_eq!(plan.target, expected);
        }
    }
}
