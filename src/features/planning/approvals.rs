//! Parts that approving violations (`approve_policies.rs`) and withdrawing approvals (`withdraw_approvals.rs`) share: the
//! person behind the command, the report on each plan, the status, and the sentences about sets and teams.

use lockkeeper_policy::decision::SetDecision;
use lockkeeper_policy::sets::{MAX_OWNER_TEAMS, SetName};

use super::projects::Work;
use super::{CommandCx, policy_checks};
use crate::command::ApprovePoliciesCommand;
use crate::features::replies::{NewestRuns, Reply};
use crate::model::{CommitStatus, PlanRecord, PlanState, ProjectOutcome};
use crate::render::{Body, Next, PolicyReport, ProjectReport, UserText};

/// Sentences about the approvals of one project.
#[derive(Default)]
pub(super) struct ApprovalOutcome {
    pub done: Vec<String>,
    /// Reasons why nothing was done about sets.
    pub refused: Vec<String>,
}

impl ApprovalOutcome {
    /// Returns all sentences, what was done first.
    pub fn into_text(self) -> UserText {
        let sentences: Vec<String> = self.done.into_iter().chain(self.refused).collect();
        UserText::new(sentences.join(" "), [])
    }
}

/// Returns the person behind the command: the numeric account of the forge, or the account of this server if the forge
/// names none. A login can be taken by somebody else.
pub(super) fn person(cx: &CommandCx<'_>, command: &ApprovePoliciesCommand) -> Option<String> {
    match (command.person, cx.row.actor.account) {
        (Some(number), _) => Some(format!("{} {number}", cx.pull.at.repo.host())),
        (None, Some(account)) => Some(format!("account {account}")),
        (None, None) => None,
    }
}

/// Returns the plans of the commit that the pull request has now.
pub(super) fn plans_of_head<'a>(
    cx: &CommandCx<'_>,
    plans: &'a [PlanRecord],
) -> Vec<&'a PlanRecord> {
    plans
        .iter()
        .filter(|plan| plan.head == cx.pull.head)
        .collect()
}

/// Returns a report on a plan about which nothing was done.
pub(super) fn refused_report(cx: &CommandCx<'_>, plan: &PlanRecord) -> ProjectReport {
    ProjectReport {
        run_url: Some(cx.ctx.settings.run_url(plan.run)),
        tool: plan.distribution,
        blocked: plan.blocked.clone(),
        ..ProjectReport::new(plan.project.clone(), ProjectOutcome::Refused)
    }
}

/// Reports how the policies decide about a plan after the command.
pub(super) async fn report_on(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
    mut outcome: ApprovalOutcome,
) -> Result<ProjectReport, sqlx::Error> {
    let found = cx.ctx.store.policy_results_of_run(plan.run).await?;
    let found = found.unwrap_or_default();
    let rules = work.policies(&plan.project);
    let sets = rules
        .sets(&plan.project, &cx.pull.labels)
        .unwrap_or_default();
    let found = policy_checks::with_members_now(cx, &sets, found).await;
    let policies = policy_checks::report(&sets, &found, plan.id, policy_checks::today(cx));
    let is_met = policies.as_ref().is_none_or(PolicyReport::is_met);
    let awaits = policies.as_ref().is_some_and(PolicyReport::awaits_approval);
    let is_private = rules.workflow(&plan.project).keeps_output_private();
    // A recorded approval is a success of the command. The status of the policy checks says that others are missing.
    let result = match (is_met, outcome.done.is_empty(), outcome.refused.is_empty()) {
        (_, true, false) => ProjectOutcome::Refused,
        (true, _, _) => ProjectOutcome::PolicyPassed,
        (false, false, _) => ProjectOutcome::PolicyPending,
        (false, true, true) => ProjectOutcome::PolicyFailed,
    };
    if outcome.done.is_empty() && outcome.refused.is_empty() {
        outcome.done.push(if is_met {
            "There is nothing to approve.".to_owned()
        } else {
            "No approval can let this plan pass. Plan again.".to_owned()
        });
    }
    if result == ProjectOutcome::PolicyPending {
        let missing = policies.as_ref().and_then(missing_approvals);
        outcome.done.extend(missing);
    }
    Ok(ProjectReport {
        outcome: result,
        message: Some(outcome.into_text()),
        next: match (is_met, awaits) {
            // Nothing has to be applied.
            (true, _) if plan.state == PlanState::NoChanges => Next::Nothing,
            (true, _) | (false, true) => Next::ByOutcome,
            (false, false) => Next::Plan,
        },
        policies: if is_private {
            policies.map(policy_checks::without_output)
        } else {
            policies
        },
        ..refused_report(cx, plan)
    })
}

/// Returns the sentence that counts the approvals that are missing; `None` if more than approvals is missing.
fn missing_approvals(policies: &PolicyReport) -> Option<String> {
    if !policies.awaits_approval() {
        return None;
    }
    let missing = policies.sets.iter().filter_map(|set| {
        let SetDecision::NeedsApproval { needed, by } = &set.decision else {
            return None;
        };
        let given = u32::try_from(by.len()).unwrap_or(u32::MAX);
        let count = needed.saturating_sub(given);
        let noun = if count == 1 { "approval" } else { "approvals" };
        Some(format!("{count} {noun} of `{}`", set.name))
    });
    let missing: Vec<String> = missing.collect();
    Some(format!("Still needed: {}.", missing.join(", ")))
}

/// Returns the status of the policy checks after the command.
pub(super) async fn status(
    cx: &CommandCx<'_>,
    work: &Work,
) -> Result<Option<CommitStatus>, sqlx::Error> {
    let newest = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    policy_checks::status(cx, &newest, |project| work.policies(project)).await
}

/// Builds the reply of the command.
pub(super) fn reply(
    cx: &CommandCx<'_>,
    reports: Vec<ProjectReport>,
    status: Option<CommitStatus>,
) -> Reply {
    let reply = Reply::new(Body::Projects(reports));
    reply.with_statuses(&cx.pull.head, status.into_iter().collect())
}

/// Returns the sentence about teams whose members were not looked up; `None` if there are none.
pub(super) fn teams_left_out_sentence(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} more {} of the set {} not looked up, because the maximum is {MAX_OWNER_TEAMS}. An administrator can put the \
             owners into fewer teams, or name them as `users`.",
            if count == 1 { "team" } else { "teams" },
            if count == 1 { "was" } else { "were" },
        )
    })
}

/// Adds the sentence about teams whose members were not looked up, which may be the reason of a refusal.
pub(super) fn with_teams_left_out(refusal: String, count: usize) -> String {
    match teams_left_out_sentence(count) {
        Some(sentence) => format!("{refusal} {sentence}"),
        None => refusal,
    }
}

/// Lists names of sets as code.
pub(super) fn set_names<'a>(names: impl IntoIterator<Item = &'a SetName>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
