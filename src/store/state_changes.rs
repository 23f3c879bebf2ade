//! The gate of what changes a state without a plan: `import` and `state rm`. The apply locks, the pull and the project
//! lock are checked and the run is put on record as begun in one transaction, as for an apply: a crash can never lead to
//! a second time (P3), and an error anywhere lets nothing through (P6).
//!
//! As long as the run is under way, the lock stays with its pull, whatever becomes of that; whoever ends the run gives it
//! back if the pull was closed meanwhile (P7).

use super::locks::taken_event;
use super::news::{News, announce_in_tx};
use super::plans::{discard_in_tx, plans_discard_in_tx};
use super::pulls::pull_share_in_tx;
use super::runs::{run_finish_in_tx, run_start_in_tx};
use super::{LockChange, LockWish, Result, Store, TakeLock};
use crate::model::{
    ApplyLock, Cause, Lock, LockEventKind, ProjectKey, ProjectOutcome, PullRef, PullState, RunId,
};

/// What came of asking to change a state.
#[must_use]
#[derive(Debug)]
pub enum StateGate {
    /// Go; the lock was taken for this, and not held before.
    Granted {
        /// Nobody needs the lock if nothing comes of it.
        fresh_lock: bool,
    },
    /// Applies are stopped there by all of these.
    ApplyLocked(Vec<ApplyLock>),
    /// Another pull holds the project lock.
    HeldBy(Box<Lock>),
    /// The pull is closed.
    PullClosed,
}

/// How a change of a state ended.
#[derive(Clone, Copy, Debug)]
pub struct StateChanged<'a> {
    /// How.
    pub outcome: ProjectOutcome,
    /// One line about it, for pages.
    pub message: Option<&'a str>,
    /// Whether the state may be another one now: then a plan made before is worth nothing.
    pub touched: bool,
    /// Whether the lock goes back, because it was taken for this alone and nothing came of it.
    pub give_back: bool,
}

impl Store {
    /// Asks to change the state of a project in a run that has not ended, under the lock that is wished for, if any is
    /// needed. A store under a lease that was lost, or that has ended by time, gets an error.
    pub async fn state_change_begin(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        run: RunId,
        wish: Option<&LockWish<'_>>,
    ) -> Result<StateGate> {
        let mut tx = self.begin().await?;
        self.fence_not_expired_in_tx(&mut tx).await?;
        let in_way = self
            .apply_locks_in_way_in_tx(&mut tx, &pull.repo, &project.dir)
            .await?;
        if !in_way.is_empty() {
            return Ok(StateGate::ApplyLocked(in_way));
        }
        let taken = match wish {
            None if pull_share_in_tx(&mut tx, pull).await? != Some(PullState::Open) => {
                return Ok(StateGate::PullClosed);
            }
            None => None,
            Some(wish) => match self.lock_take_in_tx(&mut tx, wish).await? {
                TakeLock::Taken(lock) => Some(taken_event(&lock, wish.cause)),
                TakeLock::AlreadyOurs(_) => None,
                TakeLock::HeldBy(lock) => return Ok(StateGate::HeldBy(Box::new(lock))),
                TakeLock::PullClosed => return Ok(StateGate::PullClosed),
            },
        };
        if !run_start_in_tx(&mut tx, run, self.now()).await? {
            return Err(sqlx::Error::Protocol(
                "the run of this change has ended or was never kept".to_owned(),
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

    /// The run ended, and with it everything that follows: a plan that is worth nothing any more, a lock that nobody
    /// needs, and everything of a pull that was closed meanwhile. `false` when the run had ended before.
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
            plans_discard_in_tx(&mut change.tx, pull).await?;
            change.free_all(pull, LockEventKind::Released).await?;
        } else if end.give_back {
            change.free_project(pull, project).await?;
        }
        announce_in_tx(&mut change.tx, News::Run(run)).await?;
        change.commit().await.map(|()| true)
    }
}
