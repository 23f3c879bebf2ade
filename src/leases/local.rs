//! The leases of this process and the age of their last renewal. Nothing here waits or uses the database.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;

use crate::store::LeaseHold;

/// Maximum time between two renewals, even of a long lease, so that a holder soon learns that an administrator
/// released its lease.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Wait before a failed request to the database is repeated. A short lease waits only a tenth of its time.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// A moment on two clocks. The database decides by the first one, which people and daemons may turn back. The second
/// is the clock of the machine, which stands still in a suspended machine and in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoClockTime {
    clock: DateTime<Utc>,
    machine: Instant,
}

impl TwoClockTime {
    /// Returns the present, with the given time on the clock.
    pub fn new(clock: DateTime<Utc>) -> Self {
        Self {
            clock,
            machine: Instant::now(),
        }
    }

    /// Returns the time on the clock.
    pub const fn clock(self) -> DateTime<Utc> {
        self.clock
    }

    /// Returns the time since another moment, by the clock that says longer.
    fn since(self, other: Self) -> Duration {
        let by_clock = (self.clock - other.clock).to_std().unwrap_or_default();
        by_clock.max(self.machine.saturating_duration_since(other.machine))
    }
}

/// Next step for a lease of a given age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Young,
    /// A renewal is due.
    Due,
    /// The work must stop, because others may soon take the lease.
    Old,
}

/// Returns the age of a lease. `age` counts from before the request for the last renewal, `time` is the duration of
/// the lease from there.
fn age_of(age: Duration, time: Duration) -> Age {
    if age >= time / 10 * 9 {
        Age::Old
    } else if age >= (time / 3).min(RENEW_WITHIN) {
        Age::Due
    } else {
        Age::Young
    }
}

/// State of the work under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkState {
    /// The work goes on, or has not begun.
    Open,
    /// The work was told to stop and has not ended yet.
    Cancelled,
    /// The work has ended. The database may not know that yet.
    Over,
}

struct LeaseEntry {
    holder: String,
    time: Duration,
    renewed: TwoClockTime,
    /// Time of the last message to the database about this lease.
    sent_at: Option<TwoClockTime>,
    stage: WorkState,
    lost: CancellationToken,
}

/// A lease of this process that prevents a second request for the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalLease {
    pub holder: String,
    /// Remaining time unless the lease is renewed.
    pub left: Duration,
}

/// The leases of this process, by key.
#[derive(Default)]
pub(super) struct LocalLeases(Mutex<HashMap<String, LeaseEntry>>);

impl LocalLeases {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, LeaseEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease before it is requested from the database. Fails if this process holds or requests it already.
    pub fn enter(
        &self,
        hold: &LeaseHold,
        time: Duration,
        asked: TwoClockTime,
        lost: &CancellationToken,
    ) -> Result<(), LocalLease> {
        match self.lock().entry(hold.key.clone()) {
            hash_map::Entry::Occupied(there) => {
                let LeaseEntry {
                    holder,
                    time,
                    renewed,
                    ..
                } = there.get();
                Err(LocalLease {
                    holder: holder.clone(),
                    left: time.saturating_sub(asked.since(*renewed)),
                })
            }
            hash_map::Entry::Vacant(free) => {
                let (holder, lost) = (hold.holder.clone(), lost.clone());
                free.insert(LeaseEntry {
                    holder,
                    time,
                    renewed: asked,
                    sent_at: None,
                    stage: WorkState::Open,
                    lost,
                });
                Ok(())
            }
        }
    }

    fn with<T: Default>(&self, hold: &LeaseHold, change: impl FnOnce(&mut LeaseEntry) -> T) -> T {
        let mut entries = self.lock();
        entries
            .get_mut(&hold.key)
            .filter(|entry| entry.holder == hold.holder)
            .map(change)
            .unwrap_or_default()
    }

    /// Records that the renewal requested at `asked` was granted.
    pub fn renewed(&self, hold: &LeaseHold, asked: TwoClockTime) {
        self.with(hold, |entry| entry.renewed = asked);
    }

    /// Records that the work has ended.
    pub fn end(&self, hold: &LeaseHold) {
        self.with(hold, |entry| {
            if entry.stage != WorkState::Over {
                (entry.stage, entry.sent_at) = (WorkState::Over, None);
            }
        });
    }

    /// Removes a lease that the database knows to be free. Returns false if it was removed before.
    pub fn forget(&self, hold: &LeaseHold) -> bool {
        let mut entries = self.lock();
        let is_there = entries
            .get(&hold.key)
            .is_some_and(|entry| entry.holder == hold.holder);
        is_there && entries.remove(&hold.key).is_some()
    }

    /// Tells the work to stop. Returns false if it was told before, or has ended.
    pub fn cancel(&self, hold: &LeaseHold) -> bool {
        self.with(hold, LeaseEntry::cancel)
    }

    /// Tells all work to stop, and returns the leases whose work had not been told before.
    pub fn cancel_all(&self) -> Vec<LeaseHold> {
        self.cancel_those(|_| true)
    }

    /// Cancels work whose lease could not be renewed for too long, and returns its leases.
    pub fn cancel_old(&self, now: TwoClockTime) -> Vec<LeaseHold> {
        self.cancel_those(|entry| age_of(now.since(entry.renewed), entry.time) == Age::Old)
    }

    fn cancel_those(&self, which: impl Fn(&LeaseEntry) -> bool) -> Vec<LeaseHold> {
        let mut entries = self.lock();
        let told = |(key, entry): (&String, &mut LeaseEntry)| {
            (which(entry) && entry.cancel()).then(|| entry.hold(key))
        };
        entries.iter_mut().filter_map(told).collect()
    }

    /// Returns the leases that are due for renewal, and the duration of each.
    pub fn due(&self, now: TwoClockTime) -> Vec<(LeaseHold, Duration)> {
        let is_due =
            |entry: &LeaseEntry| age_of(now.since(entry.renewed), entry.time) != Age::Young;
        self.due_messages(now, |entry| entry.stage == WorkState::Open && is_due(entry))
    }

    /// Returns the leases whose work has ended and whose release may not have reached the database.
    pub fn over(&self, now: TwoClockTime) -> Vec<LeaseHold> {
        let over = self.due_messages(now, |entry| entry.stage == WorkState::Over);
        over.into_iter().map(|(hold, _)| hold).collect()
    }

    /// Returns the matching leases without a recent message to the database, and marks them as sent now.
    fn due_messages(
        &self,
        now: TwoClockTime,
        which: impl Fn(&LeaseEntry) -> bool,
    ) -> Vec<(LeaseHold, Duration)> {
        let mut entries = self.lock();
        let tell = |(key, entry): (&String, &mut LeaseEntry)| {
            (which(entry) && entry.mark_sent(now)).then(|| (entry.hold(key), entry.time))
        };
        entries.iter_mut().filter_map(tell).collect()
    }
}

impl LeaseEntry {
    fn hold(&self, key: &str) -> LeaseHold {
        LeaseHold {
            key: key.to_owned(),
            holder: self.holder.clone(),
        }
    }

    /// Marks a message to the database as sent now. Returns false if one was sent a moment ago.
    fn mark_sent(&mut self, now: TwoClockTime) -> bool {
        let wait = AGAIN_AFTER.min(self.time / 10);
        let is_time = self.sent_at.is_none_or(|told| now.since(told) >= wait);
        if is_time {
            self.sent_at = Some(now);
        }
        is_time
    }

    fn cancel(&mut self) -> bool {
        let is_open = self.stage == WorkState::Open;
        if is_open {
            self.stage = WorkState::Cancelled;
            self.lost.cancel();
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(seconds: i64) -> TwoClockTime {
        TwoClockTime {
            clock: DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds),
            machine: base(),
        }
    }

    fn base() -> Instant {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now)
    }

    fn hold(key: &str, holder: &str) -> LeaseHold {
        LeaseHold {
            key: key.to_owned(),
            holder: holder.to_owned(),
        }
    }

    fn entered(leases: &LocalLeases, hold: &LeaseHold, time: Duration) -> CancellationToken {
        let lost = CancellationToken::new();
        leases.enter(hold, time, at(0), &lost).unwrap();
        lost
    }

    #[test]
    fn a_lease_is_renewed_at_a_third_of_its_time_and_given_up_before_it_ends() {
        let cases = [
            (0, 30, Age::Young),
            (9, 30, Age::Young),
            (10, 30, Age::Due),
            (26, 30, Age::Due),
            (27, 30, Age::Old),
            (1, 6, Age::Young),
            (2, 6, Age::Due),
            (9, 10_800, Age::Young),
            (10, 10_800, Age::Due),
            (9_719, 10_800, Age::Due),
            (9_720, 10_800, Age::Old),
            (0, 0, Age::Old),
        ];
        for (age, time, expected) in cases {
            assert_eq!(
                age_of(Duration::from_secs(age), Duration::from_secs(time)),
                expected,
                "{age} of {time}"
            );
        }
    }

    proptest! {
        /// A holder that renews every time a renewal is due, within a tenth of the time, is never told to stop.
        #[test]
        fn there_is_time_to_renew_between_due_and_old(millis in 100_u64..100_000_000, late in 0_u64..=50) {
            let time = Duration::from_millis(millis);
            let due = (time / 3).min(RENEW_WITHIN);
            prop_assert_eq!(age_of(due, time), Age::Due);
            prop_assert_eq!(age_of(due + time * u32::try_from(late).unwrap() / 100, time), Age::Due);
            prop_assert_eq!(age_of(time, time), Age::Old);
        }
    }

    #[test]
    fn of_two_clocks_the_one_counts_that_says_longer() {
        let later = TwoClockTime {
            machine: base() + Duration::from_mins(1),
            ..at(5)
        };
        assert_eq!(later.since(at(0)), Duration::from_mins(1));
        assert_eq!(at(90).since(at(0)), Duration::from_secs(90));
        // The clock was turned back.
        assert_eq!(later.since(at(3600)), Duration::from_mins(1));
        assert_eq!(at(0).since(later), Duration::ZERO);
    }

    #[test]
    fn a_key_is_entered_once_until_it_is_forgotten() {
        let leases = LocalLeases::default();
        let (ours, other) = (hold("k", "a/1"), hold("k", "a/2"));
        let lost = entered(&leases, &ours, HOUR);
        let busy = leases.enter(&other, HOUR, at(600), &lost).unwrap_err();
        assert_eq!(
            busy,
            LocalLease {
                holder: "a/1".to_owned(),
                left: Duration::from_mins(50)
            }
        );
        leases.end(&ours);
        assert!(
            leases.enter(&other, HOUR, at(0), &lost).is_err(),
            "the database has not heard of it"
        );
        assert!(!leases.forget(&other) && leases.forget(&ours) && !leases.forget(&ours));
        assert!(leases.enter(&other, HOUR, at(0), &lost).is_ok());
    }

    #[test]
    fn what_is_due_is_renewed_and_what_is_old_is_told_to_stop_once() {
        let leases = LocalLeases::default();
        let (long, short) = (hold("long", "a/1"), hold("short", "a/2"));
        let (long_lost, short_lost) = (
            entered(&leases, &long, HOUR),
            entered(&leases, &short, Duration::from_secs(20)),
        );
        assert_eq!(leases.due(at(5)), []);
        assert_eq!(
            leases.due(at(7)),
            [(short.clone(), Duration::from_secs(20))]
        );
        assert_eq!(leases.due(at(12)).len(), 2);
        leases.renewed(&long, at(12));
        assert_eq!(leases.cancel_old(at(18)), std::slice::from_ref(&short));
        assert!(short_lost.is_cancelled() && !long_lost.is_cancelled());
        assert_eq!(
            (leases.cancel_old(at(18)), leases.cancel(&short)),
            (vec![], false)
        );
        assert_eq!(
            leases.due(at(18)),
            [],
            "what was told to stop is not renewed"
        );
        assert_eq!(leases.cancel_all(), [long]);
        assert!(long_lost.is_cancelled());
    }

    #[test]
    fn what_the_database_does_not_take_is_told_again_after_a_moment() {
        let leases = LocalLeases::default();
        let (long, short) = (hold("long", "a/1"), hold("short", "a/2"));
        entered(&leases, &long, HOUR);
        entered(&leases, &short, Duration::from_secs(10));
        let due = |seconds| -> Vec<String> {
            let mut keys: Vec<String> = leases
                .due(at(seconds))
                .into_iter()
                .map(|(hold, _)| hold.key)
                .collect();
            keys.sort();
            keys
        };
        assert_eq!(
            (due(4), due(4), due(5)),
            (vec!["short".to_owned()], vec![], vec!["short".to_owned()])
        );
        leases.renewed(&short, at(5));
        assert_eq!(
            (due(10), due(11)),
            (
                vec!["long".to_owned(), "short".to_owned()],
                vec!["short".to_owned()]
            )
        );
        assert_eq!(due(12), ["long", "short"]);
        leases.end(&long);
        assert_eq!(
            (
                leases.over(at(12)).len(),
                leases.over(at(13)).len(),
                leases.over(at(14)).len()
            ),
            (1, 0, 1)
        );
    }

    #[test]
    fn a_word_about_another_claim_of_the_same_key_changes_nothing() {
        let leases = LocalLeases::default();
        let (ours, stale) = (hold("k", "a/2"), hold("k", "a/1"));
        let lost = entered(&leases, &ours, HOUR);
        leases.end(&stale);
        leases.renewed(&stale, at(3000));
        assert!(!leases.cancel(&stale) && !leases.forget(&stale) && !lost.is_cancelled());
        assert_eq!(
            (leases.over(at(100)), leases.due(at(100)).len()),
            (vec![], 1)
        );
        leases.end(&ours);
        assert_eq!(
            (leases.over(at(100)), leases.due(at(100))),
            (vec![ours.clone()], vec![])
        );
        assert!(!leases.cancel(&ours), "it has ended");
    }
}
