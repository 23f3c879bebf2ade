//! Time limits of locks (`repo_locks.ttl`): when a pull is warned, and when its lock is released.

use chrono::{DateTime, TimeDelta, Utc};

/// Action that the time limit of a lock requires now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Wait,
    /// Warn the pull that the lock expires at this time.
    Warn(DateTime<Utc>),
    /// Release the lock now.
    End,
}

/// Returns the action for a lock whose pull was last active at `active_at` and was warned at `warned_at`.
///
/// A pull is warned when four fifths of the limit are over. There is always at least a fifth of the limit between the
pub fn limit(
    active_at: DateTime<Utc>,
    warned_at: Option<DateTime<Utc>>,
    ttl: TimeDelta,
    now: DateTime<Utc>,
) -> Limit {
    let grace = ttl / 5;
    let ends_at = |warned: DateTime<Utc>| (active_at + ttl).max(warned + grace);
    match warned_at {
        None if now < active_at + (ttl - grace) => Limit::Wait,
        None => Limit::Warn(ends_at(now)),
        Some(warned) if now < ends_at(warned) => Limit::Wait,
        Some(_) => Limit::End,
    }
}

/// Returns the shortest time between two recorded activities for a time limit: a twentieth of it, at most an hour.
pub fn renew_interval(ttl: Option<TimeDelta>) -> TimeDelta {
    let hour = TimeDelta::hours(1);
    ttl.map_or(hour, |ttl| hour.min(ttl / 20))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    #[test]
    fn a_pull_is_warned_at_four_fifths_and_its_lock_ends_at_the_limit() {
        let ttl = TimeDelta::minutes(100);
        for (now, warned, expected) in [
            (79, None, Limit::Wait),
            (80, None, Limit::Warn(at(100))),
            (81, Some(80), Limit::Wait),
            (99, Some(80), Limit::Wait),
            (100, Some(80), Limit::End),
            // The server was away, or the limit is new: there is time left after the warning.
            (95, None, Limit::Warn(at(115))),
            (500, None, Limit::Warn(at(520))),
            (519, Some(500), Limit::Wait),
            (520, Some(500), Limit::End),
        ] {
            assert_eq!(
                limit(at(0), warned.map(at), ttl, at(now)),
                expected,
                "minute {now}, warned {warned:?}"
            );
        }
    }

    proptest! {
        /// However rarely somebody checks, a lock ends after one warning, not before its limit, and never sooner after the
        /// warning than a fifth of the limit.
        #[test]
        fn a_lock_ends_after_its_warning(ttl in 1_i64..500_000, pauses in prop::collection::vec(1_i64..600_000, 1..60)) {
            let limit_of = TimeDelta::seconds(ttl);
            let (mut now, mut warned, mut promised) = (at(0), None, None);
            for pause in pauses {
                now += TimeDelta::seconds(pause);
                match limit(at(0), warned, limit_of, now) {
                    Limit::Wait => {}
                    Limit::Warn(ends) => {
                        prop_assert!(warned.is_none() && ends >= now + limit_of / 5 && ends >= at(0) + limit_of);
                        (warned, promised) = (Some(now), Some(ends));
                    }
                    Limit::End => {
                        prop_assert!(promised.is_some_and(|ends| now >= ends));
                        return Ok(());
                    }
                }
                if let Some(ends) = promised {
                    prop_assert!(now < ends, "it should have ended");
                }
            }
        }
    }

    #[test]
    fn activity_is_noted_often_enough_for_the_limit() {
        for (ttl, expected) in [(None, 60), (Some(100), 5), (Some(72 * 60), 60)] {
            assert_eq!(
                renew_interval(ttl.map(TimeDelta::minutes)),
                TimeDelta::minutes(expected),
                "{ttl:?}"
            );
        }
    }
}
