//! Leases: claims with an end time on anything exclusive.
//!
//! A lease is held while its end has not come *and* its holder may still work. A holder that is signed by a replica
//! (`{replica}/…`) loses its leases as soon as that replica has ended. The same applies if nobody heard of the
//! replica for as long as its own lease lasts. The statement that takes a lease decides whether it is free.
//!
//! Times are those of the deadline clock (see `store::time`).

use chrono::{DateTime, TimeDelta, Utc};

use super::of_repos::{listed, of_repos_postgres, of_repos_sqlite};
use super::replicas::{Presence, ReplicaState};
use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{Cause, Concern, LockEventKind, NewLockEvent, RepoId, minute};

/// Time that a working holder has to stop after somebody released its lease by hand. It is longer than a replica
/// takes to hear of the release, and longer than a replica that cannot hear of it continues to work.
pub const TIME_TO_LET_GO: TimeDelta = TimeDelta::seconds(60);
/// Key and holder of a claim, which identify it for renewing and releasing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseHold {
    /// Key of the exclusive thing, such as `repository_sync:{replica}:{repository}`.
    pub key: String,
    /// Holder, unique per claim. A holder that begins with the name of a replica and a slash ends with that replica.
    pub holder: String,
}

/// Request for a lease.
#[derive(Clone, Copy, Debug)]
pub struct NewLease<'a> {
    /// Key and future holder.
    pub hold: &'a LeaseHold,
    /// Purpose, as a clause that people can read.
    pub purpose: &'a str,
    /// End of the lease, unless it is renewed.
    pub until: DateTime<Utc>,
}

/// A claim that is held until `until`.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Lease {
    pub key: String,
    pub holder: String,
    /// Purpose, as a clause that people can read.
    pub purpose: String,
    /// Time when the lease was taken.
    pub taken_at: DateTime<Utc>,
    /// Time when the holder last renewed the lease.
    pub renewed_at: DateTime<Utc>,
    /// End of the lease, unless it is renewed.
    pub until: DateTime<Utc>,
    /// Time when somebody released the lease by hand. It cannot be renewed any more.
    pub revoked_at: Option<DateTime<Utc>>,
}

impl Lease {
    /// Returns the key and the holder, for renewing or releasing the lease.
    pub fn hold(&self) -> LeaseHold {
        LeaseHold {
            key: self.key.clone(),
            holder: self.holder.clone(),
        }
    }
}

/// Outcome of a request for a lease.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeLease {
    /// The caller has the lease.
    Taken(Lease),
    /// Another holder has the lease.
    HeldBy(Lease),
}

/// A lease as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub lease: Lease,
    /// Replica that holds the lease, with its state; `None`: the holder is no known replica.
    pub replica: Option<(String, ReplicaState)>,
}

/// Outcome of releasing a lease by hand.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreeLease {
    /// The holder was gone, so the lease is free.
    Freed(Lease),
    /// The holder may be at work and was requested to stop. The lease is free when it has stopped, at the latest at
    /// its new end.
    Told(Lease),
    /// The holder was already requested to stop.
    AlreadyTold(Lease),
    /// Nobody holds the lease.
    NotHeld,
}

macro_rules! columns {
    ($table:literal) => {
        concat!(
            $table,
            "key, ",
            $table,
            "holder, ",
            $table,
            "purpose, ",
            $table,
            "taken_at, ",
            $table,
            "renewed_at, ",
            $table,
            "until, ",
            $table,
            "revoked_at"
        )
    };
}

/// Condition for a lease under which nobody works any more. `$1` is now.
macro_rules! is_dead {
    () => {
        "(leases.until <= $1 OR EXISTS (SELECT 1 FROM replicas r WHERE (r.state = 'ended' OR r.lease_until < $1) \
         AND substr(leases.holder, 1, length(r.name) + 1) = r.name || '/'))"
    };
}

const TAKE: &str = concat!(
    "INSERT INTO leases (key, holder, purpose, taken_at, renewed_at, until) VALUES ($2, $3, $4, $1, $1, $5) \
     ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, purpose = excluded.purpose, \
     taken_at = excluded.taken_at, renewed_at = excluded.renewed_at, until = excluded.until, revoked_at = NULL WHERE ",
    is_dead!(),
    " RETURNING ",
    columns!("")
);
const OF_KEY: &str = concat!("SELECT ", columns!(""), " FROM leases WHERE key = $1");
/// Lists leases by key. PostgreSQL would sort the keys by the rules of a language, so the order is a parameter.
macro_rules! list {
    ($from:expr, $which:expr, $order:literal, $limit:literal) => {
        concat!(
            "SELECT ",
            columns!("leases."),
            ", r.name AS replica, r.state AS presence, r.lease_until AS heard_until FROM ",
            $from,
            " LEFT JOIN replicas r ON substr(leases.holder, 1, length(r.name) + 1) = r.name || '/' WHERE ",
            $which,
            " ORDER BY ",
            $order,
            " LIMIT ",
            $limit
        )
    };
}

/// Leases of mirrors with their repository, which follows the second colon of the key (see `leases::LeaseKey`). Each
/// database has another function for finding a text in a text.
macro_rules! of_mirrors {
    ($find:literal) => {
        concat!(
            "(SELECT *, substr(key, 17 + ",
            $find,
            "(substr(key, 17), ':')) AS repo FROM leases \
             WHERE substr(key, 1, 16) = 'repository_sync:' AND key LIKE '%:%:%') AS leases"
        )
    };
}

const LIST: [&str; 2] = [
    list!("leases", "leases.until > $1", "leases.key", "$2"),
    list!(
        "leases",
        "leases.until > $1",
        "leases.key COLLATE \"C\"",
        "$2"
    ),
];
const OF_REPOS: [&str; 2] = [
    list!(
        of_mirrors!("instr"),
        concat!(of_repos_sqlite!(), " AND leases.until > $2"),
        "leases.key",
        "$3"
    ),
    list!(
        of_mirrors!("strpos"),
        concat!(of_repos_postgres!(), " AND leases.until > $2"),
        "leases.key COLLATE \"C\"",
        "$3"
    ),
];
const END_DEAD: &str = concat!("DELETE FROM leases WHERE ", is_dead!());
const FREE_DEAD: &str = concat!(
    "DELETE FROM leases WHERE key = $2 AND ($3 = '' OR holder = $3) AND ",
    is_dead!(),
    " RETURNING ",
    columns!("")
);
const REVOKE: &str = concat!(
    "UPDATE leases SET revoked_at = $1, until = CASE WHEN until < $2 THEN until ELSE $2 END \
     WHERE key = $3 AND ($4 = '' OR holder = $4) AND revoked_at IS NULL RETURNING ",
    columns!("")
);

impl Store {
    /// Maximum number of listed leases. A page that shows as many says that there may be more.
    pub const LEASES_LISTED: u16 = 1000;

    /// Takes a lease that is free, has ended, or has a holder that is gone. One statement decides.
    pub async fn lease_take(&self, new: NewLease<'_>) -> Result<TakeLease> {
        let mut tx = self.begin().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let taken = on_tx!(&mut tx, db => sqlx::query_as::<_, Lease>(TAKE)
            .bind(offset.of(self.now())).bind(&new.hold.key).bind(&new.hold.holder).bind(free_text(new.purpose))
            .bind(offset.of(new.until)).fetch_optional(db))?;
        let outcome = match taken {
            Some(lease) => TakeLease::Taken(lease),
            // The statement has locked the conflicting row, so it still exists.
            None => TakeLease::HeldBy(
                on_tx!(&mut tx, db => sqlx::query_as::<_, Lease>(OF_KEY).bind(&new.hold.key).fetch_one(db))?,
            ),
        };
        tx.commit().await.map(|()| outcome)
    }

    /// Moves the end of a lease that is still held. `false`: the caller does not hold it any more, or somebody
    /// released it by hand.
    pub async fn lease_renew(&self, hold: &LeaseHold, until: DateTime<Utc>) -> Result<bool> {
        let mut tx = self.begin().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let rows = execute!(
            &mut tx,
            "UPDATE leases SET until = $1, renewed_at = $2 WHERE key = $3 AND holder = $4 AND revoked_at IS NULL",
            offset.of(until),
            offset.of(self.now()),
            &hold.key,
            &hold.holder,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Releases a lease. `false`, which is harmless: the caller did not hold it any more.
    pub async fn lease_release(&self, hold: &LeaseHold) -> Result<bool> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM leases WHERE key = $1 AND holder = $2";
        let rows = execute!(&mut tx, sql, &hold.key, &hold.holder)?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Deletes all leases whose keys begin with a text, no matter who holds them, and returns their number. The
    /// caller must know that none of the holders is alive.
    pub async fn lease_end_all_of(&self, beginning: &str) -> Result<u64> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM leases WHERE substr(key, 1, length(CAST($1 AS TEXT))) = $1";
        let rows = execute!(&mut tx, sql, beginning)?;
        tx.commit().await.map(|()| rows)
    }

    /// Lists leases that have not ended, by key. Includes those whose holder is gone and that nobody has taken yet.
    pub async fn lease_list(&self) -> Result<Vec<LeaseRow>> {
        let now = self.clock_offset().await?.of(self.now());
        let sql = self.either(LIST[0], LIST[1]);
        let rows = on_pool!(self, db => sqlx::query_as::<_, ListRow>(sql).bind(now)
            .bind(i64::from(Self::LEASES_LISTED)).fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// Lists leases like [`Self::lease_list`], but only those of the mirrors of these repositories.
    pub async fn lease_list_of_repos(&self, repos: &[RepoId]) -> Result<Vec<LeaseRow>> {
        let now = self.clock_offset().await?.of(self.now());
        let (sql, repos) = (self.either(OF_REPOS[0], OF_REPOS[1]), listed(repos));
        let rows = on_pool!(self, db => sqlx::query_as::<_, ListRow>(sql)
            .bind(repos).bind(now).bind(i64::from(Self::LEASES_LISTED)).fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// Releases a lease by hand, of any holder or only of the given one, and adds an event to the audit log. A holder
    /// that may be at work is requested to stop, and keeps the lease until it has stopped. `repo` is the repository
    /// that the work is about, if there is one.
    pub async fn lease_free(
        &self,
        key: &str,
        holder: Option<&str>,
        repo: Option<&RepoId>,
        cause: &Cause,
    ) -> Result<FreeLease> {
        let mut tx = self.begin().await?;
        let now = self.clock_offset_in_tx(&mut tx).await?.of(self.now());
        let outcome = free_in_tx(&mut tx, now, key, holder.unwrap_or_default()).await?;
        let events = match &outcome {
            FreeLease::Freed(lease) | FreeLease::Told(lease) => {
                vec![freed_event(lease, repo, cause)]
            }
            FreeLease::AlreadyTold(_) | FreeLease::NotHeld => Vec::new(),
        };
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| outcome)
    }
}

/// Deletes leases that have ended, and those of replicas that are gone.
pub(super) async fn leases_end_in_tx(tx: &mut Tx, now: DateTime<Utc>) -> Result<u64> {
    execute!(tx, END_DEAD, now)
}

async fn free_in_tx(tx: &mut Tx, now: DateTime<Utc>, key: &str, holder: &str) -> Result<FreeLease> {
    let freed = on_tx!(&mut *tx, db => sqlx::query_as::<_, Lease>(FREE_DEAD)
        .bind(now).bind(key).bind(holder).fetch_optional(db))?;
    if let Some(lease) = freed {
        return Ok(if lease.until <= now {
            FreeLease::NotHeld
        } else {
            FreeLease::Freed(lease)
        });
    }
    let end = kept_time(now + TIME_TO_LET_GO);
    let told = on_tx!(&mut *tx, db => sqlx::query_as::<_, Lease>(REVOKE)
        .bind(now).bind(end).bind(key).bind(holder).fetch_optional(db))?;
    if let Some(lease) = told {
        return Ok(FreeLease::Told(lease));
    }
    let there = on_tx!(tx, db => sqlx::query_as::<_, Lease>(OF_KEY).bind(key).fetch_optional(db))?;
    let meant = there.filter(|lease| holder.is_empty() || lease.holder == holder);
    Ok(meant.map_or(FreeLease::NotHeld, FreeLease::AlreadyTold))
}

/// Makes the event with holder, start and purpose of the lease. They are stored nowhere else once the lease is
/// deleted.
fn freed_event(lease: &Lease, repo: Option<&RepoId>, cause: &Cause) -> NewLockEvent {
    let Lease {
        key,
        holder,
        purpose,
        taken_at,
        ..
    } = lease;
    let reason = format!(
        "{}; lease {key}, held by {holder} since {}: {purpose}",
        cause.reason,
        minute(*taken_at)
    );
    NewLockEvent {
        kind: LockEventKind::LeaseReleased,
        key: None,
        scope: None,
        pull: None,
        concern: repo.cloned().map(Concern::Repo),
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}

#[derive(sqlx::FromRow)]
struct ListRow {
    #[sqlx(flatten)]
    lease: Lease,
    replica: Option<String>,
    presence: Option<Presence>,
    heard_until: Option<DateTime<Utc>>,
}

impl ListRow {
    fn at(self, now: DateTime<Utc>) -> LeaseRow {
        let state = self
            .presence
            .zip(self.heard_until)
            .map(|(said, until)| ReplicaState::at(said, until, now));
        LeaseRow {
            lease: self.lease,
            replica: self.replica.zip(state),
        }
    }
}
