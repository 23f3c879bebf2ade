//! Reads one entry of `projects` (reference 4.2).

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use semver::Version;

use super::dir_glob::DirGlob;
use super::keys::{AutoplanMapping, ProjectMapping};
use super::patterns::{Pattern, Patterns};
use super::requests::{
    PolicyCheckRequest, ProjectContext, RequirementRequest, SilenceRequest, WorkflowRequest,
    read_check, read_requirements, read_silence, read_workflow,
};
use crate::config::BranchFilter;
use crate::config::lock_block::{self, LockTiming};
use crate::config::yaml::{Field, FileReader, Located, YamlNode, shown};
use crate::model::{Distribution, ProjectName, RepoPath, WorkspaceName};

/// A project in the repository's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectConfig {
    /// Name that commands use for the project.
    pub name: Option<ProjectName>,
    /// Directory or directories of the code.
    pub dir: ProjectDir,
    /// Workspace of the runs.
    pub workspace: WorkspaceName,
    /// Changes that plan the project.
    pub autoplan: Autoplan,
    /// Version of Terraform or OpenTofu. `None`: the version is detected.
    pub terraform_version: Option<Version>,
    /// The time at which the lock is taken. `None` leaves it to the rest of the file and to the server.
    pub repo_locks: Option<LockTiming>,
    /// Base branches of the project. `None` stands for all.
    pub branch: Option<BranchFilter>,
    /// Name of the requested workflow.
    pub workflow: Option<WorkflowRequest>,
    /// Terraform or OpenTofu. `None` leaves the choice to the server.
    pub distribution: Option<Distribution>,
    /// Requested requirements for a plan.
    pub plan_requirements: Option<RequirementRequest>,
    /// Requested requirements for an apply.
    pub apply_requirements: Option<RequirementRequest>,
    /// Requested requirements for an import.
    pub import_requirements: Option<RequirementRequest>,
    /// Names of the projects that run before this one.
    pub depends_on: Vec<ProjectName>,
    /// Group in the execution order. Lower groups run first.
    pub execution_order_group: i32,
    /// Runs whose comments are left out.
    pub silence_pr_comments: Option<SilenceRequest>,
    /// Request for or against checks of its plans against policies.
    pub policy_check: Option<PolicyCheckRequest>,
    /// Request for or against checks by steps of its workflow.
    pub custom_policy_check: Option<PolicyCheckRequest>,
    /// Line of the file where the entry begins, counted from 1.
    pub line: usize,
}

/// Directory or directories of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectDir {
    /// A single directory, without wildcards.
    Path(RepoPath),
    /// A glob: every matching directory with Terraform code is a project.
    Glob(DirGlob),
}

impl ProjectConfig {
    /// Returns true if the entry has exactly this directory and this workspace.
    pub(super) fn is_at(&self, dir: &RepoPath, workspace: &WorkspaceName) -> bool {
        self.workspace == *workspace && matches!(&self.dir, ProjectDir::Path(own) if own == dir)
    }

    /// Returns true if the entry has a glob that matches this directory, and has this workspace.
    pub(super) fn reaches(&self, dir: &RepoPath, workspace: &WorkspaceName) -> bool {
        self.workspace == *workspace
            && matches!(&self.dir, ProjectDir::Glob(glob) if glob.arrives_at(dir))
    }
}

impl fmt::Display for ProjectDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Glob(glob) => glob.fmt(f),
        }
    }
}

/// Changes that plan a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autoplan {
    /// True if a push plans the project. A `plan` comment without flags plans it in any case (reference 3.3).
    pub enabled: bool,
    /// Patterns of files that plan the project if they change, relative to its directory. With an empty list, none
    /// does.
    pub when_modified: Patterns,
}

impl Default for Autoplan {
    fn default() -> Self {
        Self {
            enabled: true,
            when_modified: DEFAULT_WHEN_MODIFIED.clone(),
        }
    }
}

/// Patterns for a project without `when_modified` (reference 4.2).
static DEFAULT_WHEN_MODIFIED: LazyLock<Patterns> = LazyLock::new(|| {
    let patterns = [
        "**/*.tf*",
        "**/*.tofu",
        "**/*.tofu.json",
        "**/terragrunt.hcl",
        "**/.terraform.lock.hcl",
    ];
    Patterns::new(patterns).expect("these patterns are valid")
});

/// Compiled patterns of the whole file. Each is compiled once, because projects repeat the same lists.
#[derive(Default)]
pub(super) struct PatternCache(HashMap<String, Pattern>);

impl PatternCache {
    /// Maximum number of different patterns in one file, because each takes memory once compiled.
    const MAX: usize = 5_000;
}

/// The readable part of an entry.
pub(super) struct ProjectEntry {
    pub(super) project: ProjectConfig,
    /// True if `name`, `workspace` and `branch` are read without mistakes. With a mistake there, conflicts with other
    /// entries cannot be determined.
    pub(super) is_certain: bool,
}

/// Reads one project. Returns `None` if its directory is invalid.
pub(super) fn read(
    reader: &mut FileReader,
    cache: &mut PatternCache,
    around: &ProjectContext<'_>,
    node: &YamlNode,
) -> Option<ProjectEntry> {
    let entry: ProjectMapping = reader.mapping(node)?;
    let allowed = around.permissions.overrides();
    let name = entry
        .name
        .read(reader)
        .and_then(|name| read_name(reader, &name));
    let workspace = read_workspace(reader, &entry);
    let branch = entry.branch.read(reader);
    let is_certain = (name.is_some() || !entry.name.is_set())
        && (workspace.is_some() || !entry.workspace.is_set())
        && (branch.is_some() || !entry.branch.is_set());
    let project = ProjectConfig {
        name,
        dir: ProjectDir::Path(RepoPath::root()),
        // The default also replaces an invalid workspace, so that the rest of the entry is still checked.
        workspace: workspace.unwrap_or_default(),
        autoplan: read_autoplan(reader, cache, &entry.autoplan),
        terraform_version: read_version(reader, &entry),
        repo_locks: lock_block::read_of_project(
            reader,
            &entry.repo_locks,
            &entry.repo_locking,
            allowed,
        ),
        branch,
        workflow: read_workflow(reader, around, &entry.workflow),
        distribution: entry.terraform_distribution.read(reader),
        plan_requirements: read_requirements(reader, allowed, &entry.plan_requirements),
        apply_requirements: read_requirements(reader, allowed, &entry.apply_requirements),
        import_requirements: read_requirements(reader, allowed, &entry.import_requirements),
        depends_on: read_depends_on(reader, &entry),
        execution_order_group: entry.execution_order_group.read(reader).unwrap_or_default(),
        silence_pr_comments: read_silence(reader, allowed, &entry.silence_pr_comments),
        policy_check: read_check(reader, around.permissions, &entry.policy_check),
        custom_policy_check: read_check(reader, around.permissions, &entry.custom_policy_check),
        line: node.place.line,
    };
    let dir = read_dir(reader, &entry)?;
    if let (ProjectDir::Glob(glob), Some(_), Some(node)) = (&dir, &project.name, entry.name.node())
    {
        reader.problem(
            node.place,
            format!(
                "a project with a pattern as its `dir` (`{}`) cannot have a `name`",
                shown(glob.as_str())
            ),
            "remove `name`, or write one entry for each directory",
        );
    }
    Some(ProjectEntry {
        project: ProjectConfig { dir, ..project },
        is_certain,
    })
}

/// Reads `depends_on`. The caller checks that the names exist once all projects are read.
fn read_depends_on(reader: &mut FileReader, entry: &ProjectMapping) -> Vec<ProjectName> {
    let names = entry.depends_on.read(reader).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| read_name(reader, name))
        .collect()
}

fn read_dir(reader: &mut FileReader, entry: &ProjectMapping) -> Option<ProjectDir> {
    const HELP: &str = "write the path from the root of the repository, such as `infra/network`, or `.` for the root";
    let dir = reader.required(entry, &entry.dir, HELP)?;
    if dir.text.trim().is_empty() {
        reader.problem(dir.place, "`dir` is empty".to_owned(), HELP);
        return None;
    }
    if dir.text.split('/').any(|part| part == "..") {
        reader.problem(
            dir.place,
            format!("`dir` must not have `..`: `{}`", shown(&dir.text)),
            HELP,
        );
        return None;
    }
    let read = if DirGlob::is_glob(&dir.text) {
        DirGlob::new(&dir.text)
            .map(ProjectDir::Glob)
            .map_err(|error| error.to_string())
    } else {
        let error = || format!("`{}` is not a path of a directory", shown(&dir.text));
        RepoPath::new(&dir.text)
            .map(ProjectDir::Path)
            .map_err(|_| error())
    };
    read.map_err(|error| reader.problem(dir.place, error, HELP))
        .ok()
}

fn read_name(reader: &mut FileReader, name: &Located) -> Option<ProjectName> {
    let invalid = |_| {
        reader.problem(
            name.place,
            format!("`{}` cannot be the name of a project", shown(&name.text)),
            "use 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/`",
        );
    };
    ProjectName::new(&name.text).map_err(invalid).ok()
}

fn read_workspace(reader: &mut FileReader, entry: &ProjectMapping) -> Option<WorkspaceName> {
    let workspace = entry.workspace.read(reader)?;
    let invalid = |_| {
        reader.problem(
            workspace.place,
            format!("`{}` cannot be a workspace", shown(&workspace.text)),
            "do not use slashes, `..`, `$` or white space, and do not begin with `-` or `~`",
        );
    };
    WorkspaceName::new(&workspace.text).map_err(invalid).ok()
}

fn read_version(reader: &mut FileReader, entry: &ProjectMapping) -> Option<Version> {
    let version = entry.terraform_version.read(reader)?;
    let parsed = parse_version(version.text.trim());
    if parsed.is_none() {
        let what = format!("`{}` is not a version of Terraform", shown(&version.text));
        reader.problem(
            version.place,
            what,
            "write one exact version, such as `1.9.5` or `v1.9.5`",
        );
    }
    parsed
}

/// Parses a version. A leading `v` is allowed, and missing parts are zero, as in `1.9`.
pub(in crate::config) fn parse_version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let zeros = ".0".repeat(2_usize.saturating_sub(numbers.matches('.').count()));
    Version::parse(&format!("{numbers}{zeros}{rest}")).ok()
}

fn read_autoplan(
    reader: &mut FileReader,
    cache: &mut PatternCache,
    autoplan: &Field<AutoplanMapping>,
) -> Autoplan {
    let default = Autoplan::default();
    let Some(autoplan) = autoplan.read(reader) else {
        return default;
    };
    let enabled = autoplan.enabled.read(reader).unwrap_or(default.enabled);
    let Some(texts) = autoplan.when_modified.read(reader) else {
        return Autoplan { enabled, ..default };
    };
    let patterns = texts
        .iter()
        .filter_map(|text| read_pattern(reader, cache, text))
        .collect();
    Autoplan {
        enabled,
        when_modified: Patterns::from_list(patterns),
    }
}

fn read_pattern(
    reader: &mut FileReader,
    cache: &mut PatternCache,
    text: &Located,
) -> Option<Pattern> {
    if let Some(pattern) = cache.0.get(&text.text) {
        return Some(pattern.clone());
    }
    if cache.0.len() >= PatternCache::MAX {
        let what = format!(
            "the file has more than {} different patterns",
            PatternCache::MAX
        );
        reader.problem_of_file(what, "use fewer and wider patterns, for example with `**`");
        return None;
    }
    match Pattern::new(&text.text) {
        Ok(pattern) => {
            cache.0.insert(text.text.clone(), pattern.clone());
            Some(pattern)
        }
        Err(error) => {
            let what = format!(
                "`{}` is not a valid file pattern: {error}",
                shown(&text.text)
            );
            reader.problem(
                text.place,
                what,
                "write it as in a `.dockerignore` file, such as `../modules/**/*.tf`",
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_may_be_short_or_have_a_v() {
        for (text, expected) in [
            ("1.9.5", "1.9.5"),
            ("v1.9.5", "1.9.5"),
            ("1.10", "1.10.0"),
            ("1", "1.0.0"),
            ("1.9-rc1", "1.9.0-rc1"),
            ("1.9.0+ent", "1.9.0+ent"),
        ] {
            assert_eq!(parse_version(text).unwrap().to_string(), expected, "{text}");
        }
        for text in [
            "", "v", "latest", ">= 1.5", "1.2.3.4", "1..2", "1.x", "vv1.2.3",
        ] {
            assert_eq!(parse_version(text), None, "{text}");
        }
    }

    #[test]
    fn the_default_patterns_see_code_and_locks_only() {
        let default = Autoplan::default();
        let concerns = |file: &str| {
            default
                .when_modified
                .matching(&RepoPath::root(), &file.parse().unwrap())
                .is_some()
        };
        for file in [
            "main.tf",
            "a/b.tfvars",
            "x.tf.json",
            "x.tofu",
            "terragrunt.hcl",
            "a/.terraform.lock.hcl",
        ] {
            assert!(concerns(file), "{file}");
        }
        for file in ["README.md", "a.hcl", "tf", "a/main.py"] {
            assert!(!concerns(file), "{file}");
        }
    }
}
