//! Tests of verdicts and approvals of policy checks, and of the gate that decides on them (P5, P6).

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::NaiveDate;
use lockkeeper::model::{
    AccountId, Actor, Cause, LockEventKind, LockKey, PlanId, PlanRecord, PlanState, ProjectKey,
    PullRef, PullState, RunId, RunKind, Sha256Digest,
};
use lockkeeper::seal::{OpenError, SealedText};
use lockkeeper::store::{
    ApplyChecks, ApplyGate, LockAttempt, PlanParts, PlanPolicies, PolicyApprove, ProjectApproval,
    RecordPlan, Rename, Renamed, RunState, SetApprovals, Store, TeamMember,
};
use lockkeeper_policy::decision::{self, NeededSet, PolicyApproval, SetDecision};
use lockkeeper_policy::findings::{AppliedWaiver, FindingLevel, FindingPlace, PolicyFinding};
use lockkeeper_policy::sets::{PolicyOwners, SetDigest, SetName};
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use tokio::task::JoinSet;

use super::samples::{
    HOSTILE, URL, begin_apply, named, new_plan, open_pull, plan_state, project, pull, run, taken,
};
use crate::support::db::{TestDb, by, execute, races, store_test};

store_test!(
    verdicts_come_back_as_they_were_recorded,
    decisions_are_read_without_the_texts_and_are_the_same,
    verdicts_go_with_the_record_of_their_plan,
    a_plan_that_is_not_stored_has_no_verdicts,
    a_plan_that_passed_is_applied,
    no_plan_is_applied_whose_verdict_is_missing_or_stale,
    no_plan_is_applied_whose_verdict_was_damaged,
    no_plan_is_applied_with_the_verdict_of_another,
    an_approval_that_was_damaged_does_not_count,
    approvals_let_a_plan_pass_once_there_are_enough,
    an_approval_replaces_the_one_before_of_the_same_person,
    approvals_of_people_who_left_their_team_do_not_count,
    approvals_of_an_earlier_plan_count_only_if_they_are_sticky_and_saw_the_same,
    approvals_of_another_project_or_pull_never_count,
    approvals_are_removed_by_set,
    approvals_are_removed_by_person,
    approvals_are_listed_and_removed_after_their_plan_is_gone,
    approvals_follow_a_repository_to_its_new_name,
    a_plan_that_is_gone_is_not_approved,
    an_approval_is_stored_only_with_its_own_plan,
    a_closed_pull_loses_its_approvals,
    approvals_are_in_the_audit_log,
    of_many_approvals_of_one_person_one_counts,
    approvals_meet_a_new_plan_and_do_not_count_for_it,
    approvals_meet_closing_and_none_is_left,
    removing_approvals_meets_applies_and_none_begins_after_it,
    no_order_of_plans_approvals_and_removals_applies_what_nobody_approved,
);

/// Tasks that meet each other.
const TASKS: usize = 64;

fn set(name: &str) -> SetName {
    SetName::parse(name).unwrap()
}

fn definition(text: &str) -> SetDigest {
    SetDigest(Sha256Digest::of(text.as_bytes()))
}

/// Returns a set that is configured as it was for the verdicts of this file. A team owns it, and all who approve are in it.
pub fn needed(name: &str) -> NeededSet {
    NeededSet {
        name: set(name),
        definition: definition(name),
        approve_count: 1,
        sticky: false,
        prevent_self_approve: false,
        owners: PolicyOwners {
            users: Vec::new(),
            teams: vec!["acme/security".to_owned()],
        },
    }
}

fn finding(level: FindingLevel, message: &str) -> PolicyFinding {
    PolicyFinding {
        level,
        rule: "main.deny".to_owned(),
        message: message.to_owned(),
        resource: None,
        place: None,
        link: None,
        evidence: None,
        other: None,
        waived: None,
    }
}

/// Returns a verdict with a hint and no violation.
fn passed(name: &str) -> Verdict {
    Verdict {
        set: set(name),
        definition: definition(name),
        outcome: VerdictOutcome::Passed,
        origin: "/policies".to_owned(),
        content: Some(Sha256Digest::of(b"policies")),
        tool: Some("conftest 0.62.0".to_owned()),
        findings: vec![finding(FindingLevel::Warn, "no tags")],
        more_findings: 0,
        items: Vec::new(),
        notes: Vec::new(),
        output: "1 warning".to_owned(),
    }
}

/// Returns a verdict with these violations.
pub fn failed(name: &str, violations: &[&str]) -> Verdict {
    Verdict {
        outcome: VerdictOutcome::Failed,
        findings: violations
            .iter()
            .map(|message| finding(FindingLevel::Deny, message))
            .collect(),
        items: violations
            .iter()
            .map(|message| Sha256Digest::of(message.as_bytes()))
            .collect(),
        ..passed(name)
    }
}

fn not_evaluated(name: &str, why: &str) -> Verdict {
    Verdict {
        outcome: VerdictOutcome::NotEvaluated(why.to_owned()),
        findings: Vec::new(),
        ..passed(name)
    }
}

/// Returns an approval of all violations of a verdict.
pub fn approval(plan: &PlanRecord, verdict: &Verdict, login: &str) -> PolicyApproval {
    PolicyApproval {
        set: verdict.set.clone(),
        plan: plan.id,
        person: format!("github.com:{login}"),
        account: None,
        login: login.to_owned(),
        teams: vec!["acme/security".to_owned()],
        is_author: false,
        items: verdict.items.clone(),
        definition: verdict.definition.clone(),
        at: plan.created_at,
    }
}

/// Stores a plan with verdicts, where locks are switched off.
async fn record(
    db: &TestDb,
    pull: &PullRef,
    project: &ProjectKey,
    verdicts: &[Verdict],
) -> PlanRecord {
    let plan = new_plan(db, pull, project).await;
    let parts = PlanParts {
        verdicts,
        ..PlanParts::default()
    };
    let recorded = db.store().plan_record(&plan, None, None, &parts);
    assert_eq!(recorded.await.unwrap(), RecordPlan::Recorded);
    plan
}

async fn approve(store: &Store, plan: &PlanRecord, approvals: &[PolicyApproval]) -> PolicyApprove {
    let approved = store.policy_approve(plan, approvals, by());
    approved.await.unwrap()
}

/// Returns the members of the team that owns the sets: all people of this file.
fn members() -> Vec<TeamMember> {
    let kims = (0..TASKS).map(|task| format!("kim{task}"));
    ["ada", "bob", "cyd"]
        .map(str::to_owned)
        .into_iter()
        .chain(kims)
        .map(|login| member(&login))
        .collect()
}

pub fn member(login: &str) -> TeamMember {
    TeamMember {
        login: login.to_owned(),
        team: "acme/security".to_owned(),
    }
}

async fn gate_in(
    store: &Store,
    plan: &PlanRecord,
    run: RunId,
    policies: &[NeededSet],
) -> Result<ApplyGate, sqlx::Error> {
    let members = members();
    let checks = ApplyChecks {
        modules: false,
        policies,
        members: &members,
    };
    store.apply_begin(plan, run, None, &checks).await
}

async fn gate(
    store: &Store,
    plan: &PlanRecord,
    policies: &[NeededSet],
) -> Result<ApplyGate, sqlx::Error> {
    let run = run(store, RunKind::Apply, &plan.pull, &plan.project).await;
    gate_in(store, plan, run, policies).await
}

async fn assert_granted(db: &TestDb, plan: &PlanRecord, policies: &[NeededSet]) {
    let gate = gate(db.store(), plan, policies).await.unwrap();
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");
    assert_eq!(plan_state(db, plan).await, PlanState::Applying);
}

/// Returns the decisions with which the gate refuses the plan: without locks, with a lock, and on another replica. A
/// refusal leaves nothing behind.
async fn refused(
    db: &TestDb,
    other: &Store,
    plan: &PlanRecord,
    policies: &[NeededSet],
) -> Vec<(SetName, SetDecision)> {
    let (key, cause) = (
        LockKey::of(&plan.pull.repo, &plan.project),
        Cause::new(Actor::commenter("ada"), "applied"),
    );
    let attempt = LockAttempt {
        key: &key,
        project: &plan.project,
        pull: &plan.pull,
        pull_url: URL,
        cause: &cause,
    };
    let members = members();
    let checks = ApplyChecks {
        modules: true,
        policies,
        members: &members,
    };
    let mut seen = Vec::new();
    for (store, attempt) in [
        (db.store(), None),
        (db.store(), Some(&attempt)),
        (other, Some(&attempt)),
    ] {
        let apply = run(store, RunKind::Apply, &plan.pull, &plan.project).await;
        let gate = store.apply_begin(plan, apply, attempt, &checks);
        let gate = gate.await.unwrap();
        let ApplyGate::PoliciesUnmet(decisions) = gate else {
            panic!("{gate:?}")
        };
        assert_eq!(plan_state(db, plan).await, PlanState::Planned);
        assert_eq!(store.lock_list_of_pull(&plan.pull).await.unwrap(), []);
        let run = store.run_get(apply).await.unwrap().unwrap();
        assert_eq!(run.state, RunState::Queued);
        seen.push(decisions);
    }
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    seen.remove(0)
}

fn decision_of<'a>(decisions: &'a [(SetName, SetDecision)], name: &str) -> &'a SetDecision {
    let found = decisions.iter().find(|(set, _)| set.as_str() == name);
    &found.expect("the set has a decision").1
}

fn needs_approval(decision: &SetDecision) -> bool {
    matches!(decision, SetDecision::NeedsApproval { .. })
}

async fn results(store: &Store, plan: &PlanRecord) -> PlanPolicies {
    let mut results = store.policy_results(&plan.pull).await.unwrap();
    results.remove(&plan.id).unwrap_or_default()
}

async fn verdicts_come_back_as_they_were_recorded(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let full = Verdict {
        origin: HOSTILE.to_owned(),
        content: None,
        tool: Some(HOSTILE.to_owned()),
        findings: vec![
            PolicyFinding {
                resource: Some(HOSTILE.to_owned()),
                place: Some(FindingPlace {
                    file: HOSTILE.to_owned(),
                    line: Some(u32::MAX),
                }),
                link: Some(HOSTILE.to_owned()),
                evidence: Some("NUL \0 in JSON".to_owned()),
                ..finding(FindingLevel::Deny, HOSTILE)
            },
            finding(
                FindingLevel::RequireApproval {
                    count: 2,
                    teams: vec!["acme/security".to_owned()],
                },
                "database is replaced",
            ),
            PolicyFinding {
                waived: Some(AppliedWaiver {
                    reason: HOSTILE.to_owned(),
                    owner: "ada".to_owned(),
                    until: "2026-12-31".to_owned(),
                }),
                ..finding(FindingLevel::Deny, "public bucket")
            },
        ],
        more_findings: u32::MAX,
        notes: vec![HOSTILE.to_owned(), "The waiver has ended.".to_owned()],
        output: HOSTILE.to_owned(),
        ..failed("zoo: Sécurité 漢字", &["one", "two"])
    };
    let verdicts = [
        full,
        passed("cost"),
        not_evaluated("a", HOSTILE),
        Verdict {
            output: "NUL \u{fffd}".to_owned(),
            tool: None,
            ..passed("b")
        },
    ];
    let mut given = verdicts.clone();
    "NUL \0".clone_into(&mut given[3].output);
    let plan = record(db, &one, &named("infra/é", "net~1"), &given).await;
    let without = record(db, &one, &project("b"), &[]).await;
    let expected = PlanPolicies {
        verdicts: verdicts.to_vec(),
        approvals: Vec::new(),
    };
    for store in [db.store(), &db.reopen().await] {
        let results = store.policy_results(&one).await.unwrap();
        assert_eq!(results.len(), 1, "plans without verdicts have no entry");
        assert_eq!(results[&plan.id], expected);
        let of_run = store.policy_results_of_run(plan.run).await.unwrap();
        assert_eq!(of_run.as_ref(), Some(&expected));
        let of_run = store.policy_results_of_run(without.run).await.unwrap();
        assert_eq!(of_run, None);
        assert!(store.policy_results(&pull(2)).await.unwrap().is_empty());
    }
}

async fn decisions_are_read_without_the_texts_and_are_the_same(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let of_team = |count| FindingLevel::RequireApproval {
        count,
        teams: vec!["acme/security".to_owned()],
    };
    let waived = PolicyFinding {
        waived: Some(AppliedWaiver {
            reason: "public".to_owned(),
            owner: "ada".to_owned(),
            until: "2026-12-31".to_owned(),
        }),
        ..finding(FindingLevel::Deny, "public bucket")
    };
    let many = Verdict {
        findings: vec![
            finding(FindingLevel::Deny, "one"),
            finding(FindingLevel::Deny, "two"),
            finding(of_team(2), "three"),
            waived,
        ],
        ..failed("many", &["one"])
    };
    let verdicts = [
        many,
        failed("security", &["public bucket"]),
        passed("cost"),
        not_evaluated("a", "no rule was evaluated"),
    ];
    let sets = ["many", "security", "cost", "a", "new"].map(needed);
    let plan = record(db, &one, &project("a"), &verdicts).await;
    let approvals = ["ada", "bob"].map(|login| approval(&plan, &verdicts[1], login));
    let stored = approve(db.store(), &plan, &approvals).await;
    assert_eq!(stored, PolicyApprove::Stored);
    let decisions = |found: &PlanPolicies| {
        let today = NaiveDate::from_ymd_opt(2026, 12, 1).unwrap();
        decision::decisions(&sets, &found.verdicts, &found.approvals, &plan.id, today)
    };
    let whole = results(db.store(), &plan).await;
    let of_pull = db.store().policy_decisions(&one).await.unwrap();
    let found = &of_pull[&plan.id];
    assert_eq!(decisions(found), decisions(&whole));
    assert_eq!(found.approvals, whole.approvals);
    for verdict in &found.verdicts {
        assert_eq!((verdict.output.as_str(), &verdict.tool), ("", &None));
        let mut texts = verdict.findings.iter().map(|finding| &finding.message);
        assert!(texts.all(String::is_empty), "{verdict:?}");
    }
    // Equal ones are read once. Those that a waiver takes out stay so.
    assert_eq!(found.verdicts[0].findings.len(), 3);
    assert_eq!(found.verdicts[0].violations().count(), 2);
    let damage = "UPDATE policy_verdicts SET outcome = 'passed'";
    execute(db, damage).await;
    let of_pull = db.store().policy_decisions(&one).await.unwrap();
    for verdict in &of_pull[&plan.id].verdicts {
        let is_damaged = matches!(&verdict.outcome, VerdictOutcome::NotEvaluated(why) if why.contains("damaged"));
        assert!(is_damaged || verdict.set == set("cost"), "{verdict:?}");
    }
}

async fn verdicts_go_with_the_record_of_their_plan(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let plan = record(db, &one, &project("a"), &[passed("security")]).await;
    store.plan_discard(&one, &project("a")).await.unwrap();
    assert!(store.policy_results(&one).await.unwrap().is_empty());
    let of_run = store.policy_results_of_run(plan.run).await.unwrap();
    assert_eq!(of_run.unwrap().verdicts, [passed("security")]);
    db.clock.advance(Duration::from_secs(1));
    assert_eq!(store.plan_prune(db.now(), 9).await.unwrap(), [plan.id]);
    let of_run = store.policy_results_of_run(plan.run).await.unwrap();
    assert_eq!(of_run, None);
}

async fn a_plan_that_is_not_stored_has_no_verdicts(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let lock = taken(store, &one, &project("a")).await;
    let plan = new_plan(db, &one, &project("a")).await;
    let released = store.lock_release(&one, &project("a"), by()).await;
    assert!(released.unwrap());
    let verdicts = [passed("security")];
    let parts = PlanParts {
        verdicts: &verdicts,
        ..PlanParts::default()
    };
    let recorded = store.plan_record(&plan, Some(lock.id), None, &parts);
    assert_eq!(recorded.await.unwrap(), RecordPlan::LockLost);
    let of_run = store.policy_results_of_run(plan.run).await.unwrap();
    assert_eq!(of_run, None);
}

async fn a_plan_that_passed_is_applied(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = record(db, &one, &project("without"), &[]).await;
    assert_granted(db, &plan, &[]).await;
    let both = [passed("security"), passed("cost")];
    let plan = record(db, &one, &project("both"), &both).await;
    assert_granted(db, &plan, &[needed("cost"), needed("security")]).await;
}

/// A way in which the verdicts of a plan and the configured sets do not fit.
struct Unmet {
    title: &'static str,
    verdicts: Vec<Verdict>,
    policies: Vec<NeededSet>,
    /// Set with the decision that is expected.
    of: &'static str,
    expected: fn(&SetDecision) -> bool,
}

async fn no_plan_is_applied_whose_verdict_is_missing_or_stale(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let changed = NeededSet {
        definition: definition("another"),
        ..needed("security")
    };
    let contradicts = Verdict {
        outcome: VerdictOutcome::Passed,
        ..failed("security", &["public bucket"])
    };
    let of_nothing = Verdict {
        outcome: VerdictOutcome::Failed,
        ..passed("security")
    };
    let cases = [
        Unmet {
            title: "no verdict",
            verdicts: vec![],
            policies: vec![needed("security")],
            of: "security",
            expected: |decision| *decision == SetDecision::Missing,
        },
        Unmet {
            title: "a verdict of one of two sets",
            verdicts: vec![passed("cost")],
            policies: vec![needed("security"), needed("cost")],
            of: "security",
            expected: |decision| *decision == SetDecision::Missing,
        },
        Unmet {
            title: "the name in other letters",
            verdicts: vec![passed("Security")],
            policies: vec![needed("security")],
            of: "security",
            expected: |decision| *decision == SetDecision::Missing,
        },
        Unmet {
            title: "no set any more",
            verdicts: vec![passed("security")],
            policies: vec![],
            of: "security",
            expected: |decision| *decision == SetDecision::Removed,
        },
        Unmet {
            title: "one of two sets any more",
            verdicts: vec![passed("security"), passed("cost")],
            policies: vec![needed("cost")],
            of: "security",
            expected: |decision| *decision == SetDecision::Removed,
        },
        Unmet {
            title: "another definition",
            verdicts: vec![passed("security")],
            policies: vec![changed],
            of: "security",
            expected: |decision| *decision == SetDecision::Changed,
        },
        Unmet {
            title: "not evaluated",
            verdicts: vec![not_evaluated("security", "there is no conftest")],
            policies: vec![needed("security")],
            of: "security",
            expected: |decision| {
                *decision == SetDecision::NotEvaluated("there is no conftest".to_owned())
            },
        },
        Unmet {
            title: "violated",
            verdicts: vec![passed("cost"), failed("security", &["public bucket"])],
            policies: vec![needed("cost"), needed("security")],
            of: "security",
            expected: needs_approval,
        },
        Unmet {
            title: "passed with violations",
            verdicts: vec![contradicts],
            policies: vec![needed("security")],
            of: "security",
            expected: |decision| matches!(decision, SetDecision::NotEvaluated(_)),
        },
        Unmet {
            title: "failed without violations",
            verdicts: vec![of_nothing],
            policies: vec![needed("security")],
            of: "security",
            expected: |decision| matches!(decision, SetDecision::NotEvaluated(_)),
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        let project = project(&number.to_string());
        let plan = record(db, &one, &project, &case.verdicts).await;
        let decisions = refused(db, &other, &plan, &case.policies).await;
        let decision = decision_of(&decisions, case.of);
        assert!((case.expected)(decision), "{}: {decisions:?}", case.title);
        if !case.verdicts.is_empty() {
            // A caller that knows no policies applies nothing that has verdicts.
            let gate = begin_apply(db.store(), &plan).await;
            assert!(matches!(gate, ApplyGate::PoliciesUnmet(_)), "{gate:?}");
        }
    }
}

async fn no_plan_is_applied_whose_verdict_was_damaged(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let (fine, bad) = (passed("security"), failed("security", &["public bucket"]));
    let damages = [
        (&fine, "outcome = 'failed'"),
        (&fine, "outcome = 'fine'"),
        (&fine, "outcome = 'not_evaluated'"),
        (&fine, "why = 'because'"),
        (&fine, "place = 7"),
        (&fine, "definition = ''"),
        (&fine, "origin = 'elsewhere'"),
        (&fine, "content = 'x'"),
        (&fine, "content = NULL"),
        (&fine, "findings = '{'"),
        (&fine, "findings = '[{}]'"),
        (&fine, "findings = '[]'"),
        (&fine, "more_findings = -1"),
        (&fine, "items = 'x'"),
        (&fine, "items = '[\"x\"]'"),
        (&fine, "notes = '{'"),
        (&fine, "notes = '[\"x\"]'"),
        (&fine, "output = ''"),
        (&fine, "tool = 'conftest 0.61.0'"),
        (&fine, "tool = NULL"),
        (&fine, "texts = ''"),
        (&fine, "weights = '[]'"),
        (&bad, "weights = '[]'"),
        (&bad, "weights = '{'"),
        (&fine, "checksum = ''"),
        (&bad, "outcome = 'passed'"),
        (&bad, "outcome = 'passed', items = '[]'"),
        (&bad, "outcome = 'passed', items = '[]', findings = '[]'"),
        (&bad, "items = '[]'"),
        (&bad, "findings = '[]'"),
        (&bad, "findings = '{'"),
        (&bad, "more_findings = 1"),
    ];
    for (number, (verdict, damage)) in damages.into_iter().enumerate() {
        let project = project(&number.to_string());
        let plan = record(db, &one, &project, std::slice::from_ref(verdict)).await;
        let approvals = [approval(&plan, verdict, "ada")];
        let approved = approve(db.store(), &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        let statement = format!(
            "UPDATE policy_verdicts SET {damage} WHERE plan = '{}'",
            plan.id
        );
        execute(db, &statement).await;
        let decisions = refused(db, &other, &plan, &[needed("security")]).await;
        assert!(
            matches!(
                decision_of(&decisions, "security"),
                SetDecision::NotEvaluated(_) | SetDecision::Changed
            ),
            "{damage}: {decisions:?}"
        );
        let results = results(db.store(), &plan).await;
        let VerdictOutcome::NotEvaluated(why) = &results.verdicts[0].outcome else {
            panic!("{damage}: {results:?}")
        };
        assert!(why.starts_with("The stored verdict is damaged: "), "{why}");
    }
    // Without damage, both pass.
    for (dir, verdict) in [("fine", &fine), ("bad", &bad)] {
        let plan = record(db, &one, &project(dir), std::slice::from_ref(verdict)).await;
        let approvals = [approval(&plan, verdict, "ada")];
        let approved = approve(db.store(), &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        assert_granted(db, &plan, &[needed("security")]).await;
    }
}

async fn no_plan_is_applied_with_the_verdict_of_another(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let bad = failed("security", &["public bucket"]);
    let ours = record(db, &one, &project("ours"), std::slice::from_ref(&bad)).await;
    let theirs = record(db, &one, &project("theirs"), &[passed("security")]).await;
    let remove = format!("DELETE FROM policy_verdicts WHERE plan = '{}'", ours.id);
    execute(db, &remove).await;
    let decisions = refused(db, &other, &ours, &[needed("security")]).await;
    assert_eq!(decision_of(&decisions, "security"), &SetDecision::Missing);
    let moved = format!(
        "UPDATE policy_verdicts SET plan = '{}' WHERE plan = '{}'",
        ours.id, theirs.id
    );
    execute(db, &moved).await;
    let decisions = refused(db, &other, &ours, &[needed("security")]).await;
    let decision = decision_of(&decisions, "security");
    assert!(matches!(decision, SetDecision::NotEvaluated(_)));
    let renamed = format!(
        "UPDATE policy_verdicts SET set_name = 'cost' WHERE plan = '{}'",
        ours.id
    );
    execute(db, &renamed).await;
    let decisions = refused(db, &other, &ours, &[needed("security")]).await;
    assert_eq!(decision_of(&decisions, "security"), &SetDecision::Missing);
    // Nobody knows whose verdict it is.
    let nameless = format!(
        "UPDATE policy_verdicts SET set_name = '' WHERE plan = '{}'",
        ours.id
    );
    execute(db, &nameless).await;
    for policies in [vec![], vec![needed("security")]] {
        gate(db.store(), &ours, &policies).await.unwrap_err();
    }
    assert_eq!(plan_state(db, &ours).await, PlanState::Planned);
    // Planning again is the way out.
    let again = record(db, &one, &project("ours"), &[passed("security")]).await;
    assert_granted(db, &again, &[needed("security")]).await;
}

async fn an_approval_that_was_damaged_does_not_count(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let verdict = failed("security", &["public bucket"]);
    let another = format!("definition = '{}'", Sha256Digest::of(b"another"));
    let damages = [
        "teams = '{'",
        "account = -1",
        "items = 'x'",
        "items = '[]'",
        "definition = ''",
        another.as_str(),
        "set_name = ''",
        "set_name = 'cost'",
        "dir = 'elsewhere'",
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let project = project(&number.to_string());
        let plan = record(db, &one, &project, std::slice::from_ref(&verdict)).await;
        let approvals = [approval(&plan, &verdict, "ada")];
        let approved = approve(db.store(), &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        let statement = format!(
            "UPDATE policy_approvals SET {damage} WHERE plan = '{}'",
            plan.id
        );
        execute(db, &statement).await;
        let decisions = refused(db, &other, &plan, &[needed("security")]).await;
        let decision = decision_of(&decisions, "security");
        assert!(needs_approval(decision), "{damage}: {decision:?}");
    }
}

async fn approvals_let_a_plan_pass_once_there_are_enough(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let verdicts = [
        failed("security", &["public bucket", "open port"]),
        passed("cost"),
    ];
    let policies = [
        NeededSet {
            approve_count: 2,
            ..needed("security")
        },
        needed("cost"),
    ];
    let plan = record(db, &one, &project("a"), &verdicts).await;
    let decisions = refused(db, &other, &plan, &policies).await;
    assert!(needs_approval(decision_of(&decisions, "security")));
    // An approval of one of two violations does not count.
    let half = failed("security", &["open port"]);
    for (verdict, login) in [(&half, "cyd"), (&verdicts[0], "ada")] {
        let approvals = [approval(&plan, verdict, login)];
        let approved = approve(db.store(), &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        let decisions = refused(db, &other, &plan, &policies).await;
        assert!(needs_approval(decision_of(&decisions, "security")));
    }
    let approvals = [approval(&plan, &verdicts[0], "bob")];
    assert_eq!(
        approve(&other, &plan, &approvals).await,
        PolicyApprove::Stored
    );
    let logins = results(db.store(), &plan).await.approvals;
    let logins: Vec<&str> = logins.iter().map(|one| one.login.as_str()).collect();
    assert_eq!(logins, ["ada", "bob", "cyd"]);
    assert_granted(db, &plan, &policies).await;
}

async fn an_approval_replaces_the_one_before_of_the_same_person(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let first = approval(&plan, &verdict, "ada");
    db.clock.advance(Duration::from_secs(1));
    let second = PolicyApproval {
        account: AccountId::new(1_000_007),
        login: HOSTILE.to_owned(),
        teams: vec![HOSTILE.to_owned(), "NUL \0".to_owned()],
        is_author: true,
        items: Vec::new(),
        definition: definition("another"),
        at: db.now(),
        ..first.clone()
    };
    for approval in [&first, &second] {
        let approvals = std::slice::from_ref(approval);
        let approved = approve(db.store(), &plan, approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        assert_eq!(results(&other, &plan).await.approvals, approvals);
        let of_run = other.policy_results_of_run(plan.run).await.unwrap();
        assert_eq!(of_run.unwrap().approvals, approvals);
    }
    let decisions = refused(db, &other, &plan, &[needed("security")]).await;
    assert!(needs_approval(decision_of(&decisions, "security")));
}

async fn approvals_of_people_who_left_their_team_do_not_count(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let approvals = [approval(&plan, &verdict, "ada")];
    let approved = approve(db.store(), &plan, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    let policies = [needed("security")];
    let of_other_team = TeamMember {
        team: "acme/ops".to_owned(),
        ..member("ada")
    };
    let left: [&[TeamMember]; 3] = [&[], &[member("bob")], &[of_other_team]];
    for members in left {
        let checks = ApplyChecks {
            policies: &policies,
            members,
            ..ApplyChecks::default()
        };
        let apply = run(db.store(), RunKind::Apply, &one, &plan.project).await;
        let gate = db.store().apply_begin(&plan, apply, None, &checks);
        let gate = gate.await.unwrap();
        let ApplyGate::PoliciesUnmet(decisions) = gate else {
            panic!("{gate:?}")
        };
        assert!(needs_approval(decision_of(&decisions, "security")));
    }
    // Both are compared without case, as the forge does.
    let members = [TeamMember {
        login: "Ada".to_owned(),
        team: "Acme/Security".to_owned(),
    }];
    let checks = ApplyChecks {
        policies: &policies,
        members: &members,
        ..ApplyChecks::default()
    };
    let apply = run(db.store(), RunKind::Apply, &one, &plan.project).await;
    let gate = db.store().apply_begin(&plan, apply, None, &checks);
    let gate = gate.await.unwrap();
    assert!(matches!(gate, ApplyGate::Granted(_)), "{gate:?}");
}

async fn approvals_of_an_earlier_plan_count_only_if_they_are_sticky_and_saw_the_same(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let seen = failed("security", &["public bucket", "open port"]);
    let old = record(db, &one, &project("a"), std::slice::from_ref(&seen)).await;
    let approvals = [approval(&old, &seen, "ada")];
    let approved = approve(db.store(), &old, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    let not_sticky = needed("security");
    let sticky = NeededSet {
        sticky: true,
        ..not_sticky.clone()
    };
    let more = failed("security", &["public bucket", "open port", "no backup"]);
    let changed = Verdict {
        definition: definition("another"),
        ..seen.clone()
    };
    let changed_set = NeededSet {
        definition: definition("another"),
        ..sticky.clone()
    };
    for (title, verdict, policies) in [
        ("more violations", &more, &sticky),
        ("another definition", &changed, &changed_set),
        ("not sticky", &seen, &not_sticky),
    ] {
        let new = record(db, &one, &project("a"), std::slice::from_ref(verdict)).await;
        let decisions = refused(db, &other, &new, std::slice::from_ref(policies)).await;
        assert!(
            needs_approval(decision_of(&decisions, "security")),
            "{title}: {decisions:?}"
        );
        assert_eq!(results(&other, &new).await.approvals, approvals);
    }
    // The record of the plan that was approved may be gone.
    db.clock.advance(Duration::from_secs(1));
    let pruned = db.store().plan_prune(db.now(), 9).await.unwrap();
    assert!(pruned.contains(&old.id));
    let new = record(db, &one, &project("a"), std::slice::from_ref(&seen)).await;
    assert_granted(db, &new, &[sticky]).await;
}

async fn approvals_of_another_project_or_pull_never_count(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let other = db.reopen().await;
    let verdict = failed("security", &["public bucket"]);
    let sticky = NeededSet {
        sticky: true,
        ..needed("security")
    };
    let approved = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let approvals = [approval(&approved, &verdict, "ada")];
    let stored = approve(db.store(), &approved, &approvals).await;
    assert_eq!(stored, PolicyApprove::Stored);
    let staging = ProjectKey {
        workspace: "staging".parse().unwrap(),
        ..project("a")
    };
    for (pull, project) in [
        (&two, project("a")),
        (&one, project("b")),
        (&one, named("a", "x")),
        (&one, staging),
    ] {
        let plan = record(db, pull, &project, std::slice::from_ref(&verdict)).await;
        let decisions = refused(db, &other, &plan, std::slice::from_ref(&sticky)).await;
        assert!(needs_approval(decision_of(&decisions, "security")));
        assert_eq!(results(&other, &plan).await.approvals, []);
    }
    assert_granted(db, &approved, &[sticky]).await;
}

/// Returns all approvals of a set in the project of a plan.
pub fn approvals_of(plan: &PlanRecord, name: &str) -> SetApprovals {
    SetApprovals {
        project: plan.project.clone(),
        set: set(name),
        person: None,
    }
}

/// Removes the approvals of sets in the project of a plan.
async fn clear(store: &Store, plan: &PlanRecord, names: &[&str]) -> Vec<SetName> {
    let unwanted: Vec<SetApprovals> = names.iter().map(|name| approvals_of(plan, name)).collect();
    let cleared = store.policy_clear(&plan.pull, &unwanted, by());
    cleared.await.unwrap()
}

async fn approvals_are_removed_by_set(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let other = db.reopen().await;
    let verdicts = [
        failed("security", &["public bucket"]),
        failed("cost", &["much"]),
    ];
    let policies = ["security", "cost"].map(|name| NeededSet {
        sticky: true,
        ..needed(name)
    });
    let mut plans = Vec::new();
    for (dir, login) in [("b", "ada"), ("a", "ada"), ("a", "bob")] {
        let plan = record(db, &one, &project(dir), &verdicts).await;
        let approvals = verdicts
            .each_ref()
            .map(|verdict| approval(&plan, verdict, login));
        let approved = approve(store, &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        plans.push(plan);
    }
    let (neighbour, plan) = (&plans[0], &plans[2]);
    assert_eq!(results(store, plan).await.approvals.len(), 4);
    assert_eq!(clear(&other, plan, &["unknown"]).await, []);
    // Those of the plan before are removed as well.
    let cleared = clear(&other, plan, &["cost", "cost"]).await;
    assert_eq!(cleared, [set("cost")]);
    let left = results(store, plan).await.approvals;
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|approval| approval.set == set("security")));
    let decisions = refused(db, &other, plan, &policies).await;
    assert!(needs_approval(decision_of(&decisions, "cost")));
    let security = decision_of(&decisions, "security");
    assert!(matches!(security, SetDecision::Approved(_)), "{security:?}");
    let cleared = clear(&other, plan, &["cost", "security"]).await;
    assert_eq!(cleared, [set("security")]);
    assert_eq!(results(store, plan).await.approvals, []);
    // Those of another project stay.
    assert_eq!(results(store, neighbour).await.approvals.len(), 2);
    assert_granted(db, neighbour, &policies).await;
}

async fn approvals_are_removed_by_person(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let approvals = ["ada", "bob"].map(|login| approval(&plan, &verdict, login));
    let approved = approve(store, &plan, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    let of = |person: &str| SetApprovals {
        person: Some(person.to_owned()),
        ..approvals_of(&plan, "security")
    };
    for (person, cleared) in [
        ("github.com:cyd", vec![]),
        ("github.com:ada", vec![set("security")]),
        ("github.com:ada", vec![]),
    ] {
        let unwanted = [of(person)];
        let done = store.policy_clear(&one, &unwanted, by()).await;
        assert_eq!(done.unwrap(), cleared, "{person}");
    }
    assert_eq!(results(store, &plan).await.approvals, approvals[1..]);
}

async fn approvals_are_listed_and_removed_after_their_plan_is_gone(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let (two, key) = (open_pull(store, 2).await, named("infra/é", "net~1"));
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &one, &key, std::slice::from_ref(&verdict)).await;
    let given = approval(&plan, &verdict, "ada");
    let approved = approve(store, &plan, std::slice::from_ref(&given)).await;
    assert_eq!(approved, PolicyApprove::Stored);
    store.plan_discard(&one, &key).await.unwrap();
    db.clock.advance(Duration::from_secs(1));
    assert_eq!(store.plan_prune(db.now(), 9).await.unwrap(), [plan.id]);
    let expected = [ProjectApproval {
        project: key,
        approval: given,
    }];
    assert_eq!(store.policy_approvals(&one).await.unwrap(), expected);
    assert_eq!(store.policy_approvals(&two).await.unwrap(), []);
    assert_eq!(clear(store, &plan, &["security"]).await, [set("security")]);
    assert_eq!(store.policy_approvals(&one).await.unwrap(), []);
}

async fn approvals_follow_a_repository_to_its_new_name(db: &TestDb) {
    let (store, old) = (db.store(), open_pull(db.store(), 1).await);
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &old, &project("a"), std::slice::from_ref(&verdict)).await;
    let approvals = [approval(&plan, &verdict, "ada")];
    let approved = approve(store, &plan, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    let new = PullRef {
        repo: "github.com/acme/network".parse().unwrap(),
        ..old.clone()
    };
    let rename = Rename {
        id: 4711,
        old: &old.repo,
        new: &new.repo,
        cause: by(),
        within: None,
    };
    let never =
        |_: &_, _: &_| -> Result<SealedText, OpenError> { panic!("there are no credentials") };
    let renamed = store.repository_rename(&rename, never).await.unwrap();
    assert!(matches!(renamed, Renamed::Done(_)), "{renamed:?}");
    // A command that still has the old name in its memory approves nothing.
    let approved = approve(store, &plan, &approvals).await;
    assert_eq!(approved, PolicyApprove::PlanGone);
    let sticky = NeededSet {
        sticky: true,
        ..needed("security")
    };
    let again = record(db, &new, &project("a"), std::slice::from_ref(&verdict)).await;
    assert_eq!(results(store, &again).await.approvals, approvals);
    assert_granted(db, &again, &[sticky]).await;
}

async fn a_plan_that_is_gone_is_not_approved(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let closed = open_pull(store, 2).await;
    let verdict = failed("security", &["public bucket"]);
    let discarded = record(db, &one, &project("discarded"), &[]).await;
    store
        .plan_discard(&one, &project("discarded"))
        .await
        .unwrap();
    let applying = record(db, &one, &project("applying"), &[]).await;
    assert_granted(db, &applying, &[]).await;
    let applied = record(db, &one, &project("applied"), &[]).await;
    let ApplyGate::Granted(grant) = gate(store, &applied, &[]).await.unwrap() else {
        panic!("nothing stops this apply")
    };
    let ended = store.apply_end(grant, &one, PlanState::Applied, by()).await;
    ended.unwrap();
    let of_closed = record(db, &closed, &project("closed"), &[]).await;
    store
        .pull_seen(&closed, PullState::Closed, URL)
        .await
        .unwrap();
    let unknown = new_plan(db, &one, &project("unknown")).await;
    let stays = record(db, &one, &project("stays"), &[]).await;
    let mut elsewhere = stays.clone();
    elsewhere.pull.repo = "github.com/acme/elsewhere".parse().unwrap();
    let seen = store.pull_seen(&elsewhere.pull, PullState::Open, URL);
    seen.await.unwrap();
    for plan in [discarded, applying, applied, of_closed, unknown, elsewhere] {
        let approvals = [approval(&plan, &verdict, "ada")];
        let approved = approve(store, &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::PlanGone, "{}", plan.project);
    }
    let events = store.lock_event_list(9).await.unwrap();
    let approved = LockEventKind::PolicyApproved;
    assert!(events.iter().all(|event| event.event.kind != approved));
    // A plan whose apply failed can be applied again, so it can be approved.
    let ApplyGate::Granted(grant) = gate(store, &stays, &[]).await.unwrap() else {
        panic!("nothing stops this apply")
    };
    let ended = store.apply_end(grant, &one, PlanState::ApplyFailed, by());
    ended.await.unwrap();
    let approvals = [approval(&stays, &verdict, "ada")];
    let approved = approve(store, &stays, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
}

async fn an_approval_is_stored_only_with_its_own_plan(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let verdict = failed("security", &["public bucket"]);
    let (old, new) = (
        record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await,
        record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await,
    );
    let approvals = [
        approval(&new, &verdict, "bob"),
        approval(&old, &verdict, "ada"),
    ];
    let approved = db.store().policy_approve(&new, &approvals, by()).await;
    approved.unwrap_err();
    assert_eq!(results(db.store(), &new).await.approvals, []);
}

async fn a_closed_pull_loses_its_approvals(db: &TestDb) {
    let (store, other) = (db.store(), db.reopen().await);
    let verdict = failed("security", &["public bucket"]);
    let sticky = NeededSet {
        sticky: true,
        ..needed("security")
    };
    let stays = open_pull(store, 9).await;
    let neighbour = record(db, &stays, &project("a"), std::slice::from_ref(&verdict)).await;
    let approvals = [approval(&neighbour, &verdict, "ada")];
    let approved = approve(store, &neighbour, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    for number in 1..=3 {
        let pull = open_pull(store, number).await;
        let plan = record(db, &pull, &project("a"), std::slice::from_ref(&verdict)).await;
        let approvals = [approval(&plan, &verdict, "ada")];
        let approved = approve(store, &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        let closing = store.pull_close(&pull, PullState::Merged, URL, by(), |_| vec![]);
        match number {
            1 => assert_eq!(closing.await.unwrap(), []),
            2 => assert_eq!(store.pull_close_missing(&pull, by()).await.unwrap(), []),
            _ => {
                let gate = gate(store, &plan, std::slice::from_ref(&sticky)).await;
                let ApplyGate::Granted(grant) = gate.unwrap() else {
                    panic!("it was approved")
                };
                assert_eq!(closing.await.unwrap(), []);
                let ended = store.apply_end(grant, &pull, PlanState::Applied, by());
                ended.await.unwrap();
            }
        }
        let seen = store.pull_seen(&pull, PullState::Open, URL).await;
        seen.unwrap();
        let again = record(db, &pull, &project("a"), std::slice::from_ref(&verdict)).await;
        assert_eq!(results(store, &again).await.approvals, []);
        let decisions = refused(db, &other, &again, std::slice::from_ref(&sticky)).await;
        assert!(needs_approval(decision_of(&decisions, "security")));
    }
    assert_eq!(results(store, &neighbour).await.approvals, approvals);
}

async fn approvals_are_in_the_audit_log(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let verdicts = [
        failed("security", &["public bucket"]),
        failed("cost", &["much"]),
    ];
    let plan = record(db, &one, &named("infra", "net"), &verdicts).await;
    let approvals = verdicts.each_ref().map(|one| approval(&plan, one, "ada"));
    let approved = approve(store, &plan, &approvals).await;
    assert_eq!(approved, PolicyApprove::Stored);
    let cause = Cause::new(Actor::commenter("bob"), "");
    let unwanted = ["cost", "unknown"].map(|name| approvals_of(&plan, name));
    let cleared = store.policy_clear(&one, &unwanted, &cause).await;
    assert_eq!(cleared.unwrap(), [set("cost")]);
    let events = store.lock_event_list(9).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let event = &event.event;
            assert_eq!(event.pull.as_ref(), Some(&one));
            let cause = &event.cause;
            (
                event.kind,
                cause.actor.login.as_str(),
                cause.reason.as_str(),
            )
        })
        .collect();
    let of = "project: `net` dir: `infra` workspace: `default`";
    assert_eq!(
        told,
        [
            (
                LockEventKind::PolicyCleared,
                "bob",
                format!("policy set `cost` of {of}").as_str()
            ),
            (
                LockEventKind::PolicyApproved,
                "ada",
                format!("policy set `cost` of {of} (as the test wants it)").as_str()
            ),
            (
                LockEventKind::PolicyApproved,
                "ada",
                format!("policy set `security` of {of} (as the test wants it)").as_str()
            ),
        ]
    );
}

async fn of_many_approvals_of_one_person_one_counts(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let stores = [db.store().clone(), db.reopen().await, db.reopen().await];
    let verdict = failed("security", &["public bucket"]);
    let plan = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = stores[task % stores.len()].clone();
        let (plan, given) = (plan.clone(), approval(&plan, &verdict, "ada"));
        tasks.spawn(async move { approve(&store, &plan, &[given]).await });
    }
    for approved in tasks.join_all().await {
        assert_eq!(approved, PolicyApprove::Stored);
    }
    assert_eq!(results(db.store(), &plan).await.approvals.len(), 1);
    let two = NeededSet {
        approve_count: 2,
        ..needed("security")
    };
    let decisions = refused(db, &stores[1], &plan, &[two]).await;
    assert!(needs_approval(decision_of(&decisions, "security")));
    assert_granted(db, &plan, &[needed("security")]).await;
}

async fn approvals_meet_a_new_plan_and_do_not_count_for_it(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let stores = [db.store().clone(), db.reopen().await, db.reopen().await];
    let verdict = failed("security", &["public bucket"]);
    for round in 0..4 {
        let project = project(&round.to_string());
        let old = record(db, &one, &project, std::slice::from_ref(&verdict)).await;
        let new = new_plan(db, &one, &project).await;
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let store = stores[task % stores.len()].clone();
            let given = approval(&old, &verdict, &format!("kim{task}"));
            let old = old.clone();
            tasks.spawn(async move { approve(&store, &old, &[given]).await });
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let verdicts = [verdict.clone()];
        let parts = PlanParts {
            verdicts: &verdicts,
            ..PlanParts::default()
        };
        let recorded = stores[1].plan_record(&new, None, None, &parts);
        assert_eq!(recorded.await.unwrap(), RecordPlan::Recorded);
        let outcomes = tasks.join_all().await;
        let expected = outcomes
            .iter()
            .filter(|outcome| **outcome == PolicyApprove::Stored)
            .count();
        assert_eq!(results(db.store(), &new).await.approvals.len(), expected);
        let decisions = refused(db, &stores[2], &new, &[needed("security")]).await;
        assert!(needs_approval(decision_of(&decisions, "security")));
    }
}

async fn approvals_meet_closing_and_none_is_left(db: &TestDb) {
    let (store, other) = (db.store(), db.reopen().await);
    let verdict = failed("security", &["public bucket"]);
    let rounds = i64::try_from(races(db.backend, TASKS)).unwrap();
    for number in 1..=rounds {
        let pull = open_pull(store, number).await;
        let plan = record(db, &pull, &project("a"), std::slice::from_ref(&verdict)).await;
        let approvals = [approval(&plan, &verdict, "ada")];
        let closing = other.pull_close(&pull, PullState::Closed, URL, by(), |_| vec![]);
        let (_approved, closed) = tokio::join!(approve(store, &plan, &approvals), closing);
        assert_eq!(closed.unwrap(), []);
        let seen = store.pull_seen(&pull, PullState::Open, URL).await;
        seen.unwrap();
        let again = record(db, &pull, &project("a"), std::slice::from_ref(&verdict)).await;
        assert_eq!(results(store, &again).await.approvals, []);
    }
}

/// Returns the state of a plan that was not discarded.
async fn state_now(store: &Store, plan: &PlanRecord) -> PlanState {
    let plans = store.plan_list(&plan.pull).await.unwrap();
    let found = plans.into_iter().find(|found| found.id == plan.id);
    found.expect("the plan was not discarded").state
}

async fn removing_approvals_meets_applies_and_none_begins_after_it(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    let verdict = failed("security", &["public bucket"]);
    let (mut gates, mut clears) = (Vec::new(), Vec::new());
    let mut ready = Vec::new();
    for number in 0..TASKS {
        let project = project(&number.to_string());
        let plan = record(db, &one, &project, std::slice::from_ref(&verdict)).await;
        let approvals = [approval(&plan, &verdict, "ada")];
        let approved = approve(db.store(), &plan, &approvals).await;
        assert_eq!(approved, PolicyApprove::Stored);
        let apply = run(db.store(), RunKind::Apply, &one, &project).await;
        ready.push((plan, apply));
    }
    for (plan, apply) in &ready {
        let (store, of_gate, apply) = (db.store().clone(), plan.clone(), *apply);
        gates.push(tokio::spawn(async move {
            let gate = gate_in(&store, &of_gate, apply, &[needed("security")]).await;
            match gate.unwrap() {
                ApplyGate::Granted(_) => true,
                ApplyGate::PoliciesUnmet(_) => false,
                gate @ (ApplyGate::ApplyLocked(_)
                | ApplyGate::HeldBy(_)
                | ApplyGate::PullClosed
                | ApplyGate::PlanGone(_)
                | ApplyGate::ModuleTakenDown) => panic!("{gate:?}"),
            }
        }));
        let (store, plan) = (other.clone(), plan.clone());
        clears.push(tokio::spawn(async move {
            assert_eq!(clear(&store, &plan, &["security"]).await, [set("security")]);
            state_now(&store, &plan).await
        }));
    }
    for ((gate, clear), (plan, _)) in gates.into_iter().zip(clears).zip(&ready) {
        let expected = if gate.await.unwrap() {
            PlanState::Applying
        } else {
            PlanState::Planned
        };
        // The state right after the removal is the last one: nothing began later.
        assert_eq!(clear.await.unwrap(), expected);
        assert_eq!(state_now(db.store(), plan).await, expected);
        assert_eq!(results(db.store(), plan).await.approvals, []);
    }
}

/// Outcome of one task of the last test.
enum Did {
    Approved(PlanId),
    Began(PlanId),
    Nothing,
}

async fn no_order_of_plans_approvals_and_removals_applies_what_nobody_approved(db: &TestDb) {
    let (one, verdict) = (
        open_pull(db.store(), 1).await,
        failed("security", &["public bucket"]),
    );
    let stores = [db.store().clone(), db.reopen().await, db.reopen().await];
    let first = record(db, &one, &project("a"), std::slice::from_ref(&verdict)).await;
    let mut prepared = Vec::new();
    for _ in 0..TASKS {
        prepared.push((
            new_plan(db, &one, &project("a")).await,
            run(db.store(), RunKind::Apply, &one, &project("a")).await,
        ));
    }
    let mut tasks = JoinSet::new();
    for (task, (new, apply)) in prepared.into_iter().enumerate() {
        let store = stores[task % stores.len()].clone();
        let verdict = verdict.clone();
        tasks.spawn(async move {
            let plans = store.plan_list(&new.pull).await.unwrap();
            let current = plans.into_iter().next().expect("there is always a plan");
            match task % 8 {
                0 | 1 | 4 => {
                    let given = approval(&current, &verdict, &format!("kim{task}"));
                    match approve(&store, &current, &[given]).await {
                        PolicyApprove::Stored => Did::Approved(current.id),
                        PolicyApprove::PlanGone => Did::Nothing,
                    }
                }
                2 => {
                    clear(&store, &current, &[verdict.set.as_str()]).await;
                    Did::Nothing
                }
                6 => {
                    let verdicts = [verdict];
                    let parts = PlanParts {
                        verdicts: &verdicts,
                        ..PlanParts::default()
                    };
                    // A plan that is being applied is not replaced, and of two plans at once one is stored.
                    match store.plan_record(&new, None, None, &parts).await {
                        Ok(recorded) => assert_eq!(recorded, RecordPlan::Recorded),
                        Err(error) => {
                            let error = error.as_database_error().expect("of the database");
                            assert!(error.is_unique_violation(), "{error}");
                        }
                    }
                    Did::Nothing
                }
                _ => {
                    let gate = gate_in(&store, &current, apply, &[needed("security")]).await;
                    match gate.unwrap() {
                        ApplyGate::Granted(grant) => {
                            let ended =
                                store.apply_end(grant, &new.pull, PlanState::ApplyFailed, by());
                            ended.await.unwrap();
                            Did::Began(current.id)
                        }
                        ApplyGate::PoliciesUnmet(_) | ApplyGate::PlanGone(_) => Did::Nothing,
                        gate @ (ApplyGate::ApplyLocked(_)
                        | ApplyGate::HeldBy(_)
                        | ApplyGate::PullClosed
                        | ApplyGate::ModuleTakenDown) => panic!("{gate:?}"),
                    }
                }
            }
        });
    }
    let (mut approved, mut began) = (BTreeSet::new(), BTreeSet::new());
    for did in tasks.join_all().await {
        match did {
            Did::Approved(plan) => {
                approved.insert(plan);
            }
            Did::Began(plan) => {
                began.insert(plan);
            }
            Did::Nothing => {}
        }
    }
    assert!(
        began.is_subset(&approved),
        "began {began:?}, approved {approved:?}"
    );
    // The first plan, or one that replaced it, is left, and a plan that is new is not approved.
    let left = db.store().plan_list(&one).await.unwrap();
    assert!(left.len() == 1 && left[0].id >= first.id, "{left:?}");
    let last = record(db, &one, &project("a"), &[verdict]).await;
    let decisions = refused(db, &stores[1], &last, &[needed("security")]).await;
    assert!(needs_approval(decision_of(&decisions, "security")));
}
