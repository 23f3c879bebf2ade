//! Policy sets, as an administrator configures them (reference 5.5).

use std::path::PathBuf;

use lockkeeper_model::model::{RepoPath, Sha256Digest};
use regex::Regex;

/// Policy checks of a server: everything below `policies` in the file of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Version of conftest for all sets; `None` for the one that `DEFAULT_CONFTEST_VERSION` names or the `PATH` has.
    pub conftest_version: Option<semver::Version>,
    /// Sets in their order. Their names are unique.
    pub sets: Vec<PolicySet>,
}

/// One policy set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySet {
    /// Name in comments, in `--policy-set` and in the database.
    pub name: SetName,
    /// Place of the policies.
    pub source: PolicySource,
    /// Way in which the policies are evaluated.
    pub engine: PolicyEngine,
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

/// Name of a policy set: 1 to 100 characters without control characters, backquotes or spaces at either end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

/// Place of policies. Never the head of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// A directory or file of the server, by its absolute path. A relative one would be below the checkout of the pull
    /// request, so the configuration refuses it.
    Local(PathBuf),
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
    /// The program `conftest`.
    Conftest,
    /// Rego inside this program.
    Embedded,
    /// A step of the workflow (`custom_policy_check`), whose output has this format.
    Steps(OutputFormat),
}

/// Format of the output of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text for people. It passes if the step succeeds and prints something without a failure in it.
    Text,
    /// `conftest test --output json`.
    Conftest,
    /// SARIF 2.1.0, of checkov, trivy, tflint and others.
    Sarif,
    /// JUnit XML.
    Junit,
}

/// Projects that a set concerns: all, unless a list is set. Each list that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetScope {
    /// Patterns of directories, such as `prod/**`.
    pub dirs: Vec<String>,
    /// Names of projects.
    pub names: Vec<String>,
    /// Workspaces.
    pub workspaces: Vec<String>,
    /// Labels of the pull request; one of them is enough.
    pub labels: Vec<String>,
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

/// Digest of everything of a set that decides on a verdict: source, engine, item pattern, waivers. A verdict with another digest
/// is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetDigest(pub Sha256Digest);
