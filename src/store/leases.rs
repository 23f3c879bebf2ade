//! Claims with an end time on anything exclusive.

use chrono::{DateTime, Utc};

use super::{Result, Store, execute, on_tx};

/// A claim that is held until `until`.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Lease {
    /// What is claimed, such as `repository_sync:{replica}:{repository}`.
    pub key: String,
    /// Who claims it; unique per claim. One that begins with the name of a replica and a slash ends with that replica.
    pub holder: String,
    /// When it ends unless renewed, by the clock of the judge (see `store::time`).
    pub until: DateTime<Utc>,
}

impl Store {
    /// Takes the lease if it is free or has ended. One statement decides.
    pub async fn lease_take(&self, key: &str, holder: &str, until: DateTime<Utc>) -> Result<Option<Lease>> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let lease = on_tx!(&mut tx, db => sqlx::query_as::<_, Lease>(
            "INSERT INTO leases (key, holder, until) VALUES ($1, $2, $3) \
             ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, until = excluded.until \
             WHERE leases.until <= $4 RETURNING key, holder, until")
            .bind(key).bind(holder).bind(skew.of(until)).bind(skew.of(self.now())).fetch_optional(db))?;
        tx.commit().await.map(|()| lease)
    }

    /// Moves the end of a lease that is still held; `false` when it is not ours any more.
    pub async fn lease_renew(&self, lease: &Lease, until: DateTime<Utc>) -> Result<bool> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let rows = execute!(
            &mut tx,
            "UPDATE leases SET until = $1 WHERE key = $2 AND holder = $3",
            skew.of(until),
            &lease.key,
            &lease.holder,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Gives a lease back; harmless when it is not ours any more.
    pub async fn lease_release(&self, lease: &Lease) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(&mut tx, "DELETE FROM leases WHERE key = $1 AND holder = $2", &lease.key, &lease.holder)?;
        tx.commit().await
    }

    /// Who holds a lease that has not ended.
    pub async fn lease_get(&self, key: &str) -> Result<Option<Lease>> {
        let now = self.skew().await?.of(self.now());
        super::on_pool!(self, db => sqlx::query_as::<_, Lease>(
            "SELECT key, holder, until FROM leases WHERE key = $1 AND until > $2")
            .bind(key).bind(now).fetch_optional(db))
    }
}
