//! Claims with an end time on anything exclusive.
//!
//! A lease is held while its end has not come *and* its holder may still work: one that is signed by a replica
//! (`{replica}/…`) is free as soon as that replica has ended, or was not heard of for as long as a replica's own lease
//! lasts. Whoever takes a lease decides that in the statement that takes it.
//!
//! Times are those of the judge (see `store::time`).

use chrono::{DateTime, TimeDelta, Utc};

use super::of_repos::{listed, of_repos_postgres, of_repos_sqlite};
use super::replicas::{Presence, ReplicaState};
use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{Cause, Concern, LockEventKind, NewLockEvent, RepoId, minute};

/// So long a holder that may be at work has to stop, once somebody gave its lease back by hand: longer than a replica
/// takes to hear of it, and longer than one that cannot hear of it works on.
pub const TIME_TO_LET_GO: TimeDelta = TimeDelta::seconds(60);
/// A claim, by what is claimed and who claims it: what one needs to renew it and to give it back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// What is claimed, such as `repository_sync:{replica}:{repository}`.
    pub key: String,
    /// Who claims it; unique per claim. One that begins with the name of a replica and a slash ends with that replica.
    pub holder: String,
}

/// A claim that somebody makes.
#[derive(Clone, Copy, Debug)]
pub struct NewLease<'a> {
    /// What, and for whom.
    pub hold: &'a Hold,
    /// What for, in a clause for people.
    pub purpose: &'a str,
    /// When it ends unless it is renewed.
    pub until: DateTime<Utc>,
}

/// A claim that is held until `until`.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Lease {
    /// See [`Hold::key`].
    pub key: String,
    /// See [`Hold::holder`].
    pub holder: String,
    /// What for, in a clause.
    pub purpose: String,
    /// Since when.
    pub taken_at: DateTime<Utc>,
    /// When the holder said last that it still needs it.
    pub renewed_at: DateTime<Utc>,
    /// When it ends unless renewed.
    pub until: DateTime<Utc>,
    /// When somebody gave it back by hand: it cannot be renewed any more.
    pub revoked_at: Option<DateTime<Utc>>,
}

impl Lease {
    /// What its holder renews and gives back.
    pub fn hold(&self) -> Hold {
        Hold {
            key: self.key.clone(),
            holder: self.holder.clone(),
        }
    }
}

/// What came of asking for a lease.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeLease {
    /// It is ours.
    Taken(Lease),
    /// Somebody has it.
    HeldBy(Lease),
}

/// A lease as people are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The claim.
    pub lease: Lease,
    /// The replica that holds it, with what is to be thought of it; `None`: no replica that is known.
    pub replica: Option<(String, ReplicaState)>,
}

/// What came of giving a lease back by hand.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreeLease {
    /// Its holder was gone: it is free.
    Freed(Lease),
    /// Its holder may be at work: it is told to stop, and the lease is free when it has, at the latest at its new end.
    Told(Lease),
    /// Somebody had told the holder before.
    AlreadyTold(Lease),
    /// Nobody holds it.
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

/// Whether nobody works under a lease any more. `$1` is now.
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
/// By key, which PostgreSQL would sort by the rules of a language.
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

/// Leases of mirrors with their repository, which is what follows the second colon of the key (see `leases::LeaseKey`).
/// The function that finds a text in another has a name of its own in each database.
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
    /// Leases that are listed at most. Whoever shows as many says that there may be more.
    pub const LEASES_LISTED: u16 = 1000;

    /// Takes the lease if it is free, has ended, or its holder is gone. One statement decides.
    pub async fn lease_take(&self, new: NewLease<'_>) -> Result<TakeLease> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let taken = on_tx!(&mut tx, db => sqlx::query_as::<_, Lease>(TAKE)
            .bind(skew.of(self.now())).bind(&new.hold.key).bind(&new.hold.holder).bind(free_text(new.purpose))
            .bind(skew.of(new.until)).fetch_optional(db))?;
        let outcome = match taken {
            Some(lease) => TakeLease::Taken(lease),
            // The statement has locked the row that was in its way, so it is still there.
            None => TakeLease::HeldBy(
                on_tx!(&mut tx, db => sqlx::query_as::<_, Lease>(OF_KEY).bind(&new.hold.key).fetch_one(db))?,
            ),
        };
        tx.commit().await.map(|()| outcome)
    }

    /// Moves the end of a lease that is still held; `false` when it is not ours any more, or was given back by hand.
    pub async fn lease_renew(&self, hold: &Hold, until: DateTime<Utc>) -> Result<bool> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let rows = execute!(
            &mut tx,
            "UPDATE leases SET until = $1, renewed_at = $2 WHERE key = $3 AND holder = $4 AND revoked_at IS NULL",
            skew.of(until),
            skew.of(self.now()),
            &hold.key,
            &hold.holder,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Gives a lease back; `false`, and harmless, when it was not ours any more.
    pub async fn lease_release(&self, hold: &Hold) -> Result<bool> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM leases WHERE key = $1 AND holder = $2";
        let rows = execute!(&mut tx, sql, &hold.key, &hold.holder)?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Removes the leases whose keys begin so, whoever holds them: for who knows that none of the holders lives. Tells how
    /// many there were.
    pub async fn lease_end_all_of(&self, beginning: &str) -> Result<u64> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM leases WHERE substr(key, 1, length(CAST($1 AS TEXT))) = $1";
        let rows = execute!(&mut tx, sql, beginning)?;
        tx.commit().await.map(|()| rows)
    }

    /// Leases that have not ended, by key, with those whose holder is gone and which nobody has taken yet.
    pub async fn lease_list(&self) -> Result<Vec<LeaseRow>> {
        let now = self.skew().await?.of(self.now());
        let sql = self.either(LIST[0], LIST[1]);
        let rows = on_pool!(self, db => sqlx::query_as::<_, ListRow>(sql).bind(now)
            .bind(i64::from(Self::LEASES_LISTED)).fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// The same of the mirrors of these repositories.
    pub async fn lease_list_of_repos(&self, repos: &[RepoId]) -> Result<Vec<LeaseRow>> {
        let now = self.skew().await?.of(self.now());
        let (sql, repos) = (self.either(OF_REPOS[0], OF_REPOS[1]), listed(repos));
        let rows = on_pool!(self, db => sqlx::query_as::<_, ListRow>(sql)
            .bind(repos).bind(now).bind(i64::from(Self::LEASES_LISTED)).fetch_all(db))?;
        Ok(rows.into_iter().map(|row| row.at(now)).collect())
    }

    /// Gives a lease back by hand, whoever holds it or only if this holder does, and puts that on record. A holder that
    /// may be at work is not overtaken: it is told to stop, and keeps the lease until it has.
    /// `repo` is the repository that the work is about, if it is about one.
    pub async fn lease_free(
        &self,
        key: &str,
        holder: Option<&str>,
        repo: Option<&RepoId>,
        cause: &Cause,
    ) -> Result<FreeLease> {
        let mut tx = self.begin().await?;
        let now = self.skew_in_tx(&mut tx).await?.of(self.now());
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

/// Removes leases that have ended and those of replicas that are gone.
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

/// Who held it, since when and what for: it is nowhere else once it is gone.
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
