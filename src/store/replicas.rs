//! The servers on this database. Each one announces itself with every renewal of its leases. A server that ends says
//! so, and one that dies is noticed when its lease has expired. The times are those of the deadline clock (see
//! `store::time`).

use chrono::{DateTime, Utc};

use super::jobs::job_renew_in_tx;
use super::leases::leases_end_in_tx;
use super::news::{News, announce_in_tx};
use super::{Result, Store, execute, on_pool};
use crate::model::{JobId, text_enum};

text_enum! {
    /// State that a replica announces.
    pub enum Presence {
        /// The replica takes work.
        Serving = "serving",
        /// The replica finishes the work it has begun, and takes no more.
        Stopping = "stopping",
        /// The replica has ended cleanly.
        Ended = "ended",
    }
}

/// Identity of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaId {
    /// Name that signs its leases. No other replica has it, not even an earlier one on the same machine.
    pub name: String,
    /// Name of the machine.
    pub host: String,
    /// Address that it listens on, as `host:port`.
    pub address: String,
    /// Release of the program.
    pub version: String,
}

/// State of a replica, from its announcement and its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica takes work.
    Alive,
    /// The replica was requested to stop, and finishes the work it has begun.
    Stopping,
    /// The replica has ended cleanly.
    Ended,
    /// The replica was silent for as long as a lease lasts: dead, paused or cut off. Others take over its work.
    Gone,
}

impl ReplicaState {
    /// Returns the name for metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
            Self::Gone => "gone",
        }
    }

    /// Returns the state of a replica from its announcement, which is valid until `until`.
    pub(super) fn at(said: Presence, until: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        match said {
            Presence::Ended => Self::Ended,
            Presence::Serving | Presence::Stopping if until < now => Self::Gone,
            Presence::Serving => Self::Alive,
            Presence::Stopping => Self::Stopping,
        }
    }

    /// Returns true if the replica still works.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Alive | Self::Stopping)
    }
}

/// A replica as pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    pub id: ReplicaId,
    pub state: ReplicaState,
    /// Time when the replica started.
    pub started_at: DateTime<Utc>,
    /// Time of its last announcement.
    pub beat_at: DateTime<Utc>,
}

impl Store {
    /// Announces a replica, and renews its lease and those of its jobs in one transaction. Returns the jobs that it
    /// still holds.
    pub async fn replica_beat(
        &self,
        replica: &ReplicaId,
        presence: Presence,
        working: &[JobId],
        until: DateTime<Utc>,
    ) -> Result<Vec<JobId>> {
        let mut tx = self.begin().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let (now, until) = (offset.of(self.now()), offset.of(until));
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

    /// Ends a replica cleanly: all leases that it still holds are released at once. Returns the number of
    /// requeued jobs.
    pub async fn replica_end(&self, name: &str) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = self.clock_offset_in_tx(&mut tx).await?.of(self.now());
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

    /// Marks all replicas as ended. For a database that is not shared, where none of them can be running any more.
    pub async fn replica_end_all(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(&mut tx, "UPDATE replicas SET state = 'ended'")?;
        leases_end_in_tx(&mut tx, self.now()).await?;
        tx.commit().await
    }

    /// Deletes leases that have ended, and those of replicas that have ended or are gone.
    pub async fn replica_end_leases(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = self.clock_offset_in_tx(&mut tx).await?.of(self.now());
        let ended = leases_end_in_tx(&mut tx, now).await?;
        tx.commit().await.map(|()| ended)
    }

    /// Lists all known replicas, the youngest first.
    pub async fn replica_list(&self) -> Result<Vec<ReplicaRow>> {
        let now = self.clock_offset().await?.of(self.now());
        let rows = on_pool!(self, db => sqlx::query_as::<_, ReplicaColumns>(
            "SELECT name, host, version, address, state, started_at, beat_at, lease_until FROM replicas \
             ORDER BY started_at DESC, name DESC LIMIT 1000").fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// Deletes replicas whose lease expired before the given time.
    pub async fn replica_prune(&self, before: DateTime<Utc>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let before = self.clock_offset_in_tx(&mut tx).await?.of(before);
        let rows = execute!(
            &mut tx,
            "DELETE FROM replicas WHERE lease_until < $1",
            before
        )?;
        tx.commit().await.map(|()| rows)
    }
}

#[derive(sqlx::FromRow)]
struct ReplicaColumns {
    name: String,
    host: String,
    version: String,
    address: String,
    state: Presence,
    started_at: DateTime<Utc>,
    beat_at: DateTime<Utc>,
    lease_until: DateTime<Utc>,
}

impl ReplicaColumns {
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
