//! Queues tasks of the same process that change a mirror, before they request the lease that excludes other servers.
//! A lease is not waited for. Without the gates, a command would be refused because its own server works on the
//! mirror.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedMutexGuard, watch};

use crate::model::RepoId;

/// Gates of all mirrors.
#[derive(Debug, Default)]
pub(super) struct MirrorGates(Mutex<HashMap<RepoId, Arc<GateEntry>>>);

#[derive(Debug, Default)]
struct GateEntry {
    gate: Arc<tokio::sync::Mutex<()>>,
    /// Number of tasks that wait at the gate.
    waiting: watch::Sender<usize>,
}

/// Entry of a waiting task, until it is dropped.
struct GateWaiter(Arc<GateEntry>);

impl Drop for GateWaiter {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|many| *many -= 1);
    }
}

/// Right to change a mirror among the tasks of this process, until it is dropped.
#[must_use]
#[derive(Debug)]
pub struct MirrorGate(#[expect(dead_code, reason = "it is held for its drop")] OwnedMutexGuard<()>);

impl MirrorGates {
    /// Waits until no other task works on the mirror.
    pub(super) async fn wait(&self, repo: &RepoId) -> MirrorGate {
        let place = self.of(repo);
        place.waiting.send_modify(|many| *many += 1);
        let waiting = GateWaiter(Arc::clone(&place));
        let gate = Arc::clone(&place.gate).lock_owned().await;
        drop(waiting);
        MirrorGate(gate)
    }

    /// Returns when a task waits at the gate of a mirror.
    async fn wanted(&self, repo: &RepoId) {
        let mut waiting = self.of(repo).waiting.subscribe();
        // The sender lives as long as the gates.
        waiting.wait_for(|many| *many > 0).await.ok();
    }

    /// Does work on a mirror that can be aborted at any time. If a task waits at its gate, aborts the work and
    /// returns `None`. Work that is `overdue` is not aborted.
    pub(super) async fn unless_wanted<T>(
        &self,
        repo: &RepoId,
        overdue: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.wanted(repo), if !overdue => None,
        }
    }

    /// Takes the gate, or returns `None` if another task works on the mirror.
    pub(super) fn attempt(&self, repo: &RepoId) -> Option<MirrorGate> {
        Arc::clone(&self.of(repo).gate)
            .try_lock_owned()
            .ok()
            .map(MirrorGate)
    }

    fn of(&self, repo: &RepoId) -> Arc<GateEntry> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(repo.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn upkeep_steps_aside_for_whoever_waits_until_it_is_overdue() {
        let (gates, repo) = (MirrorGates::default(), "h/acme/infra".parse().unwrap());
        let gate = gates.wait(&repo).await;
        assert_eq!(
            gates
                .unless_wanted(&repo, false, std::future::ready(1))
                .await,
            Some(1)
        );
        let mut next = Box::pin(gates.wait(&repo));
        assert!(next.as_mut().now_or_never().is_none());
        assert_eq!(
            gates
                .unless_wanted(&repo, false, std::future::pending::<u8>())
                .await,
            None
        );
        let (end, work) = tokio::sync::oneshot::channel();
        let mut overdue = Box::pin(gates.unless_wanted(&repo, true, work));
        assert!(overdue.as_mut().now_or_never().is_none(), "it goes on");
        end.send(2).unwrap();
        assert_eq!(overdue.await, Some(Ok(2)));
        drop(gate);
    }

    #[tokio::test]
    async fn whoever_is_at_a_mirror_hears_that_somebody_waits() {
        let (gates, repo) = (MirrorGates::default(), "h/acme/infra".parse().unwrap());
        let gate = gates.wait(&repo).await;
        assert!(gates.wanted(&repo).now_or_never().is_none() && gates.attempt(&repo).is_none());
        let mut next = Box::pin(gates.wait(&repo));
        assert!(next.as_mut().now_or_never().is_none());
        gates.wanted(&repo).await;
        drop(gate);
        let gate = next.await;
        assert!(gates.wanted(&repo).now_or_never().is_none());
        drop(gate);
        assert!(gates.attempt(&repo).is_some());
    }
}
