//! Grants the exclusive right to change a mirror: one holder at a time for each repository below a data directory.

use std::time::Duration;

use super::CheckoutError;
use crate::leases::{HeldLease, LeaseAttempt, LeaseKey, Leases};
use crate::model::RepoId;

/// Leases of the mirrors below one data directory (`--sync-lease-timeout`).
#[derive(Clone)]
pub struct MirrorLeases {
    leases: Leases,
    home: String,
    time: Duration,
}

impl MirrorLeases {
    /// Creates the leases. `home` names the data directory; `time` is how long a lease lasts unless it is renewed.
    pub fn new(leases: Leases, home: String, time: Duration) -> Self {
        Self { leases, home, time }
    }

    /// Obtains the lease of the mirror of a repository for the given purpose.
    ///
    /// # Errors
    ///
    /// Another holder has the lease ([`CheckoutError::Busy`]), or the database did not answer.
    pub async fn obtain(&self, repo: &RepoId, purpose: &str) -> Result<HeldLease, CheckoutError> {
        let key = LeaseKey::repository_sync(&self.home, repo);
        match self.leases.obtain(&key, purpose, self.time).await? {
            LeaseAttempt::Held(held) => Ok(held),
            LeaseAttempt::Busy {
                key,
                holder,
                until: _,
            } => Err(CheckoutError::Busy {
                key: key.to_string(),
                holder,
            }),
        }
    }
}
