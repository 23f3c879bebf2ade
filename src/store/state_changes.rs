//! The gate for commands that change a state without a plan: `import` and `state rm`. As for an apply, one
//! transaction checks the apply locks, the pull and the project lock, and stores that the run has begun. A crash can
//! never lead to a second change (P3), and after an error nothing passes the gate (P6).
//!
//! As long as the run is under way, its pull keeps the lock, even if the pull is closed. The end of the run releases
//! the lock if the pull was closed meanwhile (P7).

use super::locks::taken_event;
use super::news::{News, announce_in_tx};
use super::plans::{discard_in_tx, plans_close_in_tx};
use super::pulls::pull_share_in_tx;
use super::runs::{run_finish_in_tx, run_start_in_tx};
use super::{LockAttempt, LockChange, Result, Store, TakeLock};
use crate::model::{
    ApplyLock, Cause, Lock, LockEventKind, ProjectKey, ProjectOutcome, PullRef, PullState, RunId,
};

/// Outcome of a request to change a state.
#[must_use]
#[derive(Debug)]
pub enum StateGate {
    /// The change may run.
    Granted {
        /// True if the lock was taken for this change. Nobody needs it if the change does nothing.
        fresh_lock: bool,
    },
    /// All of these apply locks prevent the change.
    ApplyLocked(Vec<ApplyLock>),
    /// Another pull holds the project lock.
    HeldBy(Box<Lock>),
    /// The pull is not open.
    PullClosed,
}

/// End of a change of a state.
#[derive(Clone, Copy, Debug)]
pub struct StateChanged<'a> {
    pub outcome: ProjectOutcome,
    /// One line about the end, for pages.
    pub message: Option<&'a str>,
    /// True if the state may have changed, so that an earlier plan is worthless.
    pub touched: bool,
    /// True if the lock has to be released, because it was taken only for this change and the change did nothing.
    pub release_lock: bool,
}

impl Store {
    /// Requests to change the state of a project in a run that has not ended, under the requested lock, if locks are
    /// used. Fails for a store whose lease was lost or has expired.
    pub async fn state_change_begin(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        run: RunId,
        attempt: Option<&LockAttempt<'_>>,
    ) -> Result<StateGate> {
        let mut tx = self.begin().await?;
        self.fence_not_expired_in_tx(&mut tx).await?;
        let in_way = self
            .apply_locks_in_way_in_tx(&mut tx, &pull.repo, &project.dir)
            .await?;
        if !in_way.is_empty() {
            return Ok(StateGate::ApplyLocked(in_way));
        }
        let taken = match attempt {
            None if pull_share_in_tx(&mut tx, pull).await? != Some(PullState::Open) => {
                return Ok(StateGate::PullClosed);
            }
            None => None,
            Some(attempt) => match self.lock_take_in_tx(&mut tx, attempt).await? {
                TakeLock::Taken(lock) => Some(taken_event(&lock, attempt.cause)),
                TakeLock::AlreadyOurs(_) => None,
                TakeLock::HeldBy(lock) => return Ok(StateGate::HeldBy(Box::new(lock))),
                TakeLock::PullClosed => return Ok(StateGate::PullClosed),
            },
        };
        if !run_start_in_tx(&mut tx, run, self.now()).await? {
            return Err(sqlx::Error::Protocol(
                "the run of this change has ended or does not exist".to_owned(),
            ));
        }
        let fresh_lock = taken.is_some();
        self.lock_events_in_tx(&mut tx, taken.into_iter().collect())
            .await?;
        announce_in_tx(&mut tx, News::Run(run)).await?;
        tx.commit()
            .await
            .map(|()| StateGate::Granted { fresh_lock })
    }

    /// Ends the run and cleans up: discards a worthless plan, releases a lock that nobody needs, and releases
    /// everything of a pull that was closed meanwhile. `false`: the run had ended before.
    pub async fn state_change_end(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        run: RunId,
        end: &StateChanged<'_>,
        cause: &Cause,
    ) -> Result<bool> {
        let (mut change, at) = LockChange::begin(self, pull, cause).await?;
        if !run_finish_in_tx(&mut change.tx, run, end.outcome, end.message, self.now()).await? {
            return Ok(false);
        }
        if end.touched {
            discard_in_tx(&mut change.tx, pull, project).await?;
        }
        if at != Some(PullState::Open) {
            plans_close_in_tx(&mut change.tx, pull).await?;
            change.free_all(pull, LockEventKind::Released).await?;
        } else if end.release_lock {
            change.free_project(pull, project).await?;
        }
        announce_in_tx(&mut change.tx, News::Run(run)).await?;
        change.commit().await.map(|()| true)
    }
}
