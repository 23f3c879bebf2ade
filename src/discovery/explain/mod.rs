//! The answer to "what would be planned, and why": everything that is decided about a change before anything is run,
//! each value with who decided it (P10).
//!
//! What would be planned comes from [`discover`] and [`select_for_plan`] themselves, so that an explanation cannot differ from
//! what a plan does; only the reasons of what would *not* be planned are found here. `lockkeeper check` and the comment
//! `explain` show the same [`Explanation`].

mod files;
mod json;
mod rows;
mod skipped;
mod unread;
mod warnings;

use std::collections::BTreeMap;

use semver::Version;

pub use files::{FileVerdict, FileWhyNot};
pub use json::{DeciderJson, ExplanationJson};
pub use rows::{Part, PlannedGroup, Row, groups, rows};
pub use skipped::{Skipped, SkippedGroup, WhyNot, skipped_groups};
pub use warnings::{Warning, remarks, warnings};

use super::limits::LimitExceeded;
use super::terragrunt::PassedOver;
use super::{
    Input, Order, Project, RequiredVersions, SelectError, Target, Why, auto, changed_paths,
    configured, discover, links, required_versions, select_for_plan, stages, terragrunt,
};
use crate::config::BranchFilter;
use crate::config::repo::{AutodiscoverMode, RepoConfig};
use crate::config::repos::{Decided, Decider, ProjectRules, RepoRules};
use crate::model::{BranchName, CommandKind, Distribution, ProjectKey, RepoPath};

/// What an explanation goes by.
pub struct Question<'a> {
    /// What the search for projects goes by.
    pub input: &'a Input<'a>,
    /// What the operator says about the repository.
    pub rules: &'a RepoRules,
    /// What runs a project about which the files say nothing.
    pub tool: Tool,
    /// Whether pushes plan anything (not `--disable-autoplan`).
    pub autoplan: bool,
}

/// Terraform or OpenTofu, and which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Which of the two.
    pub distribution: Decided<Distribution>,
    /// Which version; `None`: the newest that meets what the code demands.
    pub version: Option<Decided<Version>>,
    /// What the code demands, where the files do not name a version.
    pub code: RequiredVersions,
}

impl Tool {
    /// What flags of the server say; the default without them.
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

/// What would be planned, what not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The rule of the operator by which pulls into this branch are not served at all; `None`: they are.
    pub not_served: Option<Decided<BranchFilter>>,
    /// What a plan would run on, in the order in which it would.
    pub planned: Vec<Planned>,
    /// What it would not run on, by directory, workspace and name; empty when particular projects were asked for.
    pub skipped: Vec<Skipped>,
    /// Every changed path, sorted; empty when particular projects were asked for.
    pub files: Vec<FileVerdict>,
    /// Whether projects are looked for that nobody configured.
    pub autodiscover: Autodiscovery,
    /// Hooks that were not run, although a plan would run them first, after which it may find something else.
    pub hooks: usize,
}

/// Whether projects are looked for that nobody configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autodiscovery {
    /// What was decided.
    pub mode: Decided<AutodiscoverMode>,
    /// What that means for this repository.
    pub is_active: bool,
}

/// A project that would be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Directory, workspace and name.
    pub key: ProjectKey,
    /// What chose it.
    pub why: Why,
    /// The line of the repository's file that it is from; `None`: nobody configured it.
    pub configured: Option<Decider>,
    /// Who keeps pushes from planning it, so that only a comment does; `None`: a push plans it.
    pub only_asked: Option<Decider>,
    /// What holds for it.
    pub rules: ProjectRules,
    /// When its turn comes.
    pub order: Order,
    /// What would run it.
    pub tool: Tool,
}

impl Planned {
    /// One clause: what chose it, and whether a push plans it.
    pub fn because(&self) -> String {
        match &self.only_asked {
            Some(by) => format!("{}; no push plans it, only a comment does ({by})", self.why),
            None => self.why.to_string(),
        }
    }
}

impl Explanation {
    /// One sentence without a full stop: `2 of 7 projects would be planned`.
    pub fn summary(&self) -> String {
        let (planned, all) = (self.planned.len(), self.planned.len() + self.skipped.len());
        let noun = if all == 1 { "project" } else { "projects" };
        let asked = match planned - self.by_themselves() {
            0 => String::new(),
            asked if asked == planned => ", only when a comment asks for it".to_owned(),
            asked => format!(", {asked} of them only when a comment asks for it"),
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

    /// How many projects a push plans.
    pub fn by_themselves(&self) -> usize {
        self.planned
            .iter()
            .filter(|planned| planned.only_asked.is_none())
            .count()
    }

    /// The changed files that concern no project.
    pub fn idle_files(&self) -> impl Iterator<Item = (&FileVerdict, &FileWhyNot)> {
        self.files
            .iter()
            .filter_map(|file| Some((file, file.why_not.as_ref()?)))
    }
}

/// Explains what a plan of the whole change would do.
pub fn explain(question: &Question<'_>) -> Result<Explanation, LimitExceeded> {
    let input = question.input;
    let projects = discover(input)?;
    let changed = links::seen(input.tree, changed_paths(input.changed))?;
    let changed: Vec<&RepoPath> = changed.iter().collect();
    let configured = configured::expand(input)?;
    let autodiscover = autodiscovery(input);
    let passed_over = passed_over(input);
    let files = files::verdicts(input, &changed, &configured, &projects, &passed_over);
    let search = skipped::Search {
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
    Ok(Explanation {
        not_served: not_served(question),
        planned,
        skipped,
        files,
        autodiscover,
        hooks,
    })
}

/// How many hooks the operator runs before a plan of a pull into this branch. They may make or change any file, so what
/// is said without them can be wrong.
pub fn hooks_before_plan(rules: &RepoRules, base: &BranchName) -> usize {
    rules
        .pre_hooks(base)
        .filter(|hook| hook.is_for(CommandKind::Plan))
        .count()
}

/// That hooks were not run, as a sentence; `None` without any.
pub fn hooks_not_run(hooks: usize) -> Option<String> {
    let (number, them) = match hooks {
        0 => return None,
        1 => ("1 hook".to_owned(), "it"),
        more => (format!("{more} hooks"), "them"),
    };
    Some(format!(
        "Hooks were not run: before a plan the server runs {number}, which may make or change files, so that a plan may \
         find something else than what is said here without {them}."
    ))
}

/// Directories that Terragrunt would run, but passes over; none where nothing is looked for.
fn passed_over(input: &Input<'_>) -> BTreeMap<RepoPath, PassedOver> {
    let counts = |file: &RepoPath| auto::counts(input, file);
    if input.searches() {
        terragrunt::passed_over(input.tree, input.read, &counts)
    } else {
        BTreeMap::new()
    }
}

/// Explains what a plan of particular projects would do.
pub fn explain_target(
    target: &Target,
    question: &Question<'_>,
) -> Result<Explanation, SelectError> {
    let projects = select_for_plan(target, question.input)?;
    let planned = in_turn(projects)
        .into_iter()
        .map(|project| planned(question, project))
        .collect();
    Ok(Explanation {
        not_served: not_served(question),
        planned,
        skipped: Vec::new(),
        files: Vec::new(),
        autodiscover: autodiscovery(question.input),
        hooks: hooks_before_plan(question.rules, question.input.base),
    })
}

/// The projects in the order in which they would run. `depends_on` is a stronger word than the group.
fn in_turn(projects: Vec<Project>) -> Vec<Project> {
    let stages = stages(projects, |project| (&project.key, &project.order));
    stages.into_iter().flat_map(|stage| stage.members).collect()
}

fn not_served(question: &Question<'_>) -> Option<Decided<BranchFilter>> {
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

/// The files come first, then the code, then the flag (reference 12.1), as when it is run.
fn tool(question: &Question<'_>, rules: &ProjectRules, dir: &RepoPath) -> Tool {
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
    Tool {
        distribution,
        version: rules.version.clone().or(of_flag),
        code,
    }
}

fn planned(question: &Question<'_>, project: Project) -> Planned {
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

/// The line that an entry begins at.
fn entry_line(config: &RepoConfig, key: &ProjectKey) -> Option<Decider> {
    let line = config.entry_of(key)?.line;
    Some(Decider::Repo {
        file: config.file_name.clone(),
        line,
    })
}

#[cfg(test)]
mod tests;
