//! Checks the lease of a job in every transaction that the job writes.
//!
//! A replica that was paused, or cut off from the database, does not know that another replica took over its work. A
//! store [`Store::under`] a lease begins every transaction with a check that the lease (job, holder, attempt) is
//! still the current one. The answer stays true until the transaction ends. So work that was taken over writes
//! nothing. The check also cancels that work, before anybody else notices.
//!
//! A transaction of one statement checks the lease in that statement (`one_statement`).

use sqlx_postgres::PgArguments;
use tokio_util::sync::CancellationToken;

use super::jobs::{END, EndOfJob, add};
use super::{JobLease, JobState, Result, Store, Tx, execute, on_pool, on_tx};
use crate::model::JobId;

/// The lease that every write depends on.
#[derive(Clone, Debug)]
pub(super) struct LeaseFence {
    job: JobId,
    holder: String,
    attempt: i64,
    lost: CancellationToken,
    /// Records that the end of the job was written.
    end: EndOfJob,
    /// True if the next change of one statement ends the job.
    is_last: bool,
}

/// Error for work whose job another replica has taken over; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the job was lost: another replica took it over")]
pub struct LeaseLost;

impl LeaseLost {
    /// Returns true if a lost lease is among the causes of an error.
    pub fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.any(|cause| cause.downcast_ref::<Self>().is_some())
    }
}

macro_rules! held_sql {
    ($rest:literal) => {
        concat!(
            "SELECT CAST(1 AS BIGINT) FROM jobs WHERE id = $1 AND lease_holder = $2 AND attempt = $3 ",
            "AND state = 'running'",
            $rest
        )
    };
}

impl Store {
    /// Returns a store for the work of one job. It writes only while the lease is held, and cancels `lost` when it
    /// finds the lease lost.
    #[must_use]
    pub fn under(&self, lease: &JobLease, lost: CancellationToken) -> Self {
        let (job, holder, attempt) = (lease.id, lease.holder.clone(), lease.attempt);
        Self {
            fence: Some(LeaseFence {
                job,
                holder,
                attempt,
                lost,
                end: lease.end.clone(),
                is_last: false,
            }),
            ..self.clone()
        }
    }

    /// Returns a store for the last write of a job, which ends the job in the same transaction. So the end costs no
    /// transaction of its own, and the job does not run again if the server dies between the two. Only changes of one
    /// statement (`one_statement`) do that. Nothing may fail after it, because the job is not retried.
    #[must_use]
    pub fn last_of_job(&self) -> Self {
        let mut store = self.clone();
        if let Some(fence) = &mut store.fence {
            fence.is_last = true;
        }
        store
    }

    /// Returns true if the next change of one statement ends the job.
    pub(super) fn ends_job(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.is_last)
    }

    /// Ends the job as a part of its last change, whose transaction has checked the lease.
    pub(super) async fn job_end_in_tx(&self, tx: &mut Tx) -> Result<()> {
        let Some(fence) = self.fence.as_ref().filter(|fence| fence.is_last) else {
            return Ok(());
        };
        execute!(
            tx,
            END,
            JobState::Done,
            None::<&str>,
            self.now(),
            fence.job,
            &fence.holder,
            fence.attempt,
        )
        .map(drop)
    }

    /// Records that the last change of the job was committed, and the end of the job with it.
    pub(super) fn note_end_of_job(&self) {
        if let Some(fence) = self.fence.as_ref().filter(|fence| fence.is_last) {
            fence.end.note();
        }
    }

    /// Checks that the lease is still held, before something is done that no transaction can undo. Always succeeds
    /// for a store that is not under a lease.
    pub async fn lease_check(&self) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let held = on_pool!(self, db => sqlx::query_scalar::<_, i64>(held_sql!(""))
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).fetch_optional(db))?;
        fence.check(held.is_some())
    }

    /// Checks the lease, as the first statement of every writing transaction.
    pub(super) async fn fence_in_tx(&self, tx: &mut Tx) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let sql = match tx {
            Tx::Sqlite(_) => held_sql!(""),
            // Others of the same job may write at the same time, but nobody can take the job over meanwhile.
            Tx::Postgres(_) => held_sql!(" FOR SHARE"),
        };
        let held = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(sql)
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).fetch_optional(db))?;
        fence.check(held.is_some())
    }

    /// Appends the lease to the parameters of a statement that checks it. They are NULL for a store that is not under a
    /// lease.
    pub(super) fn fence_arguments(&self, arguments: &mut PgArguments) -> Result<()> {
        let fence = self.fence.as_ref();
        add(arguments, fence.map(|fence| fence.job))?;
        add(arguments, fence.map(|fence| fence.holder.clone()))?;
        add(arguments, fence.map(|fence| fence.attempt))
    }

    /// Checks the result of such a statement.
    pub(super) fn fence_check(&self, held: bool) -> Result<()> {
        self.fence
            .as_ref()
            .map_or(Ok(()), |fence| fence.check(held))
    }

    /// Checks that the lease has not expired, for work that must not begin if another replica could take it over at
    /// any moment.
    pub(super) async fn fence_not_expired_in_tx(&self, tx: &mut Tx) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let now = self.clock_offset_in_tx(tx).await?.of(self.now());
        let held = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(held_sql!(" AND lease_until > $4"))
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).bind(now).fetch_optional(db))?;
        fence.check(held.is_some())
    }
}

impl LeaseFence {
    fn check(&self, held: bool) -> Result<()> {
        if held {
            return Ok(());
        }
        self.lost.cancel();
        Err(sqlx::Error::AnyDriverError(Box::new(LeaseLost)))
    }
}
