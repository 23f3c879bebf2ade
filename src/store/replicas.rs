//! The servers on this database. Each says with every renewal of its leases that it is there; one that ends says so,
//! and one that dies is missed when its lease has ended. The times are those of the judge (see `store::time`).

use chrono::{DateTime, Utc};

use super::jobs::job_renew_in_tx;
use super::leases::leases_end_in_tx;
use super::news::{News, announce_in_tx};
use super::{Result, Store, execute, on_pool};
use crate::model::{JobId, text_enum};

text_enum! {
    /// What a replica says of itself.
    pub enum Presence {
        /// It takes work.
        Serving = "serving",
        /// It ends what it has begun, and takes nothing more.
        Stopping = "stopping",
        /// It has ended in good order.
        Ended = "ended",
    }
}

/// Who a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaId {
    /// Signs its leases; unlike that of any other replica, also of earlier ones on the same machine.
    pub name: String,
    /// The machine.
    pub host: String,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Its release.
    pub version: String,
}

/// What is to be thought of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It takes work.
    Alive,
    /// It was told to stop and ends what it has begun.
    Stopping,
    /// It ended in good order.
    Ended,
    /// It was not heard of for as long as a lease lasts: dead, paused or cut off. Its work is taken over.
    Gone,
}

impl ReplicaState {
    /// As metrics and the API name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
            Self::Gone => "gone",
        }
    }

    /// Of one that said this of itself, and whose word holds until then.
    pub(super) fn at(said: Presence, until: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        match said {
            Presence::Ended => Self::Ended,
            Presence::Serving | Presence::Stopping if until < now => Self::Gone,
            Presence::Serving => Self::Alive,
            Presence::Stopping => Self::Stopping,
        }
    }

    /// Whether it still does something.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Alive | Self::Stopping)
    }
}

/// A replica as pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Who.
    pub id: ReplicaId,
    /// What is to be thought of it.
    pub state: ReplicaState,
    /// When it came.
    pub started_at: DateTime<Utc>,
    /// When it was heard of last.
    pub beat_at: DateTime<Utc>,
}

impl Store {
    /// A replica is there, and holds what it works on until then: its own lease and those of these jobs are one
    /// transaction. Tells which of them it still holds.
    pub async fn replica_beat(
        &self,
        replica: &ReplicaId,
        presence: Presence,
        working: &[JobId],
        until: DateTime<Utc>,
    ) -> Result<Vec<JobId>> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let (now, until) = (skew.of(self.now()), skew.of(until));
        execute!(
            &mut tx,
            "INSERT INTO replicas (name, host, version, address, state, started_at, beat_at, lease_until) \
             VALUES ($1, $2, $3, $4, $5, $6, $6, $7) ON CONFLICT (name) DO UPDATE SET state = excluded.state, \
             beat_at = excluded.beat_at, lease_until = excluded.lease_until",
            &replica.name,
            &replica.host,
            &replica.version,
            &replica.address,
            presence,
            now,
            until,
        )?;
        let held = job_renew_in_tx(&mut tx, &replica.name, working, until).await?;
        tx.commit().await.map(|()| held)
    }

    /// A replica ends in good order: whatever it still holds is free at once. Tells how many jobs that were.
    pub async fn replica_end(&self, name: &str) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = self.skew_in_tx(&mut tx).await?.of(self.now());
        execute!(
            &mut tx,
            "UPDATE replicas SET state = 'ended', beat_at = $1 WHERE name = $2",
            now,
            name
        )?;
        let jobs = execute!(
            &mut tx,
            "UPDATE jobs SET state = 'queued', lease_holder = NULL, lease_until = NULL, \
             last_error = 'the server ended before the job was finished' \
             WHERE state = 'running' AND lease_holder = $1",
            name,
        )?;
        leases_end_in_tx(&mut tx, now).await?;
        announce_in_tx(&mut tx, News::Jobs).await?;
        tx.commit().await.map(|()| jobs)
    }

    /// On a database that is not shared: whatever servers there were, none of them runs any more.
    pub async fn replica_end_all(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(&mut tx, "UPDATE replicas SET state = 'ended'")?;
        leases_end_in_tx(&mut tx, self.now()).await?;
        tx.commit().await
    }

    /// Removes leases that have ended, and those of replicas that have ended or are gone.
    pub async fn replica_end_leases(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = self.skew_in_tx(&mut tx).await?.of(self.now());
        let ended = leases_end_in_tx(&mut tx, now).await?;
        tx.commit().await.map(|()| ended)
    }

    /// Every replica that is remembered, the youngest first.
    pub async fn replica_list(&self) -> Result<Vec<ReplicaRow>> {
        let now = self.skew().await?.of(self.now());
        let rows = on_pool!(self, db => sqlx::query_as::<_, Row>(
            "SELECT name, host, version, address, state, started_at, beat_at, lease_until FROM replicas \
             ORDER BY started_at DESC, name DESC LIMIT 1000").fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// Forgets replicas that ended or went before the given time.
    pub async fn replica_prune(&self, before: DateTime<Utc>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let before = self.skew_in_tx(&mut tx).await?.of(before);
        let rows = execute!(
            &mut tx,
            "DELETE FROM replicas WHERE lease_until < $1",
            before
        )?;
        tx.commit().await.map(|()| rows)
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    host: String,
    version: String,
    address: String,
    state: Presence,
    started_at: DateTime<Utc>,
    beat_at: DateTime<Utc>,
    lease_until: DateTime<Utc>,
}

impl Row {
    fn at(self, now: DateTime<Utc>) -> ReplicaRow {
        let state = ReplicaState::at(self.state, self.lease_until, now);
        let id = ReplicaId {
            name: self.name,
            host: self.host,
            address: self.address,
            version: self.version,
        };
        ReplicaRow {
            id,
            state,
            started_at: self.started_at,
            beat_at: self.beat_at,
        }
    }
}
