//! A held lease as a value: its holder may work, and dropping the value releases the lease.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::LeasesInner;
use crate::store::LeaseHold;

/// Result of work under a lease.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome<T> {
    /// The work ended under the lease.
    Done(T),
    /// The lease was lost and the work was dropped at that point, so that others may do it now. The log has the
    /// reason.
    Lost,
}

impl<T> LeaseOutcome<T> {
    /// Returns the result of the work, or `None` if it was cut off.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Lost => None,
        }
    }
}

/// A lease that is held and renewed until this value is dropped.
pub struct HeldLease {
    inner: Arc<LeasesInner>,
    hold: LeaseHold,
    lost: CancellationToken,
    is_open: bool,
}

impl HeldLease {
    pub(super) fn new(inner: Arc<LeasesInner>, hold: LeaseHold, lost: CancellationToken) -> Self {
        Self {
            inner,
            hold,
            lost,
            is_open: true,
        }
    }

    /// Returns the key and the holder, for rows that name the holder of their work.
    pub fn hold(&self) -> &LeaseHold {
        &self.hold
    }

    /// Returns a token that is cancelled when the lease is lost, for work that has to end itself in an orderly way.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Does the work under the lease and releases the lease afterwards, even if the work failed. When the lease is
    /// lost, the work is dropped at that point. It must not leave threads or programs behind that continue.
    pub async fn run<F: Future>(mut self, work: F) -> LeaseOutcome<F::Output> {
        let outcome = self.work(work).await;
        self.end().await;
        outcome
    }

    /// Does the work of a turn that one server of a group takes in each period. After a success, the lease stays
    /// until it expires, which is the time of the next turn. After a failure it is released, because another server
    /// may do better at once.
    pub async fn run_turn<T, E, F>(mut self, work: F) -> LeaseOutcome<Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let outcome = self.work(work).await;
        if matches!(outcome, LeaseOutcome::Done(Ok(_))) {
            self.is_open = false;
            self.inner.local.forget(&self.hold);
        } else {
            self.end().await;
        }
        outcome
    }

    /// Releases the lease without any work.
    pub async fn release(mut self) {
        self.end().await;
    }

    /// Polls the work until it ends or the lease is known to be lost. In that case the work is dropped before this
    /// returns.
    async fn work<F: Future>(&self, work: F) -> LeaseOutcome<F::Output> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => LeaseOutcome::Lost,
            done = work => LeaseOutcome::Done(done),
        }
    }

    async fn end(&mut self) {
        self.inner.end(&self.hold).await;
        // The ticks repeat a release that did not reach the database.
        self.is_open = false;
    }
}

/// Releases the lease if the work was dropped or panicked.
impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        self.inner.local.end(&self.hold);
        if let Ok(runtime) = Handle::try_current() {
            let (inner, hold) = (Arc::clone(&self.inner), self.hold.clone());
            drop(runtime.spawn(async move { inner.end(&hold).await }));
        }
    }
}
