//! Policy sets, as an administrator configures them (reference 5.5).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use lockkeeper_model::model::{
    ProjectKey, RepoPath, Sha256Digest, is_hidden, text_enum, text_type,
};
use regex::Regex;
use serde_json::json;

use crate::decision::NeededSet;

/// Policy checks of a server: everything below `policies` in the file of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Version of conftest for all sets; `None` for the one that `DEFAULT_CONFTEST_VERSION` names or the `PATH` has.
    pub conftest_version: Option<semver::Version>,
    /// Sets in their order. Their names are unique.
    pub sets: Vec<PolicySet>,
}

/// One policy set of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySet {
    /// Name in comments, in `--policy-set` and in the database.
    pub name: SetName,
    /// Place of the policies.
    pub source: PolicySource,
    /// Way in which the policies are evaluated.
    pub engine: PolicyEngine,
    /// Packages of Rego that are evaluated, `*` for all; empty for the default of the engine, the package `main`.
    pub namespaces: Vec<String>,
    /// Projects that the set concerns.
    pub scope: SetScope,
    /// People who may approve violations.
    pub owners: PolicyOwners,
    /// Number of approvals that let violations pass. 0 is never stored: a set without approvals needs one.
    pub approve_count: u32,
    /// True if the author of the pull request may not approve.
    pub prevent_self_approve: bool,
    /// True if approvals of an earlier plan count, as long as the violations are the same.
    pub sticky: bool,
    /// Pattern that cuts the output into items; approvals are bound to the items that they saw.
    pub item_regex: ItemRegex,
    /// File of waivers; `None` if the set has none.
    pub waivers: Option<WaiverFile>,
}

/// Name of a policy set: 1 to 100 characters without invisible characters, backquotes or spaces at either end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetName(String);

/// Reason why a text is not the name of a policy set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetNameError {
    /// The text is empty.
    #[error("the name of a policy set cannot be empty")]
    Empty,
    /// The text is longer than any sensible name.
    #[error(
        "the name of a policy set is longer than {} characters",
        SetName::MAX_CHARS
    )]
    TooLong,
    /// The text begins or ends with a space.
    #[error("the name of a policy set begins or ends with a space")]
    Spaces,
    /// The text has a character that comments could not show.
    #[error("the name of a policy set has a backquote, a tab or an invisible character")]
    Character,
}

/// Place of policies. Never the head of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// A directory or file of the server, by its absolute path.
    Local(PathBuf),
    /// A relative path, which would be below the checkout of the pull request. Nothing is read from it, so the set is never
    /// evaluated. It is accepted where steps of the workflow can check the set.
    Relative(String),
    /// A directory on a branch of the repository itself, such as `main`.
    Branch { branch: String, path: RepoPath },
    /// A directory of another repository, at a tag or commit.
    Repository {
        /// Address such as `github.com/acme/policies`.
        repository: String,
        /// Tag or full commit.
        reference: String,
        path: RepoPath,
    },
    /// None: the steps of the workflow bring their own policies (`custom_policy_check`).
    Steps,
}

/// Way in which policies are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyEngine {
    /// The program `conftest`, as a child process.
    Conftest,
    /// Rego inside this program.
    Embedded,
    /// A step of the workflow (`custom_policy_check`), whose output has this format.
    Steps(ReportFormat),
}

text_enum! {
    /// Format of the output of a step.
    pub enum ReportFormat {
        /// Text for people. It passes if the step succeeds and prints something without a failure in it.
        Text = "text",
        /// `conftest test --output json`.
        Conftest = "conftest",
        /// SARIF 2.1.0, of checkov, trivy, tflint and others.
        Sarif = "sarif",
        /// Reports in the form of `JUnit`, which are XML.
        Junit = "junit",
    }
}

/// Projects that a set concerns: all, unless a list is set. Each list that is set must match.
///
/// Directories are the only list that a pull request cannot change without moving the code: names and workspaces of projects
/// come from its own configuration, and everyone who may label can take a label away.
#[derive(Debug, Clone, Default)]
pub struct SetScope {
    dirs: ScopePatterns,
    names: ScopePatterns,
    workspaces: ScopePatterns,
    labels: Vec<String>,
}

/// Patterns of one list, with the texts that they were made from.
#[derive(Debug, Clone, Default)]
struct ScopePatterns {
    texts: Vec<String>,
    /// `None` if there are no patterns: everything matches.
    globs: Option<GlobSet>,
}

/// Reason why a list of [`SetScope`] is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetScope {
    /// A pattern is wrong.
    #[error("`{pattern}` is not a valid pattern: {problem}")]
    Pattern {
        /// Pattern as it was written.
        pattern: String,
        /// Explanation of the library.
        problem: String,
    },
    /// A pattern or label is empty.
    #[error("an empty pattern matches nothing")]
    Empty,
    /// A list or a pattern is longer than any sensible one.
    #[error(
        "a list has more than {} patterns, or a pattern more than {} bytes",
        SetScope::MAX_PATTERNS,
        SetScope::MAX_BYTES
    )]
    TooLong,
}

/// People who may approve violations of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOwners {
    /// Logins on the forge, compared without case.
    pub users: Vec<String>,
    /// Teams on the forge, such as `acme/security`, compared without case.
    pub teams: Vec<String>,
}

/// Pattern of `policy_item_regex`, compared by its text.
#[derive(Debug, Clone)]
pub struct ItemRegex(pub Regex);

/// File of waivers on a trusted branch of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiverFile {
    /// Branch, such as `main`.
    pub branch: String,
    /// Path of the file.
    pub path: RepoPath,
}

/// Maximum number of teams whose members are looked up to find out whether somebody may approve.
pub const MAX_OWNER_TEAMS: usize = 30;

/// Digest of everything of a set that decides on a verdict: source, engine, item pattern, waivers. A verdict with another digest
/// is stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetDigest(pub Sha256Digest);

impl SetName {
    /// Maximum length in characters.
    pub const MAX_CHARS: usize = 100;

    /// Checks the name of a policy set.
    pub fn parse(text: &str) -> Result<Self, SetNameError> {
        if text.is_empty() {
            return Err(SetNameError::Empty);
        }
        if text.chars().count() > Self::MAX_CHARS {
            return Err(SetNameError::TooLong);
        }
        if text.trim() != text {
            return Err(SetNameError::Spaces);
        }
        if text.chars().any(|c| c == '`' || c == '\t' || is_hidden(c)) {
            return Err(SetNameError::Character);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SetName {
    type Err = SetNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for SetName {
    type Error = SetNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

text_type!(SetName);

impl fmt::Display for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for SetDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

text_type!(SetDigest);

impl SetDigest {
    /// Returns the digest of a set that is at this position among the sets that steps check. The order decides which step is
    /// for which set.
    #[must_use]
    pub fn at_position(&self, position: usize) -> Self {
        Self(Sha256Digest::of(format!("{self} {position}").as_bytes()))
    }
}

impl PolicySet {
    /// Returns the digest of everything that decides on a verdict. The version counts only for sets that conftest evaluates.
    ///
    /// Scope and owners are not part of it: who owns a set is compared when an apply begins, by [`crate::decision::decisions`].
    pub fn digest(&self, conftest_version: Option<&semver::Version>) -> SetDigest {
        let engine = match self.engine {
            PolicyEngine::Conftest => {
                json!(["conftest", conftest_version.map(ToString::to_string)])
            }
            PolicyEngine::Embedded => json!(["embedded"]),
            PolicyEngine::Steps(format) => json!(["steps", format.as_str()]),
        };
        let source = match &self.source {
            PolicySource::Local(path) => json!(["local", path.to_string_lossy()]),
            PolicySource::Relative(path) => json!(["relative", path]),
            PolicySource::Branch { branch, path } => json!(["branch", branch, path.as_str()]),
            PolicySource::Repository {
                repository,
                reference,
                path,
            } => json!(["repository", repository, reference, path.as_str()]),
            PolicySource::Steps => json!(["steps"]),
        };
        let waivers = self
            .waivers
            .as_ref()
            .map(|file| (file.branch.as_str(), file.path.as_str()));
        let all = json!([
            engine,
            source,
            self.namespaces,
            self.item_regex.as_str(),
            waivers
        ]);
        SetDigest(Sha256Digest::of(all.to_string().as_bytes()))
    }

    /// Returns true if the set concerns a project of a pull request with these labels.
    pub fn concerns(&self, project: &ProjectKey, labels: &[String]) -> bool {
        self.concerns_project(project) && self.scope.has_label(labels)
    }

    /// Returns true if the set concerns the project, as long as the labels of the pull request match as well.
    pub fn concerns_project(&self, project: &ProjectKey) -> bool {
        let name = project.name.as_ref();
        self.scope.dirs.matches(project.dir.as_str())
            && self.scope.workspaces.matches(project.workspace.as_str())
            && self
                .scope
                .names
                .matches(name.map_or("", |name| name.as_str()))
    }

    /// Returns the part of the set that decides on an apply.
    pub fn needed(&self, definition: SetDigest) -> NeededSet {
        NeededSet {
            name: self.name.clone(),
            definition,
            approve_count: self.approve_count,
            sticky: self.sticky,
            prevent_self_approve: self.prevent_self_approve,
            owners: self.owners.clone(),
        }
    }
}

impl SetScope {
    /// Maximum number of patterns of one list.
    pub const MAX_PATTERNS: usize = 200;
    /// Maximum length of a pattern, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Compiles the lists. In patterns, `*` and `?` stay within a segment of a path, a segment `**` stands for any number of
    /// directories, and `prod/**` matches `prod` as well. Labels are not patterns.
    pub fn new(
        dirs: Vec<String>,
        names: Vec<String>,
        workspaces: Vec<String>,
        labels: Vec<String>,
    ) -> Result<Self, InvalidSetScope> {
        check_list(&labels)?;
        Ok(Self {
            dirs: ScopePatterns::new(dirs)?,
            names: ScopePatterns::new(names)?,
            workspaces: ScopePatterns::new(workspaces)?,
            labels,
        })
    }

    /// Returns true if one of the labels is listed, or none is. Forges compare labels without case.
    fn has_label(&self, labels: &[String]) -> bool {
        self.labels.is_empty()
            || labels.iter().any(|label| {
                self.labels
                    .iter()
                    .any(|own| own.eq_ignore_ascii_case(label))
            })
    }
}

impl PartialEq for SetScope {
    fn eq(&self, other: &Self) -> bool {
        self.dirs.texts == other.dirs.texts
            && self.names.texts == other.names.texts
            && self.workspaces.texts == other.workspaces.texts
            && self.labels == other.labels
    }
}

impl Eq for SetScope {}

impl ScopePatterns {
    fn new(texts: Vec<String>) -> Result<Self, InvalidSetScope> {
        check_list(&texts)?;
        if texts.is_empty() {
            return Ok(Self::default());
        }
        let mut set = GlobSetBuilder::new();
        for text in &texts {
            let problem = |error: &globset::Error| InvalidSetScope::Pattern {
                pattern: text.clone(),
                problem: error.kind().to_string(),
            };
            let pattern = text.strip_prefix("./").unwrap_or(text);
            let pattern = pattern.trim_start_matches('/').trim_end_matches('/');
            for pattern in [Some(pattern), pattern.strip_suffix("/**")]
                .into_iter()
                .flatten()
            {
                let glob = GlobBuilder::new(if pattern.is_empty() { "." } else { pattern })
                    .literal_separator(true)
                    .backslash_escape(true)
                    .build()
                    .map_err(|error| problem(&error))?;
                set.add(glob);
            }
        }
        let globs = set.build().map_err(|error| InvalidSetScope::Pattern {
            pattern: texts.join("`, `"),
            problem: error.kind().to_string(),
        })?;
        Ok(Self {
            texts,
            globs: Some(globs),
        })
    }

    fn matches(&self, text: &str) -> bool {
        self.globs.as_ref().is_none_or(|globs| globs.is_match(text))
    }
}

fn check_list(texts: &[String]) -> Result<(), InvalidSetScope> {
    if texts.len() > SetScope::MAX_PATTERNS
        || texts.iter().any(|text| text.len() > SetScope::MAX_BYTES)
    {
        return Err(InvalidSetScope::TooLong);
    }
    if texts.iter().any(|text| text.trim().is_empty()) {
        return Err(InvalidSetScope::Empty);
    }
    Ok(())
}

impl PolicyOwners {
    /// Returns true if the person is an owner, by login or by one of the teams that the person is in.
    ///
    /// Only ASCII letters are compared without case, because other characters may turn into ASCII ones, such as the Kelvin sign.
    pub fn has(&self, login: &str, teams: &[String]) -> bool {
        self.users
            .iter()
            .any(|user| user.eq_ignore_ascii_case(login))
            || share_a_team(&self.teams, teams)
    }

    /// Returns true if nobody is named.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.teams.is_empty()
    }
}

/// Returns true if a team is in both lists.
pub(crate) fn share_a_team(one: &[String], other: &[String]) -> bool {
    one.iter()
        .any(|team| other.iter().any(|own| own.eq_ignore_ascii_case(team)))
}

impl ItemRegex {
    /// Pattern that makes one item of the whole output.
    pub const DEFAULT: &'static str = "(?s).+";

    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns true for the default pattern.
    pub fn is_default(&self) -> bool {
        self.as_str() == Self::DEFAULT
    }
}

impl Default for ItemRegex {
    fn default() -> Self {
        Self(Regex::new(Self::DEFAULT).expect("the default pattern is valid"))
    }
}

impl PartialEq for ItemRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for ItemRegex {}

/// Sets for tests of this crate.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns a set of a directory, owned by alice, bob and the team `acme/security`, that needs one approval.
    pub(crate) fn policy_set(name: &str) -> PolicySet {
        PolicySet {
            name: SetName::parse(name).unwrap(),
            source: PolicySource::Local(PathBuf::from("/policies")),
            engine: PolicyEngine::Conftest,
            namespaces: Vec::new(),
            scope: SetScope::default(),
            owners: PolicyOwners {
                users: vec!["alice".to_owned(), "bob".to_owned()],
                teams: vec!["acme/security".to_owned()],
            },
            approve_count: 1,
            prevent_self_approve: false,
            sticky: false,
            item_regex: ItemRegex::default(),
            waivers: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::policy_set;
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["a", "Security baseline", "größe", "x".repeat(100).as_str()] {
            let name = SetName::parse(text).unwrap();
            assert_eq!(name.as_str(), text);
            assert_eq!(name.to_string().parse::<SetName>(), Ok(name.clone()));
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<SetName>(&json).unwrap(), name);
        }
    }

    #[test]
    fn names_that_comments_could_not_show_are_refused() {
        for (text, error) in [
            ("", SetNameError::Empty),
            ("x".repeat(101).as_str(), SetNameError::TooLong),
            (" a", SetNameError::Spaces),
            ("a ", SetNameError::Spaces),
            ("a`b", SetNameError::Character),
            ("a\tb", SetNameError::Character),
            ("a\0b", SetNameError::Character),
            ("a\u{202e}b", SetNameError::Character),
        ] {
            assert_eq!(SetName::parse(text), Err(error), "{text:?}");
            assert_eq!(SetName::try_from(text.to_owned()), Err(error), "{text:?}");
        }
    }

    #[test]
    fn everything_that_decides_on_a_verdict_changes_the_digest() {
        let version = semver::Version::new(0, 60, 0);
        let set = policy_set("a");
        let changes: [fn(&mut PolicySet); 9] = [
            |set| set.source = PolicySource::Local(PathBuf::from("/other")),
            |set| set.source = PolicySource::Relative("/policies".to_owned()),
            |set| {
                set.source = PolicySource::Branch {
                    branch: "main".to_owned(),
                    path: RepoPath::root(),
                };
            },
            |set| {
                set.source = PolicySource::Repository {
                    repository: "github.com/acme/policies".to_owned(),
                    reference: "v1".to_owned(),
                    path: RepoPath::root(),
                };
            },
            |set| set.engine = PolicyEngine::Embedded,
            |set| set.engine = PolicyEngine::Steps(ReportFormat::Sarif),
            |set| set.namespaces = vec!["*".to_owned()],
            |set| set.item_regex = ItemRegex(Regex::new("FAIL.*").unwrap()),
            |set| {
                set.waivers = Some(WaiverFile {
                    branch: "main".to_owned(),
                    path: RepoPath::new("waivers.yaml").unwrap(),
                });
            },
        ];
        let mut digests = vec![set.digest(None), set.digest(Some(&version))];
        for change in changes {
            let mut other = set.clone();
            change(&mut other);
            digests.push(other.digest(None));
        }
        for (n, digest) in digests.iter().enumerate() {
            assert!(!digests[..n].contains(digest), "{n}");
        }
    }

    #[test]
    fn the_position_among_sets_that_steps_check_changes_the_digest() {
        let mut set = policy_set("a");
        set.engine = PolicyEngine::Steps(ReportFormat::Text);
        let digest = set.digest(None);
        let all = [
            digest.at_position(0),
            digest.at_position(1),
            policy_set("a").digest(None).at_position(0),
            digest,
        ];
        for (n, digest) in all.iter().enumerate() {
            assert!(!all[..n].contains(digest), "{n}");
        }
    }

    #[test]
    fn nothing_else_changes_the_digest() {
        let set = policy_set("a");
        let mut other = policy_set("a");
        other.approve_count = 2;
        other.sticky = true;
        other.prevent_self_approve = true;
        other.owners = PolicyOwners::default();
        other.scope = SetScope::new(vec!["prod".to_owned()], vec![], vec![], vec![]).unwrap();
        assert_eq!(set.digest(None), other.digest(None));
        let version = semver::Version::new(1, 0, 0);
        other.engine = PolicyEngine::Embedded;
        assert_eq!(other.digest(None), other.digest(Some(&version)));
    }

    #[test]
    fn each_list_that_is_set_must_match() {
        let project = |dir: &str, workspace: &str, name: Option<&str>| ProjectKey {
            dir: dir.parse().unwrap(),
            workspace: workspace.parse().unwrap(),
            name: name.map(|name| name.parse().unwrap()),
        };
        let list =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let net = project("prod/net", "eu", Some("net"));
        let unnamed = project("prod/net", "eu", None);
        let root = project(".", "default", None);
        for (dirs, names, workspaces, labels, key, concerned) in [
            ("", "", "", "", &root, true),
            ("prod/**", "", "", "", &net, true),
            ("./prod/**/", "", "", "", &net, true),
            ("prod", "", "", "", &net, false),
            ("prod/*", "", "", "", &net, true),
            ("*", "", "", "", &net, false),
            ("**", "", "", "", &root, true),
            (".", "", "", "", &root, true),
            ("/", "", "", "", &root, true),
            ("dev stage", "", "", "", &net, false),
            ("", "n*", "", "", &net, true),
            ("", "n*", "", "", &unnamed, false),
            ("", "", "eu", "", &net, true),
            ("", "", "us", "", &net, false),
            ("prod/**", "net", "us", "", &net, false),
            ("", "", "", "Risky", &net, true),
            ("", "", "", "other", &net, false),
        ] {
            let mut set = policy_set("a");
            set.scope =
                SetScope::new(list(dirs), list(names), list(workspaces), list(labels)).unwrap();
            let labels = ["risky".to_owned(), "docs".to_owned()];
            assert_eq!(
                set.concerns(key, &labels),
                concerned,
                "{dirs} {names} {workspaces} {labels:?}"
            );
        }
        let above = project("prod", "default", None);
        let mut set = policy_set("a");
        set.scope = SetScope::new(list("prod/**"), vec![], vec![], vec![]).unwrap();
        assert!(set.concerns(&above, &[]));
    }

    #[test]
    fn invalid_patterns_are_refused() {
        let dirs = |text: &str| SetScope::new(vec![text.to_owned()], vec![], vec![], vec![]);
        assert!(matches!(dirs("a["), Err(InvalidSetScope::Pattern { .. })));
        assert_eq!(dirs(" "), Err(InvalidSetScope::Empty));
        assert_eq!(dirs(&"x".repeat(1025)), Err(InvalidSetScope::TooLong));
        let labels = vec!["x".to_owned(); 201];
        let scope = SetScope::new(vec![], vec![], vec![], labels);
        assert_eq!(scope, Err(InvalidSetScope::TooLong));
    }

    #[test]
    fn owners_are_compared_without_the_case_of_ascii_letters() {
        let owners = policy_set("a").owners;
        let team = ["Acme/Security".to_owned()];
        assert!(owners.has("ALICE", &[]));
        assert!(owners.has("mallory", &team));
        assert!(!owners.has("mallory", &["acme/net".to_owned()]));
        assert!(!PolicyOwners::default().has("", &[]));
        let kelvin = PolicyOwners {
            users: vec!["kim".to_owned()],
            teams: vec![],
        };
        assert!(!kelvin.has("\u{212a}im", &[]));
    }
}
