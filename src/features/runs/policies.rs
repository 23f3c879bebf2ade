//! Results of policy sets on the page of a run, with every stored finding.

use std::slice;

use chrono::{DateTime, NaiveDate, Utc};
use lockkeeper_policy::decision::{self, PolicyApproval, SetDecision};
use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use lockkeeper_policy::sets::PolicySet;
use lockkeeper_policy::verdict::{Verdict, VerdictOutcome};
use serde::Serialize;

use crate::kit::web::text::{Badge, PastTime, shown, web_link};
use crate::model::PlanId;
use crate::render::escape::visible;
use crate::render::plan_output::clean;
use crate::store::PlanPolicies;

/// Results of one policy set.
#[derive(Serialize)]
pub(super) struct PolicyPanel {
    name: String,
    badge: Badge,
    /// True if the plan needs more approvals of the set.
    is_violated: bool,
    /// True if it needs more approvals, and nobody has approved this plan.
    is_unapproved: bool,
    /// Reason why the set was not evaluated.
    why: Option<String>,
    origin: String,
    /// SHA-256 of the policies, if it is known.
    content: Option<String>,
    /// Program that evaluated the set, with its version, if it is known.
    tool: Option<String>,
    findings: Vec<FindingRow>,
    /// Number of findings that were not stored.
    more: u32,
    /// Remarks about waivers that have ended or cannot be read.
    notes: Vec<String>,
    approvals: Vec<ApproverRow>,
    output: Option<String>,
}

/// One finding, with everything that is stored of it.
#[derive(Serialize)]
struct FindingRow {
    badge: Badge,
    message: String,
    rule: String,
    link: Option<String>,
    resource: Option<String>,
    place: Option<String>,
    evidence: Option<String>,
    /// Sentence about the waiver, or about the approvals that the rule requires.
    note: Option<String>,
}

/// Approval of the violations by one person.
#[derive(Serialize)]
struct ApproverRow {
    login: String,
    at: PastTime,
    /// True if the person approved an earlier plan with the same violations.
    of_earlier_plan: bool,
}

/// Builds the panels of a plan, in the order of its verdicts. `sets` are configured now.
pub(super) fn panels(
    plan: PlanId,
    found: &PlanPolicies,
    sets: &[PolicySet],
    now: DateTime<Utc>,
) -> Vec<PolicyPanel> {
    let approvals = &found.approvals;
    found
        .verdicts
        .iter()
        .map(|verdict| {
            let is_approved = is_approved(plan, verdict, approvals, sets, now.date_naive());
            panel(plan, verdict, approvals, is_approved, now)
        })
        .collect()
}

/// Returns true if enough people have approved the violations of a set in a plan. The owners and numbers that are configured
/// now decide, with the teams at the time of the approvals. Nothing is applied because of this: the gate of an apply also
/// compares the definition of the set, and asks the forge about the teams.
pub(super) fn is_approved(
    plan: PlanId,
    verdict: &Verdict,
    approvals: &[PolicyApproval],
    sets: &[PolicySet],
    today: NaiveDate,
) -> bool {
    let Some(set) = sets.iter().find(|set| set.name == verdict.set) else {
        return false;
    };
    let needed = set.needed(verdict.definition.clone());
    let given: Vec<PolicyApproval> = approvals
        .iter()
        .filter(|approval| approval.plan <= plan)
        .cloned()
        .collect();
    let decided = decision::decisions(
        slice::from_ref(&needed),
        slice::from_ref(verdict),
        &given,
        &plan,
        today,
    );
    matches!(decided.as_slice(), [(_, SetDecision::Approved(_))])
}

/// Returns the approvals that concern the violations of a set in a plan, the oldest first: those of this plan, and those of
/// earlier plans with the same violations, which count if the set is sticky. One person has one approval, the newest.
pub(super) fn approvals_of<'a>(
    plan: PlanId,
    verdict: &Verdict,
    approvals: &'a [PolicyApproval],
) -> Vec<&'a PolicyApproval> {
    let mut newest: Vec<&PolicyApproval> = Vec::new();
    if verdict.outcome != VerdictOutcome::Failed {
        return newest;
    }
    for approval in approvals.iter().rev() {
        let concerns = approval.set == verdict.set
            && approval.definition == verdict.definition
            && approval.plan <= plan
            && verdict
                .items
                .iter()
                .all(|item| approval.items.contains(item));
        let is_known = newest.iter().any(|known| known.is_of_same_person(approval));
        if concerns && !is_known {
            newest.push(approval);
        }
    }
    newest.reverse();
    newest
}

fn panel(
    plan: PlanId,
    verdict: &Verdict,
    approvals: &[PolicyApproval],
    is_approved: bool,
    now: DateTime<Utc>,
) -> PolicyPanel {
    let (badge, why) = match &verdict.outcome {
        VerdictOutcome::Passed => (Badge::new("good", "passed"), None),
        VerdictOutcome::Failed if is_approved => (Badge::new("good", "approved"), None),
        VerdictOutcome::Failed => (Badge::new("bad", "violated"), None),
        VerdictOutcome::NotEvaluated(why) => (Badge::new("warn", "not evaluated"), Some(why)),
    };
    let is_violated = verdict.outcome == VerdictOutcome::Failed && !is_approved;
    let approvals = approvals_of(plan, verdict, approvals);
    PolicyPanel {
        name: shown(verdict.set.as_str()),
        badge,
        is_violated,
        is_unapproved: is_violated && !approvals.iter().any(|approval| approval.plan == plan),
        why: why.map(|why| plain(why)),
        origin: shown(&verdict.origin),
        content: verdict.content.as_ref().map(ToString::to_string),
        tool: verdict.tool.as_deref().map(shown),
        findings: verdict.findings.iter().map(row).collect(),
        more: verdict.more_findings,
        notes: verdict.notes.iter().map(|note| plain(note)).collect(),
        approvals: approvals
            .into_iter()
            .map(|approval| ApproverRow {
                login: shown(&approval.login),
                at: PastTime::new(approval.at, now),
                of_earlier_plan: approval.plan != plan,
            })
            .collect(),
        output: Some(visible(&clean(&verdict.output))).filter(|output| !output.trim().is_empty()),
    }
}

/// Returns a sentence of Lockkeeper without the marks of code in comments.
fn plain(sentence: &str) -> String {
    shown(&sentence.replace('`', ""))
}

fn row(finding: &PolicyFinding) -> FindingRow {
    let badge = match (&finding.waived, &finding.level) {
        (Some(_), _) => Badge::new("idle", "waived"),
        (None, FindingLevel::Deny) => Badge::new("bad", "violation"),
        (None, FindingLevel::RequireApproval { .. }) => Badge::new("bad", "needs approval"),
        (None, FindingLevel::Warn) => Badge::new("warn", "warning"),
    };
    FindingRow {
        badge,
        message: shown(&finding.message),
        rule: shown(&finding.rule),
        link: finding.link.as_deref().and_then(web_link),
        resource: finding.resource.as_deref().map(shown),
        place: finding.place.as_ref().map(|place| match place.line {
            Some(line) => shown(&format!("{}:{line}", place.file)),
            None => shown(&place.file),
        }),
        evidence: finding
            .evidence
            .as_deref()
            .map(|text| visible(&clean(text))),
        note: note(finding),
    }
}

fn note(finding: &PolicyFinding) -> Option<String> {
    let text = match (&finding.waived, &finding.level) {
        (Some(waiver), _) => format!(
            "Waived by {} until {}: {}",
            waiver.owner, waiver.until, waiver.reason
        ),
        (None, FindingLevel::RequireApproval { count, teams }) => {
            let noun = if *count == 1 { "approval" } else { "approvals" };
            if teams.is_empty() {
                format!("Needs {count} {noun}.")
            } else {
                let teams = teams.join(" or ");
                format!("Needs {count} {noun} from members of {teams}.")
            }
        }
        (None, FindingLevel::Deny | FindingLevel::Warn) => return None,
    };
    Some(shown(&text))
}

#[cfg(test)]
mod tests {
    use lockkeeper_policy::sets::{
        ItemRegex, PolicyEngine, PolicyOwners, PolicySource, SetDigest, SetName, SetScope,
    };

    use super::*;
    use crate::model::Sha256Digest;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn plan_id(number: u8) -> PlanId {
        format!("00000000-0000-7000-8000-0000000000{number:02}")
            .parse()
            .unwrap()
    }

    fn item(text: &str) -> Sha256Digest {
        Sha256Digest::of(text.as_bytes())
    }

    fn approval(login: &str, plan: u8, items: &[&str]) -> PolicyApproval {
        PolicyApproval {
            set: SetName::parse("basics").unwrap(),
            plan: plan_id(plan),
            person: login.to_owned(),
            account: None,
            login: login.to_owned(),
            teams: Vec::new(),
            is_author: false,
            items: items.iter().map(|text| item(text)).collect(),
            definition: SetDigest(item("definition")),
            at: at(i64::from(plan)),
        }
    }

    fn verdict(items: &[&str], outcome: VerdictOutcome) -> Verdict {
        Verdict {
            outcome,
            items: items.iter().map(|text| item(text)).collect(),
            ..Verdict::not_evaluated(
                &SetName::parse("basics").unwrap(),
                SetDigest(item("definition")),
                String::new(),
                String::new(),
                String::new(),
            )
        }
    }

    /// Returns the approvals of the second of three plans as `LOGIN PLAN`.
    fn approvals_of_second(items: &[&str], outcome: VerdictOutcome) -> Vec<String> {
        let verdict = verdict(items, outcome);
        let all = [
            approval("alice", 1, &["a"]),
            approval("bob", 1, &["a", "b"]),
            approval("bob", 2, &["a", "b"]),
            approval("carol", 1, &["a", "b"]),
            approval("dave", 3, &["a", "b"]),
            PolicyApproval {
                set: SetName::parse("other").unwrap(),
                ..approval("erin", 2, &["a", "b"])
            },
        ];
        approvals_of(plan_id(2), &verdict, &all)
            .into_iter()
            .map(|one| format!("{} {}", one.login, one.at.timestamp()))
            .collect()
    }

    #[test]
    fn approvals_of_other_violations_and_of_later_plans_are_left_out() {
        let of = approvals_of_second;
        assert_eq!(
            of(&["a", "b"], VerdictOutcome::Failed),
            ["bob 2", "carol 1"]
        );
        assert_eq!(
            of(&["a"], VerdictOutcome::Failed),
            ["alice 1", "bob 2", "carol 1"]
        );
        assert_eq!(of(&[], VerdictOutcome::Passed), [""; 0]);
    }

    /// Returns a set of bob and carol, whose violations need as many approvals.
    fn policy_set(approve_count: u32, sticky: bool) -> PolicySet {
        PolicySet {
            name: SetName::parse("basics").unwrap(),
            source: PolicySource::Local("/policies".into()),
            engine: PolicyEngine::Embedded,
            namespaces: Vec::new(),
            scope: SetScope::default(),
            owners: PolicyOwners {
                users: vec!["bob".to_owned(), "carol".to_owned()],
                teams: Vec::new(),
            },
            approve_count,
            prevent_self_approve: false,
            sticky,
            item_regex: ItemRegex::default(),
            waivers: None,
        }
    }

    #[test]
    fn a_set_is_approved_once_enough_owners_have_approved_what_the_plan_violates() {
        let verdict = Verdict {
            findings: vec![PolicyFinding::deny("main.deny", "a")],
            ..verdict(&["a"], VerdictOutcome::Failed)
        };
        let today = at(9).date_naive();
        let is = |given: &[(&str, u8)], set: &PolicySet| {
            let approvals: Vec<_> = given
                .iter()
                .map(|(login, plan)| approval(login, *plan, &["a"]))
                .collect();
            is_approved(
                plan_id(2),
                &verdict,
                &approvals,
                slice::from_ref(set),
                today,
            )
        };
        let (one, two) = (policy_set(1, false), policy_set(2, false));
        assert!(!is(&[], &one));
        assert!(is(&[("bob", 2)], &one));
        assert!(!is(&[("bob", 2)], &two));
        assert!(is(&[("bob", 2), ("carol", 2)], &two));
        assert!(!is(&[("alice", 2)], &one), "she is no owner");
        assert!(!is(&[("bob", 1)], &one), "the plan is another one");
        let sticky = policy_set(1, true);
        assert!(is(&[("bob", 1)], &sticky));
        assert!(!is(&[("bob", 3)], &sticky), "the plan was made later");
        let approvals = [approval("bob", 2, &["a"])];
        let gone = is_approved(plan_id(2), &verdict, &approvals, &[], today);
        assert!(!gone, "the set is not configured any more");
    }

    #[test]
    fn an_approval_of_an_earlier_plan_leaves_a_plan_unapproved() {
        let verdict = verdict(&["a"], VerdictOutcome::Failed);
        let of_plans = |plans: &[u8]| {
            let approvals: Vec<_> = plans
                .iter()
                .map(|plan| approval("bob", *plan, &["a"]))
                .collect();
            let panel = panel(plan_id(2), &verdict, &approvals, false, at(9));
            (panel.approvals.len(), panel.is_unapproved)
        };
        assert_eq!(of_plans(&[]), (0, true));
        assert_eq!(of_plans(&[1]), (1, true));
        assert_eq!(of_plans(&[1, 2]), (1, false));
    }
}
