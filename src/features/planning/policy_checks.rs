//! Policy sets of projects, and their consequences: for reports, statuses, merges, and for an apply that is refused.
//!
//! The sets that are configured now decide, not those that were configured when the plan was made. The gate of an apply
//! compares them with the verdicts in its transaction (`store/apply.rs`); everything here only explains.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::NaiveDate;
use lockkeeper_policy::decision::{self, NeededSet, SetDecision};
use lockkeeper_policy::sets::{PolicySet, SetDigest, SetName};
use lockkeeper_policy::verdict::Verdict;

use super::CommandCx;
use super::policies::{PlannedRules, Policies};
use super::projects::Work;
use crate::authz;
use crate::context::Ctx;
use crate::features::replies::{self, NewestRuns};
use crate::forges::ForgeError;
use crate::model::{
    CommitState, CommitStatus, PlanId, PlanRecord, PlanState, ProjectKey, RepoId, RunKind,
    code_span,
};
use crate::render::status::{self, PolicyCounts};
use crate::render::{
    PolicyReport, PolicySetReport, UserText, approval_sentence, approvers, has_way_out,
};
use crate::store::{CommandRow, PlanPolicies, TeamMember};

/// Maximum number of sets that a refusal explains.
const MOST_SETS: usize = 10;

/// Policy set that concerns a project now, and the digest of its definition.
pub(super) type CurrentSet = (Arc<PolicySet>, SetDigest);

/// Returns what the gate needs to know of the sets.
pub(super) fn needed(sets: &[CurrentSet]) -> Vec<NeededSet> {
    sets.iter()
        .map(|(set, definition)| set.needed(definition.clone()))
        .collect()
}

/// Returns the consequences of each set for a plan, in the order of the configuration.
pub(super) fn decisions(
    sets: &[CurrentSet],
    found: &PlanPolicies,
    plan: PlanId,
    today: NaiveDate,
) -> Vec<(SetName, SetDecision)> {
    let (verdicts, approvals) = (&found.verdicts, &found.approvals);
    decision::decisions(&needed(sets), verdicts, approvals, &plan, today)
}

/// Returns the day of a command, for waivers.
pub(super) fn today(cx: &CommandCx<'_>) -> NaiveDate {
    cx.ctx.clock.now().date_naive()
}

/// Returns the people whose approvals count by a team, and who are still in it, as far as the forge says (P6).
pub(super) async fn members_now(
    cx: &CommandCx<'_>,
    sets: &[CurrentSet],
    found: &PlanPolicies,
) -> Result<Vec<TeamMember>, ForgeError> {
    let mut members = Vec::new();
    for member in members_then(sets, found) {
        if authz::is_member(cx.ctx, &cx.pull.at.repo, &member.team, &member.login).await? {
            members.push(member);
        }
    }
    Ok(members)
}

/// Returns what was found for a plan, with the approvals that an apply would count now: people leave teams.
pub(super) async fn with_members_now(
    cx: &CommandCx<'_>,
    sets: &[CurrentSet],
    found: PlanPolicies,
) -> PlanPolicies {
    // Teams that the forge does not name let nothing pass, as in an apply.
    let members = members_now(cx, sets, &found).await;
    found.with_members(&members.unwrap_or_default())
}

/// Returns the people who have approved violations, with their teams at that time that decide about it, each once.
fn members_then(sets: &[CurrentSet], found: &PlanPolicies) -> Vec<TeamMember> {
    let mut members = Vec::new();
    for (set, definition) in sets {
        let verdict = found
            .verdicts
            .iter()
            .find(|verdict| verdict.set == set.name);
        let Some(verdict) = verdict.filter(|verdict| verdict.is_failed()) else {
            continue;
        };
        let deciding = decision::deciding_teams(&set.needed(definition.clone()), verdict);
        let own = found
            .approvals
            .iter()
            .filter(|approval| approval.set == set.name);
        for approval in own {
            for team in &approval.teams {
                let member = TeamMember {
                    login: approval.login.clone(),
                    team: team.clone(),
                };
                let decides = deciding.iter().any(|one| one.eq_ignore_ascii_case(team));
                if decides && !members.contains(&member) {
                    members.push(member);
                }
            }
        }
    }
    members
}

/// Reports on the sets of a plan; `None` if none concerns it.
pub(super) fn report(
    sets: &[CurrentSet],
    found: &PlanPolicies,
    plan: PlanId,
    today: NaiveDate,
) -> Option<PolicyReport> {
    let all: Vec<PolicySetReport> = decisions(sets, found, plan, today)
        .into_iter()
        .map(|(name, decision)| {
            let set = sets.iter().find(|(set, _)| set.name == name);
            let verdict = found.verdicts.iter().find(|verdict| verdict.set == name);
            PolicySetReport {
                decision,
                verdict: verdict.cloned(),
                owners: set.map(|(set, _)| set.owners.clone()).unwrap_or_default(),
                prevent_self_approve: set.is_some_and(|(set, _)| set.prevent_self_approve),
                name,
            }
        })
        .collect();
    (!all.is_empty()).then_some(PolicyReport { sets: all })
}

/// Removes everything from a report that the workflow hides from comments: the texts of programs that have read the plan.
/// The page of the run has them. The reason why a set was not evaluated quotes such programs, too.
pub(super) fn without_output(report: PolicyReport) -> PolicyReport {
    let strip = |verdict: Verdict| {
        let findings = verdict.findings.into_iter().map(|mut finding| {
            finding.evidence = None;
            finding
        });
        Verdict {
            findings: findings.collect(),
            output: String::new(),
            ..verdict
        }
    };
    let sets = report.sets.into_iter().map(|set| PolicySetReport {
        verdict: set.verdict.map(strip),
        decision: without_reason(set.decision),
        ..set
    });
    PolicyReport {
        sets: sets.collect(),
    }
}

/// Refers to the page of the run instead of the reason why a set was not evaluated. Where the reason says how to go on, the
/// result does, too.
fn without_reason(decision: SetDecision) -> SetDecision {
    const HIDDEN: &str =
        "The page of the run has the reason, because the workflow hides output from comments.";
    match decision {
        SetDecision::NotEvaluated(why) if has_way_out(&why) => {
            SetDecision::NotEvaluated(format!("{HIDDEN} Follow it, then plan again."))
        }
        SetDecision::NotEvaluated(_) => SetDecision::NotEvaluated(HIDDEN.to_owned()),
        other @ (SetDecision::Passed
        | SetDecision::Approved(_)
        | SetDecision::NeedsApproval { .. }
        | SetDecision::Missing
        | SetDecision::Changed
        | SetDecision::Removed
        | SetDecision::WaiverEnded) => other,
    }
}

/// Returns the decisions of a plan without the texts that its workflow hides from comments.
pub(super) fn without_reasons(
    decisions: Vec<(SetName, SetDecision)>,
) -> Vec<(SetName, SetDecision)> {
    decisions
        .into_iter()
        .map(|(name, decision)| (name, without_reason(decision)))
        .collect()
}

/// Returns true if plans in the repository of the command may be checked. Only the rules of a project say whether its
/// plans are.
pub(super) fn may_be_on(cx: &CommandCx<'_>) -> bool {
    may_be_on_in(cx.ctx, &cx.pull.at.repo)
}

fn may_be_on_in(ctx: &Ctx, repo: &RepoId) -> bool {
    ctx.settings.rules(repo).may_check_policies()
}

/// Returns true if the plans of one of these projects are checked.
pub(super) fn is_on<'a>(
    cx: &CommandCx<'_>,
    work: &Work,
    projects: impl IntoIterator<Item = &'a ProjectKey>,
) -> bool {
    let labels = &cx.pull.labels;
    projects
        .into_iter()
        .any(|project| work.policies(project).sets(project, labels).is_some())
}

/// Returns the status of policy checks of a plan that ends without results, if there is one: it may be pending. The
/// configuration of the repository may be unknown, so it counts that a project could be checked.
pub(super) fn status_without_results(
    ctx: &Ctx,
    row: &CommandRow,
    end: impl FnOnce() -> (CommitState, String),
) -> Option<CommitStatus> {
    let is_plan = row.kind.runs() == Some(RunKind::Plan);
    (is_plan && may_be_on_in(ctx, &row.pull.repo)).then(|| replies::policies_status(ctx, end()))
}

/// Returns true if the server checks plans against policy sets, whether or not in the repository of the command.
fn has_sets(cx: &CommandCx<'_>) -> bool {
    let repos = &cx.ctx.settings.repo_rules.repos;
    !repos.policies().sets.is_empty() && !repos.has_idle_policies()
}

/// Returns the status of the policy checks of a pull request; `None` if the server checks no plans. Where the checks
/// are switched off, it is a success, because a status that an earlier plan has set, or that the forge requires of all
/// repositories, would prevent the merge otherwise.
pub(super) async fn status<'a>(
    cx: &CommandCx<'_>,
    newest: &NewestRuns,
    rules_of: impl Fn(&ProjectKey) -> &'a Policies,
) -> Result<Option<CommitStatus>, sqlx::Error> {
    let counts = count(cx, newest, rules_of).await?;
    let is_reported = counts.total > 0 || has_sets(cx) || may_be_on(cx);
    Ok(is_reported.then(|| replies::policies_status(cx.ctx, status::policies(counts))))
}

/// Counts the projects with runs at the head of the pull request.
async fn count<'a>(
    cx: &CommandCx<'_>,
    newest: &NewestRuns,
    rules_of: impl Fn(&ProjectKey) -> &'a Policies,
) -> Result<PolicyCounts, sqlx::Error> {
    let store = &cx.ctx.store;
    let mut checked = Vec::new();
    for project in newest.projects() {
        let sets = rules_of(project).sets(project, &cx.pull.labels);
        checked.extend(sets.map(|sets| (project, sets)));
    }
    if checked.is_empty() {
        return Ok(PolicyCounts::default());
    }
    let plans = store.plan_list(&cx.pull.at).await?;
    let found = store.policy_decisions(&cx.pull.at).await?;
    let mut counts = PolicyCounts {
        total: checked.len(),
        ..PolicyCounts::default()
    };
    for (project, sets) in checked {
        let plan = plans
            .iter()
            .find(|plan| plan.project == *project && plan.head == cx.pull.head);
        match plan {
            // Its gate has compared everything.
            Some(plan) if plan.state == PlanState::Applied => {}
            Some(plan) => counts.failed += usize::from(!is_met(&sets, &found, plan, today(cx))),
            None if newest.is_waiting(project) => counts.waiting += 1,
            None => counts.unplanned += 1,
        }
    }
    Ok(counts)
}

/// Returns true if no set prevents the apply of a plan.
fn is_met(
    sets: &[CurrentSet],
    found: &HashMap<PlanId, PlanPolicies>,
    plan: &PlanRecord,
    today: NaiveDate,
) -> bool {
    let nothing = PlanPolicies::default();
    let found = found.get(&plan.id).unwrap_or(&nothing);
    decision::may_apply(&decisions(sets, found, plan.id, today))
}

/// Returns the projects of plans without changes whose policies did not pass. An apply has compared those of all other
/// plans.
pub(super) async fn unmet_without_changes(
    cx: &CommandCx<'_>,
    rules: &PlannedRules,
    plans: &[&PlanRecord],
) -> Result<Vec<ProjectKey>, sqlx::Error> {
    let idle = plans
        .iter()
        .filter(|plan| plan.state == PlanState::NoChanges);
    let checked: Vec<(&PlanRecord, Vec<CurrentSet>)> = idle
        .filter_map(|plan| {
            let sets = rules
                .of(&plan.project)
                .sets(&plan.project, &cx.pull.labels)?;
            Some((*plan, sets))
        })
        .collect();
    if checked.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = cx.ctx.store.policy_decisions(&cx.pull.at).await?;
    let mut unmet = Vec::new();
    for (plan, sets) in checked {
        let policies = found.remove(&plan.id).unwrap_or_default();
        let policies = with_members_now(cx, &sets, policies).await;
        if !decision::may_apply(&decisions(&sets, &policies, plan.id, today(cx))) {
            unmet.push(plan.project.clone());
        }
    }
    Ok(unmet)
}

/// Way out of a refusal by policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyWayOut {
    /// People can let the plan pass.
    Approve,
    /// Only a new plan helps.
    Plan,
}

/// Explains why the policy sets do not let a plan be applied, and the way out (P10). The approvals name only teams that their
/// authors are still in.
pub(super) fn refusal(
    cx: &CommandCx<'_>,
    sets: &[CurrentSet],
    found: &PlanPolicies,
    decisions: &[(SetName, SetDecision)],
    plan: &PlanRecord,
) -> (UserText, PolicyWayOut) {
    let project = &plan.project;
    let word = cx.ctx.settings.comments.executable();
    let unmet: Vec<&(SetName, SetDecision)> = decisions
        .iter()
        .filter(|(_, decision)| !decision.lets_pass())
        .collect();
    let mut reasons: Vec<String> = unmet
        .iter()
        .take(MOST_SETS)
        .enumerate()
        .map(|(at, (name, decision))| {
            let mut before = unmet[..at].iter();
            let same = before.find(|(_, known)| known == decision);
            match (decision, same) {
                (SetDecision::NotEvaluated(_), Some((first, _))) => {
                    format!("`{name}` was not evaluated, for the same reason as `{first}`")
                }
                (_, Some(_) | None) => reason(name, decision),
            }
        })
        .collect();
    if unmet.len() > MOST_SETS {
        reasons.push(format!("{} more sets", unmet.len() - MOST_SETS));
    }
    let message = format!(
        "the policies of this plan did not pass: {}. Nothing was applied, and the plan is kept.",
        reasons.join("; ")
    );
    let needs_plan = unmet
        .iter()
        .any(|(_, decision)| !matches!(decision, SetDecision::NeedsApproval { .. }));
    let mut hints = Vec::new();
    // Approvals of this plan are of no use if it has to be made again.
    for (name, decision) in unmet.iter().take(MOST_SETS).filter(|_| !needs_plan) {
        hints.extend(former_hint(sets, found, plan.id, name));
        hints.extend(approval_hint(cx, sets, found, name, decision, project));
    }
    let broken: Vec<&str> = unmet
        .iter()
        .filter_map(|(_, decision)| match decision {
            SetDecision::NotEvaluated(why) => Some(why.as_str()),
            SetDecision::Passed
            | SetDecision::Approved(_)
            | SetDecision::NeedsApproval { .. }
            | SetDecision::Missing
            | SetDecision::Changed
            | SetDecision::Removed
            | SetDecision::WaiverEnded => None,
        })
        .collect();
    if !broken.is_empty() {
        let help = if broken.iter().all(|why| has_way_out(why)) {
            ""
        } else {
            " Ask an administrator to correct it, then plan again."
        };
        hints.push(format!(
            "A set that could not be evaluated cannot be approved.{help}"
        ));
    } else if needs_plan {
        let flags = project.flags().unwrap_or_default();
        let has_ended = unmet
            .iter()
            .any(|(_, decision)| *decision == SetDecision::WaiverEnded);
        let why = if has_ended {
            "a waiver has ended"
        } else {
            "the configured sets have changed"
        };
        hints.push(format!(
            "Plan again, because {why} since: `{}`.",
            format!("{word} plan {flags}").trim_end()
        ));
    }
    let way_out = if needs_plan {
        PolicyWayOut::Plan
    } else {
        PolicyWayOut::Approve
    };
    (UserText::new(message, hints), way_out)
}

/// Returns the reason of one set, as a clause.
fn reason(name: &SetName, decision: &SetDecision) -> String {
    match decision {
        SetDecision::Passed | SetDecision::Approved(_) => format!("`{name}` passed"),
        SetDecision::NeedsApproval { needed, by } => format!(
            "`{name}` is violated and has {} of {needed} approval{}",
            by.len(),
            if *needed == 1 { "" } else { "s" }
        ),
        SetDecision::NotEvaluated(why) => format!(
            "`{name}` was not evaluated ({})",
            why.trim_end().trim_end_matches('.')
        ),
        SetDecision::Missing => {
            format!("`{name}` was not checked, because it was added after the plan")
        }
        SetDecision::Changed => format!("`{name}` was changed after the plan"),
        SetDecision::Removed => {
            format!("`{name}` was removed from the configuration after the plan")
        }
        SetDecision::WaiverEnded => {
            format!(
                "the waiver for `{name}` ended after this plan was made, so its violation counts"
            )
        }
    }
}

/// Returns the sentence about approvals that do not count any more, because their authors are no owners now.
fn former_hint(
    sets: &[CurrentSet],
    found: &PlanPolicies,
    plan: PlanId,
    name: &SetName,
) -> Option<String> {
    let (set, definition) = sets.iter().find(|(set, _)| set.name == *name)?;
    let verdict = found.verdicts.iter().find(|verdict| verdict.set == *name)?;
    let needed = set.needed(definition.clone());
    let logins = decision::former_approvers(&needed, verdict, &found.approvals, &plan);
    former_sentence(name, &logins)
}

fn former_sentence(name: &SetName, logins: &[String]) -> Option<String> {
    let people: Vec<String> = logins.iter().map(|login| code_span(login)).collect();
    match people.as_slice() {
        [] => None,
        [one] => Some(format!(
            "The approval of {one} does not count any more, because {one} may not approve `{name}` any more."
        )),
        all => Some(format!(
            "The approvals of {} do not count any more, because these people may not approve `{name}` any more.",
            all.join(", ")
        )),
    }
}

/// Returns who can approve violations of a set, and how.
fn approval_hint(
    cx: &CommandCx<'_>,
    sets: &[CurrentSet],
    found: &PlanPolicies,
    name: &SetName,
    decision: &SetDecision,
    project: &ProjectKey,
) -> Option<String> {
    if !matches!(decision, SetDecision::NeedsApproval { .. }) {
        return None;
    }
    if cx.pull.at.subject.is_application() {
        return Some(format!(
            "Violations of `{name}` can only be approved on a pull request. Make the change there."
        ));
    }
    let (set, _) = sets.iter().find(|(set, _)| set.name == *name)?;
    let word = cx.ctx.settings.comments.executable();
    let flags = project.flags().unwrap_or_default();
    let command = format!("{word} approve_policies {flags}");
    let verdict = found.verdicts.iter().find(|verdict| verdict.set == *name);
    let who = approval_sentence(&set.owners, verdict, &format!("the violations of `{name}`"));
    if approvers(&set.owners, verdict).is_none() {
        return Some(who);
    }
    let author = if set.prevent_self_approve {
        " The author of the pull request cannot."
    } else {
        ""
    };
    Some(format!("{who}{author} Comment `{}`.", command.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_approvers_are_named() {
        let name = SetName::parse("basics").unwrap();
        let sentence = |logins: &[&str]| {
            let logins: Vec<String> = logins.iter().map(|&login| login.to_owned()).collect();
            former_sentence(&name, &logins)
        };
        assert_eq!(sentence(&[]), None);
        assert_eq!(
            sentence(&["b`ob"]).unwrap(),
            "The approval of `b'ob` does not count any more, because `b'ob` may not approve `basics` any more."
        );
        assert_eq!(
            sentence(&["bob", "olga"]).unwrap(),
            "The approvals of `bob`, `olga` do not count any more, because these people may not approve `basics` any more."
        );
    }
}
