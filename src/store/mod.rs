//! The database, and the SQL of everything that is no feature yet; a feature writes its SQL itself, as methods of
//! [`Store`]. A file per resource; the resource comes first in the name of a method.
//!
//! One text of SQL serves SQLite and PostgreSQL (P11); a `match` stands only where the dialects differ.
//! Reads go straight to the pool, writes through a `Tx`: on SQLite that is the one writing connection, so that writers
//! queue up in the program instead of failing with "database is locked".
//! Public methods own their transaction; `*_in_tx` functions cannot be given a pool.
//!
//! PostgreSQL's transactions see what others commit between two of their statements. Where that matters, the row of
//! the pull is the mutex: taking a lock, keeping a plan and passing the gate of an apply share it, giving locks back
//! and ending an apply hold it alone, closing writes it. It is always the first row a transaction locks, after the
//! line of its repository where locks are freed (`lock_change`) and the switch where applies are stopped or begin
//! (`features::apply_locks`), so that no two wait for each other.

mod application_runs;
mod applications;
mod apply;
mod cancel;
mod claims;
mod command_configs;
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
mod lock_standing;
mod locks;
mod news;
mod of_repos;
mod open;
mod operations;
mod owner_overview;
mod owners;
mod pending_statuses;
mod plan_files;
mod plans;
mod pulls;
mod rate_gates;
mod reconcilers;
mod renames;
mod replicas;
mod repositories;
mod repository_events;
mod repository_syncs;
mod retention;
mod runs;
mod settings;
mod state_changes;
mod stops;
mod time;
mod waiters;
mod watched;

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Utc};

pub use application_runs::{ApplicationRuns, ApplicationUse, AskedRun, DiscardedPlan};
pub use applications::Application;
pub use apply::{ApplyGate, ApplyGrant};
pub use cancel::{CancelWhat, Cancelled};
pub use claims::{Acquired, Claim, ClaimUse, Collected};
pub use command_configs::WrittenConfig;
pub use commands::{
    CommandRow, CommandState, CreateCommand, FinishedCommand, NewCommand, UNCLAIMED_SPEC,
};
pub use credentials::{CredentialRow, KeepCredential, NewCredential, SealedCredential};
pub use deliveries::{Accepted, DeliveryState, NewDelivery};
pub use fence::LeaseLost;
pub use heads::{HeadNews, KnownHead};
pub use idle_locks::{ExpiredLock, IdleLock};
pub use import::{
    ImportApplyLock, ImportBatch, ImportLock, ImportMode, ImportStatus, ImportStatuses, Imported,
    ImportedApplyLock, ImportedLock, ImportedPull,
};
pub use jobs::{Finish, JobLease, JobState, JobView, NewJob, answers_share};
pub use json::JsonText;
pub use leases::{FreeLease, Hold, Lease, LeaseRow, NewLease, TIME_TO_LET_GO, TakeLease};
pub use lock_change::TAKE_TURN;
pub use lock_event_seal::{AuditKey, LockEventSeal, LogReach, PruneLog, SealLog};
pub use lock_events::LockEventWalk;
pub use locks::{LockWish, TakeLock};
pub use news::{Heard, Listener, News};
pub use open::{DatabaseUrl, InvalidDatabaseUrl};
pub use operations::{FailedJob, Held, JobStage, LaneRow, QueueLine};
pub use owner_overview::OwnerOverview;
pub use owners::{CreateOwner, DeleteOwner, Owner};
pub use pending_statuses::PendingStatus;
pub use plans::RecordPlan;
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
pub use stops::{Stop, StopKind};
pub use watched::{ForgePage, WatchedRepo};

use crate::clock::{Clock, Ids};
use fence::Fence;
use time::Judge;
pub(crate) use time::kept_time;

/// What a store operation can fail with.
pub type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

/// The database, with the clock and the identifiers its rows are stamped with.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: Pool,
    clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    judge: Judge,
    /// The lease that everything is written under, if it is the work of a job.
    fence: Option<Fence>,
}

/// Connections. SQLite has one that writes and some that read.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite {
        write: sqlx_sqlite::SqlitePool,
        read: sqlx_sqlite::SqlitePool,
    },
    Postgres(sqlx_postgres::PgPool),
}

/// A transaction on either database.
pub(crate) enum Tx {
    Sqlite(sqlx::Transaction<'static, sqlx_sqlite::Sqlite>),
    Postgres(sqlx::Transaction<'static, sqlx_postgres::Postgres>),
}

/// Runs a reading query on the pool of whichever database is open.
macro_rules! on_pool {
    ($store:expr, $db:ident => $query:expr) => {
        match &$store.pool {
            $crate::store::Pool::Sqlite { read: $db, .. } => $query.await,
            $crate::store::Pool::Postgres($db) => $query.await,
        }
    };
}

/// Runs a query inside a transaction of whichever database is open.
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

/// Executes a statement inside a transaction and gives the number of rows it touched.
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

pub(crate) use application_runs::application_use_in_tx;
pub(crate) use applications::{
    application_count_in_tx, application_delete_in_tx, application_hold_in_tx,
    application_is_taken_in_tx,
};
pub(crate) use claims::claim_refer_in_tx;
pub(crate) use lock_change::LockChange;
pub(crate) use owners::{owner_event, owner_share_named_in_tx};
pub(crate) use waiters::{NewWaiter, WaiterRow};
pub(crate) use {execute, on_pool, on_tx};

impl Store {
    /// Begins a writing transaction. On SQLite it takes the write lock at once, so that nothing read in it can
    /// have changed by the time it writes. Under a lease it is an error when that lease was lost.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        let mut tx = match &self.pool {
            Pool::Sqlite { write, .. } => {
                write.begin_with("BEGIN IMMEDIATE").await.map(Tx::Sqlite)?
            }
            Pool::Postgres(pool) => pool.begin().await.map(Tx::Postgres)?,
        };
        self.fence_in_tx(&mut tx).await?;
        Ok(tx)
    }

    /// Whether several replicas may share this database.
    pub fn is_shared(&self) -> bool {
        match &self.pool {
            Pool::Sqlite { .. } => false,
            Pool::Postgres(_) => true,
        }
    }

    /// Answers when the database does.
    pub async fn ping(&self) -> Result<()> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT CAST(1 AS BIGINT)").fetch_one(db))
            .map(drop)
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}

/// A free text as both databases can keep it: PostgreSQL refuses NUL. Every text somebody else wrote goes through here.
pub(crate) fn free_text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
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
    async fn roll_back(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.rollback().await,
            Self::Postgres(tx) => tx.rollback().await,
        }
    }
}
