//! Tracks the checkouts and mirrors that are in use, so that nothing is removed while a command needs it.
//!
//! A run holds its checkout from its start to its end, but a command uses checkouts and the mirror before, between
//! and after its runs. So a command registers when it begins and when it ends. A task that frees disk space never
//! waits, and skips everything that is in use. Data directories are not shared between servers, so this process knows
//! all uses.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::git::DiskPart;
use crate::model::{PullRef, RepoId};

/// Gates of the pull requests and repositories in use.
#[derive(Debug, Default)]
pub(super) struct CheckoutUses {
    pulls: KeyedGates<PullRef>,
    repos: KeyedGates<RepoId>,
}

/// Use of a pull request by a command. The use lasts as long as this value.
#[derive(Debug)]
#[must_use = "the use ends when it is dropped"]
pub struct PullInUse {
    _pull: OwnedRwLockReadGuard<()>,
    _repo: OwnedRwLockReadGuard<()>,
}

impl CheckoutUses {
    /// Begins to use the checkouts of a pull request and the mirror of its repository. Waits only for their removal.
    pub async fn enter(&self, pull: &PullRef) -> PullInUse {
        let (of_pull, of_repo) = (self.pulls.gate(pull), self.repos.gate(&pull.repo));
        PullInUse {
            _repo: of_repo.read_owned().await,
            _pull: of_pull.read_owned().await,
        }
    }

    /// Returns the right to remove a part, unless it is in use.
    pub fn alone(&self, part: &DiskPart) -> Option<OwnedRwLockWriteGuard<()>> {
        let gate = match part {
            DiskPart::Checkouts(pull) => self.pulls.gate(pull),
            DiskPart::Mirror(repo) => self.repos.gate(repo),
        };
        gate.try_write_owned().ok()
    }
}

/// One gate per key. A gate exists at least as long as it is in use.
#[derive(Debug)]
struct KeyedGates<K>(Mutex<HashMap<K, Arc<RwLock<()>>>>);

impl<K> Default for KeyedGates<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedGates<K> {
    /// Number of gates above which unused ones are removed.
    const MOST: usize = 1000;

    fn gate(&self, key: &K) -> Arc<RwLock<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() > Self::MOST {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        Arc::clone(gates.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pull(number: i64) -> PullRef {
        PullRef {
            repo: "github.com/acme/infra".parse().unwrap(),
            subject: crate::model::Subject::pull(number),
        }
    }

    #[tokio::test]
    async fn what_is_used_is_not_removed_and_other_pulls_are() {
        let uses = CheckoutUses::default();
        let (mirror, one, two) = (
            DiskPart::Mirror(pull(1).repo),
            DiskPart::Checkouts(pull(1)),
            DiskPart::Checkouts(pull(2)),
        );
        let (first, second) = (uses.enter(&pull(1)).await, uses.enter(&pull(1)).await);
        drop(first);
        assert!(uses.alone(&one).is_none() && uses.alone(&mirror).is_none());
        assert!(uses.alone(&two).is_some(), "it is another pull's");
        drop(second);
        assert!(uses.alone(&one).is_some() && uses.alone(&mirror).is_some());
    }

    #[tokio::test]
    async fn whoever_begins_waits_for_a_removal() {
        let uses = CheckoutUses::default();
        let removal = uses.alone(&DiskPart::Checkouts(pull(1))).unwrap();
        let at = pull(1);
        let mut entering = std::pin::pin!(uses.enter(&at));
        assert!(futures::poll!(entering.as_mut()).is_pending());
        drop(removal);
        drop(entering.await);
    }

    #[test]
    fn gates_that_nobody_uses_are_forgotten() {
        let gates = KeyedGates::default();
        for key in 0..5000 {
            gates.gate(&key);
        }
        assert!(gates.0.lock().unwrap().len() <= KeyedGates::<i32>::MOST + 1);
    }
}
