//! Locks that people take from pulls, by page, API and command line: the rule is [`locks::give`], here is what both
//! pulls and the person are told of it.
//!
//! The pull that loses the lock is told by a job, so that the command line, which knows nothing of the server's
//! settings, tells it in the same words; the one that gets it is told by the plan that follows (`take_turn`).

use chrono::{DateTime, Utc};
use tracing::warn;

use crate::config::access::Action;
use crate::jobs::TellLoss;
use crate::locks::{self, Gave, Given, Giving, WhyNot};
use crate::model::{CommandId, Lock, Reason};
use crate::queue::Job;
use crate::render::{LockLost, Loss};
use crate::store::{NewJob, Store};

/// Takes a lock from its pull, which is told at the next opportunity; `notice` names what it is told.
pub async fn give(store: &Store, giving: &Giving, notice: CommandId, now: DateTime<Utc>) -> Result<Gave, sqlx::Error> {
    let gave = locks::give(store, giving, |given| vec![told(giving, given, notice, now)]).await?;
    if let Gave::Done(given) = &gave {
        let (who, reason) = (&giving.actor.login, giving.reason.as_ref().map(Reason::as_str));
        let (lock, pull, to) = (&given.lock.key, &given.lock.pull, given.now.as_ref().map(|now| now.pull.number.0));
        warn!(who, %lock, %pull, to, force = giving.force, reason, "A lock was taken from its pull request");
    }
    Ok(gave)
}

fn told(giving: &Giving, given: &Given, notice: CommandId, now: DateTime<Utc>) -> NewJob {
    let how = match (giving.to, giving.force) {
        (Some(_), _) => Loss::HandedOver,
        (None, true) => Loss::TakenAway,
        (None, false) => Loss::Released,
    };
    let lost = LockLost {
        key: given.lock.project.clone(),
        how,
        by: giving.actor.clone(),
        reason: giving.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        plan: given.plan,
        interrupted: !given.interrupted.is_empty(),
        applied: given.applied,
        now: given.now.as_ref().map(|lock| (lock.pull.number, lock.pull_url.clone())),
    };
    TellLoss { pull: given.lock.pull.clone(), notice, lost, since: now }.to_new()
}

/// Why a lock was left to its pull, for people and programs (P10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The field of the request that is to be changed, if it is one.
    pub field: Option<&'static str>,
    /// Stable word for programs.
    pub code: &'static str,
    /// What is the case: sentences. Pairs of backticks mark code.
    pub message: String,
    /// What can be done about it: sentences.
    pub way_out: String,
}

/// Stable word for programs.
pub const fn code(why: WhyNot) -> &'static str {
    match why {
        WhyNot::ReasonWanted => "reason_wanted",
        WhyNot::ApplyRunning => "apply_running",
        WhyNot::PlanRunning => "plan_running",
        WhyNot::ApplyWaiting => "apply_waiting",
        WhyNot::Applied => "applied",
        WhyNot::NotInLine(_) => "not_in_line",
        WhyNot::Circle(_) => "circle",
    }
}

/// Says why; `executable` is the word that starts commands.
pub fn explain(lock: &Lock, why: WhyNot, executable: &str) -> Explanation {
    let holder = format!("pull request #{}", lock.pull.number);
    let by_force = "use force, with a reason";
    let (field, message, way_out) = match why {
        WhyNot::ReasonWanted => (
            Some("reason"),
            format!("A lock is taken by force for a reason, which {holder}, the next one and the audit log are told."),
            "Say in a few words why.".to_owned(),
        ),
        WhyNot::ApplyRunning => (
            None,
            format!(
                "A change of {holder} is under way under this lock (an apply, an import or a state rm): taking the lock away \
                 now would let another pull request change the same infrastructure at the same time."
            ),
            format!("Wait for its end, or comment `{executable} cancel --force` at {holder} to interrupt it."),
        ),
        WhyNot::PlanRunning => (
            Some("force"),
            format!("A plan of {holder} is being made under this lock."),
            format!("Wait for its end, or {by_force}: the plan is interrupted then."),
        ),
        WhyNot::ApplyWaiting => (
            Some("force"),
            format!("An apply, an import or a state rm of {holder} is about to begin under this lock."),
            format!("Wait for its end, or {by_force}: it finds its plan or its lock gone then."),
        ),
        WhyNot::Applied => (
            Some("force"),
            format!(
                "The pull request that holds the lock, #{}, has applied something under it and is not merged: the next plan \
                 of another pull request would undo that.",
                lock.pull.number
            ),
            format!("Merge it, or {by_force}."),
        ),
        WhyNot::NotInLine(to) => (
            Some("pull"),
            format!("Pull request #{to} is not in line for this lock."),
            format!("Comment `{executable} plan` there: then it is. Or hand the lock to one that waits for it."),
        ),
        WhyNot::Circle(to) => (
            Some("pull"),
            format!("If pull request #{to} got this lock now, pull requests would wait for each other for ever."),
            "Hand it to another one in line, or release it: the first in line can always have it.".to_owned(),
        ),
    };
    Explanation { field, code: code(why), message, way_out }
}

/// The permission that it takes, in the words of `--web-allow`.
pub const fn action(giving: &Giving) -> Action {
    if giving.force || giving.to.is_some() { Action::UnlockAny } else { Action::Discard }
}
