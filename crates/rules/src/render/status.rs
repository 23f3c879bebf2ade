//! Builds commit statuses: their names, states and descriptions (reference 9.1 to 9.3).
//!
//! All functions decide from the newest runs of the projects of a pull request, which the caller reads from its
//! storage.

use crate::model::{
    CommitState, CommitStatus, PlanCounts, ProjectKey, ProjectOutcome, RunKind, StatusContext,
};

/// Maximum length of the description of a status in characters (GitHub REST).
pub const MAX_DESCRIPTION_CHARS: usize = 140;

/// Newest run of one project of the pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSummary {
    /// Kind of the newest run.
    pub kind: RunKind,
    /// Outcome of the newest run.
    pub outcome: ProjectOutcome,
    /// Holder of the lock and position in its queue, if the project is queued: [`queued`].
    pub waits: Option<String>,
    /// True if the project has a plan that will never be applied, see [`crate::model::PlanRecord::blocked`].
    pub is_blocked: bool,
}

/// Returns the name of the status over all projects: `lockkeeper/plan`. `name` is `--vcs-status-name`.
pub fn context(name: &str, kind: RunKind) -> StatusContext {
    StatusContext::new(&format!("{name}/{kind}"))
}

/// Returns the name of the status of policy checks over all projects: `lockkeeper/policy_check`. Single projects have
/// none (reference 9.1).
pub fn policy_context(name: &str) -> StatusContext {
    StatusContext::new(&format!("{name}/policy_check"))
}

/// Returns the name of the annotations of policy checks: `lockkeeper/policy_findings`. No status has it, so that a forge that
/// requires the status of policy checks does not take one for the other.
pub fn annotations_context(name: &str) -> StatusContext {
    StatusContext::new(&format!("{name}/policy_findings"))
}

/// Projects of a pull request by the results of their policy checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// Projects whose policies are checked.
    pub total: usize,
    /// Projects with a policy set that prevents their apply.
    pub failed: usize,
    /// Projects without a plan, and so without a check.
    pub unplanned: usize,
    /// Projects that are queued for a lock, and will be planned automatically.
    pub waiting: usize,
}

/// Returns state and description of the status of policy checks (reference 9.3). A project that was not checked is no
/// success (P6).
pub fn policies(counts: PolicyCounts) -> (CommitState, String) {
    let PolicyCounts {
        total,
        failed,
        unplanned,
        waiting,
    } = counts;
    let checked = total.saturating_sub(unplanned + waiting);
    match (failed, unplanned, waiting) {
        (0, 0, 0) => (
            CommitState::Success,
            format!("{total}/{total} projects had policies checked successfully."),
        ),
        (0, 0, _) => (
            CommitState::Pending,
            format!("{checked}/{total} projects had policies checked."),
        ),
        (0, _, _) => (
            CommitState::Failure,
            format!("{checked}/{total} projects had policies checked: the others have no plan."),
        ),
        (_, _, _) => (
            CommitState::Failure,
            format!("Policies of {failed}/{total} projects did not pass."),
        ),
    }
}

/// Returns state and description of the status of policy checks while a plan runs.
pub fn policies_running() -> (CommitState, String) {
    (
        CommitState::Pending,
        "Policy checks in progress...".to_owned(),
    )
}

/// Returns state and description of the status of policy checks if their plan failed before it had results.
pub fn policies_broken() -> (CommitState, String) {
    (
        CommitState::Failure,
        "Policies were not checked: the plan failed.".to_owned(),
    )
}

/// Returns state and description of the status of policy checks if nobody knows which sets concern the projects.
pub fn policies_unread() -> (CommitState, String) {
    (
        CommitState::Failure,
        "Policies are unknown: the configuration of the repository cannot be read.".to_owned(),
    )
}

/// Returns state and description of the status of policy checks if a newer plan replaces theirs.
pub fn policies_superseded(why: &str) -> (CommitState, String) {
    (
        CommitState::Failure,
        format!("Policy checks superseded: {why}."),
    )
}

/// Returns the name of the status of one project: `lockkeeper/plan: net`, `lockkeeper/apply: ./default`.
pub fn project_context(name: &str, kind: RunKind, project: &ProjectKey) -> StatusContext {
    StatusContext::new(&format!("{name}/{kind}: {}", project.status_id()))
}

/// Returns the name of the status of a hook: `lockkeeper/pre_workflow_hook: Generate` (reference 6.9). `when` is
/// `pre` or `post`.
pub fn hook_context(name: &str, when: &str, called: &str) -> StatusContext {
    StatusContext::new(&format!("{name}/{when}_workflow_hook: {called}"))
}

/// Builds a status, with the description cut to the forge's limit.
pub fn status(
    context: StatusContext,
    state: CommitState,
    text: &str,
    url: Option<String>,
) -> CommitStatus {
    CommitStatus {
        context,
        state,
        description: describe(text),
        url,
    }
}

/// Returns state and description of a status while its command runs (reference 9.3).
pub fn running(kind: RunKind) -> (CommitState, String) {
    (
        CommitState::Pending,
        format!("{} in progress...", title(kind)),
    )
}

/// Returns state and description of the combined status of a command that failed before it had results.
pub fn failed(kind: RunKind) -> (CommitState, String) {
    (CommitState::Failure, format!("{} failed.", title(kind)))
}

/// Returns state and description of the statuses of a plan that a newer one supersedes. The state is not a success:
/// the commit could be pushed again, and a forge that requires the status would then let it be merged without a plan.
pub fn superseded(kind: RunKind, why: &str) -> (CommitState, String) {
    (
        CommitState::Failure,
        format!("{} superseded: {why}.", title(kind)),
    )
}

/// Returns state and description of the combined status of a plan of code from a fork, which a person with write
/// access must request.
pub fn unasked(executable: &str) -> (CommitState, String) {
    (
        CommitState::Failure,
        format!(
            "Not planned: somebody with write access must review it and comment `{executable} plan`."
        ),
    )
}

/// Returns state and description of a status whose command ended without an outcome.
pub fn interrupted() -> (CommitState, String) {
    (
        CommitState::Failure,
        "Interrupted: run the command again.".to_owned(),
    )
}

/// Returns state and description of the status of a project that the newest plan of the pull request does not
/// concern.
pub fn not_concerned() -> (CommitState, String) {
    (
        CommitState::Success,
        "Not part of the newest plan.".to_owned(),
    )
}

/// Returns state and description of the status of a project that left the queue before it got the lock.
pub fn left_line() -> (CommitState, String) {
    (
        CommitState::Failure,
        "No longer queued for the lock: plan again.".to_owned(),
    )
}

/// Returns the description for a project that is queued for a lock: `Waiting for #1 (alice), next in the queue`.
pub fn queued(holder: &str, who: &str, place: usize) -> String {
    let place = if place == 1 {
        "next in the queue".to_owned()
    } else {
        format!("number {place} in the queue")
    };
    format!("Waiting for {holder} ({who}), {place}")
}

/// Returns state and description of the combined plan status when a plan command ends. No projects at all is a
/// success. A project that is queued for a lock is pending: its plan is made when it gets the lock.
pub fn plan(summaries: &[StatusSummary]) -> (CommitState, String) {
    let OutcomeCounts {
        total, plan_failed, ..
    } = OutcomeCounts::of(summaries);
    if plan_failed > 0 {
        return (
            CommitState::Failure,
            format!("{plan_failed}/{total} projects failed to plan."),
        );
    }
    match summaries
        .iter()
        .filter(|summary| summary.outcome == ProjectOutcome::Discarded)
        .count()
    {
        0 => {}
        1 if total == 1 => return project(RunKind::Plan, ProjectOutcome::Discarded, None),
        discarded => {
            return (
                CommitState::Failure,
                format!("{discarded}/{total} plans were discarded: plan again."),
            );
        }
    }
    let blocked = summaries
        .iter()
        .filter(|summary| summary.is_blocked)
        .count();
    if blocked > 0 {
        return (
            CommitState::Failure,
            format!("{blocked}/{total} plans will not be applied: see the comment."),
        );
    }
    if let Some(line) = waiting(summaries) {
        return (CommitState::Pending, line);
    }
    (
        CommitState::Success,
        format!("{total}/{total} projects planned successfully."),
    )
}

/// Returns the holders that queued projects wait for, if any project is queued.
fn waiting(summaries: &[StatusSummary]) -> Option<String> {
    let lines: Vec<&str> = summaries
        .iter()
        .filter_map(|summary| summary.waits.as_deref())
        .collect();
    let (first, rest) = lines.split_first()?;
    let others = if rest.iter().all(|line| line == first) {
        ""
    } else {
        ", and others"
    };
    Some(match summaries.len() {
        1 => format!("{first}."),
        total => format!("{first}{others}: {}/{total} projects.", lines.len()),
    })
}

/// Returns state and description of the combined apply status when an apply command ends. The status is failed as
/// soon as one apply failed, a success if nothing is left to apply, otherwise pending.
pub fn apply(summaries: &[StatusSummary]) -> (CommitState, String) {
    let OutcomeCounts {
        total,
        applied,
        idle,
        apply_failed,
        ..
    } = OutcomeCounts::of(summaries);
    if apply_failed > 0 {
        return (
            CommitState::Failure,
            format!("{apply_failed}/{total} projects failed to apply."),
        );
    }
    let done = applied + idle;
    let idle_too = if idle > 0 {
        format!(" ({idle} up to date)")
    } else {
        String::new()
    };
    match (done == total, applied) {
        (true, 0) if total > 0 => (
            CommitState::Success,
            format!("{total}/{total} projects up to date."),
        ),
        (true, _) => (
            CommitState::Success,
            format!("{done}/{total} projects applied successfully{idle_too}."),
        ),
        (false, _) => (
            CommitState::Pending,
            format!("{done}/{total} projects applied{idle_too}."),
        ),
    }
}

/// Returns the combined apply status after a plan command. `None` leaves it untouched, because changes must still be
/// applied (reference 9.3).
pub fn apply_after_plan(summaries: &[StatusSummary]) -> Option<(CommitState, String)> {
    let (state, text) = apply(summaries);
    match state {
        CommitState::Pending => None,
        CommitState::Success | CommitState::Failure => Some((state, text)),
    }
}

/// Returns state and description of the status of one project when its run ends.
pub fn project(
    kind: RunKind,
    outcome: ProjectOutcome,
    counts: Option<PlanCounts>,
) -> (CommitState, String) {
    // The plan itself is a success; the status of policy checks says what they found.
    let is_planned = kind == RunKind::Plan && outcome == ProjectOutcome::PolicyFailed;
    let is_pending = matches!(
        outcome,
        ProjectOutcome::Waiting | ProjectOutcome::PolicyPending
    );
    let state = if is_pending {
        CommitState::Pending
    } else if outcome.is_success() || is_planned {
        CommitState::Success
    } else {
        CommitState::Failure
    };
    let failed = |why: &str| format!("{} failed: {why}.", title(kind));
    let planned =
        || counts.map_or_else(|| "Plan succeeded.".to_owned(), |counts| counts.to_string());
    let text = match outcome {
        ProjectOutcome::Planned => planned(),
        ProjectOutcome::NoChanges => "No changes.".to_owned(),
        ProjectOutcome::Applied => "Apply succeeded.".to_owned(),
        ProjectOutcome::UpToDate => "Up to date.".to_owned(),
        ProjectOutcome::Imported => "Resource imported: plan again.".to_owned(),
        ProjectOutcome::StateRemoved => "Resource removed from the state: plan again.".to_owned(),
        ProjectOutcome::Told => "Reported.".to_owned(),
        ProjectOutcome::Discarded => {
            return (
                CommitState::Failure,
                "The plan was discarded: plan again.".to_owned(),
            );
        }
        ProjectOutcome::Waiting => "Waiting for the lock.".to_owned(),
        ProjectOutcome::Locked => failed("another pull request holds the lock"),
        ProjectOutcome::Refused => failed("refused, see the comment"),
        ProjectOutcome::Failed => format!("{} failed.", title(kind)),
        ProjectOutcome::Cancelled => failed("it was cancelled"),
        ProjectOutcome::Skipped => failed("a previous project failed"),
        ProjectOutcome::PolicyPassed => "Policies passed.".to_owned(),
        ProjectOutcome::PolicyPending => "Policies do not pass yet.".to_owned(),
        // The plan was made. The status of policy checks says whether they pass, because approvals change that later.
        ProjectOutcome::PolicyFailed if is_planned => planned(),
        ProjectOutcome::PolicyFailed => failed("policies did not pass"),
    };
    (state, text)
}

/// Cuts a description to the forge's limit at a character.
pub fn describe(text: &str) -> String {
    if text.chars().count() <= MAX_DESCRIPTION_CHARS {
        return text.to_owned();
    }
    let kept: String = text.chars().take(MAX_DESCRIPTION_CHARS - 1).collect();
    format!("{}…", kept.trim_end())
}

fn title(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Plan => "Plan",
        RunKind::Apply => "Apply",
        RunKind::Version => "Version",
        RunKind::Import => "Import",
        RunKind::StateRm => "State rm",
    }
}

/// Numbers of projects by outcome.
#[derive(Default)]
struct OutcomeCounts {
    total: usize,
    applied: usize,
    /// Projects with nothing to apply.
    idle: usize,
    plan_failed: usize,
    apply_failed: usize,
}

impl OutcomeCounts {
    fn of(summaries: &[StatusSummary]) -> Self {
        let mut tally = Self {
            total: summaries.len(),
            ..Self::default()
        };
        for summary in summaries {
            match (summary.outcome, summary.kind) {
                (ProjectOutcome::Applied, _) => tally.applied += 1,
                (ProjectOutcome::NoChanges | ProjectOutcome::UpToDate, _) => tally.idle += 1,
                (ProjectOutcome::Discarded | ProjectOutcome::Waiting, _)
                | (ProjectOutcome::PolicyFailed, RunKind::Plan) => {}
                (outcome, _) if outcome.is_success() => {}
                (_, RunKind::Plan) => tally.plan_failed += 1,
                (_, RunKind::Apply) => tally.apply_failed += 1,
                // No status reports these runs.
                (_, RunKind::Version | RunKind::Import | RunKind::StateRm) => {}
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::model::RepoPath;

    fn planned(outcomes: &[ProjectOutcome]) -> Vec<StatusSummary> {
        let summary = |outcome: &ProjectOutcome| StatusSummary {
            kind: RunKind::Plan,
            outcome: *outcome,
            waits: (*outcome == ProjectOutcome::Waiting).then(|| queued("#1", "alice", 1)),
            is_blocked: false,
        };
        outcomes.iter().map(summary).collect()
    }

    fn summaries() -> Vec<Vec<StatusSummary>> {
        use ProjectOutcome::{Applied, Failed, Locked, NoChanges, Planned, UpToDate, Waiting};
        let apply = |outcome| StatusSummary {
            kind: RunKind::Apply,
            outcome,
            waits: None,
            is_blocked: false,
        };
        let mut all: Vec<Vec<StatusSummary>> = [
            &[][..],
            &[Planned],
            &[NoChanges],
            &[Planned, NoChanges, NoChanges],
            &[Planned, Failed, Locked],
        ]
        .map(planned)
        .to_vec();
        all.push([planned(&[Planned, NoChanges]), vec![apply(Applied)]].concat());
        all.push([planned(&[NoChanges]), vec![apply(Applied)]].concat());
        all.push(vec![apply(Applied), apply(UpToDate), apply(Failed)]);
        all.push([planned(&[Failed]), vec![apply(Applied)]].concat());
        all.push(planned(&[Waiting]));
        all.push(planned(&[Planned, Waiting]));
        all.push(planned(&[Failed, Waiting]));
        all
    }

    #[test]
    fn combined_statuses_follow_from_where_the_projects_stand() {
        let mut table = String::new();
        for summaries in summaries() {
            let names: Vec<String> = summaries
                .iter()
                .map(|s| format!("{}:{}", s.kind, s.outcome))
                .collect();
            let (plan, apply) = (plan(&summaries), apply(&summaries));
            writeln!(
                table,
                "{}\n  plan  {} {}\n  apply {} {}",
                names.join(" "),
                plan.0,
                plan.1,
                apply.0,
                apply.1
            )
            .unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn those_who_wait_for_several_are_told_of_the_first() {
        let waits = |holder| StatusSummary {
            waits: Some(queued(holder, "alice", 2)),
            ..planned(&[ProjectOutcome::Waiting]).remove(0)
        };
        let (state, line) = plan(&[waits("#1"), waits("#2")]);
        assert_eq!(
            (state, line.as_str()),
            (
                CommitState::Pending,
                "Waiting for #1 (alice), number 2 in the queue, and others: 2/2 projects."
            )
        );
    }

    #[test]
    fn after_a_plan_the_apply_status_changes_only_when_that_is_certain() {
        use ProjectOutcome::{Failed, NoChanges, Planned};
        assert_eq!(apply_after_plan(&planned(&[Planned, NoChanges])), None);
        assert_eq!(apply_after_plan(&planned(&[Failed, NoChanges])), None);
        let done = apply_after_plan(&planned(&[NoChanges])).unwrap();
        assert_eq!(
            done,
            (CommitState::Success, "1/1 projects up to date.".to_owned())
        );
    }

    #[test]
    fn each_outcome_of_a_project_has_its_line() {
        let counts = PlanCounts {
            add: 1,
            ..PlanCounts::default()
        };
        let mut table = String::new();
        for outcome in ProjectOutcome::ALL {
            let (state, text) = project(RunKind::Plan, *outcome, Some(counts));
            assert!(text.chars().count() <= MAX_DESCRIPTION_CHARS);
            writeln!(table, "{outcome}: {state} {text}").unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn a_project_that_was_not_checked_is_no_success() {
        let line = |failed, unplanned, waiting| {
            let (state, text) = policies(PolicyCounts {
                total: 3,
                failed,
                unplanned,
                waiting,
            });
            format!("{state} {text}")
        };
        let all = [
            line(0, 0, 0),
            line(0, 0, 1),
            line(0, 2, 0),
            line(0, 1, 1),
            line(2, 1, 0),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        success 3/3 projects had policies checked successfully.
        pending 2/3 projects had policies checked.
        failure 1/3 projects had policies checked: the others have no plan.
        failure 1/3 projects had policies checked: the others have no plan.
        failure Policies of 2/3 projects did not pass.
        ");
        assert_eq!(
            policies(PolicyCounts::default()).1,
            "0/0 projects had policies checked successfully."
        );
    }

    #[test]
    fn lines_are_cut_at_a_character() {
        assert_eq!(describe(&"é".repeat(140)).chars().count(), 140);
        let cut = describe(&"é".repeat(141));
        assert_eq!((cut.chars().count(), cut.ends_with("é…")), (140, true));
    }

    #[test]
    fn contexts_are_named_as_in_the_reference() {
        let root = ProjectKey::of_dir(RepoPath::root());
        assert_eq!(
            context("lockkeeper", RunKind::Plan).as_str(),
            "lockkeeper/plan"
        );
        assert_eq!(
            policy_context("lockkeeper").as_str(),
            "lockkeeper/policy_check"
        );
        assert_eq!(
            project_context("atlantis", RunKind::Apply, &root).as_str(),
            "atlantis/apply: ./default"
        );
    }
}
