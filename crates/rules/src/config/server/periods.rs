//! Periods of the reconcilers that the administrator can change.

use std::time::Duration;

use super::section::section;

section! {
    /// Time between two runs of a reconciler.
    #[derive(Copy)]
    pub struct Periods in Storage {
        /// Interval at which unused claims on repositories are removed (docs/ownership.md).
        pub claims: Duration = time("claims-gc-interval").or("10m"),

        /// Interval at which the registry reads new records from other deployments (docs/replication.md).
        pub registry_sync: Duration = time("registry-sync-interval").or("30s"),
    }
}

impl Periods {
    /// Periods without a setting.
    pub const DEFAULT: Self = Self {
        claims: Duration::from_mins(10),
        registry_sync: Duration::from_secs(30),
    };
}
