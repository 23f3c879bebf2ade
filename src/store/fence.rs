//! The proof of lease in every write of a job.
//!
//! A replica that was paused, or cut off from the database, does not know that its work was taken over. A store
//! [`Store::under`] a lease begins every transaction with the question whether that lease (job, holder, attempt) is
//! still the one that counts, and keeps the answer true until the transaction ends; so nothing is written by work that
//! somebody else does by now. Whoever is refused is also told to stop, before anybody else notices.

use tokio_util::sync::CancellationToken;

use super::{JobLease, Result, Store, Tx, on_pool, on_tx};
use crate::model::JobId;

/// The lease that everything is written under.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    job: JobId,
    holder: String,
    attempt: i64,
    lost: CancellationToken,
}

/// Somebody else has the job by now; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the job was lost: another replica took it over")]
pub struct LeaseLost;

impl LeaseLost {
    /// Whether this is why something was not written.
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
    /// The same store for the work of one job: it writes only while the lease is held, and cancels `lost` when it
    /// finds that it is not.
    #[must_use]
    pub fn under(&self, lease: &JobLease, lost: CancellationToken) -> Self {
        let (job, holder, attempt) = (lease.id, lease.holder.clone(), lease.attempt);
        Self {
            fence: Some(Fence {
                job,
                holder,
                attempt,
                lost,
            }),
            ..self.clone()
        }
    }

    /// Asks whether the lease is still held, before something is done that no transaction can take back. Of a store
    /// that is not under a lease there is nothing to ask.
    pub async fn lease_check(&self) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let held = on_pool!(self, db => sqlx::query_scalar::<_, i64>(held_sql!(""))
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).fetch_optional(db))?;
        fence.judge(held.is_some())
    }

    /// The first statement of every writing transaction.
    pub(super) async fn fence_in_tx(&self, tx: &mut Tx) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let sql = match tx {
            Tx::Sqlite(_) => held_sql!(""),
            // Others of the same job may write at the same time, but nobody takes it over meanwhile.
            Tx::Postgres(_) => held_sql!(" FOR SHARE"),
        };
        let held = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(sql)
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).fetch_optional(db))?;
        fence.judge(held.is_some())
    }

    /// For what must not even begin on a lease that somebody may take over at any moment.
    pub(super) async fn fence_not_expired_in_tx(&self, tx: &mut Tx) -> Result<()> {
        let Some(fence) = &self.fence else {
            return Ok(());
        };
        let now = self.skew_in_tx(tx).await?.of(self.now());
        let held = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(held_sql!(" AND lease_until > $4"))
            .bind(fence.job).bind(&fence.holder).bind(fence.attempt).bind(now).fetch_optional(db))?;
        fence.judge(held.is_some())
    }
}

impl Fence {
    fn judge(&self, held: bool) -> Result<()> {
        if held {
            return Ok(());
        }
        self.lost.cancel();
        Err(sqlx::Error::AnyDriverError(Box::new(LeaseLost)))
    }
}
