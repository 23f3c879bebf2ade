//! The database, and the SQL of everything that does not belong to one feature. A feature writes its own SQL, as
//! methods of [`Store`]. There is one file per resource, and the name of a method begins with the resource.
//!
//! The same SQL serves SQLite and PostgreSQL (P11). A `match` stands only where the dialects differ. Reads use the
//! pool directly, writes use a `Tx`. SQLite has only one writing connection, so that writers queue up in the program
//! instead of failing with "database is locked", and those that wait share a commit (`shared_commit`). Reads that belong
//! together use a `Snapshot`. Public methods own their transaction; `*_in_tx` functions cannot be given a pool.
//!
//! A transaction of PostgreSQL sees what others commit between two of its statements. Where that matters, the row of
//! the pull is the mutex. Taking a lock, storing a plan, approving its violations and passing the gate of an apply share
//! the row. Releasing locks, removing approvals and ending an apply hold it exclusively. Closing the pull writes it.
//!
//! The row of the pull is the first row that a transaction locks. Only two locks come before it: the line of the
//! repository where locks are released (`lock_change`), and the switch where applies are stopped or begin
//! (`features::apply_locks`). The head of the pull and its change (`patch_sets`) come right after it. With this order, no
//! two transactions wait for each other.

mod application_runs;
mod applications;
mod apply;
mod cancel;
mod claims;
mod commands;
mod credentials;
mod deliveries;
mod fence;
mod heads;
mod idle_locks;
mod import;
mod jobs;
mod json;
mod leases;
mod lock_change;
mod lock_event_parts;
mod lock_event_seal;
mod lock_events;
mod lock_names;
mod lock_use;
mod locks;
mod news;
mod of_repos;
mod one_statement;
mod open;
mod owner_overview;
mod owners;
mod pending_statuses;
pub(crate) mod people;
mod plan_files;
mod plans;
mod policies;
mod pulls;
mod rate_gates;
mod reconcilers;
mod renames;
mod replicas;
mod repositories;
mod repository_events;
mod repository_syncs;
mod runs;
mod settings;
mod shared_commit;
mod state_changes;
mod stops;
mod time;
mod waiters;

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Utc};

pub use application_runs::{ApplicationRuns, ApplicationUse, DiscardOutcome, RunRequestOutcome};
pub use applications::Application;
pub use apply::{ApplyChecks, ApplyGate, ApplyGrant, TeamMember};
pub use cancel::{CancelTarget, Cancelled};
pub use claims::{Acquired, Claim, ClaimCollection, ClaimUse};
pub use commands::{
    CommandRow, CommandState, CreateCommand, DueChanges, FinishedCommand, NewCommand, ResultPart,
    ResultTimes, UNCLAIMED_SPEC,
};
pub use credentials::{CredentialRow, KeepCredential, NewCredential, SealedCredential};
pub use deliveries::{Accepted, DeliveryState, NewDelivery};
pub use fence::LeaseLost;
pub use heads::{HeadUpdate, KnownHead};
pub use idle_locks::{ExpiredLock, IdleLock};
pub use import::{
    ImportApplyLock, ImportBatch, ImportLock, ImportMode, ImportStatus, ImportStatuses, Imported,
    ImportedApplyLock, ImportedLock, ImportedPull,
};
pub use jobs::{JobClaim, JobFinish, JobLease, JobState, JobView, LaneJob, NewJob, answers_share};
pub use json::JsonText;
pub use leases::{FreeLease, Lease, LeaseHold, LeaseRow, NewLease, TIME_TO_LET_GO, TakeLease};
pub use lock_change::TAKE_TURN;
pub use lock_event_seal::{AuditKey, AuditLogRange, LockEventSeal, PruneLog, SealLog};
pub use lock_events::LockEventWalk;
pub use locks::{LockAttempt, MOST_LISTED, TakeLock};
pub use news::{Listener, News, NewsOutcome};
pub use open::{DatabaseUrl, InvalidDatabaseUrl};
pub use owner_overview::OwnerOverview;
pub use owners::{CreateOwner, DeleteOwner, Owner};
pub use pending_statuses::PendingStatus;
pub use plans::{PlanParts, RecordPlan};
pub use policies::{PlanPolicies, PolicyApprove, ProjectApproval, SetApprovals};
pub use reconcilers::{ReconcilerRow, ReconcilerRun};
pub use renames::{RENAMED_COLUMNS, Rename, RenameRefused, Renamed};
pub use replicas::{Presence, ReplicaId, ReplicaRow, ReplicaState};
pub use repositories::{Absence, FormerName, KnownRepository};
pub use repository_events::{EventWalk, RepositoryEvent};
pub use repository_syncs::{
    FoundMirrors, MirrorChange, MirrorQuery, MirrorRow, MirrorSearch, MirrorsDue,
};
pub use runs::{NewRun, OutputPiece, RunRow, RunState};
pub use state_changes::{StateChanged, StateGate};
pub use stops::{StopKind, StopRequest};

use crate::clock::{Clock, Ids};
use fence::LeaseFence;
use shared_commit::{SqliteTx, SqliteWriter};
use time::DeadlineClock;
pub(crate) use time::kept_time;

/// Result of a store operation, which fails with an error of the database.
pub type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

/// The database, with the clock and the source of identifiers for its rows.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: DbPool,
    clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    deadline_clock: DeadlineClock,
    /// Lease of the job that this store works for, if any. Nothing is written after the lease is lost.
    fence: Option<LeaseFence>,
}

/// Connections to the database. SQLite has one that writes and several that read.
#[derive(Clone)]
pub(crate) enum DbPool {
    Sqlite {
        write: SqliteWriter,
        read: sqlx_sqlite::SqlitePool,
    },
    Postgres(sqlx_postgres::PgPool),
}

/// A transaction on either database.
pub(crate) enum Tx {
    Sqlite(SqliteTx),
    Postgres(sqlx::Transaction<'static, sqlx_postgres::Postgres>),
}

/// A transaction that only reads. All of its statements see the database as it was when the first one ran.
pub(crate) enum Snapshot {
    Sqlite(sqlx::Transaction<'static, sqlx_sqlite::Sqlite>),
    Postgres(sqlx::Transaction<'static, sqlx_postgres::Postgres>),
}

/// Runs a reading query on the pool of the open database, SQLite or PostgreSQL.
macro_rules! on_pool {
    ($store:expr, $db:ident => $query:expr) => {
        match &$store.pool {
            $crate::store::DbPool::Sqlite { read: $db, .. } => $query.await,
            $crate::store::DbPool::Postgres($db) => $query.await,
        }
    };
}

/// Runs a query inside a transaction of the open database, SQLite or PostgreSQL.
macro_rules! on_tx {
    ($tx:expr, $db:ident => $query:expr) => {
        match $tx {
            $crate::store::Tx::Sqlite(tx) => {
                let $db = &mut **tx;
                $query.await
            }
            $crate::store::Tx::Postgres(tx) => {
                let $db = &mut **tx;
                $query.await
            }
        }
    };
}

/// Runs a reading query in a snapshot of the open database, SQLite or PostgreSQL.
macro_rules! on_snapshot {
    ($snapshot:expr, $db:ident => $query:expr) => {
        match $snapshot {
            $crate::store::Snapshot::Sqlite(tx) => {
                let $db = &mut **tx;
                $query.await
            }
            $crate::store::Snapshot::Postgres(tx) => {
                let $db = &mut **tx;
                $query.await
            }
        }
    };
}

/// Executes a statement inside a transaction and returns the number of affected rows.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        match $tx {
            $crate::store::Tx::Sqlite(tx) => {
                sqlx::query($sql)$(.bind($bind))*.execute(&mut **tx).await.map(|done| done.rows_affected())
            }
            $crate::store::Tx::Postgres(tx) => {
                sqlx::query($sql)$(.bind($bind))*.execute(&mut **tx).await.map(|done| done.rows_affected())
            }
        }
    };
}

/// Executes the only statement of a transaction, and returns the number of affected rows. Where nothing has to be
/// checked before it, PostgreSQL needs no round trips for the beginning and the end.
macro_rules! execute_alone {
    ($store:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        match (&$store.pool, $store.is_fenced()) {
            ($crate::store::DbPool::Postgres(pool), false) => {
                sqlx::query($sql)$(.bind($bind))*.execute(pool).await.map(|done| done.rows_affected())
            }
            _ => {
                let mut tx = $store.begin_shared().await?;
                let rows = $crate::store::execute!(&mut tx, $sql $(, $bind)*)?;
                tx.commit().await.map(|()| rows)
            }
        }
    };
}

pub(crate) use application_runs::application_use_in_tx;
pub(crate) use applications::{
    application_count_in_tx, application_delete_in_tx, application_hold_in_tx,
    application_is_taken_in_tx,
};
pub(crate) use claims::claim_refer_in_tx;
pub(crate) use lock_change::LockChange;
pub(crate) use news::announce_in_tx;
pub(crate) use open::OwnConnection;
pub(crate) use owners::{owner_event, owner_share_named_in_tx};
pub(crate) use repository_syncs::like_pattern;
pub(crate) use waiters::{NewWaiter, WaiterRow};
pub(crate) use {execute, execute_alone, on_pool, on_snapshot, on_tx};

impl Store {
    /// Begins a writing transaction. On SQLite it takes the write lock at once, so that nothing it reads can change
    /// before it writes. Fails if the store works under a lease and that lease was lost.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        self.begin_as(false).await
    }

    /// Begins a writing transaction that may share its commit with others on SQLite. It may see changes that are not
    /// durable yet. So a function that returns anything but an error has to end it, by [`Tx::commit`] or
    /// [`Tx::roll_back`], which both wait until everything that it has seen is durable.
    pub(crate) async fn begin_shared(&self) -> Result<Tx> {
        self.begin_as(true).await
    }

    async fn begin_as(&self, is_shared: bool) -> Result<Tx> {
        let mut tx = match &self.pool {
            DbPool::Sqlite { write, .. } => write.begin(is_shared).await.map(Tx::Sqlite)?,
            DbPool::Postgres(pool) => pool.begin().await.map(Tx::Postgres)?,
        };
        self.fence_in_tx(&mut tx).await?;
        Ok(tx)
    }

    /// Begins a transaction whose first statement is `first`. PostgreSQL gets `begin`, which is `BEGIN` and that statement, in
    /// one message.
    pub(crate) async fn begin_with(
        &self,
        is_shared: bool,
        first: &'static str,
        begin: &'static str,
    ) -> Result<Tx> {
        let mut tx = match &self.pool {
            DbPool::Sqlite { write, .. } => {
                let mut tx = write.begin(is_shared).await?;
                sqlx::query(first).execute(&mut *tx).await?;
                Tx::Sqlite(tx)
            }
            DbPool::Postgres(pool) => pool.begin_with(begin).await.map(Tx::Postgres)?,
        };
        self.fence_in_tx(&mut tx).await?;
        Ok(tx)
    }

    /// Begins a transaction that reads several tables as they are at one moment. Nobody waits for it, but it keeps a
    /// connection, and what others replace meanwhile.
    pub(crate) async fn begin_snapshot(&self) -> Result<Snapshot> {
        match &self.pool {
            DbPool::Sqlite { read, .. } => read.begin().await.map(Snapshot::Sqlite),
            DbPool::Postgres(pool) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                pool.begin_with(begin).await.map(Snapshot::Postgres)
            }
        }
    }

    /// Returns true if nothing is written after a lease is lost.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// Returns true if several replicas may share this database.
    pub fn is_shared(&self) -> bool {
        match &self.pool {
            DbPool::Sqlite { .. } => false,
            DbPool::Postgres(_) => true,
        }
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<()> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT CAST(1 AS BIGINT)").fetch_one(db))
            .map(drop)
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}

/// Replaces NUL in a text, because PostgreSQL refuses it. Every text from outside the program passes through here.
pub(crate) fn free_text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

impl Snapshot {
    /// Ends the transaction, so that others can use its connection.
    pub(crate) async fn end(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.rollback().await,
            Self::Postgres(tx) => tx.rollback().await,
        }
    }
}

impl Tx {
    /// Makes everything done in the transaction durable.
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => tx.commit().await,
        }
    }

    /// Undoes everything done in the transaction.
    pub(crate) async fn roll_back(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.roll_back().await,
            Self::Postgres(tx) => tx.rollback().await,
        }
    }
}
