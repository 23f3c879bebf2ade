//! Whoever changes a mirror waits here for those of the same process, before the lease that keeps others away is asked for.
//! A lease is not waited for, so without this a command would be refused because its own server is at the mirror.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::model::RepoId;

/// A gate for each mirror.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<RepoId, Arc<tokio::sync::Mutex<()>>>>);

/// The right to change a mirror, among those of this process, until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Gate(#[expect(dead_code, reason = "it is held for its drop")] OwnedMutexGuard<()>);

impl Gates {
    /// Waits until nobody else is at the mirror.
    pub(super) async fn wait(&self, repo: &RepoId) -> Gate {
        Gate(self.of(repo).lock_owned().await)
    }

    /// `None`: somebody is at the mirror.
    pub(super) fn attempt(&self, repo: &RepoId) -> Option<Gate> {
        self.of(repo).try_lock_owned().ok().map(Gate)
    }

    fn of(&self, repo: &RepoId) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(repo.clone()).or_default())
    }
}
