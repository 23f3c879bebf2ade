//! A lease that is held, as a value: whoever has it works, and dropping it gives it back.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::store::Hold;

/// What came of work under a lease.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome<T> {
    /// It came to its end under the lease.
    Done(T),
    /// The lease was lost: the work was dropped where it was, and others may do it now. Why is in the log.
    Lost,
}

impl<T> LeaseOutcome<T> {
    /// What the work came to; `None`: it was cut off.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Lost => None,
        }
    }
}

/// A lease that is held, and renewed, until this is dropped.
pub struct HeldLease {
    inner: Arc<Inner>,
    hold: Hold,
    lost: CancellationToken,
    is_open: bool,
}

impl HeldLease {
    pub(super) fn new(inner: Arc<Inner>, hold: Hold, lost: CancellationToken) -> Self {
        Self {
            inner,
            hold,
            lost,
            is_open: true,
        }
    }

    /// The key and the holder, for rows that say who works on them.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Cancelled when the lease is lost, for work that has to see to its end by itself.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Does something under the lease, and gives it back whatever comes of it. When the lease is lost the work is dropped
    /// where it is, so it must not leave threads or programs behind that go on.
    pub async fn run<F: Future>(mut self, work: F) -> LeaseOutcome<F::Output> {
        let outcome = self.work(work).await;
        self.give_back().await;
        outcome
    }

    /// The same for a turn that one server of a group takes in each period: after a success the lease is left to end by
    /// its time, which is when the next turn is. After a failure another may do better at once.
    pub async fn run_turn<T, E, F>(mut self, work: F) -> LeaseOutcome<Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let outcome = self.work(work).await;
        if matches!(outcome, LeaseOutcome::Done(Ok(_))) {
            self.is_open = false;
            self.inner.registry.forget(&self.hold);
        } else {
            self.give_back().await;
        }
        outcome
    }

    /// Gives it back without having done anything.
    pub async fn release(mut self) {
        self.give_back().await;
    }

    /// From when the loss is known the work is not moved on any more. It is dropped before this returns.
    async fn work<F: Future>(&self, work: F) -> LeaseOutcome<F::Output> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => LeaseOutcome::Lost,
            done = work => LeaseOutcome::Done(done),
        }
    }

    async fn give_back(&mut self) {
        self.inner.give_back(&self.hold).await;
        // What the database has not heard is told again by the ticks.
        self.is_open = false;
    }
}

/// The work was dropped or panicked.
impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        self.inner.registry.end(&self.hold);
        if let Ok(runtime) = Handle::try_current() {
            let (inner, hold) = (Arc::clone(&self.inner), self.hold.clone());
            drop(runtime.spawn(async move { inner.give_back(&hold).await }));
        }
    }
}
