//! Pulls (pull or merge requests), commits, branches and changed files.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::path::RepoPath;
use super::repo::RepoId;
use super::text::{text_enum, text_type};

/// Error for a text that is not a commit, branch or pull number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}")]
pub struct InvalidRef {
    what: &'static str,
    text: String,
}

/// A full commit id, in lower-case hexadecimal (SHA-1 or SHA-256).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitSha(String);

impl CommitSha {
    /// Checks an id. Only full ids are accepted, because a prefix can come to mean another commit.
    pub fn new(text: &str) -> Result<Self, InvalidRef> {
        let hex = text.chars().all(|c| c.is_ascii_hexdigit());
        if !hex || !matches!(text.len(), 40 | 64) {
            return Err(InvalidRef {
                what: "full commit id",
                text: text.chars().take(80).collect(),
            });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first eight characters, for people.
    pub fn short(&self) -> &str {
        &self.0[..8]
    }
}

impl fmt::Display for CommitSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CommitSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

impl FromStr for CommitSha {
    type Err = InvalidRef;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(CommitSha);

/// The short name of a branch (`main`), safe to pass to git (the rules of `git check-ref-format`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BranchName(String);

impl BranchName {
    /// Checks the name of a branch.
    pub fn new(text: &str) -> Result<Self, InvalidRef> {
        let bad_char =
            |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
        let bad_part = |p: &str| {
            p.is_empty() || p.starts_with('.') || p.to_ascii_lowercase().ends_with(".lock")
        };
        let bad = text.is_empty()
            || text.len() > 1024
            || text.starts_with('-')
            || text == "@"
            || text.ends_with('.')
            || text.contains("..")
            || text.contains("@{")
            || text.chars().any(bad_char)
            || text.split('/').any(bad_part);
        if bad {
            return Err(InvalidRef {
                what: "branch name",
                text: text.chars().take(200).collect(),
            });
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for BranchName {
    type Err = InvalidRef;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(BranchName);

/// Number of a pull request in its repository, counted by the forge from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
pub struct PullNumber(pub i64);

impl fmt::Display for PullNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Pull request or application that has locks, plans and commands in a repository.
///
/// Tables, JSON and directories on the disk have one number for both: that of a pull request, and the negative one of
/// an application. Only [`Subject::stored`] and [`Subject::of_stored`] know that form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "i64", into = "i64")]
pub enum Subject {
    /// A pull request on the forge.
    Pull(PullNumber),
    /// A registered project that the forge does not know, with its number on this server, counted from 1.
    Application(i64),
}

impl Subject {
    /// Returns the pull request with this number.
    #[must_use]
    pub const fn pull(number: i64) -> Self {
        Self::Pull(PullNumber(number))
    }

    /// Returns the number in tables, in JSON and on the disk.
    #[must_use]
    pub const fn stored(self) -> i64 {
        match self {
            Self::Pull(number) => number.0,
            Self::Application(number) => -number,
        }
    }

    /// Returns the subject with this number in tables, in JSON or on the disk.
    #[must_use]
    pub const fn of_stored(number: i64) -> Self {
        if number < 0 {
            Self::Application(-number)
        } else {
            Self::pull(number)
        }
    }

    /// Returns true for an application. Lockkeeper neither asks the forge about it nor reports anything there.
    #[must_use]
    pub const fn is_application(self) -> bool {
        matches!(self, Self::Application(_))
    }

    /// Returns the name for people: `pull request #12`; `application network (branch main)`, with the title if it is
    /// known.
    #[must_use]
    pub fn display_name(self, title: Option<&str>) -> String {
        match (self, title) {
            (Self::Pull(number), _) => format!("pull request #{number}"),
            (Self::Application(_), Some(title)) => format!("application {title}"),
            (Self::Application(number), None) => format!("application {number}"),
        }
    }

    /// Returns the name for lists that contain only pulls and applications: `#12`,
    /// `application network (branch main)`.
    #[must_use]
    pub fn short_name(self, title: Option<&str>) -> String {
        match self {
            Self::Pull(number) => format!("#{number}"),
            Self::Application(_) => self.display_name(title),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.stored(), f)
    }
}

impl Ord for Subject {
    fn cmp(&self, other: &Self) -> Ordering {
        self.stored().cmp(&other.stored())
    }
}

impl PartialOrd for Subject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<PullNumber> for Subject {
    fn from(number: PullNumber) -> Self {
        Self::Pull(number)
    }
}

impl From<i64> for Subject {
    fn from(stored: i64) -> Self {
        Self::of_stored(stored)
    }
}

impl From<Subject> for i64 {
    fn from(subject: Subject) -> Self {
        subject.stored()
    }
}

#[cfg(feature = "sqlx")]
mod column {
    use super::Subject;

    impl<DB: sqlx::Database> sqlx::Type<DB> for Subject
    where
        i64: sqlx::Type<DB>,
    {
        fn type_info() -> DB::TypeInfo {
            <i64 as sqlx::Type<DB>>::type_info()
        }

        fn compatible(ty: &DB::TypeInfo) -> bool {
            <i64 as sqlx::Type<DB>>::compatible(ty)
        }
    }

    impl<'q, DB: sqlx::Database> sqlx::Encode<'q, DB> for Subject
    where
        i64: sqlx::Encode<'q, DB>,
    {
        fn encode_by_ref(
            &self,
            buf: &mut <DB as sqlx::Database>::ArgumentBuffer,
        ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
            <i64 as sqlx::Encode<'q, DB>>::encode(self.stored(), buf)
        }
    }

    impl<'r, DB: sqlx::Database> sqlx::Decode<'r, DB> for Subject
    where
        i64: sqlx::Decode<'r, DB>,
    {
        fn decode(
            value: <DB as sqlx::Database>::ValueRef<'r>,
        ) -> Result<Self, sqlx::error::BoxDynError> {
            <i64 as sqlx::Decode<'r, DB>>::decode(value).map(Self::of_stored)
        }
    }
}

/// A pull request or an application of a repository.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct PullRef {
    /// Repository that the subject changes.
    pub repo: RepoId,
    /// Subject in that repository. Stored jobs call it `number`.
    #[serde(rename = "number")]
    pub subject: Subject,
}

impl fmt::Display for PullRef {
    /// Formats `github.com/acme/infra#12`, or `github.com/acme/infra application 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Pull(number) => write!(f, "{}#{number}", self.repo),
            Subject::Application(number) => write!(f, "{} application {number}", self.repo),
        }
    }
}

text_enum! {
    /// State of a pull.
    pub enum PullState {
        /// Open, perhaps as a draft.
        Open = "open",
        /// Closed, but not merged.
        Closed = "closed",
        Merged = "merged",
    }
}

/// Current data of a pull on the forge.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pull {
    /// Repository and number of the pull.
    pub at: PullRef,
    /// Identifier of its repository on the forge, if it is known.
    #[serde(default)]
    pub repo_id: Option<u64>,
    /// True if its repository is archived and cannot be changed any more.
    #[serde(default)]
    pub archived: bool,
    pub title: String,
    /// Login of the person who opened it.
    pub author: String,
    /// Page of the pull for people.
    pub url: String,
    /// Newest commit of the pull.
    pub head: CommitSha,
    /// Branch the pull comes from.
    pub head_branch: BranchName,
    /// Repository the pull comes from. `None` when it was deleted. A repository other than `at.repo` is a fork.
    pub head_repo: Option<RepoId>,
    /// Branch the pull wants to change.
    pub base_branch: BranchName,
    /// Commit of the base branch as the forge last computed it.
    pub base: CommitSha,
    /// Open, closed or merged.
    pub state: PullState,
    pub draft: bool,
    #[serde(default)]
    pub labels: Vec<String>,
}

impl Pull {
    /// Returns the values that decide if the pull needs a new plan.
    pub fn pull_head(&self) -> PullHead {
        PullHead {
            head: self.head.clone(),
            base_branch: self.base_branch.clone(),
            draft: self.draft,
        }
    }

    /// Returns true if the pull has the label. GitHub compares labels without regard to case.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels
            .iter()
            .any(|own| own.to_lowercase() == label.to_lowercase())
    }

    /// Returns true if the change comes from another repository.
    pub fn is_fork(&self) -> bool {
        self.head_repo.as_ref() != Some(&self.at.repo)
    }
}

/// Values of an open pull that decide if it needs a new plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PullHead {
    /// Newest commit of the pull.
    pub head: CommitSha,
    /// Branch the pull wants to change.
    pub base_branch: BranchName,
    pub draft: bool,
}

text_enum! {
    /// Kinds of changes of a file.
    pub enum ChangeKind {
        Added = "added",
        /// Content or mode changed.
        Modified = "modified",
        Removed = "removed",
        /// Moved, perhaps changed as well.
        Renamed = "renamed",
    }
}

/// A file that differs between base and head of a pull.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ChangedFile {
    /// Path at the head. For a removed file, the path at the base.
    pub path: RepoPath,
    /// Path at the base of a renamed file.
    pub previous: Option<RepoPath>,
    /// Kind of the change.
    pub kind: ChangeKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_that_git_would_read_as_something_else_are_refused() {
        for text in [
            "-x", "a..b", "a b", "a^", "@", "a/.b", "x.lock", "a//b", "/a", "a/", "a@{1}", "a\nb",
        ] {
            assert!(BranchName::new(text).is_err(), "{text:?}");
        }
        assert!(BranchName::new("feature/über-#12").is_ok());
    }

    #[test]
    fn an_application_is_no_pull_and_is_called_by_its_name() {
        let (pull, application) = (Subject::pull(12), Subject::Application(3));
        assert_eq!((pull.stored(), application.stored()), (12, -3));
        assert_eq!(Subject::of_stored(12), pull);
        assert_eq!(Subject::of_stored(-3), application);
        let title = Some("network (branch main)");
        let called = |number: Subject| {
            let at = PullRef {
                repo: "github.com/acme/infra".parse().unwrap(),
                subject: number,
            };
            [
                number.display_name(title),
                number.display_name(None),
                number.short_name(title),
                at.to_string(),
            ]
            .join(", ")
        };
        assert_eq!(
            called(pull),
            "pull request #12, pull request #12, #12, github.com/acme/infra#12"
        );
        let expected = "application network (branch main), application 3, application network (branch main), \
                        github.com/acme/infra application 3";
        assert_eq!(called(application), expected);
    }

    /// Servers of different versions read each other's jobs.
    #[test]
    fn stored_jobs_have_a_signed_number_for_pulls_and_applications() {
        for (subject, number) in [(Subject::pull(12), 12), (Subject::Application(3), -3)] {
            let at = PullRef {
                repo: "github.com/acme/infra".parse().unwrap(),
                subject,
            };
            let stored = serde_json::json!({"repo": "github.com/acme/infra", "number": number});
            assert_eq!(serde_json::to_value(&at).unwrap(), stored);
            assert_eq!(serde_json::from_value::<PullRef>(stored).unwrap(), at);
        }
    }

    #[test]
    fn only_full_commit_ids() {
        assert!(CommitSha::new("abc123").is_err());
        assert!(CommitSha::new(&"A1".repeat(20)).is_ok_and(|sha| sha.short() == "a1a1a1a1"));
    }
}
