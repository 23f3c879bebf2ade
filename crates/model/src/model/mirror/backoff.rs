//! Waits between attempts: they double after every failure, up to a ceiling, and are spread over time.

use chrono::TimeDelta;

use super::FailureKind;
use crate::model::plan::Sha256Digest;

/// A share of a wait, from 0 to 255 of 256 parts. It spreads events that would otherwise happen at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter(pub u8);

impl Jitter {
    /// Returns the same jitter for the same text, evenly spread over many texts.
    pub fn of(text: &str) -> Self {
        let digest = Sha256Digest::of(text.as_bytes()).to_string();
        Self(
            digest
                .get(..2)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .unwrap_or_default(),
        )
    }

    /// Returns three quarters of a time and up to another quarter, in whole milliseconds.
    pub fn spread(self, time: TimeDelta) -> TimeDelta {
        let spread = time * 3 / 4 + time / 4 / 256 * i32::from(self.0);
        TimeDelta::milliseconds(spread.num_milliseconds())
    }
}

/// Returns the wait after a number of failures in a row, at least one. Never more than the longest wait of the kind.
pub(super) fn wait(kind: FailureKind, failures: u32, jitter: Jitter) -> TimeDelta {
    let doublings = failures.saturating_sub(1).min(16);
    let full = kind
        .first_wait()
        .checked_mul(1 << doublings)
        .unwrap_or(TimeDelta::MAX);
    jitter.spread(full.min(kind.longest_wait()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minutes(kind: FailureKind, jitter: u8) -> Vec<i64> {
        (1..=11)
            .map(|n| wait(kind, n, Jitter(jitter)).num_seconds() / 60)
            .collect()
    }

    #[test]
    fn waits_double_up_to_a_ceiling() {
        assert_eq!(
            minutes(FailureKind::Unreachable, 0),
            [0, 0, 1, 3, 6, 12, 24, 45, 45, 45, 45]
        );
        assert_eq!(
            minutes(FailureKind::Unreachable, 255),
            [0, 0, 1, 3, 7, 15, 31, 59, 59, 59, 59]
        );
        assert_eq!(
            minutes(FailureKind::NotFound, 0),
            [7, 15, 30, 60, 120, 240, 480, 960, 1080, 1080, 1080]
        );
    }

    #[test]
    fn jitter_is_the_same_for_the_same_text_and_spread_over_many() {
        assert_eq!(Jitter::of("a"), Jitter::of("a"));
        let low = (0..1000)
            .filter(|n| Jitter::of(&n.to_string()).0 < 128)
            .count();
        assert!((400..600).contains(&low), "{low}");
    }

    proptest! {
        #[test]
        fn a_wait_never_shrinks_and_never_passes_the_ceiling(
            kind in prop::sample::select(FailureKind::ALL), n in 1_u32.., jitter: u8,
        ) {
            let (now, then) = (wait(kind, n, Jitter(jitter)), wait(kind, n.saturating_add(1), Jitter(jitter)));
            prop_assert!(now <= then && then <= kind.longest_wait());
            prop_assert!(now >= kind.first_wait() * 3 / 4);
        }
    }
}
