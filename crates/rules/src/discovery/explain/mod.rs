//! Explains the projects that a plan would cover, and why: all decisions about a change before anything runs, each
//! with its source (P10).
//!
//! The planned projects come from [`discover`] and [`select_for_plan`] themselves, so an explanation cannot differ
//! from a plan. This module only finds the reasons why other projects are *not* planned. `lockkeeper check` and the
//! comment `explain` show the same [`PlanExplanation`].

mod files;
mod json;
mod rows;
mod skipped;
mod unread;
mod warnings;

use std::collections::BTreeMap;

use semver::Version;

pub use files::{FileExclusion, FileVerdict};
pub use json::{DeciderJson, ExplanationJson};
pub use rows::{ExplainedRow, ExplainedValue, PlannedGroup, groups, rows};
pub use skipped::{SkipReason, Skipped, SkippedGroup, skipped_groups};
pub use warnings::{ConfigWarning, remarks, warnings};

use super::limits::LimitExceeded;
use super::terragrunt::SkippedDir;
use super::{
    Input, OrderPosition, Project, ProjectReason, RequestedProjects, RequiredVersions, SelectError,
    auto, changed_paths, configured, discover, links, required_versions, select_for_plan, stages,
    terragrunt,
};
use crate::config::BranchFilter;
use crate::config::repo::{AutodiscoverMode, RepoConfig};
use crate::config::repos::{Decided, Decider, ProjectRules, RepoRules};
use crate::model::{BranchName, CommandKind, Distribution, ProjectKey, RepoPath};

/// Input of an explanation.
pub struct ExplainInput<'a> {
    /// Input of the search for projects.
    pub input: &'a Input<'a>,
    /// Rules of the administrator for the repository.
    pub rules: &'a RepoRules,
    /// Tool that runs a project if the files name none.
    pub tool: ExplainedTool,
    /// True if pushes plan projects (not `--disable-autoplan`).
    pub autoplan: bool,
}

/// Terraform or OpenTofu, with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedTool {
    /// Terraform or OpenTofu, and the source of the choice.
    pub distribution: Decided<Distribution>,
    /// Version of the tool; `None` means the newest that meets the requirements of the code.
    pub version: Option<Decided<Version>>,
    /// Version constraints of the code, if the files do not name a version.
    pub code: RequiredVersions,
}

impl ExplainedTool {
    /// Returns the tool of the server's flags, or the default without them.
    pub fn of_server(distribution: Distribution, version: Option<Version>) -> Self {
        let by = match distribution {
            Distribution::Terraform => Decider::Default,
            Distribution::OpenTofu => Decider::Flag("default-tf-distribution"),
        };
        let version = version.map(|value| Decided {
            value,
            by: Decider::Flag("default-tf-version"),
        });
        Self {
            distribution: Decided {
                value: distribution,
                by,
            },
            version,
            code: RequiredVersions::default(),
        }
    }
}

/// Projects that a plan would cover, projects that it would not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanExplanation {
    /// Rule of the administrator that excludes pull requests into this branch; `None` if no rule does.
    pub not_served: Option<Decided<BranchFilter>>,
    /// Projects that a plan would run on, in the order of the plan.
    pub planned: Vec<Planned>,
    /// Projects that a plan would not run on, by directory, workspace and name; empty if particular projects were
    /// requested.
    pub skipped: Vec<Skipped>,
    /// Changed paths, sorted; empty if particular projects were requested.
    pub files: Vec<FileVerdict>,
    /// Decision about the search for projects without configuration.
    pub autodiscover: Autodiscovery,
    /// Number of hooks that did not run. A plan would run them first and may then find other projects.
    pub hooks: usize,
}

/// Decision about the search for projects without configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autodiscovery {
    /// Mode and the source of the decision.
    pub mode: Decided<AutodiscoverMode>,
    /// True if that mode turns on the search in this repository.
    pub is_active: bool,
}

/// A project that would be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Directory, workspace and name of the project.
    pub key: ProjectKey,
    /// Rule that chose the project.
    pub why: ProjectReason,
    /// Line of the repository's file with the entry of the project; `None` if nobody configured it.
    pub configured: Option<Decider>,
    /// Source of the decision that only a comment plans the project; `None` if a push plans it.
    pub only_asked: Option<Decider>,
    /// Rules for the project.
    pub rules: ProjectRules,
    /// Position in the order of projects.
    pub order: OrderPosition,
    /// Tool that would run the project.
    pub tool: ExplainedTool,
}

impl Planned {
    /// Returns one clause: the rule that chose the project, and a note if no push plans it.
    pub fn because(&self) -> String {
        match &self.only_asked {
            Some(by) => format!(
                "{}; a push does not plan it, only a comment does ({by})",
                self.why
            ),
            None => self.why.to_string(),
        }
    }
}

impl PlanExplanation {
    /// Returns one sentence without a full stop: `2 of 7 projects would be planned`.
    pub fn summary(&self) -> String {
        let (planned, all) = (self.planned.len(), self.planned.len() + self.skipped.len());
        let noun = if all == 1 { "project" } else { "projects" };
        let asked = match planned - self.by_themselves() {
            0 => String::new(),
            asked if asked == planned => ", only when a comment requests it".to_owned(),
            asked => format!(", {asked} of them only when a comment requests it"),
        };
        if self.not_served.is_some() {
            return "nothing would be planned: pull requests into this branch are not served"
                .to_owned();
        }
        match planned {
            0 if all == 0 => "there is no project here".to_owned(),
            0 => format!("none of {all} {noun} would be planned"),
            _ if planned == all => format!("{all} {noun} would be planned{asked}"),
            _ => format!("{planned} of {all} {noun} would be planned{asked}"),
        }
    }

    /// Returns the number of projects that a push plans.
    pub fn by_themselves(&self) -> usize {
        self.planned
            .iter()
            .filter(|planned| planned.only_asked.is_none())
            .count()
    }

    /// Returns the changed files that concern no project.
    pub fn idle_files(&self) -> impl Iterator<Item = (&FileVerdict, &FileExclusion)> {
        self.files
            .iter()
            .filter_map(|file| Some((file, file.why_not.as_ref()?)))
    }
}

/// Explains a plan of the whole change.
pub fn explain(question: &ExplainInput<'_>) -> Result<PlanExplanation, LimitExceeded> {
    let input = question.input;
    let projects = discover(input)?;
    let changed = links::seen(input.tree, changed_paths(input.changed))?;
    let changed: Vec<&RepoPath> = changed.iter().collect();
    let configured = configured::expand(input)?;
    let autodiscover = autodiscovery(input);
    let passed_over = passed_over(input);
    let files = files::verdicts(input, &changed, &configured, &projects, &passed_over);
    let search = skipped::UnnamedDirs {
        autodiscover: &autodiscover,
        passed_over: &passed_over,
        files: &files,
    };
    let skipped = skipped::find(input, &configured, &projects, &search);
    let planned = in_turn(projects)
        .into_iter()
        .map(|project| planned(question, project))
        .collect();
    let hooks = hooks_before_plan(question.rules, input.base);
    Ok(PlanExplanation {
        not_served: not_served(question),
        planned,
        skipped,
        files,
        autodiscover,
        hooks,
    })
}

/// Returns the number of hooks that the administrator runs before a plan of a pull request into this branch. Hooks
/// may make or change any file, so an explanation without them can be wrong.
pub fn hooks_before_plan(rules: &RepoRules, base: &BranchName) -> usize {
    rules
        .pre_hooks(base)
        .filter(|hook| hook.is_for(CommandKind::Plan))
        .count()
}

/// Returns a sentence which says that hooks did not run; `None` if there are no hooks.
pub fn hooks_not_run(hooks: usize) -> Option<String> {
    let (number, them) = match hooks {
        0 => return None,
        1 => ("1 hook".to_owned(), "it"),
        more => (format!("{more} hooks"), "them"),
    };
    Some(format!(
        "Hooks were not run. Before a plan, the server runs {number}. Without {them}, this explanation may differ \
         from a plan, because hooks may make or change files."
    ))
}

/// Returns the directories that Terragrunt would run, but skips; none if the search is off.
fn passed_over(input: &Input<'_>) -> BTreeMap<RepoPath, SkippedDir> {
    let counts = |file: &RepoPath| auto::counts(input, file);
    if input.searches() {
        terragrunt::passed_over(input.tree, input.read, &counts)
    } else {
        BTreeMap::new()
    }
}

/// Explains a plan of particular projects.
pub fn explain_target(
    target: &RequestedProjects,
    question: &ExplainInput<'_>,
) -> Result<PlanExplanation, SelectError> {
    let projects = select_for_plan(target, question.input)?;
    let planned = in_turn(projects)
        .into_iter()
        .map(|project| planned(question, project))
        .collect();
    Ok(PlanExplanation {
        not_served: not_served(question),
        planned,
        skipped: Vec::new(),
        files: Vec::new(),
        autodiscover: autodiscovery(question.input),
        hooks: hooks_before_plan(question.rules, question.input.base),
    })
}

/// Returns the projects in the order in which they would run. `depends_on` takes precedence over the group.
fn in_turn(projects: Vec<Project>) -> Vec<Project> {
    let stages = stages(projects, |project| (&project.key, &project.order));
    stages.into_iter().flat_map(|stage| stage.members).collect()
}

fn not_served(question: &ExplainInput<'_>) -> Option<Decided<BranchFilter>> {
    question
        .rules
        .branch()
        .filter(|branch| !branch.value.fits(question.input.base))
        .cloned()
}

fn autodiscovery(input: &Input<'_>) -> Autodiscovery {
    let flag = || {
        let is_default = input.settings.mode == AutodiscoverMode::default();
        let by = if is_default {
            Decider::Default
        } else {
            Decider::Flag("autodiscover-mode")
        };
        Decided {
            value: input.settings.mode,
            by,
        }
    };
    let mode = input.autodiscover.mode.clone().unwrap_or_else(flag);
    Autodiscovery {
        mode,
        is_active: input.searches(),
    }
}

/// Chooses the tool as a run does: first from the files, then from the code, then from the flag (reference 12.1).
fn tool(question: &ExplainInput<'_>, rules: &ProjectRules, dir: &RepoPath) -> ExplainedTool {
    let input = question.input;
    let read = |file: &RepoPath| links::read_code(input.tree, file, input.read);
    let distribution = rules
        .distribution
        .clone()
        .unwrap_or_else(|| question.tool.distribution.clone());
    let code = match &rules.version {
        Some(_) => RequiredVersions::default(),
        None => required_versions(input.tree.files_in(dir), distribution.value, &read),
    };
    let of_flag = question.tool.version.clone().filter(|_| code.is_empty());
    ExplainedTool {
        distribution,
        version: rules.version.clone().or(of_flag),
        code,
    }
}

fn planned(question: &ExplainInput<'_>, project: Project) -> Planned {
    let config = question.input.config;
    let Project {
        key,
        why,
        autoplan,
        order,
        ..
    } = project;
    let rules = question.rules.project(config, &key);
    let entry = config.and_then(|config| entry_line(config, &key));
    let tool = tool(question, &rules, &key.dir);
    let only_asked = match (question.autoplan, autoplan) {
        (false, _) => Some(Decider::Flag("disable-autoplan")),
        (true, false) => Some(entry.clone().unwrap_or(Decider::Default)),
        (true, true) => None,
    };
    Planned {
        key,
        why,
        configured: entry,
        only_asked,
        rules,
        order,
        tool,
    }
}

/// Returns the line where an entry begins.
fn entry_line(config: &RepoConfig, key: &ProjectKey) -> Option<Decider> {
    let line = config.entry_of(key)?.line;
    Some(Decider::Repo {
        file: config.file_name.clone(),
        line,
    })
}

#[cfg(test)]
mod tests;
