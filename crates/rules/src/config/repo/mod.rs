//! Reads the repository's own configuration, `atlantis.yaml` or `lockkeeper.yaml` (reference 4).
//!
//! The file comes from a pull request, so it is read strictly and within limits. These are errors: an unknown key, a
//! feature that this version does not support, and a key that the server does not allow. Ignoring one of them could
//! allow an apply that should not happen. All problems become one text for the pull request.

pub(super) mod autodiscover;
mod conflicts;
mod dir_glob;
mod file;
mod keys;
mod pattern_syntax;
mod patterns;
mod project;
mod registry;
mod requests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

pub use autodiscover::{AutodiscoverMode, InvalidMode};
pub use dir_glob::{DirGlob, InvalidGlob};
pub use file::{CANDIDATES, FILE_NAMES, FileNameError, find};
pub use pattern_syntax::InvalidPattern;
pub use patterns::Patterns;
pub use project::{Autoplan, ProjectConfig, ProjectDir};
pub use registry::{PublishedModule, RegistryRequest};
pub use requests::{PolicyCheckRequest, RequirementRequest, SilenceRequest, WorkflowRequest};

pub(super) use keys::{DELETE_SOURCE_BRANCH, ProjectMapping, RepoFileMapping};
pub(super) use project::parse_version;

use super::lock_block;
pub use super::lock_block::LockTiming;
pub use super::overrides::{AllowedOverrides, OverrideKey};
pub use super::permissions::RepoPermissions;
use super::workflow::{FileVersion, PolicyStage, Workflow, WorkflowOrigin, read_workflows};
use super::yaml::{self, Field, FileReader, Located, YamlNode, YamlValue};
pub use super::yaml::{FilePosition, YamlErrors, YamlNote, YamlProblem, nearest, quoted, shown};
use crate::model::{BranchName, ProjectKey, ProjectName};
use project::{PatternCache, ProjectEntry};
use requests::ProjectContext;

/// Configuration of a repository, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoConfig {
    /// Name of the file, for messages.
    pub file_name: String,
    /// Projects in the order of the file. Empty: projects are discovered.
    pub projects: Vec<ProjectConfig>,
    /// Projects of other base branches, after [`Self::for_base`] has chosen one.
    pub elsewhere: Vec<ProjectConfig>,
    /// True if projects are planned in parallel. `None` leaves the decision to the server.
    pub parallel_plan: Option<bool>,
    /// True if projects are applied in parallel. `None` leaves the decision to the server.
    pub parallel_apply: Option<bool>,
    /// The time at which projects take their locks, unless a project sets its own.
    pub repo_locks: Option<LockTiming>,
    /// Workflows of the repository, by name. Empty unless the administrator allows them.
    pub workflows: BTreeMap<String, Arc<Workflow>>,
    /// Search for projects that the file does not list.
    pub autodiscover: Option<AutodiscoverRequest>,
    /// Prefixes that a regular expression after `-p` must begin with to name several projects. Empty: any prefix.
    pub allowed_regexp_prefixes: Vec<String>,
    /// True if a failure in one execution group prevents the later groups from running.
    pub abort_on_execution_order_fail: bool,
    /// Runs whose comments are left out, unless a project sets its own.
    pub silence_pr_comments: Option<SilenceRequest>,
    /// True if pulls are merged after their applies. `None` leaves the decision to the server.
    pub automerge: Option<bool>,
    /// Modules that tags publish. `None`: the file does not set them.
    pub registry: Option<RegistryRequest>,
    /// Parts of the file that have no effect.
    pub without_effect: Vec<YamlNote>,
}

/// The discovery of projects that a repository requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutodiscoverRequest {
    /// Condition for a search.
    pub mode: AutodiscoverMode,
    /// Directories that are not projects. `None`: the file does not set them.
    pub ignore_paths: Option<Vec<DirGlob>>,
    /// Line of the file with the request, counted from 1.
    pub line: usize,
}

/// A conflict of projects that both apply to the same base branch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("for pull requests into `{base}`: {problems}")]
pub struct BaseConflict {
    /// Base branch with the conflict.
    base: BranchName,
    /// The problems, with lines and fixes.
    problems: String,
}

impl RepoConfig {
    /// Maximum size of the file, in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Maximum number of entries of `projects`.
    pub const MAX_PROJECTS: usize = 5_000;

    /// Maximum number of entries of `projects` whose `dir` is a pattern, because each is tried on every directory.
    pub const MAX_GLOBS: usize = 100;

    /// Parses a configuration file. `file_name` appears in the errors. `permissions` are the keys that the server
    /// lets this repository set.
    pub fn parse(
        file_name: &str,
        text: &str,
        permissions: &RepoPermissions,
    ) -> Result<Self, YamlErrors> {
        let mut reader = FileReader::default();
        let config = read(&mut reader, text, permissions);
        let config = Self {
            file_name: file_name.to_owned(),
            ..config
        };
        let FileReader {
            problems,
            without_effect,
            ..
        } = reader;
        if problems.is_empty() {
            Ok(Self {
                without_effect,
                ..config
            })
        } else {
            Err(YamlErrors::new(file_name, text, problems))
        }
    }

    /// Parses the modules that tags publish. The keys of the whole file are checked, but only these values count: a project
    /// that the server does not permit keeps no version from being published.
    pub fn parse_registry(
        file_name: &str,
        text: &str,
    ) -> Result<Option<RegistryRequest>, YamlErrors> {
        let mut reader = FileReader::default();
        let file = read_file(&mut reader, text);
        let request = file.and_then(|file| registry::read(&mut reader, &file.registry));
        if reader.problems.is_empty() {
            Ok(request)
        } else {
            Err(YamlErrors::new(file_name, text, reader.problems))
        }
    }

    /// Returns the configuration for pulls into a branch, without the projects of other branches.
    ///
    /// Different expressions for `branch` can match the same branch. A conflict between such projects is only found
    /// here.
    pub fn for_base(&self, base: &BranchName) -> Result<Self, BaseConflict> {
        let fits = |project: &&ProjectConfig| {
            project
                .branch
                .as_ref()
                .is_none_or(|branch| branch.fits(base))
        };
        let (here, elsewhere): (Vec<&ProjectConfig>, Vec<_>) = self.projects.iter().partition(fits);
        let problems: Vec<String> = conflicts::among(&here)
            .into_iter()
            .take(MAX_CONFLICTS)
            .map(|it| {
                format!(
                    "line {} of `{}`: {}; {}",
                    here[it.index].line, self.file_name, it.what, it.help
                )
            })
            .collect();
        if !problems.is_empty() {
            return Err(BaseConflict {
                base: base.clone(),
                problems: problems.join("; "),
            });
        }
        let owned = |projects: Vec<&ProjectConfig>| projects.into_iter().cloned().collect();
        Ok(Self {
            projects: owned(here),
            elsewhere: owned(elsewhere),
            ..self.clone()
        })
    }

    /// Returns the entry of a project of this repository, or `None` if no entry configures it. Discovery makes the
    /// same choice. The configuration must be the one [for the base branch](Self::for_base).
    pub fn entry_of(&self, project: &ProjectKey) -> Option<&ProjectConfig> {
        let ProjectKey {
            dir,
            workspace,
            name,
        } = project;
        let mut there = self
            .projects
            .iter()
            .filter(|entry| entry.is_at(dir, workspace))
            .peekable();
        if there.peek().is_some() {
            return there.find(|entry| entry.name == *name);
        }
        self.projects
            .iter()
            .find(|entry| name.is_none() && entry.reaches(dir, workspace))
    }
}

/// Maximum number of conflicts of one base branch in a message.
const MAX_CONFLICTS: usize = 5;

/// Reads the top level of a file.
fn read_file(reader: &mut FileReader, text: &str) -> Option<RepoFileMapping> {
    if text.len() > RepoConfig::MAX_BYTES {
        let what = format!(
            "the file is longer than {}",
            crate::config::size::shown(RepoConfig::MAX_BYTES as u64)
        );
        reader.problem_of_file(
            what,
            "use a pattern as the `dir` of similar projects, or YAML anchors",
        );
        return None;
    }
    let node = match yaml::read(text) {
        Ok(Some(node)) => node,
        Ok(None) => {
            version_missing(reader);
            return None;
        }
        Err(problem) => {
            reader.problems.push(problem);
            return None;
        }
    };
    let file = reader.mapping::<RepoFileMapping>(&node)?;
    if !file.version.is_set() {
        version_missing(reader);
    }
    Some(file)
}

fn read(reader: &mut FileReader, text: &str, permissions: &RepoPermissions) -> RepoConfig {
    let Some(file) = read_file(reader, text) else {
        return RepoConfig::default();
    };
    let version = file.version.read(reader).unwrap_or(FileVersion::Three);
    let workflows = read_own_workflows(reader, &file, permissions, version);
    let own_workflows: Vec<&str> = workflows.keys().map(String::as_str).collect();
    let around = ProjectContext {
        permissions,
        own_workflows: &own_workflows,
    };
    RepoConfig {
        file_name: String::new(),
        projects: read_projects(reader, &file.projects, &around),
        elsewhere: Vec::new(),
        parallel_plan: file.parallel_plan.read(reader),
        parallel_apply: file.parallel_apply.read(reader),
        repo_locks: lock_block::read_of_repo(reader, &file.repo_locks, permissions.overrides()),
        autodiscover: autodiscover::read(reader, &file.autodiscover),
        allowed_regexp_prefixes: read_prefixes(reader, &file),
        abort_on_execution_order_fail: file
            .abort_on_execution_order_fail
            .read(reader)
            .unwrap_or_default(),
        silence_pr_comments: requests::read_silence(
            reader,
            permissions.overrides(),
            &file.silence_pr_comments,
        ),
        automerge: file.automerge.read(reader),
        registry: registry::read(reader, &file.registry),
        without_effect: Vec::new(),
        workflows,
    }
}

fn version_missing(reader: &mut FileReader) {
    reader.problem_of_file(
        "`version` is missing".to_owned(),
        "begin the file with `version: 3`",
    );
}

fn read_own_workflows(
    reader: &mut FileReader,
    file: &RepoFileMapping,
    permissions: &RepoPermissions,
    version: FileVersion,
) -> BTreeMap<String, Arc<Workflow>> {
    let stage = match (
        permissions.policy_sets,
        permissions.allows(OverrideKey::CustomPolicyCheck),
    ) {
        (false, _) => PolicyStage::Idle("the server has no policy sets"),
        (true, true) => PolicyStage::Runs,
        (true, false) => PolicyStage::Refused,
    };
    let workflows = read_workflows(
        reader,
        &file.workflows,
        version,
        stage,
        WorkflowOrigin::Repository,
    );
    if let Some(place) = file.workflows.place().filter(|_| !workflows.is_empty())
        && !permissions.allows_custom_workflows()
    {
        reader.problem(
            place,
            "`workflows` may not be set here: the server does not allow it for this repository".to_owned(),
            "remove it, or ask an administrator of Lockkeeper to set `allow_custom_workflows: true` for this repository \
             in the server's configuration (`--repo-config`)",
        );
    }
    workflows
}

fn read_prefixes(reader: &mut FileReader, file: &RepoFileMapping) -> Vec<String> {
    let texts = file
        .allowed_regexp_prefixes
        .read(reader)
        .unwrap_or_default();
    texts.into_iter().map(|text| text.text).collect()
}

fn read_projects(
    reader: &mut FileReader,
    projects: &Field<Vec<ProjectMapping>>,
    around: &ProjectContext<'_>,
) -> Vec<ProjectConfig> {
    let entries = projects.items(reader).unwrap_or_default();
    if entries.len() > RepoConfig::MAX_PROJECTS {
        let what = format!(
            "there are {} projects; the maximum is {}",
            entries.len(),
            RepoConfig::MAX_PROJECTS
        );
        reader.problem_of_file(what, "use a pattern as the `dir` of similar projects");
        return Vec::new();
    }
    let mut cache = PatternCache::default();
    let read = |entry| Some((entry, project::read(reader, &mut cache, around, entry)?));
    let projects: Vec<(&YamlNode, ProjectEntry)> = entries.iter().filter_map(read).collect();
    check_globs(reader, &projects);
    check_conflicts(reader, &projects);
    check_dependencies(reader, entries, &projects);
    projects
        .into_iter()
        .map(|(_, entry)| entry.project)
        .collect()
}

fn check_globs(reader: &mut FileReader, projects: &[(&YamlNode, ProjectEntry)]) {
    let globs = projects
        .iter()
        .filter(|(_, entry)| matches!(entry.project.dir, ProjectDir::Glob(_)))
        .count();
    if globs > RepoConfig::MAX_GLOBS {
        let what = format!(
            "{globs} projects have a pattern as their `dir`; the maximum is {}",
            RepoConfig::MAX_GLOBS
        );
        reader.problem_of_file(what, "join patterns, for example with `{a,b}` or `**`");
    }
}

/// Checks the projects for conflicts. A project without a `branch` meets all others. Two projects with a `branch`
/// surely meet if their expressions are equal; the rest is checked for each base branch ([`RepoConfig::for_base`]).
/// Skips projects with other mistakes, because a conflict could be a consequence of them.
fn check_conflicts(reader: &mut FileReader, projects: &[(&YamlNode, ProjectEntry)]) {
    let certain = projects.iter().filter(|(_, entry)| entry.is_certain);
    let certain: Vec<(&YamlNode, &ProjectConfig)> = certain
        .map(|(node, entry)| (*node, &entry.project))
        .collect();
    let filter = |project: &ProjectConfig| {
        project
            .branch
            .as_ref()
            .map(|branch| branch.as_str().to_owned())
    };
    let filters: HashSet<Option<String>> =
        certain.iter().map(|(_, project)| filter(project)).collect();
    for branch in filters {
        let meet = |(_, project): &&(&YamlNode, &ProjectConfig)| {
            project.branch.is_none() || filter(project) == branch
        };
        let (nodes, here): (Vec<&YamlNode>, Vec<&ProjectConfig>) =
            certain.iter().filter(meet).copied().unzip();
        for conflict in conflicts::among(&here) {
            reader.problem(nodes[conflict.index].place, conflict.what, conflict.help);
        }
    }
}

/// Checks that the projects in `depends_on` exist. An entry with another mistake counts by the name in the file.
fn check_dependencies(
    reader: &mut FileReader,
    entries: &[YamlNode],
    projects: &[(&YamlNode, ProjectEntry)],
) {
    let names: BTreeSet<String> = entries.iter().filter_map(written_name).collect();
    let valid = || {
        names
            .iter()
            .map(String::as_str)
            .filter(|name| ProjectName::new(name).is_ok())
    };
    for (node, ProjectEntry { project, .. }) in projects
        .iter()
        .filter(|(_, entry)| !entry.project.depends_on.is_empty())
    {
        let own: HashSet<&str> = project.depends_on.iter().map(ProjectName::as_str).collect();
        for Located { place, text: name } in written_dependencies(node) {
            // Invalid names have been refused already.
            if !own.contains(name.as_str()) || names.contains(&name) {
                continue;
            }
            let help = reader.nearest(&name, valid()).map_or_else(
                || "write the `name` of a project of this file; a project without a name cannot be a dependency".to_owned(),
                |meant| format!("did you mean `{meant}`?"),
            );
            reader.problem(
                place,
                format!("there is no project `{}` to depend on", shown(&name)),
                help,
            );
        }
    }
}

/// Returns the texts of `depends_on` of a project.
fn written_dependencies(project: &YamlNode) -> Vec<Located> {
    let items = yaml::as_written::<ProjectMapping>(project)
        .and_then(|project| project.depends_on.node().cloned())
        .map(|node| node.value);
    let Some(YamlValue::List(items)) = items else {
        return Vec::new();
    };
    items.iter().filter_map(YamlNode::as_text).collect()
}

/// Returns the name of a project as written, even if it is invalid.
fn written_name(project: &YamlNode) -> Option<String> {
    let project = yaml::as_written::<ProjectMapping>(project)?;
    Some(project.name.node()?.as_text()?.text)
}

#[cfg(test)]
mod branch_tests;
#[cfg(test)]
mod tests;
