//! Finds the plans of an apply, or of an approval, from its target.

use std::collections::BTreeSet;

use super::search::sentence;
use crate::command;
use crate::discovery::{NameError, choose_names};
use crate::features::planning::policies::Policies;
use crate::features::planning::stop::Stop;
use crate::features::planning::{CommandCx, config_file};
use crate::features::replies::{self, Reply};
use crate::model::{PlanRecord, ProjectKey, ProjectName, Waiter, without_backticks};

/// Maximum number of waiting projects in a reply.
const MOST_WAITING: usize = 5;

/// Reason to look for plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::features::planning) enum PlanUse {
    Apply,
    Approve,
}

impl PlanUse {
    fn verb(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Approve => "approve",
        }
    }
}

/// Finds the plans of an apply, or of an approval.
pub(in crate::features::planning) async fn plans(
    cx: &CommandCx<'_>,
    target: &command::CommandTarget,
    used_to: PlanUse,
) -> Result<Vec<PlanRecord>, Stop> {
    let verb = used_to.verb();
    let recorded = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let literal = literal(target, recorded.iter().map(|plan| &plan.project));
    let target = literal.as_ref().unwrap_or(target);
    let named = match target {
        command::CommandTarget::Project(selector) => {
            named(cx, selector.as_str(), &recorded).await?
        }
        command::CommandTarget::Generic | command::CommandTarget::DirWorkspace { .. } => {
            Ok(BTreeSet::new())
        }
    };
    let named = match named {
        Ok(named) => named,
        Err(error) => return Err(Stop::Reply(wrong_name(&error))),
    };
    let wanted: Vec<PlanRecord> = recorded
        .into_iter()
        .filter(|plan| concerns(target, &named, &plan.project))
        .collect();
    if wanted.is_empty() && cx.pull.at.subject.is_application() {
        let message = format!("there is no plan of this application to {verb}.");
        let hint = format!("Plan first, look at the plan, then {verb} it.");
        return Err(Stop::Reply(Reply::refused("no_plan", message, vec![hint])));
    }
    if wanted.is_empty()
        && let Some(waits) = waits(cx, target, verb).await?
    {
        return Err(Stop::Reply(waits));
    }
    if wanted.is_empty() {
        let word = cx.ctx.settings.comments.executable();
        let what = if target.is_targeted() {
            "there is no plan of that project".to_owned()
        } else {
            format!("there is no plan to {verb}")
        };
        return Err(Stop::Reply(Reply::refused(
            "no_plan",
            format!("{what} in this pull request."),
            vec![format!(
                "Comment `{word} plan` first, look at the plan, then {verb} it."
            )],
        )));
    }
    Ok(wanted)
}

/// Selects the projects that the target of a command means. Only the projects themselves are looked at: there may be no
/// plan, and no configuration that says more about their names.
pub(in crate::features::planning) fn meant(
    cx: &CommandCx<'_>,
    target: &command::CommandTarget,
    projects: &BTreeSet<ProjectKey>,
) -> Result<BTreeSet<ProjectKey>, NameError> {
    let literal = literal(target, projects);
    let target = literal.as_ref().unwrap_or(target);
    let known: Vec<&ProjectName> = projects
        .iter()
        .filter_map(|project| project.name.as_ref())
        .collect();
    let named = match target {
        command::CommandTarget::Project(selector) => {
            let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            let regexp = cx.ctx.settings.comments.regexp;
            let chosen = choose_names(selector.as_str(), &names, regexp, &[])?;
            known
                .iter()
                .filter(|name| chosen.contains(name.as_str()))
                .map(|name| (*name).clone())
                .collect()
        }
        command::CommandTarget::Generic | command::CommandTarget::DirWorkspace { .. } => {
            BTreeSet::new()
        }
    };
    Ok(projects
        .iter()
        .filter(|project| concerns(target, &named, project))
        .cloned()
        .collect())
}

/// Returns the reply if the name of a project cannot be used.
pub(in crate::features::planning) fn wrong_name(error: &NameError) -> Reply {
    Reply::refused("target", sentence(error.to_string()), vec![])
}

/// Builds the reply if nothing was planned because the pull request waits for a lock.
async fn waits(
    cx: &CommandCx<'_>,
    target: &command::CommandTarget,
    verb: &str,
) -> Result<Option<Reply>, sqlx::Error> {
    let waiting = cx.ctx.store.waiter_list_of_pull(&cx.pull.at).await?;
    let is_meant = |waiter: &&Waiter| match target {
        command::CommandTarget::Project(selector) => waiter
            .project
            .name
            .as_ref()
            .is_some_and(|own| own.as_str() == selector.as_str()),
        command::CommandTarget::Generic | command::CommandTarget::DirWorkspace { .. } => {
            is_at(target, &waiter.project)
        }
    };
    let mut lines = Vec::new();
    for waiter in waiting.iter().filter(is_meant).take(MOST_WAITING) {
        let place = replies::queue_place(cx.ctx, waiter).await?;
        lines.extend(
            place.map(|place| format!("{}: {}.", waiter.project, without_backticks(&place))),
        );
    }
    if lines.is_empty() {
        return Ok(None);
    }
    lines.push(format!(
        "It is planned automatically as soon as the lock is free. Look at that plan, then {verb} it."
    ));
    let message =
        format!("there is nothing to {verb} yet, because this pull request waits for a lock.");
    Ok(Some(Reply::refused("waiting", message, lines)))
}

/// Selects the names of planned projects that fit the typed name. The planned configuration has the prefixes that an
/// expression must begin with. If there are plans of the current commits of the pull request, it is theirs.
async fn named(
    cx: &CommandCx<'_>,
    typed: &str,
    recorded: &[PlanRecord],
) -> Result<Result<BTreeSet<ProjectName>, NameError>, sqlx::Error> {
    let known: Vec<&ProjectName> = recorded
        .iter()
        .filter_map(|plan| plan.project.name.as_ref())
        .collect();
    let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
    let regexp = cx.ctx.settings.comments.regexp;
    let is_of_pull =
        |plan: &&PlanRecord| plan.head == cx.pull.head && plan.base_branch == cx.pull.base_branch;
    let says = recorded.iter().find(is_of_pull).or(recorded.first());
    let policies = match says.filter(|_| regexp && !names.contains(&typed)) {
        Some(plan) => {
            let written =
                config_file::written(cx, &cx.ctx.settings.rules(&cx.pull.at.repo)).await?;
            Some(Policies::of_plan(cx, plan, written.get(&plan.run).copied()).await)
        }
        None => None,
    };
    let config = policies.as_ref().and_then(Policies::config);
    let prefixes = config.map_or(&[][..], |config| &config.allowed_regexp_prefixes);
    let chosen = choose_names(typed, &names, regexp, prefixes);
    Ok(chosen.map(|chosen| {
        known
            .into_iter()
            .filter(|name| chosen.contains(name.as_str()))
            .cloned()
            .collect()
    }))
}

/// Returns the directory of a project whose name is literally the text of a pattern, as a plan would.
fn literal<'a>(
    target: &command::CommandTarget,
    projects: impl IntoIterator<Item = &'a ProjectKey>,
) -> Option<command::CommandTarget> {
    let command::CommandTarget::DirWorkspace {
        dir: Some(command::DirArgument::Pattern(pattern)),
        workspace,
    } = target
    else {
        return None;
    };
    let dir = projects
        .into_iter()
        .map(|project| &project.dir)
        .find(|dir| dir.as_str() == pattern.as_str())?
        .clone();
    Some(command::CommandTarget::DirWorkspace {
        dir: Some(command::DirArgument::Path(dir)),
        workspace: workspace.clone(),
    })
}

fn concerns(
    target: &command::CommandTarget,
    named: &BTreeSet<ProjectName>,
    project: &ProjectKey,
) -> bool {
    match target {
        command::CommandTarget::Project(_) => {
            project.name.as_ref().is_some_and(|own| named.contains(own))
        }
        command::CommandTarget::Generic | command::CommandTarget::DirWorkspace { .. } => {
            is_at(target, project)
        }
    }
}

/// Checks whether the target selects a project by its place.
fn is_at(target: &command::CommandTarget, project: &ProjectKey) -> bool {
    match target {
        command::CommandTarget::Generic => true,
        command::CommandTarget::Project(_) => false,
        command::CommandTarget::DirWorkspace { dir, workspace } => {
            let dir_fits = match dir {
                None => project.dir.is_root(),
                Some(command::DirArgument::Path(path)) => *path == project.dir,
                Some(command::DirArgument::Pattern(pattern)) => pattern.matches(&project.dir),
            };
            dir_fits && project.workspace == workspace.clone().unwrap_or_default()
        }
    }
}
