//! Formats locks for a terminal. Names and reasons come from other people, and a terminal must not obey them.

use crate::features::locks::explain;
use crate::features::locks::view::LockDetails;
use crate::kit::term::{safe, time};
use crate::locks::{HandOver, HandedOver, KeptReason};
use crate::model::{Lock, LockEvent, Waiter};

/// Formats a lock as a line of the list.
pub(super) fn line(lock: &Lock) -> String {
    safe(&format!(
        "{} {} of {} by {} since {}: {}",
        lock.id,
        lock.key,
        lock.pull.subject.short_name(lock.title.as_deref()),
        lock.holder,
        time(lock.taken_at),
        lock.reason
    ))
}

/// Formats all facts about a lock.
pub(super) fn lines(facts: &LockDetails, executable: &str) -> Vec<String> {
    let lock = &facts.lock;
    let mut lines = vec![
        format!("Lock {}", lock.id),
        format!("  on      {}/{}", lock.key.repo.host(), lock.key),
        format!(
            "  held by {} ({}), {}",
            lock.holder_name(),
            lock.pull_url,
            lock.holder
        ),
        format!("  since   {}: {}", time(lock.taken_at), lock.reason),
    ];
    if let Some(why) = KeptReason::of(&facts.lock_use) {
        let explained = explain(lock, why, executable);
        lines.push(format!(
            "  in use  {} {}",
            explained.message, explained.way_out
        ));
    }
    lines.push(format!("Queue: {}", facts.waiters.len()));
    lines.extend(
        (1..)
            .zip(&facts.waiters)
            .map(|(place, waiter)| waiting(place, waiter)),
    );
    lines.push("History, newest first:".to_owned());
    lines.extend(facts.history.iter().map(event));
    lines.iter().map(|line| safe(line)).collect()
}

fn waiting(place: usize, waiter: &Waiter) -> String {
    format!(
        "  {place}. #{} by {} since {}",
        waiter.pull.subject,
        waiter.asker,
        time(waiter.since)
    )
}

fn event(kept: &LockEvent) -> String {
    let cause = &kept.event.cause;
    let pull = kept
        .of_whom()
        .map(|whom| format!(" {whom}"))
        .unwrap_or_default();
    let remote = cause
        .remote
        .as_ref()
        .map(|remote| format!(" from {remote}"))
        .unwrap_or_default();
    let kind = kept.event.kind;
    format!(
        "  {} {kind}{pull} by {} ({}{remote}): {}",
        time(kept.at),
        kept.who(),
        cause.actor.origin,
        cause.reason
    )
}

/// Formats the result of a change.
pub(super) fn done(giving: &HandOver, given: &HandedOver) -> String {
    let verb = match (giving.to, giving.force) {
        (Some(_), _) => "Handed over",
        (None, true) => "Took away",
        (None, false) => "Released",
    };
    let now = match &given.now {
        Some(now) => format!("pull request #{} has it now", now.pull.subject),
        None => "the queue is empty, so the lock is free".to_owned(),
    };
    let plans = match (given.interrupted.is_empty(), given.plan) {
        (false, _) => " The plan in progress is interrupted.",
        (true, true) => " Its plan is discarded.",
        (true, false) => "",
    };
    safe(&format!(
        "{verb} the lock of {} from {}: {now}.{plans}",
        given.lock.key,
        given.lock.holder_name()
    ))
}
