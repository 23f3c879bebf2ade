//! Tables and properties of decisions: nothing that is missing, stale or damaged lets a plan pass.

use std::collections::HashMap;

use chrono::TimeZone;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use regex::Regex;

use super::*;
use crate::findings::{AppliedWaiver, PolicyFinding};
use crate::sets::testing::policy_set;
use crate::sets::{ItemRegex, PolicySet};

fn plan_id(n: u8) -> PlanId {
    format!("00000000-0000-7000-8000-0000000000{n:02x}")
        .parse()
        .unwrap()
}

fn at(second: u32) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 1, 12, 0, second).unwrap()
}

fn today() -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 11, 1).unwrap()
}

fn waived_until(until: &str) -> AppliedWaiver {
    AppliedWaiver {
        reason: "r".to_owned(),
        owner: "o".to_owned(),
        until: until.to_owned(),
    }
}

fn verdict_of(set: &PolicySet, findings: Vec<PolicyFinding>) -> Verdict {
    Verdict::of_findings(
        set,
        set.digest(None),
        "/policies".to_owned(),
        None,
        findings,
        "output".to_owned(),
    )
}

/// Returns the approval of a person for everything in a verdict on the plan 1.
fn approval(login: &str, verdict: &Verdict) -> PolicyApproval {
    PolicyApproval {
        set: verdict.set.clone(),
        plan: plan_id(1),
        person: format!("github.com/{login}"),
        account: None,
        login: login.to_owned(),
        teams: Vec::new(),
        is_author: false,
        items: verdict.items.clone(),
        definition: verdict.definition.clone(),
        at: at(0),
    }
}

/// Configured sets, verdicts and approvals of the plan 1.
#[derive(Debug, Clone)]
struct Gate {
    needed: Vec<NeededSet>,
    verdicts: Vec<Verdict>,
    approvals: Vec<PolicyApproval>,
}

impl Gate {
    /// Returns a gate with a set that passes and a violated one that alice approves.
    fn open() -> Self {
        let passed = policy_set("passed");
        let violated = policy_set("violated");
        let verdict = verdict_of(
            &violated,
            vec![PolicyFinding::deny("main.deny", "Bucket is public")],
        );
        Self {
            needed: [&passed, &violated]
                .into_iter()
                .map(|set| set.needed(set.digest(None)))
                .collect(),
            approvals: vec![approval("alice", &verdict)],
            verdicts: vec![
                verdict_of(&passed, vec![PolicyFinding::warn("main.warn", "m")]),
                verdict,
            ],
        }
    }

    fn decisions(&self) -> Vec<(SetName, SetDecision)> {
        decisions(
            &self.needed,
            &self.verdicts,
            &self.approvals,
            &plan_id(1),
            today(),
        )
    }

    fn may_apply(&self) -> bool {
        may_apply(&self.decisions())
    }

    /// Returns the decision of the set `violated`.
    fn violated(&self) -> SetDecision {
        let name = SetName::parse("violated").unwrap();
        let found = self.decisions().into_iter().find(|(set, _)| *set == name);
        found.unwrap().1
    }
}

fn needs(needed: u32, by: &[&str]) -> SetDecision {
    SetDecision::NeedsApproval {
        needed,
        by: by.iter().map(|&login| login.to_owned()).collect(),
    }
}

/// Change that must close a gate.
type Harm = fn(&mut Gate);

#[test]
fn a_plan_without_policies_may_be_applied() {
    assert!(may_apply(&decisions(&[], &[], &[], &plan_id(1), today())));
}

#[test]
fn a_plan_that_passes_or_is_approved_may_be_applied() {
    let gate = Gate::open();
    let approved = SetDecision::Approved(vec!["alice".to_owned()]);
    assert_eq!(gate.decisions()[0].1, SetDecision::Passed);
    assert_eq!(gate.violated(), approved);
    assert!(gate.may_apply());
}

#[test]
fn no_missing_stale_or_damaged_verdict_lets_a_plan_pass() {
    let harms: [(&str, Harm); 18] = [
        ("the verdict of the set that passed is missing", |gate| {
            gate.verdicts.remove(0);
        }),
        ("the verdict of the violated set is missing", |gate| {
            gate.verdicts.remove(1);
        }),
        ("all verdicts are missing", |gate| gate.verdicts.clear()),
        ("a set was added after the plan", |gate| {
            let set = policy_set("new");
            gate.needed.push(set.needed(set.digest(None)));
        }),
        ("a set was removed after the plan", |gate| {
            gate.needed.remove(0);
        }),
        ("all sets were removed after the plan", |gate| {
            gate.needed.clear();
        }),
        ("a set was renamed after the plan", |gate| {
            gate.needed[0].name = SetName::parse("renamed").unwrap();
        }),
        ("the set that passed was changed after the plan", |gate| {
            gate.needed[0].definition = SetDigest(Sha256Digest::of(b"changed"));
        }),
        ("the violated set was changed after the plan", |gate| {
            gate.needed[1].definition = SetDigest(Sha256Digest::of(b"changed"));
        }),
        ("conftest was replaced after the plan", |gate| {
            let version = semver::Version::new(1, 0, 0);
            gate.needed[0].definition = policy_set("passed").digest(Some(&version));
        }),
        ("a set was not evaluated", |gate| {
            gate.verdicts[0].outcome = VerdictOutcome::NotEvaluated("conftest crashed".to_owned());
        }),
        ("a violated set was not evaluated in the end", |gate| {
            gate.verdicts[1].outcome = VerdictOutcome::NotEvaluated("conftest crashed".to_owned());
        }),
        ("two verdicts pass", |gate| {
            let verdict = gate.verdicts[0].clone();
            gate.verdicts.push(verdict);
        }),
        ("a verdict passes in spite of its violations", |gate| {
            gate.verdicts[1].outcome = VerdictOutcome::Passed;
        }),
        ("a verdict passes and has items", |gate| {
            gate.verdicts[0].items = gate.verdicts[1].items.clone();
        }),
        ("a verdict failed without violations", |gate| {
            gate.verdicts[1].findings.clear();
        }),
        ("a verdict failed without items", |gate| {
            gate.verdicts[1].items.clear();
        }),
        ("a verdict has another name", |gate| {
            gate.verdicts[0].set = SetName::parse("Passed").unwrap();
        }),
    ];
    for (harm, change) in harms {
        let mut gate = Gate::open();
        change(&mut gate);
        assert!(!gate.may_apply(), "{harm}: {:?}", gate.decisions());
    }
}

#[test]
fn no_missing_stale_or_insufficient_approval_lets_a_plan_pass() {
    let harms: [(&str, Harm, SetDecision); 17] = [
        (
            "nobody approved",
            |gate| gate.approvals.clear(),
            needs(1, &[]),
        ),
        (
            "the approval is of another set",
            |gate| gate.approvals[0].set = SetName::parse("passed").unwrap(),
            needs(1, &[]),
        ),
        (
            "the approval is of an earlier plan",
            |gate| gate.approvals[0].plan = plan_id(0),
            needs(1, &[]),
        ),
        (
            "the approval saw no violation",
            |gate| gate.approvals[0].items.clear(),
            needs(1, &[]),
        ),
        (
            "the approval saw another violation",
            |gate| gate.approvals[0].items = vec![Sha256Digest::of(b"other")],
            needs(1, &[]),
        ),
        (
            "the verdict has one more violation",
            |gate| gate.verdicts[1].items.push(Sha256Digest::of(b"more")),
            needs(1, &[]),
        ),
        (
            "the approval is of another definition",
            |gate| gate.approvals[0].definition = SetDigest(Sha256Digest::of(b"old")),
            needs(1, &[]),
        ),
        (
            "an author approved",
            |gate| {
                gate.needed[1].prevent_self_approve = true;
                gate.approvals[0].is_author = true;
            },
            needs(1, &[]),
        ),
        (
            "somebody else approved",
            |gate| gate.approvals[0].login = "mallory".to_owned(),
            needs(1, &[]),
        ),
        (
            "the owner left",
            |gate| gate.needed[1].owners.users.retain(|user| user != "alice"),
            needs(1, &[]),
        ),
        (
            "one approval of two",
            |gate| gate.needed[1].approve_count = 2,
            needs(2, &["alice"]),
        ),
        (
            "one person approved twice, under two logins",
            |gate| {
                gate.needed[1].approve_count = 2;
                let mut again = gate.approvals[0].clone();
                again.login = "bob".to_owned();
                again.at = at(1);
                gate.approvals.push(again);
            },
            needs(2, &["bob"]),
        ),
        (
            "one person approved twice, before and after a new name on the forge and an account",
            |gate| {
                gate.needed[1].approve_count = 2;
                let mut again = gate.approvals[0].clone();
                again.login = "bob".to_owned();
                again.account = AccountId::new(7);
                again.at = at(1);
                gate.approvals.push(again);
            },
            needs(2, &["bob"]),
        ),
        (
            "one person approved with two accounts of the forge, both linked to one of this server",
            |gate| {
                gate.needed[1].approve_count = 2;
                gate.approvals[0].account = AccountId::new(7);
                let mut again = gate.approvals[0].clone();
                again.person = "github.com/other".to_owned();
                again.login = "bob".to_owned();
                again.at = at(1);
                gate.approvals.push(again);
            },
            needs(2, &["bob"]),
        ),
        (
            "one login approved with two accounts of the forge",
            |gate| {
                gate.needed[1].approve_count = 2;
                let mut again = gate.approvals[0].clone();
                again.person = "github.com/other".to_owned();
                again.login = "Alice".to_owned();
                again.at = at(1);
                gate.approvals.push(again);
            },
            needs(2, &["Alice"]),
        ),
        (
            "the approvals that a rule requires are of another team",
            |gate| {
                let teams = vec!["acme/security".to_owned()];
                let level = FindingLevel::RequireApproval { count: 1, teams };
                gate.verdicts[1].findings[0].level = level;
                gate.approvals[0].teams = vec!["acme/net".to_owned()];
            },
            needs(1, &[]),
        ),
        (
            "a stored rule requires no approval",
            |gate| {
                let teams = Vec::new();
                let level = FindingLevel::RequireApproval { count: 0, teams };
                gate.verdicts[1].findings[0].level = level;
                gate.approvals.clear();
            },
            needs(1, &[]),
        ),
    ];
    for (harm, change, decision) in harms {
        let mut gate = Gate::open();
        change(&mut gate);
        assert_eq!(gate.violated(), decision, "{harm}");
        assert!(!gate.may_apply(), "{harm}");
    }
}

#[test]
fn each_way_to_miss_a_verdict_has_its_own_decision() {
    let decision_after = |change: Harm| {
        let mut gate = Gate::open();
        change(&mut gate);
        gate.violated()
    };
    let missing = decision_after(|gate| {
        gate.verdicts.remove(1);
    });
    assert_eq!(missing, SetDecision::Missing);
    let changed = decision_after(|gate| {
        gate.needed[1].definition = SetDigest(Sha256Digest::of(b"changed"));
    });
    assert_eq!(changed, SetDecision::Changed);
    let removed = decision_after(|gate| {
        gate.needed.remove(1);
    });
    assert_eq!(removed, SetDecision::Removed);
    let crashed = decision_after(|gate| {
        gate.verdicts[1].outcome = VerdictOutcome::NotEvaluated("conftest crashed".to_owned());
    });
    assert_eq!(
        crashed,
        SetDecision::NotEvaluated("conftest crashed".to_owned())
    );
    let damaged = decision_after(|gate| gate.verdicts[1].items.clear());
    assert!(
        matches!(damaged, SetDecision::NotEvaluated(_)),
        "{damaged:?}"
    );
}

#[test]
fn approvals_of_an_earlier_plan_count_if_the_set_is_sticky() {
    let mut gate = Gate::open();
    gate.approvals[0].plan = plan_id(0);
    gate.needed[1].sticky = true;
    assert!(gate.may_apply());
    gate.verdicts[1].items.push(Sha256Digest::of(b"more"));
    assert!(!gate.may_apply());
}

#[test]
fn an_approval_that_saw_more_violations_counts() {
    let mut gate = Gate::open();
    gate.approvals[0]
        .items
        .push(Sha256Digest::of(b"fixed since"));
    assert!(gate.may_apply());
}

#[test]
fn a_waiver_counts_up_to_its_last_day() {
    let set = policy_set("passed");
    for (until, decision) in [
        ("2026-11-01", SetDecision::Passed),
        ("2027-01-01", SetDecision::Passed),
        ("2026-10-31", SetDecision::WaiverEnded),
        ("", SetDecision::WaiverEnded),
        ("soon", SetDecision::WaiverEnded),
    ] {
        let waived = PolicyFinding {
            waived: Some(waived_until(until)),
            ..PolicyFinding::deny("main.deny", "m")
        };
        let mut gate = Gate::open();
        gate.verdicts[0] = verdict_of(&set, vec![waived.clone()]);
        assert_eq!(gate.decisions()[0].1, decision, "{until}");
        assert_eq!(gate.may_apply(), decision == SetDecision::Passed);
        // It is found among many others, and approvals of other violations do not help.
        let others = (0..1000).map(|n| PolicyFinding {
            waived: Some(waived_until("2027-01-01")),
            ..PolicyFinding::deny("main.a", n.to_string())
        });
        let denied = PolicyFinding::deny("main.deny", "denied");
        let findings = others.chain([denied, waived]).collect();
        gate.verdicts[0] = verdict_of(&set, findings);
        gate.approvals.push(approval("alice", &gate.verdicts[0]));
        assert_eq!(gate.may_apply(), decision == SetDecision::Passed, "{until}");
    }
    // Hints refuse nothing, with and without a waiver.
    let mut gate = Gate::open();
    let hint = PolicyFinding {
        waived: Some(waived_until("2026-10-31")),
        ..PolicyFinding::warn("main.warn", "m")
    };
    gate.verdicts[0] = verdict_of(&set, vec![hint]);
    assert!(gate.may_apply());
}

#[test]
fn approvals_of_one_person_are_connected_by_others() {
    let mut gate = Gate::open();
    gate.needed[1].approve_count = 2;
    let mut second = gate.approvals[0].clone();
    second.person = "github.com/other".to_owned();
    second.login = "bob".to_owned();
    second.at = at(1);
    gate.approvals.push(second);
    let both = vec!["alice".to_owned(), "bob".to_owned()];
    assert_eq!(gate.violated(), SetDecision::Approved(both));
    assert!(!gate.approvals[0].is_of_same_person(&gate.approvals[1]));
    // An approval of an earlier plan shows that both are the same person.
    let mut link = gate.approvals[1].clone();
    link.plan = plan_id(0);
    link.login = "ALICE".to_owned();
    gate.approvals.push(link);
    assert_eq!(gate.violated(), needs(2, &["bob"]));
}

#[test]
fn rules_that_require_approvals_are_met_each_by_its_own_people() {
    let set = policy_set("violated");
    let net = || vec!["acme/net".to_owned()];
    let verdict = verdict_of(
        &set,
        vec![
            PolicyFinding::deny("main.deny", "m"),
            PolicyFinding::require_approval(2, net(), "main.violation", "n"),
        ],
    );
    let of_net = |login: &str| PolicyApproval {
        teams: net(),
        ..approval(login, &verdict)
    };
    let mut gate = Gate {
        needed: vec![set.needed(set.digest(None))],
        approvals: vec![],
        verdicts: vec![verdict.clone()],
    };
    assert_eq!(gate.violated(), needs(2, &[]));
    gate.approvals.push(of_net("nina"));
    gate.approvals.push(of_net("nick"));
    // Two people of the team, but no owner.
    assert_eq!(gate.violated(), needs(3, &["nina", "nick"]));
    gate.approvals[1] = of_net("BOB");
    assert_eq!(
        gate.violated(),
        SetDecision::Approved(vec!["nina".to_owned(), "BOB".to_owned()])
    );
}

#[test]
fn owners_and_the_teams_of_rules_may_approve() {
    let set = policy_set("violated");
    let needed = set.needed(set.digest(None));
    let teams = vec!["acme/net".to_owned(), "ACME/security".to_owned()];
    let verdict = verdict_of(
        &set,
        vec![PolicyFinding::require_approval(1, teams, "r", "m")],
    );
    assert_eq!(
        deciding_teams(&needed, &verdict),
        ["acme/security", "acme/net"]
    );
    for (login, team, may) in [
        ("alice", "", true),
        ("mallory", "acme/security", true),
        ("mallory", "Acme/Net", true),
        ("mallory", "acme/other", false),
    ] {
        let found = may_approve(&needed, &verdict, login, &[team.to_owned()]);
        assert_eq!(found, may, "{login} {team}");
    }
    let denied = verdict_of(&set, vec![PolicyFinding::deny("r", "m")]);
    let net = ["acme/net".to_owned()];
    assert!(!may_approve(&needed, &denied, "mallory", &net));
}

#[test]
fn people_who_may_not_approve_any_more_are_former_approvers() {
    let former = |gate: &Gate| {
        former_approvers(
            &gate.needed[1],
            &gate.verdicts[1],
            &gate.approvals,
            &plan_id(1),
        )
    };
    let mut gate = Gate::open();
    assert!(former(&gate).is_empty(), "alice is an owner");
    gate.needed[1].owners.users.retain(|user| user != "alice");
    assert_eq!(gate.violated(), needs(1, &[]));
    assert_eq!(former(&gate), ["alice"]);
    let others: [(&str, Harm); 4] = [
        ("the approval is of an earlier plan", |gate| {
            gate.approvals[0].plan = plan_id(0);
        }),
        ("the approval saw no violation", |gate| {
            gate.approvals[0].items.clear();
        }),
        ("a team of the person is an owner", |gate| {
            gate.approvals[0].teams = vec!["acme/security".to_owned()];
        }),
        ("the person approved again, with a new login", |gate| {
            let mut again = gate.approvals[0].clone();
            again.login = "bob".to_owned();
            again.at = at(1);
            gate.approvals.push(again);
        }),
    ];
    for (why, change) in others {
        let mut gate = gate.clone();
        change(&mut gate);
        assert!(former(&gate).is_empty(), "{why}");
    }
}

/// Findings of a small world, so that equal ones are frequent.
fn findings() -> impl Strategy<Value = Vec<PolicyFinding>> {
    let level = prop_oneof![
        Just(FindingLevel::Deny),
        Just(FindingLevel::Warn),
        (1..3_u32, proptest::collection::vec(select(TEAMS), 0..2)).prop_map(|(count, teams)| {
            FindingLevel::RequireApproval {
                count,
                teams: teams.into_iter().map(str::to_owned).collect(),
            }
        }),
    ];
    let finding = (
        level,
        select(vec!["r", "s"]),
        select(vec!["m", "n"]),
        proptest::option::of(select(vec!["a.b", "a.c"])),
        proptest::bool::weighted(0.1),
    );
    let finding = finding.prop_map(|(level, rule, message, resource, waived)| PolicyFinding {
        resource: resource.map(str::to_owned),
        waived: waived.then(|| AppliedWaiver {
            reason: "r".to_owned(),
            owner: "o".to_owned(),
            until: "2026-12-31".to_owned(),
        }),
        ..PolicyFinding::new(level, rule, message)
    });
    proptest::collection::vec(finding, 0..4)
}

const TEAMS: &[&str] = &["acme/net", "acme/security"];

fn a_set() -> impl Strategy<Value = PolicySet> {
    let pattern = select(vec![ItemRegex::DEFAULT, "r|s", "x"]);
    (any::<bool>(), any::<bool>(), 1..3_u32, pattern).prop_map(
        |(sticky, prevent_self_approve, approve_count, pattern)| PolicySet {
            sticky,
            prevent_self_approve,
            approve_count,
            item_regex: ItemRegex(Regex::new(pattern).unwrap()),
            ..policy_set("violated")
        },
    )
}

/// People who approve: login, number of the plan, team, and whether they are authors.
fn people() -> impl Strategy<Value = Vec<(&'static str, u8, &'static str, bool)>> {
    let person = (
        select(vec!["alice", "bob", "mallory"]),
        0..2_u8,
        select(TEAMS),
        any::<bool>(),
    );
    proptest::collection::vec(person, 0..6)
}

fn approvals_of(
    people: &[(&'static str, u8, &'static str, bool)],
    verdict: &Verdict,
) -> Vec<PolicyApproval> {
    people
        .iter()
        .map(|(login, plan, team, is_author)| PolicyApproval {
            plan: plan_id(*plan),
            teams: vec![(*team).to_owned()],
            is_author: *is_author,
            ..approval(login, verdict)
        })
        .collect()
}

/// Returns how often each violation is in a verdict.
fn violations(verdict: &Verdict) -> HashMap<String, usize> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for finding in verdict.violations() {
        *counts.entry(format!("{finding:?}")).or_default() += 1;
    }
    counts
}

proptest! {
    #[test]
    fn people_are_counted_and_not_their_names(
        names in proptest::collection::vec((0..4_usize, 0..3_u8, 0..3_u32, 0..3_u8), 0..8),
        count in 1..4_u32,
    ) {
        let set = PolicySet { approve_count: count, ..policy_set("violated") };
        let verdict = verdict_of(&set, vec![PolicyFinding::deny("r", "m")]);
        // Each human has names of their own, so names never connect two of them.
        let approvals: Vec<PolicyApproval> = names
            .iter()
            .map(|(human, number, account, login)| PolicyApproval {
                person: format!("github.com {human}{number}"),
                account: account
                    .checked_sub(1)
                    .and_then(|n| AccountId::new(u32::try_from(*human).unwrap() * 10 + n + 1)),
                teams: vec!["acme/security".to_owned()],
                ..approval(&format!("human{human}-{login}"), &verdict)
            })
            .collect();
        let people = by_person(&approvals);
        for (one, (human, ..)) in people.iter().zip(&names) {
            for (other, (other_human, ..)) in people.iter().zip(&names) {
                let same = one.person == other.person;
                prop_assert!(!same || human == other_human);
                prop_assert!(same || !one.approval.is_of_same_person(other.approval));
            }
        }
        let mut humans: Vec<usize> = people.iter().map(|one| one.person).collect();
        humans.sort_unstable();
        humans.dedup();
        let needed = [set.needed(set.digest(None))];
        let decision = decisions(&needed, &[verdict], &approvals, &plan_id(1), today()).remove(0).1;
        prop_assert_eq!(decision.lets_pass(), humans.len() >= count as usize);
    }

    #[test]
    fn approvals_never_outlive_the_violations_they_saw(
        set in a_set(),
        seen in findings(),
        now in findings(),
        people in people(),
    ) {
        let set = PolicySet { item_regex: ItemRegex::default(), ..set };
        let (seen, now) = (verdict_of(&set, seen), verdict_of(&set, now));
        let needed = [set.needed(set.digest(None))];
        let approvals = approvals_of(&people, &seen);
        let verdicts = std::slice::from_ref(&now);
        let decision = decisions(&needed, verdicts, &approvals, &plan_id(1), today()).remove(0).1;
        if let SetDecision::Approved(by) = decision {
            let known = violations(&seen);
            for (violation, count) in violations(&now) {
                prop_assert!(known.get(&violation).is_some_and(|known| *known >= count));
            }
            prop_assert!(!by.is_empty());
            let could_count = people.iter().any(|(login, plan, _, is_author)| {
                by.iter().any(|name| name == login)
                    && (set.sticky || *plan == 1)
                    && !(set.prevent_self_approve && *is_author)
            });
            prop_assert!(could_count);
        }
    }

    #[test]
    fn items_of_a_pattern_never_outlive_the_output_they_were_cut_from(
        set in a_set(),
        seen in "[rs ]{0,6}",
        now in "[rs ]{0,6}",
    ) {
        let set = PolicySet { sticky: true, ..set };
        let verdict = |output: &str| {
            let findings = vec![PolicyFinding::deny("r", "m")];
            Verdict::of_findings(&set, set.digest(None), String::new(), None, findings, output.to_owned())
        };
        let approval = approval("alice", &verdict(&seen));
        let current = verdict(&now);
        if set.item_regex.as_str() == "r|s" && approval.counts(&set.needed(set.digest(None)), &current, &plan_id(1)) {
            for item in ["r", "s"] {
                prop_assert!(!now.contains(item) || seen.contains(item));
            }
            if !now.contains(['r', 's']) {
                prop_assert_eq!(now, seen);
            }
        }
    }

    #[test]
    fn more_problems_never_allow_more(
        set in a_set(),
        other in a_set(),
        before in findings(),
        more in findings(),
        people in people(),
        harm in 0..9_u8,
        at in any::<Index>(),
    ) {
        let other = PolicySet { name: SetName::parse("other").unwrap(), ..other };
        let verdicts = vec![verdict_of(&set, before.clone()), verdict_of(&other, vec![])];
        let gate = Gate {
            needed: vec![set.needed(set.digest(None)), other.needed(other.digest(None))],
            approvals: approvals_of(&people, &verdicts[0]),
            verdicts,
        };
        let mut harmed = gate.clone();
        let which = at.index(2);
        match harm {
            0 => {
                harmed.verdicts.remove(which);
            }
            1 => harmed.verdicts[which].outcome = VerdictOutcome::NotEvaluated("crash".to_owned()),
            2 => harmed.verdicts[which].definition = SetDigest(Sha256Digest::of(b"old")),
            3 => harmed.needed[which].definition = SetDigest(Sha256Digest::of(b"new")),
            4 => harmed.verdicts[0] = verdict_of(&set, before.into_iter().chain(more).collect()),
            5 if !harmed.approvals.is_empty() => {
                let gone = at.index(harmed.approvals.len());
                harmed.approvals.remove(gone);
            }
            6 if !harmed.approvals.is_empty() => {
                let forgetful = at.index(harmed.approvals.len());
                harmed.approvals[forgetful].items.pop();
            }
            7 => harmed.needed[which].approve_count += 1,
            _ => harmed.needed[which].owners.users.clear(),
        }
        prop_assert!(gate.may_apply() || !harmed.may_apply(), "{harmed:?}");
    }
}
