//! Takes locks from pull requests on request of people, by page, API and command line. [`locks::hand_over()`] has the
//! rule; this module notifies both pull requests and explains refusals to the person.
//!
//! A job notifies the pull request that loses the lock. So the command line, which does not know the settings of the
//! server, leads to the same comment. The pull request that gets the lock learns of it by the plan that follows
//! (`take_turn`).

use chrono::{DateTime, Utc};
use tracing::warn;

use super::NotifyLockLoss;
use crate::config::access::Action;
use crate::locks::{self, HandOver, HandOverOutcome, HandedOver, KeptReason};
use crate::model::{CommandId, Lock, Reason, Subject};
use crate::queue::Job;
use crate::render::{LockLossKind, LostLock};
use crate::store::{NewJob, Store};

/// Takes a lock from its pull request, and queues a job that notifies it; `notice` identifies the notice.
pub async fn hand_over(
    store: &Store,
    giving: &HandOver,
    notice: CommandId,
    now: DateTime<Utc>,
) -> Result<HandOverOutcome, sqlx::Error> {
    let outcome = locks::hand_over(store, giving, |given| {
        vec![loss_notice(giving, given, notice, now)]
    })
    .await?;
    if let HandOverOutcome::Done(given) = &outcome {
        let (who, reason) = (
            &giving.actor.login,
            giving.reason.as_ref().map(Reason::as_str),
        );
        let (lock, pull, to) = (
            &given.lock.key,
            &given.lock.pull,
            given.now.as_ref().map(|now| now.pull.subject.stored()),
        );
        warn!(who, %lock, %pull, to, force = giving.force, reason, "A lock was taken from its pull request");
    }
    Ok(outcome)
}

fn loss_notice(
    giving: &HandOver,
    given: &HandedOver,
    notice: CommandId,
    now: DateTime<Utc>,
) -> NewJob {
    let how = match (giving.to, giving.force) {
        (Some(_), _) => LockLossKind::HandedOver,
        (None, true) => LockLossKind::TakenAway,
        (None, false) => LockLossKind::Released,
    };
    let lost = LostLock {
        key: given.lock.project.clone(),
        how,
        by: giving.actor.clone(),
        reason: giving
            .reason
            .as_ref()
            .map(|reason| reason.as_str().to_owned()),
        plan: given.plan,
        interrupted: !given.interrupted.is_empty(),
        applied: given.applied,
        now: given
            .now
            .as_ref()
            .map(|lock| (lock.pull.subject, lock.pull_url.clone())),
    };
    NotifyLockLoss {
        pull: given.lock.pull.clone(),
        notice,
        lost,
        since: now,
    }
    .to_new()
}

/// Reason why a pull request kept its lock, for people and programs (P10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLockReason {
    /// Field of the request to change, if there is one.
    pub field: Option<&'static str>,
    /// Stable code for programs.
    pub code: &'static str,
    /// Situation, as sentences. Pairs of backticks mark code.
    pub message: String,
    /// Ways out, as sentences.
    pub way_out: String,
}

/// Returns a stable code for programs.
pub const fn code(why: KeptReason) -> &'static str {
    match why {
        KeptReason::ReasonWanted => "reason_wanted",
        KeptReason::ApplyRunning => "apply_running",
        KeptReason::PlanRunning => "plan_running",
        KeptReason::ApplyWaiting => "apply_waiting",
        KeptReason::Applied => "applied",
        KeptReason::NotQueued(_) => "not_in_line",
        KeptReason::Circle(_) => "circle",
    }
}

/// Explains the reason; `executable` is the word that starts commands.
pub fn explain(lock: &Lock, why: KeptReason, executable: &str) -> KeptLockReason {
    let (field, message, way_out) = match why {
        KeptReason::ReasonWanted => reason_wanted(lock),
        KeptReason::ApplyRunning => apply_running(lock, executable),
        KeptReason::PlanRunning => plan_running(lock),
        KeptReason::ApplyWaiting => apply_waiting(lock),
        KeptReason::Applied => applied(lock),
        KeptReason::NotQueued(to) => not_queued(to, executable),
        KeptReason::Circle(to) => circle(to),
    };
    KeptLockReason {
        field,
        code: code(why),
        message,
        way_out,
    }
}

/// Field to change, situation, and ways out.
type ReasonText = (Option<&'static str>, String, String);

const BY_FORCE: &str = "use force with a reason";

fn reason_wanted(lock: &Lock) -> ReasonText {
    let holder = lock.holder_name();
    (
        Some("reason"),
        format!(
            "Force requires a reason. {holder}, the next pull request and the audit log show it."
        ),
        "Enter a short reason.".to_owned(),
    )
}

fn apply_running(lock: &Lock, executable: &str) -> ReasonText {
    let holder = lock.holder_name();
    let cancel = if lock.pull.subject.is_application() {
        format!("cancel it on the page of {holder}")
    } else {
        format!("comment `{executable} cancel --force` on {holder}")
    };
    (
        None,
        format!(
            "An apply, an import or a state rm of {holder} is running under this lock. Without the lock, another pull \
             request could change the same infrastructure at the same time."
        ),
        format!("Wait until it ends, or {cancel} to interrupt it."),
    )
}

fn plan_running(lock: &Lock) -> ReasonText {
    (
        Some("force"),
        format!(
            "A plan of {} is running under this lock.",
            lock.holder_name()
        ),
        format!("Wait until it ends, or {BY_FORCE}. Force interrupts the plan."),
    )
}

fn apply_waiting(lock: &Lock) -> ReasonText {
    (
        Some("force"),
        format!(
            "An apply, an import or a state rm of {} is about to start under this lock.",
            lock.holder_name()
        ),
        format!(
            "Wait until it ends, or {BY_FORCE}. Force discards its plan and its lock, so it fails."
        ),
    )
}

fn applied(lock: &Lock) -> ReasonText {
    (
        Some("force"),
        format!(
            "The lock is held by {}, which has applied changes that are not merged. The next plan of another pull \
             request would undo them.",
            lock.holder_name()
        ),
        format!("Merge it, or {BY_FORCE}."),
    )
}

fn not_queued(to: Subject, executable: &str) -> ReasonText {
    (
        Some("pull"),
        format!("Pull request #{to} is not queued for this lock."),
        format!(
            "Comment `{executable} plan` there to queue it, or hand the lock over to a queued pull request."
        ),
    )
}

fn circle(to: Subject) -> ReasonText {
    (
        Some("pull"),
        format!(
            "If pull request #{to} got this lock now, pull requests would wait for each other forever."
        ),
        "Hand it over to another queued pull request, or release it. The first in the queue can always have it."
            .to_owned(),
    )
}

/// Returns the permission that the request requires, in the words of `--web-allow`.
pub const fn action(giving: &HandOver) -> Action {
    if giving.force || giving.to.is_some() {
        Action::UnlockAny
    } else {
        Action::Discard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CountingIds;
    use crate::model::{LockId, LockKey, Person, ProjectKey, PullRef};

    fn lock_of(number: Subject, title: Option<&str>) -> Lock {
        let repo = "github.com/acme/infra".parse().unwrap();
        let project = ProjectKey::of_dir("network".parse().unwrap());
        Lock {
            id: LockId::next(&CountingIds::default()),
            key: LockKey::of(&repo, &project),
            project,
            pull: PullRef {
                repo,
                subject: number,
            },
            title: title.map(str::to_owned),
            pull_url: String::new(),
            holder: Person::of_login("ada"),
            reason: "planned".to_owned(),
            taken_at: DateTime::UNIX_EPOCH,
            active_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn every_reason_reads_right_for_an_application() {
        let app = lock_of(Subject::Application(3), Some("network (branch main)"));
        let whys = [
            KeptReason::ReasonWanted,
            KeptReason::ApplyRunning,
            KeptReason::PlanRunning,
            KeptReason::ApplyWaiting,
            KeptReason::Applied,
            KeptReason::NotQueued(Subject::pull(7)),
            KeptReason::Circle(Subject::pull(7)),
        ];
        for why in whys {
            let explained = explain(&app, why, "lockkeeper");
            let text = format!("{} {}", explained.message, explained.way_out);
            let names_whom = text.contains("application network (branch main)")
                || text.contains("ull request #7");
            assert!(names_whom && !text.contains("-3"), "{text}");
        }
        let running = explain(&app, KeptReason::ApplyRunning, "lockkeeper").way_out;
        assert_eq!(
            running,
            "Wait until it ends, or cancel it on the page of application network (branch main) to interrupt it."
        );
        let of_pull = explain(
            &lock_of(Subject::pull(12), None),
            KeptReason::ApplyRunning,
            "lockkeeper",
        )
        .way_out;
        assert_eq!(
            of_pull,
            "Wait until it ends, or comment `lockkeeper cancel --force` on pull request #12 to interrupt it."
        );
    }
}
