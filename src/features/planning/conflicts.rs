//! Reports on a project whose lock another pull request holds.

use super::CommandCx;
use crate::locks::NotQueued;
use crate::model::{Lock, ProjectOutcome};
use crate::render::{LockHolder, Next, ProjectReport, UserText, status};

/// Reports the pull request that holds the lock.
pub(super) fn held(cx: &CommandCx<'_>, report: ProjectReport, lock: &Lock) -> ProjectReport {
    let holder = LockHolder {
        pull: lock.pull.subject,
        application: lock.title.clone(),
        pull_url: lock.pull_url.clone(),
        who: lock.holder.login.clone(),
        since: lock.taken_at,
        why: lock.reason.clone(),
        place: None,
    };
    let lock_url = Some(cx.ctx.settings.lock_url(lock.id));
    ProjectReport {
        outcome: ProjectOutcome::Locked,
        held_by: Some(holder),
        lock_url,
        ..report
    }
}

/// Reports that another pull request holds the lock and this one is queued for it, so nobody has to request the plan
/// again.
pub(super) fn queued(
    cx: &CommandCx<'_>,
    report: ProjectReport,
    holder: &Lock,
    place: usize,
) -> ProjectReport {
    let report = held(cx, report, holder);
    let held_by = report.held_by.map(|holder| LockHolder {
        place: Some(place),
        ..holder
    });
    let called = holder.pull.subject.short_name(holder.title.as_deref());
    let status = Some(format!(
        "{}.",
        status::queued(&called, &holder.holder.login, place)
    ));
    ProjectReport {
        outcome: ProjectOutcome::Waiting,
        held_by,
        status,
        next: Next::Nothing,
        ..report
    }
}

/// Reports that another pull request holds the lock and this one is not queued for it.
pub(super) fn not_queued(
    cx: &CommandCx<'_>,
    report: ProjectReport,
    holder: &Lock,
    why: &NotQueued,
) -> ProjectReport {
    let message = match why {
        NotQueued::Off => return held(cx, report, holder),
        NotQueued::Circle(pulls) => {
            let pulls: Vec<String> = pulls.iter().map(|pull| format!("#{pull}")).collect();
            UserText::new(
                format!(
                    "This pull request is not queued for the lock: it has applied changes under locks that {} wait \
                     for, so they would wait for each other forever.",
                    pulls.join(", ")
                ),
                [
                    "Merge or close one of these pull requests, then plan again in the others."
                        .to_owned(),
                ],
            )
        }
        NotQueued::Full(waiting) => UserText::new(
            format!(
                "This pull request is not queued for the lock: the queues of this repository are full ({waiting} \
                 places)."
            ),
            ["Run the command again later.".to_owned()],
        ),
    };
    ProjectReport {
        message: Some(message),
        ..held(cx, report, holder)
    }
}
