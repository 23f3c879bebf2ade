//! What this process holds, and how old the word is that it still does. No waiting, no database.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;

use crate::store::Hold;

/// A lease is renewed this often at least, however long it lasts, so that a holder soon hears when its lease was given
/// back by hand.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// What the database did not take is told again after so long, or after a tenth of the time of a short lease.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// A moment on two clocks: the one that the database judges by, which people and daemons may turn back, and the one of
/// the machine, which stands still in a suspended machine and in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    clock: DateTime<Utc>,
    machine: Instant,
}

impl Moment {
    /// Now, by the clock.
    pub fn new(clock: DateTime<Utc>) -> Self {
        Self {
            clock,
            machine: Instant::now(),
        }
    }

    /// By the clock.
    pub const fn clock(self) -> DateTime<Utc> {
        self.clock
    }

    /// How long ago another moment was, by whichever clock says longer.
    fn since(self, other: Self) -> Duration {
        let by_clock = (self.clock - other.clock).to_std().unwrap_or_default();
        by_clock.max(self.machine.saturating_duration_since(other.machine))
    }
}

/// What is to be done about a lease of a given age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Young,
    /// It is to be renewed.
    Due,
    /// Work under it has to stop: soon others may take it.
    Old,
}

/// `age` counts from before the last renewal was asked for, `time` is how long the lease lasts from there.
fn judge(age: Duration, time: Duration) -> Age {
    if age >= time / 10 * 9 {
        Age::Old
    } else if age >= (time / 3).min(RENEW_WITHIN) {
        Age::Due
    } else {
        Age::Young
    }
}

/// Where the work under a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It goes on, or has not begun.
    Open,
    /// It was told to stop and has not ended yet.
    Cancelled,
    /// It has ended; the database may not have heard so.
    Over,
}

struct Entry {
    holder: String,
    time: Duration,
    renewed: Moment,
    /// When the database was last told something about it.
    told: Option<Moment>,
    stage: Stage,
    lost: CancellationToken,
}

/// Who in this process has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ours {
    pub holder: String,
    /// How long it lasts unless it is renewed.
    pub left: Duration,
}

/// The leases of this process, by key.
#[derive(Default)]
pub(super) struct Registry(Mutex<HashMap<String, Entry>>);

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease is going to be asked for, unless this process has it or asks for it already.
    pub fn enter(
        &self,
        hold: &Hold,
        time: Duration,
        asked: Moment,
        lost: &CancellationToken,
    ) -> Result<(), Ours> {
        match self.lock().entry(hold.key.clone()) {
            hash_map::Entry::Occupied(there) => {
                let Entry {
                    holder,
                    time,
                    renewed,
                    ..
                } = there.get();
                Err(Ours {
                    holder: holder.clone(),
                    left: time.saturating_sub(asked.since(*renewed)),
                })
            }
            hash_map::Entry::Vacant(free) => {
                let (holder, lost) = (hold.holder.clone(), lost.clone());
                free.insert(Entry {
                    holder,
                    time,
                    renewed: asked,
                    told: None,
                    stage: Stage::Open,
                    lost,
                });
                Ok(())
            }
        }
    }

    fn with<T: Default>(&self, hold: &Hold, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entries = self.lock();
        entries
            .get_mut(&hold.key)
            .filter(|entry| entry.holder == hold.holder)
            .map(change)
            .unwrap_or_default()
    }

    /// A renewal that was asked for then was granted.
    pub fn renewed(&self, hold: &Hold, asked: Moment) {
        self.with(hold, |entry| entry.renewed = asked);
    }

    /// The work has ended.
    pub fn end(&self, hold: &Hold) {
        self.with(hold, |entry| {
            if entry.stage != Stage::Over {
                (entry.stage, entry.told) = (Stage::Over, None);
            }
        });
    }

    /// The database knows that it is free; `false`: it had been told so before.
    pub fn forget(&self, hold: &Hold) -> bool {
        let mut entries = self.lock();
        let is_there = entries
            .get(&hold.key)
            .is_some_and(|entry| entry.holder == hold.holder);
        is_there && entries.remove(&hold.key).is_some()
    }

    /// Tells the work to stop; `false`: it was told before, or has ended.
    pub fn cancel(&self, hold: &Hold) -> bool {
        self.with(hold, Entry::cancel)
    }

    /// Tells all work to stop, and which of it had not been told.
    pub fn cancel_all(&self) -> Vec<Hold> {
        self.cancel_those(|_| true)
    }

    /// Tells work to stop whose lease could not be renewed for too long.
    pub fn cancel_old(&self, now: Moment) -> Vec<Hold> {
        self.cancel_those(|entry| judge(now.since(entry.renewed), entry.time) == Age::Old)
    }

    fn cancel_those(&self, which: impl Fn(&Entry) -> bool) -> Vec<Hold> {
        let mut entries = self.lock();
        let told = |(key, entry): (&String, &mut Entry)| {
            (which(entry) && entry.cancel()).then(|| entry.hold(key))
        };
        entries.iter_mut().filter_map(told).collect()
    }

    /// What is to be renewed, and for how long each.
    pub fn due(&self, now: Moment) -> Vec<(Hold, Duration)> {
        let is_due = |entry: &Entry| judge(now.since(entry.renewed), entry.time) != Age::Young;
        self.to_tell(now, |entry| entry.stage == Stage::Open && is_due(entry))
    }

    /// Leases whose work has ended and of which the database may not have heard.
    pub fn over(&self, now: Moment) -> Vec<Hold> {
        let over = self.to_tell(now, |entry| entry.stage == Stage::Over);
        over.into_iter().map(|(hold, _)| hold).collect()
    }

    /// Those of them that the database was not told of a moment ago; from now on it was.
    fn to_tell(&self, now: Moment, which: impl Fn(&Entry) -> bool) -> Vec<(Hold, Duration)> {
        let mut entries = self.lock();
        let tell = |(key, entry): (&String, &mut Entry)| {
            (which(entry) && entry.tell(now)).then(|| (entry.hold(key), entry.time))
        };
        entries.iter_mut().filter_map(tell).collect()
    }
}

impl Entry {
    fn hold(&self, key: &str) -> Hold {
        Hold {
            key: key.to_owned(),
            holder: self.holder.clone(),
        }
    }

    /// `false`: that was done a moment ago.
    fn tell(&mut self, now: Moment) -> bool {
        let wait = AGAIN_AFTER.min(self.time / 10);
        let is_time = self.told.is_none_or(|told| now.since(told) >= wait);
        if is_time {
            self.told = Some(now);
        }
        is_time
    }

    fn cancel(&mut self) -> bool {
        let is_open = self.stage == Stage::Open;
        if is_open {
            self.stage = Stage::Cancelled;
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

    fn at(seconds: i64) -> Moment {
        Moment {
            clock: DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds),
            machine: base(),
        }
    }

    fn base() -> Instant {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now)
    }

    fn hold(key: &str, holder: &str) -> Hold {
        Hold {
            key: key.to_owned(),
            holder: holder.to_owned(),
        }
    }

    fn entered(registry: &Registry, hold: &Hold, time: Duration) -> CancellationToken {
        let lost = CancellationToken::new();
        registry.enter(hold, time, at(0), &lost).unwrap();
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
                judge(Duration::from_secs(age), Duration::from_secs(time)),
                expected,
                "{age} of {time}"
            );
        }
    }

    proptest! {
        /// Whoever renews every time it is due, within a tenth of the time, is never told to stop.
        #[test]
        fn there_is_time_to_renew_between_due_and_old(millis in 100_u64..100_000_000, late in 0_u64..=50) {
            let time = Duration::from_millis(millis);
            let due = (time / 3).min(RENEW_WITHIN);
            prop_assert_eq!(judge(due, time), Age::Due);
            prop_assert_eq!(judge(due + time * u32::try_from(late).unwrap() / 100, time), Age::Due);
            prop_assert_eq!(judge(time, time), Age::Old);
        }
    }

    #[test]
    fn of_two_clocks_the_one_counts_that_says_longer() {
        let later = Moment {
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
        let registry = Registry::default();
        let (ours, other) = (hold("k", "a/1"), hold("k", "a/2"));
        let lost = entered(&registry, &ours, HOUR);
        let busy = registry.enter(&other, HOUR, at(600), &lost).unwrap_err();
        assert_eq!(
            busy,
            Ours {
                holder: "a/1".to_owned(),
                left: Duration::from_mins(50)
            }
        );
        registry.end(&ours);
        assert!(
            registry.enter(&other, HOUR, at(0), &lost).is_err(),
            "the database has not heard of it"
        );
        assert!(!registry.forget(&other) && registry.forget(&ours) && !registry.forget(&ours));
        assert!(registry.enter(&other, HOUR, at(0), &lost).is_ok());
    }

    #[test]
    fn what_is_due_is_renewed_and_what_is_old_is_told_to_stop_once() {
        let registry = Registry::default();
        let (long, short) = (hold("long", "a/1"), hold("short", "a/2"));
        let (long_lost, short_lost) = (
            entered(&registry, &long, HOUR),
            entered(&registry, &short, Duration::from_secs(20)),
        );
        assert_eq!(registry.due(at(5)), []);
        assert_eq!(
            registry.due(at(7)),
            [(short.clone(), Duration::from_secs(20))]
        );
        assert_eq!(registry.due(at(12)).len(), 2);
        registry.renewed(&long, at(12));
        assert_eq!(registry.cancel_old(at(18)), std::slice::from_ref(&short));
        assert!(short_lost.is_cancelled() && !long_lost.is_cancelled());
        assert_eq!(
            (registry.cancel_old(at(18)), registry.cancel(&short)),
            (vec![], false)
        );
        assert_eq!(
            registry.due(at(18)),
            [],
            "what was told to stop is not renewed"
        );
        assert_eq!(registry.cancel_all(), [long]);
        assert!(long_lost.is_cancelled());
    }

    #[test]
    fn what_the_database_does_not_take_is_told_again_after_a_moment() {
        let registry = Registry::default();
        let (long, short) = (hold("long", "a/1"), hold("short", "a/2"));
        entered(&registry, &long, HOUR);
        entered(&registry, &short, Duration::from_secs(10));
        let due = |seconds| -> Vec<String> {
            let mut keys: Vec<String> = registry
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
        registry.renewed(&short, at(5));
        assert_eq!(
            (due(10), due(11)),
            (
                vec!["long".to_owned(), "short".to_owned()],
                vec!["short".to_owned()]
            )
        );
        assert_eq!(due(12), ["long", "short"]);
        registry.end(&long);
        assert_eq!(
            (
                registry.over(at(12)).len(),
                registry.over(at(13)).len(),
                registry.over(at(14)).len()
            ),
            (1, 0, 1)
        );
    }

    #[test]
    fn a_word_about_another_claim_of_the_same_key_changes_nothing() {
        let registry = Registry::default();
        let (ours, stale) = (hold("k", "a/2"), hold("k", "a/1"));
        let lost = entered(&registry, &ours, HOUR);
        registry.end(&stale);
        registry.renewed(&stale, at(3000));
        assert!(!registry.cancel(&stale) && !registry.forget(&stale) && !lost.is_cancelled());
        assert_eq!(
            (registry.over(at(100)), registry.due(at(100)).len()),
            (vec![], 1)
        );
        registry.end(&ours);
        assert_eq!(
            (registry.over(at(100)), registry.due(at(100))),
            (vec![ours.clone()], vec![])
        );
        assert!(!registry.cancel(&ours), "it has ended");
    }
}
