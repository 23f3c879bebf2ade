//! Warns about settings that are valid but have no effect, because hardly anybody means them, and about facts that
//! could not be determined.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use super::super::configured::{self, Configured};
use super::super::limits::LimitExceeded;
use super::super::terragrunt::{self, Unresolved};
use super::super::{FileTree, links};
use super::{ExplainInput, PlanExplanation, unread};
use crate::config::repo::{OverrideKey, ProjectConfig, ProjectDir, RepoConfig, YamlNote, shown};
use crate::config::repos::Decider;
use crate::model::RepoPath;

/// A setting without effect, or an unknown fact. `Display` writes a line without the place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigWarning {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; `None` if the warning is about the whole file.
    pub line: Option<usize>,
    /// Description of the problem.
    pub what: String,
    /// Advice how to fix it.
    pub help: String,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Returns all warnings: settings of the repository without effect, then those of the server, then unknown facts
/// about code, each in the order of the files. Code comes last, because it may have more warnings than are shown.
/// Unknown facts about single projects are reported for explained projects only.
pub fn warnings(
    question: &ExplainInput<'_>,
    explanation: Option<&PlanExplanation>,
) -> Result<Vec<ConfigWarning>, LimitExceeded> {
    let expanded = configured::expand(question.input)?;
    let not_known = not_known(question, explanation, &expanded.dirs);
    let configured: Vec<Configured<'_>> = expanded
        .projects
        .into_iter()
        .chain(expanded.elsewhere)
        .collect();
    let of_repo = of_repo(question, &configured);
    Ok([of_repo, of_server(question), not_known]
        .into_iter()
        .flat_map(sorted)
        .collect())
}

/// Sorts warnings in the order of the files and removes duplicates.
fn sorted(mut warnings: Vec<ConfigWarning>) -> Vec<ConfigWarning> {
    warnings.sort();
    warnings.dedup();
    warnings
}

fn of_repo(question: &ExplainInput<'_>, configured: &[Configured<'_>]) -> Vec<ConfigWarning> {
    let Some(config) = question.input.config else {
        return Vec::new();
    };
    let mut all = dirs(question, config, configured);
    all.extend(remarks(&config.file_name, &config.without_effect));
    all.extend(requirements(question, config));
    all.extend(workflows(question, config, configured));
    all
}

/// Warns about facts that cannot be determined, and about decisions that depend on unreadable code.
fn not_known(
    question: &ExplainInput<'_>,
    explanation: Option<&PlanExplanation>,
    configured: &HashSet<RepoPath>,
) -> Vec<ConfigWarning> {
    let mut all = of_terragrunt(question);
    all.extend(
        question
            .input
            .modules
            .into_iter()
            .flat_map(|modules| unread::of_modules(modules.unread())),
    );
    all.extend(unread::of_states(question.input, configured));
    let planned = explanation
        .into_iter()
        .flat_map(|explanation| &explanation.planned);
    all.extend(planned.flat_map(|planned| unread::of_planned(question.input, planned)));
    all
}

/// Warns about entries that match only a part of the repository's id.
fn of_server(question: &ExplainInput<'_>) -> Vec<ConfigWarning> {
    let warning = |by: &Decider| match by {
        Decider::Server { file, line, id } => Some(ConfigWarning {
            file: file.to_string(),
            line: Some(*line),
            what: format!(
                "`{}` matches only a part of the name of this repository, so the entry does not apply to it",
                shown(id)
            ),
            help: "an expression must match the whole of `host/owner/name`: add `.*` for any text"
                .to_owned(),
        }),
        Decider::Default | Decider::Flag(_) | Decider::Repo { .. } => None,
    };
    question
        .rules
        .near_misses()
        .iter()
        .filter_map(warning)
        .collect()
}

/// Warns about parts of Terragrunt files whose value only a run could determine, so that a change may be missed.
fn of_terragrunt(question: &ExplainInput<'_>) -> Vec<ConfigWarning> {
    let input = question.input;
    if !terragrunt::is_used(input.tree) {
        return Vec::new();
    }
    let warning = |Unresolved { file, line, what }: Unresolved| {
        ConfigWarning {
        file: file.to_string(),
        line: Some(line),
        what,
        help: "changes of files that only this expression names are not noticed: write a plain path, or name the \
               files with `mark_as_read`"
            .to_owned(),
    }
    };
    let found = terragrunt::units(input.tree, input.read);
    found
        .unresolved
        .into_iter()
        .map(warning)
        .chain(unread::of_modules(&found.unread))
        .collect()
}

fn dirs(
    question: &ExplainInput<'_>,
    config: &RepoConfig,
    configured: &[Configured<'_>],
) -> Vec<ConfigWarning> {
    let tree = question.input.tree;
    let used: BTreeSet<usize> = configured
        .iter()
        .filter(|one| tree.dir_exists(&one.key.dir))
        .map(Configured::line)
        .collect();
    let entries = config.projects.iter().chain(&config.elsewhere);
    let idle = entries.filter(|entry| !used.contains(&entry.line));
    let warning = |entry: &ProjectConfig| {
        let (what, help) = match &entry.dir {
            ProjectDir::Path(path) => no_dir(tree, path),
            ProjectDir::Glob(glob) => (
                format!(
                    "`{}` matches no directory with code that is not a project already",
                    shown(glob.as_str())
                ),
                "correct the pattern, or remove the project".to_owned(),
            ),
        };
        ConfigWarning {
            file: config.file_name.clone(),
            line: Some(entry.line),
            what,
            help,
        }
    };
    idle.map(warning).collect()
}

/// Describes the problem of a path that is no directory, and how to fix it.
fn no_dir(tree: &FileTree, path: &RepoPath) -> (String, String) {
    let dir = shown(path.as_str());
    if let Some(target) = links::dir_behind(tree, path) {
        let target = shown(target.as_str());
        let what = format!(
            "the directory `{dir}` is a symbolic link to `{target}`, and no project runs behind a link"
        );
        return (
            what,
            format!("write `dir: {target}`, or remove the project"),
        );
    }
    (
        format!("the directory `{dir}` does not exist"),
        "correct `dir`, or remove the project".to_owned(),
    )
}

/// Warns about parts of a file that are accepted and have no effect.
pub fn remarks<'a>(file: &'a str, all: &'a [YamlNote]) -> impl Iterator<Item = ConfigWarning> + 'a {
    all.iter().map(move |remark| ConfigWarning {
        file: file.to_owned(),
        line: Some(remark.line),
        what: remark.what.clone(),
        help: remark.help.clone(),
    })
}

/// Warns about empty lists of requirements, if a repository may not require less than the server.
fn requirements(question: &ExplainInput<'_>, config: &RepoConfig) -> Vec<ConfigWarning> {
    if question
        .rules
        .permissions()
        .allows(OverrideKey::FewerRequirements)
    {
        return Vec::new();
    }
    let requirements_of = |project: &ProjectConfig| {
        [
            ("plan_requirements", project.plan_requirements.clone()),
            ("apply_requirements", project.apply_requirements.clone()),
            // An empty list lets imports do without what the project itself requires for an apply.
            (
                "import_requirements",
                project
                    .import_requirements
                    .clone()
                    .filter(|_| project.apply_requirements.is_none()),
            ),
        ]
    };
    let all = config
        .projects
        .iter()
        .chain(&config.elsewhere)
        .flat_map(requirements_of);
    let empty = all.filter_map(|(key, needs)| {
        Some((
            key,
            needs.filter(|needs| needs.requirements.is_empty())?.line,
        ))
    });
    let warning = |(key, line)| {
        ConfigWarning {
        file: config.file_name.clone(),
        line: Some(line),
        what: format!("`{key}: []` has no effect"),
        help: "the requirements of the server are still in effect; remove the key, or ask an administrator to add \
               `fewer_requirements` to `allowed_overrides` of this repository"
            .to_owned(),
    }
    };
    empty.map(warning).collect()
}

/// Warns about workflows of the repository that no project uses.
fn workflows(
    question: &ExplainInput<'_>,
    config: &RepoConfig,
    configured: &[Configured<'_>],
) -> Vec<ConfigWarning> {
    let mut unused: BTreeSet<&str> = config.workflows.keys().map(String::as_str).collect();
    for one in configured {
        let rules = question.rules.project(Some(config), &one.key);
        unused.remove(rules.workflow.value.name.as_str());
    }
    let warning = |name: &str| ConfigWarning {
        file: config.file_name.clone(),
        line: None,
        what: format!("no project uses the workflow `{}`", shown(name)),
        help: "name it in `workflow` of a project, or remove it".to_owned(),
    };
    unused.into_iter().map(warning).collect()
}
