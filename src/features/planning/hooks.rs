//! Runs the administrator's hooks around a command: each once per command, in the root of the checkout of the default
//! workspace (reference 6.9).
//!
//! Hooks before the command may write the configuration of the repository, so they run before the search for
//! projects. An apply uses the configuration that the hooks of its plan wrote. Hooks after the command run before the
//! reply is posted: when people read the reply, everything is done. A command that is begun again after a crash runs
//! its hooks again. An apply or another change that had begun is not begun again, and neither are the hooks after it.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use super::CommandCx;
use super::stop::Stop;
use crate::command::CommandTarget;
use crate::config::Hook;
use crate::config::repos::RepoRules;
use crate::errors::describe_error;
use crate::features::registry::access_of_run;
use crate::features::replies::Reply;
use crate::git::Checkout;
use crate::model::{
    CommitState, CommitStatus, ProjectKey, ProjectOutcome, RepoPath, RunId, RunKind, code_span,
};
use crate::queue::JobError;
use crate::render::status;
use crate::store::NewRun;
use crate::workflow::{HookPlace, PullFacts, RunError, RunOutput, StepError, StepFailure};

/// Place where the hooks of a command run, once its checkout exists.
pub(super) struct HookDir {
    rules: RepoRules,
    checkout: Arc<Checkout>,
    mirror: PathBuf,
    facts: PullFacts,
    project: Option<String>,
}

/// Facts of the command for its hooks.
pub(super) struct HookFacts<'a> {
    arguments: &'a [String],
    project: Option<String>,
}

impl<'a> HookFacts<'a> {
    /// Builds the facts from the target and the arguments after `--`.
    pub fn of(target: &CommandTarget, arguments: &'a [String]) -> Self {
        let project = match target {
            CommandTarget::Project(name) => Some(name.as_str().to_owned()),
            CommandTarget::Generic | CommandTarget::DirWorkspace { .. } => None,
        };
        Self { arguments, project }
    }
}

/// Position of hooks: before or after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookTime {
    Before,
    After { has_errors: bool },
}

impl HookTime {
    fn word(self) -> &'static str {
        match self {
            Self::Before => "pre",
            Self::After { .. } => "post",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Before => "Pre",
            Self::After { .. } => "Post",
        }
    }
}

/// Returns true if hooks run before or after this command.
pub(super) fn any(cx: &CommandCx<'_>, rules: &RepoRules) -> bool {
    any_before(cx, rules)
        || rules
            .post_hooks(&cx.pull.base_branch)
            .any(|hook| hook.is_for(cx.row.kind))
}

/// Returns true if hooks run before this command.
pub(super) fn any_before(cx: &CommandCx<'_>, rules: &RepoRules) -> bool {
    rules
        .pre_hooks(&cx.pull.base_branch)
        .any(|hook| hook.is_for(cx.row.kind))
}

/// Runs the hooks before the command. A hook that fails prevents the later ones, and the command continues. If the
/// administrator wants the command to fail instead, the hook ends the command, and no hooks run after it.
pub(super) async fn before(
    cx: &CommandCx<'_>,
    rules: &RepoRules,
    checkout: &Arc<Checkout>,
    given: HookFacts<'_>,
) -> Result<(), Stop> {
    if !any(cx, rules) {
        return Ok(());
    }
    cx.ctx.store.hooks_cut_off(cx.row.id).await?;
    let site = HookDir {
        rules: rules.clone(),
        checkout: Arc::clone(checkout),
        mirror: cx.ctx.checkouts.mirror_dir(&cx.pull.at.repo),
        facts: PullFacts::of(cx.pull, &cx.row.actor.login, given.arguments),
        project: given.project,
    };
    let failed = run(
        cx,
        &site,
        site.rules.pre_hooks(&cx.pull.base_branch),
        HookTime::Before,
    )
    .await?;
    if let Some(failed) = failed.filter(|_| cx.ctx.settings.planning.fail_on_pre_hook) {
        return Err(Stop::Reply(failed.into_reply()));
    }
    cx.hooks.get_or_init(|| site);
    Ok(())
}

/// Runs the hooks after the command. Their result does not change the reply. A command that was stopped has no hooks
/// after it.
pub(super) async fn after(cx: &CommandCx<'_>, reply: &Reply) -> Result<(), JobError> {
    let Some(site) = cx.hooks.get().filter(|_| !cx.stop.is_cancelled()) else {
        return Ok(());
    };
    let hooks = site.rules.post_hooks(&cx.pull.base_branch);
    run(
        cx,
        site,
        hooks,
        HookTime::After {
            has_errors: reply.has_errors(),
        },
    )
    .await
    .map(drop)
}

/// A hook that failed.
struct Failed {
    called: String,
    why: String,
    url: String,
}

impl Failed {
    fn into_reply(self) -> Reply {
        let Self { called, why, url } = self;
        Reply::refused(
            "pre_workflow_hook",
            format!(
                "the hook {} before the command failed: {why}.",
                code_span(&called)
            ),
            vec![
                format!(
                    "Its output is at `{url}`. Hooks are configured by an administrator of Lockkeeper."
                ),
                "Run the command again when the hook is fixed.".to_owned(),
            ],
        )
    }
}

/// Runs the hooks that are for this command until one fails.
async fn run<'a>(
    cx: &CommandCx<'_>,
    site: &HookDir,
    hooks: impl Iterator<Item = &'a Hook>,
    when: HookTime,
) -> Result<Option<Failed>, JobError> {
    for (number, hook) in hooks
        .enumerate()
        .filter(|(_, hook)| hook.is_for(cx.row.kind))
    {
        let called = hook
            .description
            .clone()
            .unwrap_or_else(|| format!("{} workflow hook #{number}", when.title()));
        if let Some(failed) = run_one(cx, site, hook, &called, when).await? {
            return Ok(Some(failed));
        }
    }
    Ok(None)
}

async fn run_one(
    cx: &CommandCx<'_>,
    site: &HookDir,
    hook: &Hook,
    called: &str,
    when: HookTime,
) -> Result<Option<Failed>, JobError> {
    // Hooks of a command without runs of its own stand beside the plans that it is about.
    let kind = cx.row.kind.runs().unwrap_or(RunKind::Plan);
    let project = ProjectKey::of_dir(RepoPath::root());
    let new = NewRun {
        command: cx.row.id,
        kind,
        pull: cx.pull.at.clone(),
        project,
    };
    let id = cx
        .ctx
        .store
        .hook_create(&new, &format!("{}-workflow hook: {called}", when.title()))
        .await?;
    cx.ctx.store.run_start(id).await?;
    let line = format!("{} workflow hook in progress...", when.title());
    cx.status(status_of(
        cx,
        id,
        called,
        when,
        (CommitState::Pending, line),
    ))
    .await?;
    let ended = carry_out(cx, site, hook, id, when).await;
    match when {
        HookTime::Before => cx.abandoned()?,
        HookTime::After { .. } => cx.left_to_others()?,
    }
    let outcome = outcome(&ended);
    let why = ended.as_ref().err().map(|error| describe_error(error));
    if !cx.ctx.store.run_finish(id, outcome, why.as_deref()).await? {
        return Err(super::taken_over());
    }
    let line = match &ended {
        Ok(line) => (
            CommitState::Success,
            line.clone().unwrap_or_else(|| "Succeeded.".to_owned()),
        ),
        Err(error) => (CommitState::Failure, format!("Failed: {error}.")),
    };
    cx.status(status_of(cx, id, called, when, line)).await?;
    Ok(why.map(|why| {
        warn!(hook = called, why, "A hook failed");
        Failed {
            called: called.to_owned(),
            why,
            url: cx.ctx.settings.run_url(id),
        }
    }))
}

async fn carry_out(
    cx: &CommandCx<'_>,
    site: &HookDir,
    hook: &Hook,
    id: RunId,
    when: HookTime,
) -> Result<Option<String>, RunError> {
    let registry = access_of_run(cx.ctx, cx.pull)
        .await
        .map_err(RunError::Registry)?;
    let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.runs.hub.clone(), id);
    let place = HookPlace {
        root: &site.checkout.path,
        mirror: &site.mirror,
        hold: &site.checkout.hold,
        facts: &site.facts,
        command: cx.row.kind,
        project: site.project.as_deref(),
        has_errors: match when {
            HookTime::Before => None,
            HookTime::After { has_errors } => Some(has_errors),
        },
        output: &output,
        stop: &cx.stop,
        timeout: cx.ctx.settings.runs.timeout,
        registry: registry.as_ref(),
    };
    let _in_use = cx.ctx.checkouts.begin_run(&cx.pull.at.repo).await;
    let ended = cx.ctx.runs.terraform.hook(hook, &place).await;
    if let Err(error) = &ended {
        output.push_line(&describe_error(error)).await;
    }
    output.finish().await;
    ended
}

fn outcome(ended: &Result<Option<String>, RunError>) -> ProjectOutcome {
    match ended {
        // No good outcome is made for hooks; the words of this one fit: nothing is left to do.
        Ok(_) => ProjectOutcome::UpToDate,
        Err(RunError::Step(StepError {
            why: StepFailure::Stopped { .. },
            ..
        })) => ProjectOutcome::Cancelled,
        Err(_) => ProjectOutcome::Failed,
    }
}

fn status_of(
    cx: &CommandCx<'_>,
    id: RunId,
    called: &str,
    when: HookTime,
    (state, line): (CommitState, String),
) -> CommitStatus {
    let context = status::hook_context(&cx.ctx.settings.comments.status_name, when.word(), called);
    status::status(context, state, &line, Some(cx.ctx.settings.run_url(id)))
}
