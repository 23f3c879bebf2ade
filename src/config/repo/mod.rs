//! The configuration a repository brings along, `atlantis.yaml` or `lockkeeper.yaml` (reference 4).
//!
//! It comes from a pull request, so it is read strictly and within limits: an unknown key is an error, and so is a key
//! of Atlantis that this version does not carry out yet, because ignoring one (say, `apply_requirements`) could let
//! something be applied that should not be. The problems become one text for the pull request.

mod autodiscover;
mod dir_glob;
mod file;
mod pattern_syntax;
mod patterns;
mod project;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use autodiscover::{AutodiscoverMode, InvalidMode};
pub use dir_glob::{DirGlob, InvalidGlob};
pub use file::{FILE_NAMES, FileNameError, find};
pub use pattern_syntax::InvalidPattern;
pub use patterns::Patterns;
pub use project::{Autoplan, ProjectConfig, ProjectDir, RequirementWish, WorkflowWish};

use super::lock_block;
pub use super::lock_block::LockWish;
pub use super::overrides::{AllowedOverrides, OverrideKey};
use super::workflow::Workflow;
use super::yaml::{self, Fields, Keys, Node, Reader, Value};
pub use super::yaml::{ConfigErrors, Place, Problem, nearest, quoted, shown};
use crate::model::{ProjectKey, RunKind};
use project::{OF_SERVER, PatternCache};

/// What a repository says about itself, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoConfig {
    /// Name of the file, for messages.
    pub file_name: String,
    /// Its projects, in the order of the file. None: they are discovered.
    pub projects: Vec<ProjectConfig>,
    /// Whether projects are planned in parallel; `None` leaves it to the server.
    pub parallel_plan: Option<bool>,
    /// Whether projects are applied in parallel; `None` leaves it to the server.
    pub parallel_apply: Option<bool>,
    /// When the locks of its projects are taken, where they say nothing themselves.
    pub repo_locks: Option<LockWish>,
    /// Workflows of the repository, by name; only where the operator allows them.
    pub workflows: BTreeMap<String, Arc<Workflow>>,
    /// Whether projects that it does not list are looked for.
    pub autodiscover: Option<AutodiscoverWish>,
    /// How a regular expression after `-p` has to begin if it is to name several projects; empty: in any way.
    pub allowed_regexp_prefixes: Vec<String>,
    /// Whether a failure in one group of the order keeps the later groups from running.
    pub abort_on_execution_order_fail: bool,
    /// Of which runs nothing is told in comments, where its projects say nothing themselves.
    pub silence_pr_comments: Option<Vec<RunKind>>,
}

/// What a repository says about looking for projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutodiscoverWish {
    /// Whether they are looked for.
    pub mode: AutodiscoverMode,
    /// Directories that are none; `None`: it does not say.
    pub ignore_paths: Option<Vec<DirGlob>>,
    /// Line of the file that says so, from 1.
    pub line: usize,
}

const TOP: Keys = Keys {
    of: "the file",
    here: &["version", "projects", "parallel_plan", "parallel_apply", "automerge", "repo_locks"],
    later: &[
        "workflows",
        "policies",
        "autodiscover",
        "delete_source_branch_on_merge",
        "emoji_reaction",
        "allowed_regexp_prefixes",
        "abort_on_execution_order_fail",
        "silence_pr_comments",
    ],
    of_server: OF_SERVER,
};

impl RepoConfig {
    /// Size of the file in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Entries of `projects`.
    pub const MAX_PROJECTS: usize = 5_000;

    /// Entries of `projects` whose `dir` is a pattern: each is tried on every directory.
    pub const MAX_GLOBS: usize = 100;

    /// Reads a configuration file. `file_name` is for the errors; `allowed` is what the server lets this repository
    /// decide itself.
    pub fn parse(file_name: &str, text: &str, allowed: &AllowedOverrides) -> Result<Self, ConfigErrors> {
        let mut reader = Reader::default();
        let config = read(&mut reader, text, allowed);
        let config = Self { file_name: file_name.to_owned(), ..config };
        if reader.problems.is_empty() { Ok(config) } else { Err(ConfigErrors::new(file_name, text, reader.problems)) }
    }

    /// The entry that a project of this repository comes from; `None` when it is not configured (the same choice as
    /// discovery makes).
    pub fn entry_of(&self, project: &ProjectKey) -> Option<&ProjectConfig> {
        let ProjectKey { dir, workspace, name } = project;
        let mut there = self.projects.iter().filter(|entry| entry.is_at(dir, workspace)).peekable();
        if there.peek().is_some() {
            return there.find(|entry| entry.name == *name);
        }
        self.projects.iter().find(|entry| name.is_none() && entry.reaches(dir, workspace))
    }
}

fn read(reader: &mut Reader, text: &str, allowed: &AllowedOverrides) -> RepoConfig {
    if text.len() > RepoConfig::MAX_BYTES {
        let what = format!("the file has {} bytes; {} are allowed", text.len(), RepoConfig::MAX_BYTES);
        reader.problem_of_file(what, "use a pattern as the `dir` of projects that look alike, or YAML anchors");
        return RepoConfig::default();
    }
    match yaml::read(text) {
        Ok(Some(node)) => read_top(reader, &node, allowed),
        Ok(None) => {
            version_missing(reader);
            RepoConfig::default()
        }
        Err(problem) => {
            reader.problems.push(problem);
            RepoConfig::default()
        }
    }
}

fn read_top(reader: &mut Reader, node: &Node, allowed: &AllowedOverrides) -> RepoConfig {
    let Some(fields) = reader.fields(node, &TOP) else { return RepoConfig::default() };
    check_version(reader, &fields);
    check_automerge(reader, &fields);
    RepoConfig {
        file_name: String::new(),
        parallel_plan: reader.boolean(&fields, "parallel_plan"),
        parallel_apply: reader.boolean(&fields, "parallel_apply"),
        repo_locks: lock_block::read_of_repo(reader, &fields, allowed),
        projects: read_projects(reader, &fields, allowed),
        ..RepoConfig::default()
    }
}

/// Version 2 differs from 3 only in custom workflows, which are refused in both.
fn check_version(reader: &mut Reader, fields: &Fields<'_>) {
    let Some(node) = fields.get("version") else { return version_missing(reader) };
    match &node.value {
        Value::Scalar(_, text) if matches!(text.as_str(), "2" | "3") => {}
        Value::Scalar(_, text) => {
            let what = format!("there is no version `{}` of this file", shown(text));
            reader.problem(node.place, what, "write `version: 3`");
        }
        Value::Null | Value::List(_) | Value::Map(_) => {
            reader.problem(node.place, "`version` must be a number".to_owned(), "write `version: 3`");
        }
    }
}

fn version_missing(reader: &mut Reader) {
    reader.problem_of_file("`version` is missing".to_owned(), "begin the file with `version: 3`");
}

/// `false` is what happens anyway.
fn check_automerge(reader: &mut Reader, fields: &Fields<'_>) {
    if let (Some(true), Some(node)) = (reader.boolean(fields, "automerge"), fields.get("automerge")) {
        reader.later(node.place, "`automerge: true`");
    }
}

fn read_projects(reader: &mut Reader, fields: &Fields<'_>, allowed: &AllowedOverrides) -> Vec<ProjectConfig> {
    let entries = reader.list(fields, "projects").unwrap_or_default();
    if entries.len() > RepoConfig::MAX_PROJECTS {
        let what = format!("there are {} projects; {} are allowed", entries.len(), RepoConfig::MAX_PROJECTS);
        reader.problem_of_file(what, "use a pattern as the `dir` of projects that look alike");
        return Vec::new();
    }
    let mut cache = PatternCache::default();
    let read = |entry| Some((entry, project::read(reader, &mut cache, allowed, entry)?));
    let projects: Vec<(&Node, ProjectConfig)> = entries.iter().filter_map(read).collect();
    check_globs(reader, &projects);
    check_names(reader, &projects);
    check_places(reader, &projects);
    projects.into_iter().map(|(_, project)| project).collect()
}

fn check_globs(reader: &mut Reader, projects: &[(&Node, ProjectConfig)]) {
    let globs = projects.iter().filter(|(_, project)| matches!(project.dir, ProjectDir::Glob(_))).count();
    if globs > RepoConfig::MAX_GLOBS {
        let what = format!("{globs} projects have a pattern as their `dir`; {} are allowed", RepoConfig::MAX_GLOBS);
        reader.problem_of_file(what, "join patterns, for example with `{a,b}` or `**`");
    }
}

fn check_names(reader: &mut Reader, projects: &[(&Node, ProjectConfig)]) {
    let mut seen = HashMap::new();
    for (node, project) in projects {
        let Some(name) = &project.name else { continue };
        if let Some(first) = seen.insert(name, project.line) {
            let what = format!("two projects are called `{name}`; the other one is in line {first}");
            reader.problem(node.place, what, "give each project its own name");
        }
    }
}

/// The first project of a directory and workspace may do without a name; the others could not be called (reference
/// 4.3).
fn check_places(reader: &mut Reader, projects: &[(&Node, ProjectConfig)]) {
    let mut seen = HashMap::new();
    for (node, project) in projects {
        let place = (project.dir.to_string(), &project.workspace);
        let Some(first) = seen.get(&place).copied() else {
            seen.insert(place, project.line);
            continue;
        };
        if project.name.is_none() {
            let (dir, workspace) = (shown(&place.0), place.1);
            let what = format!("`dir: {dir}` with workspace `{workspace}` is already the project of line {first}");
            let help = match project.dir {
                ProjectDir::Path(_) => "give this project a `name`, so that it can be told apart: `plan -p NAME`",
                ProjectDir::Glob(_) => "remove one of the two",
            };
            reader.problem(node.place, what, help);
        }
    }
}

#[cfg(test)]
mod tests;
