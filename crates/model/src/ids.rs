//! Sources of identifiers, passed in from outside so that tests can control them.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// A source of unique identifiers.
pub trait Ids: Send + Sync + 'static {
    /// Returns a new identifier. Later ones sort after earlier ones.
    fn next(&self) -> Uuid;
}

/// Version 7 identifiers: time-ordered, and unguessable enough to be names. Never used as secrets.
#[derive(Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that makes identifiers"
    )]
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// A source of predictable identifiers for tests: `00000000-0000-7000-8000-000000000001`, `…2`, and so on.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn next(&self) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Uuid::from_u64_pair(0x7000, 0x8000_0000_0000_0000 | n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_ids_are_well_formed() {
        let ids = CountingIds::default();
        assert_eq!(
            ids.next().to_string(),
            "00000000-0000-7000-8000-000000000001"
        );
        assert_eq!(
            ids.next().to_string(),
            "00000000-0000-7000-8000-000000000002"
        );
    }
}
