//! Who works with what on this disk right now, so that nothing is removed under the feet of anybody.
//!
//! A run holds its checkout from its start to its end, but a command uses checkouts and the mirror before, between and
//! after its runs. So it says when it begins and when it ends; whoever wants to make room never waits, and leaves alone
//! what is in use. Data directories are not shared between servers, so this process knows it all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::git::DiskPart;
use crate::model::{PullRef, RepoId};

/// Who works with what.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pulls: Gates<PullRef>,
    repos: Gates<RepoId>,
}

/// A command works on a pull as long as this lives.
#[derive(Debug)]
#[must_use = "the use ends when it is dropped"]
pub struct InUse {
    _pull: OwnedRwLockReadGuard<()>,
    _repo: OwnedRwLockReadGuard<()>,
}

impl Uses {
    /// Begins to use the checkouts of a pull and the mirror of its repository; waits only for their removal.
    pub async fn enter(&self, pull: &PullRef) -> InUse {
        let (of_pull, of_repo) = (self.pulls.gate(pull), self.repos.gate(&pull.repo));
        InUse {
            _repo: of_repo.read_owned().await,
            _pull: of_pull.read_owned().await,
        }
    }

    /// The right to remove a part, unless somebody uses it.
    pub fn alone(&self, part: &DiskPart) -> Option<OwnedRwLockWriteGuard<()>> {
        let gate = match part {
            DiskPart::Checkouts(pull) => self.pulls.gate(pull),
            DiskPart::Mirror(repo) => self.repos.gate(repo),
        };
        gate.try_write_owned().ok()
    }
}

/// A gate per thing, as long as somebody stands in it.
#[derive(Debug)]
struct Gates<K>(Mutex<HashMap<K, Arc<RwLock<()>>>>);

impl<K> Default for Gates<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Gates<K> {
    /// So many gates may stand open that nobody uses.
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
            number: crate::model::PullNumber(number),
        }
    }

    #[tokio::test]
    async fn what_is_used_is_not_removed_and_other_pulls_are() {
        let uses = Uses::default();
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
        let uses = Uses::default();
        let removal = uses.alone(&DiskPart::Checkouts(pull(1))).unwrap();
        let at = pull(1);
        let mut entering = std::pin::pin!(uses.enter(&at));
        assert!(futures::poll!(entering.as_mut()).is_pending());
        drop(removal);
        drop(entering.await);
    }

    #[test]
    fn gates_that_nobody_uses_are_forgotten() {
        let gates = Gates::default();
        for key in 0..5000 {
            gates.gate(&key);
        }
        assert!(gates.0.lock().unwrap().len() <= Gates::<i32>::MOST + 1);
    }
}
