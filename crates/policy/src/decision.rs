//! Decides whether a plan may be applied: pure, from the configured sets, the verdicts and the approvals (P6).

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use lockkeeper_model::model::{AccountId, PlanId, Sha256Digest};

use crate::findings::FindingLevel;
use crate::sets::{PolicyOwners, SetDigest, SetName, share_a_team};
use crate::verdict::{Verdict, VerdictOutcome};

/// Part of a configured set that decides on an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededSet {
    pub name: SetName,
    pub definition: SetDigest,
    pub approve_count: u32,
    pub sticky: bool,
    /// True if the author of the pull request may not approve.
    pub prevent_self_approve: bool,
    /// Owners now. Approvals of people who are not owners any more do not count.
    pub owners: PolicyOwners,
}

/// Approval of the violations of one set, by one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyApproval {
    pub set: SetName,
    /// Plan whose violations the person saw.
    pub plan: PlanId,
    /// Person: the numeric account of the forge, or the account of this server if the forge names none. Never a login alone.
    pub person: String,
    /// Account of this server at that time.
    pub account: Option<AccountId>,
    /// Login at that time, for people.
    pub login: String,
    /// Teams of the set's owners, and of rules that need approval, that the person was in.
    pub teams: Vec<String>,
    /// True if the person is an author of the pull request.
    pub is_author: bool,
    /// Violations that the person saw.
    pub items: Vec<Sha256Digest>,
    /// Digest of the set's definition at that time.
    pub definition: SetDigest,
    pub at: DateTime<Utc>,
}

/// Decision of one set for one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetDecision {
    /// The set has no violations.
    Passed,
    /// Violations, and enough approvals of them. Holds the logins.
    Approved(Vec<String>),
    /// Violations without enough approvals.
    NeedsApproval {
        /// Number of approvals that are needed, with those that count already.
        needed: u32,
        /// Logins of people whose approvals count.
        by: Vec<String>,
    },
    /// The set could not be evaluated.
    NotEvaluated(String),
    /// The plan has no verdict of this set: it was configured after the plan.
    Missing,
    /// The set was changed after the plan.
    Changed,
    /// The plan has a verdict of this set, but the set is not configured any more.
    Removed,
    /// A waiver that took a violation out ended after the plan was made, so the violation counts again.
    WaiverEnded,
}

/// Returns the decision of each configured set, and of each set with a verdict that is not configured any more.
///
/// An approval counts if it covers every violation of the verdict, was given for the same definition of the set, and for the same
/// plan or a sticky set. Violations that a rule denies need [`NeededSet::approve_count`] approvals of owners. A rule that requires
/// approvals needs as many as it says, of people in one of its teams, or of owners if it names none. One person counts once,
/// with all of the approvals that [`PolicyApproval::is_of_same_person`] connects.
pub fn decisions(
    needed: &[NeededSet],
    verdicts: &[Verdict],
    approvals: &[PolicyApproval],
    plan: &PlanId,
    today: NaiveDate,
) -> Vec<(SetName, SetDecision)> {
    let mut decisions: Vec<(SetName, SetDecision)> = needed
        .iter()
        .map(|set| {
            let decision = decision(set, verdicts, approvals, plan, today);
            (set.name.clone(), decision)
        })
        .collect();
    for verdict in verdicts {
        if !decisions.iter().any(|(name, _)| *name == verdict.set) {
            decisions.push((verdict.set.clone(), SetDecision::Removed));
        }
    }
    decisions
}

/// Returns true if no set refuses the apply.
pub fn may_apply(decisions: &[(SetName, SetDecision)]) -> bool {
    decisions.iter().all(|(_, decision)| decision.lets_pass())
}

/// Returns true if an approval of the person could count for a violation: the person owns the set, or is in a team that a rule
/// names.
pub fn may_approve(set: &NeededSet, verdict: &Verdict, login: &str, teams: &[String]) -> bool {
    set.owners.has(login, teams)
        || verdict.violations().any(|finding| match &finding.level {
            FindingLevel::RequireApproval { teams: own, .. } => share_a_team(own, teams),
            FindingLevel::Deny | FindingLevel::Warn => false,
        })
}

/// Returns the logins of people whose approvals would count for a verdict, but who may not approve it any more: they were removed
/// from the owners, or left the team. Each person is named once, the oldest approval first.
pub fn former_approvers(
    set: &NeededSet,
    verdict: &Verdict,
    approvals: &[PolicyApproval],
    plan: &PlanId,
) -> Vec<String> {
    let given: Vec<PersonApproval<'_>> = by_person(approvals)
        .into_iter()
        .filter(|one| one.approval.counts(set, verdict, plan))
        .collect();
    let people_now: HashSet<usize> = given
        .iter()
        .filter(|one| may_approve(set, verdict, &one.approval.login, &one.approval.teams))
        .map(|one| one.person)
        .collect();
    let former: Vec<PersonApproval<'_>> = given
        .into_iter()
        .filter(|one| !people_now.contains(&one.person))
        .collect();
    newest_by_person(&former)
        .into_iter()
        .map(|approval| approval.login.clone())
        .collect()
}

/// Returns the teams that decide whether somebody may approve: those of the owners and those that rules name, each once.
pub fn deciding_teams(set: &NeededSet, verdict: &Verdict) -> Vec<String> {
    let of_rules = verdict
        .violations()
        .flat_map(|finding| match &finding.level {
            FindingLevel::RequireApproval { teams, .. } => teams.as_slice(),
            FindingLevel::Deny | FindingLevel::Warn => &[],
        });
    let mut teams: Vec<String> = Vec::new();
    for team in set.owners.teams.iter().chain(of_rules) {
        if !teams.iter().any(|known| known.eq_ignore_ascii_case(team)) {
            teams.push(team.clone());
        }
    }
    teams
}

impl SetDecision {
    /// Returns true if the set does not refuse the apply.
    pub fn lets_pass(&self) -> bool {
        match self {
            Self::Passed | Self::Approved(_) => true,
            Self::NeedsApproval { .. }
            | Self::NotEvaluated(_)
            | Self::Missing
            | Self::Changed
            | Self::Removed
            | Self::WaiverEnded => false,
        }
    }
}

impl PolicyApproval {
    /// Returns true if both approvals name the same account of the forge, account of this server, or login. People change
    /// their logins, and link and unlink accounts. Different people with the same login in turn count as one, which refuses
    /// more.
    pub fn is_of_same_person(&self, other: &Self) -> bool {
        self.identities()
            .into_iter()
            .flatten()
            .any(|one| other.identities().contains(&Some(one)))
    }

    fn identities(&self) -> [Option<NamedBy<'_>>; 3] {
        [
            Some(NamedBy::Person(&self.person)),
            self.account.map(NamedBy::Account),
            Some(NamedBy::Login(self.login.to_ascii_lowercase())),
        ]
    }

    /// Returns true if the approval counts for the violations of a verdict on a plan.
    fn counts(&self, set: &NeededSet, verdict: &Verdict, plan: &PlanId) -> bool {
        self.set == set.name
            && self.definition == verdict.definition
            && (self.plan == *plan || set.sticky)
            && !(set.prevent_self_approve && self.is_author)
            && verdict.items.iter().all(|item| self.items.contains(item))
    }
}

/// One of the ways in which an approval names its person.
#[derive(PartialEq, Eq, Hash)]
enum NamedBy<'a> {
    Person(&'a str),
    Account(AccountId),
    Login(String),
}

/// An approval with the number of its person, which is the same for all approvals of the person.
#[derive(Clone, Copy)]
struct PersonApproval<'a> {
    person: usize,
    approval: &'a PolicyApproval,
}

/// Finds out which approvals are of the same person: those that name it in the same way, and those that other approvals
/// connect.
fn by_person(approvals: &[PolicyApproval]) -> Vec<PersonApproval<'_>> {
    let mut people: Vec<usize> = (0..approvals.len()).collect();
    let mut known = HashMap::new();
    for (at, approval) in approvals.iter().enumerate() {
        for identity in approval.identities().into_iter().flatten() {
            let first: usize = *known.entry(identity).or_insert(at);
            let (one, other) = (people[at], people[first]);
            for person in &mut people {
                if *person == one {
                    *person = other;
                }
            }
        }
    }
    people
        .into_iter()
        .zip(approvals)
        .map(|(person, approval)| PersonApproval { person, approval })
        .collect()
}

/// Number of approvals of certain people that violations need.
struct NeededApprovals<'a> {
    count: u32,
    /// Teams that are named; the owners if there are none.
    teams: &'a [String],
}

impl NeededApprovals<'_> {
    fn is_met_by(&self, set: &NeededSet, approval: &PolicyApproval) -> bool {
        if self.teams.is_empty() {
            set.owners.has(&approval.login, &approval.teams)
        } else {
            share_a_team(self.teams, &approval.teams)
        }
    }
}

fn decision(
    set: &NeededSet,
    verdicts: &[Verdict],
    approvals: &[PolicyApproval],
    plan: &PlanId,
    today: NaiveDate,
) -> SetDecision {
    let mut own = verdicts.iter().filter(|verdict| verdict.set == set.name);
    let Some(verdict) = own.next() else {
        return SetDecision::Missing;
    };
    if own.next().is_some() {
        return damaged("there are two");
    }
    if verdict.definition != set.definition {
        return SetDecision::Changed;
    }
    if let Some(damage) = verdict.damage() {
        return damaged(damage);
    }
    match &verdict.outcome {
        VerdictOutcome::Passed | VerdictOutcome::Failed if verdict.has_ended_waiver(today) => {
            SetDecision::WaiverEnded
        }
        VerdictOutcome::Passed => SetDecision::Passed,
        VerdictOutcome::Failed => approved(set, verdict, approvals, plan),
        VerdictOutcome::NotEvaluated(why) => SetDecision::NotEvaluated(why.clone()),
    }
}

fn damaged(damage: &str) -> SetDecision {
    SetDecision::NotEvaluated(format!(
        "The stored verdict cannot be right: {damage}. Plan again."
    ))
}

/// Returns the decision of a violated set.
fn approved(
    set: &NeededSet,
    verdict: &Verdict,
    approvals: &[PolicyApproval],
    plan: &PlanId,
) -> SetDecision {
    let needs: Vec<NeededApprovals<'_>> = verdict
        .violations()
        .filter_map(|finding| match &finding.level {
            FindingLevel::Deny => Some(NeededApprovals {
                count: set.approve_count.max(1),
                teams: &[],
            }),
            FindingLevel::RequireApproval { count, teams } => Some(NeededApprovals {
                count: (*count).max(1),
                teams,
            }),
            FindingLevel::Warn => None,
        })
        .collect();
    let counting: Vec<PersonApproval<'_>> = by_person(approvals)
        .into_iter()
        .filter(|one| one.approval.counts(set, verdict, plan))
        .filter(|one| needs.iter().any(|need| need.is_met_by(set, one.approval)))
        .collect();
    let missing = |need: &NeededApprovals<'_>| {
        let people: HashSet<usize> = counting
            .iter()
            .filter(|one| need.is_met_by(set, one.approval))
            .map(|one| one.person)
            .collect();
        need.count
            .saturating_sub(u32::try_from(people.len()).unwrap_or(u32::MAX))
    };
    // A verdict without violations does not get here; one would be missing all the same.
    let missing = needs.iter().map(missing).max().unwrap_or(1);
    let by: Vec<String> = newest_by_person(&counting)
        .into_iter()
        .map(|approval| approval.login.clone())
        .collect();
    if missing == 0 {
        return SetDecision::Approved(by);
    }
    let have = u32::try_from(by.len()).unwrap_or(u32::MAX);
    SetDecision::NeedsApproval {
        needed: have.saturating_add(missing),
        by,
    }
}

/// Returns the newest approval of each person, oldest first.
fn newest_by_person<'a>(approvals: &[PersonApproval<'a>]) -> Vec<&'a PolicyApproval> {
    let mut newest: Vec<PersonApproval<'a>> = Vec::new();
    for &one in approvals {
        match newest.iter_mut().find(|known| known.person == one.person) {
            Some(known) if known.approval.at < one.approval.at => *known = one,
            Some(_) => {}
            None => newest.push(one),
        }
    }
    newest.sort_by_key(|one| one.approval.at);
    newest.into_iter().map(|one| one.approval).collect()
}

#[cfg(test)]
mod tests;
