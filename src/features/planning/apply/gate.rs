//! Makes the checks that can refuse an apply, because it must find everything unchanged. They have a fixed order.

use std::sync::Arc;

use tracing::warn;

use crate::command::ApplyCommand;
use crate::config::access::{Account, Identity};
use crate::config::workflow::Workflow;
use crate::errors::describe_error;
use crate::features::applications::pull_now;
use crate::features::apply_locks::{apply_locks_line, apply_refusal};
use crate::features::planning::conflicts::held;
use crate::features::planning::policy_checks::{self, PolicyWayOut};
use crate::features::planning::project_run::ProjectStop;
use crate::features::planning::projects::{ApplyInputs, Work};
use crate::features::planning::stop::Stop;
use crate::features::planning::{CommandCx, needs, seen};
use crate::features::registry::{plan_notices, refused_apply};
use crate::model::{
    Actor, ApplyLock, Lock, LockKey, Origin, PlanRecord, PlanState, ProjectOutcome, Pull,
    PullState, RunId, RunKind, code_span,
};
use crate::render::{Next, ProjectReport, UserText};
use crate::store::{ApplyChecks, ApplyGate, ApplyGrant, LockAttempt, PlanPolicies, TeamMember};
use crate::workflow::{CheckedOut, Source, ToolError};

/// Returns why there is nothing to apply, if so.
pub(super) fn nothing_left(state: PlanState) -> Option<&'static str> {
    match state {
        PlanState::NoChanges => Some("The plan has no changes."),
        PlanState::Applied => {
            Some("This plan was already applied. Plan again to see whether anything is left to do.")
        }
        PlanState::Planned
        | PlanState::Applying
        | PlanState::ApplyFailed
        | PlanState::Discarded => None,
    }
}

/// Refuses a plan that was never meant to be applied, see [`PlanRecord::blocked`].
pub(super) fn blocked(plan: &PlanRecord) -> Option<GateRefusal> {
    let why = plan.blocked.as_ref()?;
    let hint = "Plan again. If this happens again, check the output of the plan: an attribute may contain misleading \
                text.";
    let text = UserText::new(format!("{why}. Nothing was applied."), [hint.to_owned()]);
    Some(GateRefusal::Stale(text))
}

/// Reason why a plan is not applied.
pub(super) enum GateRefusal {
    /// Another pull request holds the lock.
    Held(Box<Lock>),
    /// The plan can never be applied; a new one can.
    Stale(UserText),
    /// A temporary reason; the plan stays valid.
    ForNow(UserText),
    /// Apply locks prevent the apply.
    Stopped(Vec<ApplyLock>),
    /// The pull request is not open.
    Closed(String),
}

impl GateRefusal {
    /// Refuses a stale plan; `differs` is the difference from the plan record.
    fn stale(differs: impl std::fmt::Display) -> Self {
        Self::Stale(UserText::new(
            format!("{differs}. Nothing was applied."),
            [],
        ))
    }

    /// Ends the run with this refusal.
    pub(super) fn into_stop(self, cx: &CommandCx<'_>, report: &ProjectReport) -> ProjectStop {
        Stop::Reply(Box::new(self.into_report(cx, report.clone())))
    }

    pub(super) fn into_report(self, cx: &CommandCx<'_>, report: ProjectReport) -> ProjectReport {
        let refused = |text, next| ProjectReport {
            outcome: ProjectOutcome::Refused,
            message: Some(text),
            next,
            ..report.clone()
        };
        match self {
            Self::Held(lock) => held(cx, report, &lock),
            Self::Stale(text) => refused(text, Next::Plan),
            Self::ForNow(text) => refused(text, Next::ByOutcome),
            Self::Stopped(locks) => {
                let text = apply_refusal(&locks, &cx.ctx.settings.apply_locks_url()).text;
                ProjectReport {
                    status: Some(apply_locks_line(&locks)),
                    ..refused(text, Next::ByOutcome)
                }
            }
            Self::Closed(state) => {
                let message = format!("the pull request is {state} now. Nothing was applied.");
                refused(UserText::new(message, []), Next::Nothing)
            }
        }
    }
}

/// Checks everything that can be checked without the gate. The refusal names the difference.
pub(super) async fn prepare(
    cx: &CommandCx<'_>,
    work: &Work,
    command: &ApplyCommand,
    plan: &PlanRecord,
) -> Result<ApplyInputs, GateRefusal> {
    let ctx = cx.ctx;
    looked_at(cx, command, plan).await?;
    other_eyes(cx, work, plan).await?;
    let tool = ctx
        .runs
        .terraform
        .tools
        .find(plan.distribution, Some(&plan.tool_version))
        .await;
    let tool = tool.map_err(|error| other_tool(plan, &error))?;
    let workflow = same_workflow(work, plan)?;
    let file = plan_file(cx, plan, &workflow).await?;
    // Checked now, so that nothing is fetched in vain, and again at the end.
    still_planned(cx, plan).await?;
    let source = ctx.checkouts.fetch_plan(plan).await;
    let source = source.map_err(|error| {
        GateRefusal::stale(format!("the planned code cannot be fetched: {error}"))
    })?;
    let not_checked_out =
        |error| GateRefusal::stale(format!("the planned code cannot be checked out: {error}"));
    let checkout = work
        .checkout_of(cx, &source, &plan.project.workspace)
        .await
        .map_err(not_checked_out)?;
    work.check_links(cx, &source, &checkout, &plan.project)
        .await
        .map_err(GateRefusal::stale)?;
    if work.hides_demands(&plan.project) {
        return Err(GateRefusal::stale(
            "the `apply_requirements` in the configuration of the planned commit cannot be read, or are not allowed \
             any more",
        ));
    }
    let demands = work.demands(RunKind::Apply, &plan.project);
    if !demands.is_empty()
        && let Some(unmet) = needs::refusal_of_apply(cx, work, &demands, &source).await
    {
        return Err(GateRefusal::ForNow(unmet));
    }
    // A fetch may have to replace the mirror, so the run begins after it.
    let begun = work
        .checkout_for_run(cx, &source, &plan.project.workspace)
        .await;
    let (checkout, in_use) = begun.map_err(not_checked_out)?;
    let (policies, members) = approved_policies(cx, work, plan).await?;
    // To fetch and to check out may have taken minutes, and the requirements were checked against the pull request as
    // it is now. No slow step may come between this check and the gate.
    still_planned(cx, plan).await?;
    Ok(ApplyInputs {
        tool,
        workflow,
        file,
        checkout,
        policies,
        members,
        _in_use: in_use,
    })
}

/// Returns the policy checks of a plan, and the members of the teams whose approvals count for it. People may have left a
/// team since they approved. If the forge does not name the members, nothing is applied (P6).
async fn approved_policies(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
) -> Result<(PlanPolicies, Vec<TeamMember>), GateRefusal> {
    let Some(sets) = work
        .policies(&plan.project)
        .sets(&plan.project, &cx.pull.labels)
        .filter(|sets| !sets.is_empty())
    else {
        return Ok((PlanPolicies::default(), Vec::new()));
    };
    let unknown = |what: &str, error: &(dyn std::error::Error + 'static)| {
        let message = format!(
            "{what}: {}. Nothing was applied, and the plan is kept.",
            describe_error(error)
        );
        let hint = "Run the command again in a moment.".to_owned();
        GateRefusal::ForNow(UserText::new(message, [hint]))
    };
    let found = cx.ctx.store.policy_results_of_run(plan.run).await.map_err(|error| {
        warn!(plan = %plan.id, error = describe_error(&error), "The policy checks of a plan cannot be read");
        unknown("the policy checks of the plan cannot be read", &error)
    })?;
    let found = found.unwrap_or_default();
    let members = policy_checks::members_now(cx, &sets, &found).await.map_err(|error| {
        let what = "the teams of the people who approved the violations of policies cannot be determined";
        unknown(what, &error)
    })?;
    Ok((found, members))
}

/// Returns the workflow that made the plan (P5). Readers of the plan saw the result of these steps. If a plan has no
/// file, only the workflow ties the apply to it. A plan that was not checked does not depend on the steps of the policy check;
/// if it has to be checked now, its verdicts are missing, and the gate refuses it.
fn same_workflow(work: &Work, plan: &PlanRecord) -> Result<Arc<Workflow>, GateRefusal> {
    let workflow = work.policies(&plan.project).workflow(&plan.project);
    let is_same = |is_checked| workflow.fingerprint(is_checked) == plan.workflow;
    if is_same(true) || is_same(false) {
        return Ok(workflow);
    }
    if work.policies(&plan.project).is_unread() {
        let message = "the workflow of the plan cannot be determined, because the configuration of the planned commit \
                       cannot be read. Nothing was applied.";
        return Err(GateRefusal::Stale(UserText::new(message, [])));
    }
    Err(GateRefusal::stale(format!(
        "the plan was made with other steps than the workflow `{}` has now",
        workflow.name
    )))
}

async fn plan_file(
    cx: &CommandCx<'_>,
    plan: &PlanRecord,
    workflow: &Workflow,
) -> Result<Option<Vec<u8>>, GateRefusal> {
    if plan.digest.is_none() {
        let workflow = (!workflow.applies_plan_file()).then_some(None);
        return workflow.ok_or_else(|| {
            GateRefusal::stale("the plan has no file, because no step has written `$PLANFILE`")
        });
    }
    cx.ctx
        .runs
        .artifacts
        .load(plan)
        .await
        .map(Some)
        .map_err(|error| {
            warn!(plan = %plan.id, error = describe_error(&error), "A plan file cannot be used");
            GateRefusal::stale(error)
        })
}

/// Compares the current pull request on the forge, or the branch of an application, with the plan record.
async fn still_planned(cx: &CommandCx<'_>, plan: &PlanRecord) -> Result<(), GateRefusal> {
    let live = pull_now(cx.ctx, &cx.pull.at).await.map_err(|error| {
        let number = cx.pull.at.subject;
        let what = if number.is_application() {
            "branch"
        } else {
            "pull request"
        };
        let message = format!(
            "Lockkeeper cannot check whether the {what} has changed since the plan: {error}."
        );
        let hint = "Nothing was applied. Run the command again in a moment.";
        GateRefusal::ForNow(UserText::new(message, [hint.to_owned()]))
    })?;
    if live.repo_id != cx.pull.repo_id {
        let message = format!(
            "{} is a different repository now than at the time of the plan",
            cx.pull.at.repo
        );
        return Err(GateRefusal::stale(message));
    }
    compare(&live, plan)
}

/// Checks that the author of the command can have looked at the plan (P5). The author of a comment can have done so once
/// comments show it. Pages and programs read the stored plan.
async fn looked_at(
    cx: &CommandCx<'_>,
    command: &ApplyCommand,
    plan: &PlanRecord,
) -> Result<(), GateRefusal> {
    let is_comment = cx.row.actor.origin == Origin::Comment;
    let is_seen = if is_comment {
        seen::by_author(cx, plan, command.written_at).await.map_err(|error| {
            warn!(plan = %plan.id, error = describe_error(&error), "The command of a plan cannot be read");
            let message = "Lockkeeper cannot check whether a comment showed the plan in time, because the database does \
                           not answer. Nothing was applied, and the plan is kept.";
            let hint = "Run the command again in a moment.".to_owned();
            GateRefusal::ForNow(UserText::new(message, [hint]))
        })?
    } else {
        plan.created_at <= cx.row.created_at
    };
    if is_seen {
        return Ok(());
    }
    let (message, hint) = if is_comment {
        (
            "it is not certain that a comment showed the plan when its apply was requested. Nothing was applied.",
            "Look at the plan, then run the command again. If that is refused as well, plan again first.",
        )
    } else {
        (
            "the plan is newer than the request to apply it, so nobody can have looked at it before. Nothing was applied.",
            "Look at the plan, then run the command again.",
        )
    };
    Err(GateRefusal::ForNow(UserText::new(
        message,
        [hint.to_owned()],
    )))
}

/// Checks `four_eyes`: another account than the one whose command made the plan has to request the apply. An unknown
/// account does not count as another one (P6).
async fn other_eyes(cx: &CommandCx<'_>, work: &Work, plan: &PlanRecord) -> Result<(), GateRefusal> {
    let four_eyes = work.rules().four_eyes();
    if !four_eyes.value {
        return Ok(());
    }
    let planner = planner(cx, plan).await.map_err(|error| {
        warn!(plan = %plan.id, error = describe_error(&error), "The author of a plan cannot be determined");
        let message = format!(
            "`four_eyes` is set ({}), and the author of the plan cannot be determined, because the database does not \
             answer. Nothing was applied, and the plan is kept.",
            four_eyes.by
        );
        GateRefusal::ForNow(UserText::new(message, ["Run the command again in a moment.".to_owned()]))
    })?;
    let (first, second) = (planner.as_ref().and_then(account), account(&cx.row.actor));
    // Somebody with two logins, both on one account of this server, is one person.
    let is_one_person = planner
        .as_ref()
        .and_then(|planner| planner.account)
        .is_some_and(|account| cx.row.actor.account == Some(account));
    if first.is_some() && second.is_some() && first != second && !is_one_person {
        return Ok(());
    }
    let told = |actor: &Actor| format!("{} ({})", code_span(&actor.login), actor.origin.way());
    let why = match (&planner, &first, &second) {
        (Some(planner), Some(_), Some(_)) if is_one_person && first != second => format!(
            "and {} made the plan, which is another login of the same account of this server",
            told(planner)
        ),
        (Some(planner), Some(_), Some(_)) => format!("and {} made the plan", told(planner)),
        (Some(planner), None, _) => format!(
            "and the account that made the plan is unknown: it was {}",
            told(planner)
        ),
        (None, _, _) => "and the author of the plan is not recorded".to_owned(),
        (Some(_), Some(_), None) => {
            format!(
                "and the account that requests the apply is unknown: it is {}",
                told(&cx.row.actor)
            )
        }
    };
    let message = format!(
        "the account that applies must not be the account that planned (`four_eyes`, {}), {why}. Nothing was applied, \
         and the plan is kept.",
        four_eyes.by
    );
    let hint = if cx.pull.at.subject.is_application() {
        "Ask somebody with another account to apply, or to plan again. In that case, look at the new plan, then apply \
         it."
    } else {
        "Ask somebody else to comment the apply, or to comment a plan. In that case, look at the new plan, then apply \
         it."
    };
    Err(GateRefusal::ForNow(UserText::new(
        message,
        [hint.to_owned()],
    )))
}

/// Returns the account behind a command. A plan made from the queue of a lock belongs to the person who waited.
fn account(actor: &Actor) -> Option<Account> {
    let waited = actor.origin == Origin::Queue && *actor != Actor::lockkeeper(Origin::Queue);
    if waited {
        Identity::Commenter(actor.into())
    } else {
        Identity::of_actor(actor)
    }
    .account()
}

/// Finds the actor whose command made a plan.
async fn planner(cx: &CommandCx<'_>, plan: &PlanRecord) -> Result<Option<Actor>, sqlx::Error> {
    let Some(run) = cx.ctx.store.run_get(plan.run).await? else {
        return Ok(None);
    };
    Ok(cx
        .ctx
        .store
        .command_get(run.command)
        .await?
        .map(|command| command.actor))
}

/// Checks that the hooks of this command ran on the state of the plan. Hooks run once for a command, on one state of
/// the base branch, in the checkout of the default workspace. Their files are not in the checkout of another state.
/// `hooked` is the state they ran on.
pub(super) fn seen_by_hooks(
    cx: &CommandCx<'_>,
    hooked: Option<&CheckedOut>,
    plan: &PlanRecord,
) -> Result<(), GateRefusal> {
    let is_seen =
        |hooked: &CheckedOut| *hooked == cx.ctx.checkouts.checked_out(&Source::of_plan(plan));
    if !plan.project.workspace.is_default() || hooked.is_none_or(is_seen) {
        return Ok(());
    }
    let message = "the hooks before this apply ran on another commit of the base branch than this plan, so the files \
                   that they make would be missing. Nothing was applied.";
    let hint = "Apply this project alone with the command below. The hooks then run on the commits of its plan.";
    Err(GateRefusal::ForNow(UserText::new(
        message,
        [hint.to_owned()],
    )))
}

/// Refuses because this server does not have the program that made the plan any more.
fn other_tool(plan: &PlanRecord, error: &ToolError) -> GateRefusal {
    let made = format!("{} {}", plan.distribution.title(), plan.tool_version);
    let message = match error {
        ToolError::OtherVersion { found, .. } => {
            format!("the plan was made by {made}, and this server has {found} now")
        }
        ToolError::Missing { .. }
        | ToolError::Download { .. }
        | ToolError::Constraint(_)
        | ToolError::Unsatisfied { .. }
        | ToolError::Unasked { .. }
        | ToolError::Unreadable { .. }
        | ToolError::Process(_) => {
            format!(
                "the plan was made by {made}, which this server does not have any more: {}",
                describe_error(error)
            )
        }
    };
    let program = format!("{}{}", plan.distribution.program(), plan.tool_version);
    let hint =
        format!("Or an administrator can install `{program}` in `--tf-bin-dir`. Then apply again.");
    GateRefusal::Stale(UserText::new(
        format!("{message}. Nothing was applied."),
        [hint],
    ))
}

/// Compares the pull request with the plan record (P5).
pub(super) fn compare(pull: &Pull, plan: &PlanRecord) -> Result<(), GateRefusal> {
    if pull.state != PullState::Open {
        return Err(GateRefusal::Closed(pull.state.to_string()));
    }
    if pull.head != plan.head && pull.at.subject.is_application() {
        let message = format!(
            "the plan was made for commit `{}`, and the branch `{}` is at `{}` now. Nothing was applied.",
            plan.head.short(),
            pull.base_branch,
            pull.head.short()
        );
        return Err(GateRefusal::Stale(UserText::new(
            message,
            ["Plan again, look at the plan, then apply it.".to_owned()],
        )));
    }
    if pull.head != plan.head {
        return Err(GateRefusal::stale(format!(
            "the plan was made for commit `{}`, and the pull request is at `{}` now",
            plan.head.short(),
            pull.head.short()
        )));
    }
    if pull.base_branch != plan.base_branch {
        return Err(GateRefusal::stale(format!(
            "the plan was made against the base branch `{}`, and the base branch of the pull request is `{}` now",
            plan.base_branch, pull.base_branch
        )));
    }
    Ok(())
}

/// Makes the last checks, in the transaction that also records that the apply has begun (P3, P6).
pub(super) async fn pass(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
    run: RunId,
    ready: &ApplyInputs,
) -> Result<ApplyGrant, Stop<GateRefusal>> {
    let (policy, cause) = (work.policy(&plan.project), cx.cause_of("applied"));
    let key = LockKey::in_scope(policy.scope, &plan.pull.repo, &plan.project);
    let attempt = LockAttempt {
        key: &key,
        project: &plan.project,
        pull: &plan.pull,
        pull_url: &cx.pull.url,
        cause: &cause,
    };
    let attempt = policy.mode.taken_by_apply().then_some(&attempt);
    let store = &cx.ctx.store;
    // The sets that are configured now decide, not those of the plan.
    let sets = work
        .policies(&plan.project)
        .sets(&plan.project, &cx.pull.labels)
        .unwrap_or_default();
    let needed = policy_checks::needed(&sets);
    let checks = ApplyChecks {
        // Without a registry, no plan has modules of one.
        modules: cx.ctx.runs.registry.host().is_some(),
        policies: &needed,
        members: &ready.members,
    };
    let gate = store.apply_begin(plan, run, attempt, &checks).await?;
    Err(Stop::Reply(match gate {
        ApplyGate::Granted(grant) => return Ok(grant),
        ApplyGate::HeldBy(lock) => GateRefusal::Held(Box::new(lock)),
        ApplyGate::ApplyLocked(locks) => GateRefusal::Stopped(locks),
        ApplyGate::PullClosed => GateRefusal::Closed(PullState::Closed.to_string()),
        ApplyGate::PlanGone(state) => GateRefusal::stale(gone(state)),
        ApplyGate::PoliciesUnmet(decisions) => {
            let rules = work.policies(&plan.project);
            let decisions = if rules.workflow(&plan.project).keeps_output_private() {
                policy_checks::without_reasons(decisions)
            } else {
                decisions
            };
            let found = ready.policies.clone().with_members(&ready.members);
            match policy_checks::refusal(cx, &sets, &found, &decisions, plan) {
                (text, PolicyWayOut::Approve) => GateRefusal::ForNow(text),
                (text, PolicyWayOut::Plan) => GateRefusal::Stale(text),
            }
        }
        ApplyGate::ModuleTakenDown => GateRefusal::Stale(refused_apply(
            &plan_notices(cx.ctx, cx.pull, plan.id).await?,
        )),
    }))
}

fn gone(state: PlanState) -> String {
    match state {
        PlanState::Discarded => "the plan was discarded in the meantime".to_owned(),
        PlanState::Applied => "the plan was already applied".to_owned(),
        PlanState::Applying => "the plan is being applied now".to_owned(),
        PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed => {
            format!("the plan is in the state `{state}` and cannot be applied")
        }
    }
}
