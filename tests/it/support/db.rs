//! A database for one test, of either kind (P11), with the test's own clock and identifiers.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, Utc};
use lockkeeper::clock::{Clock, CountingIds, ManualClock};
use lockkeeper::features::apply_locks::SetApplyLock;
use lockkeeper::locks::{self, AuditFiles};
use lockkeeper::model::{Actor, ApplyLock, ApplyScope, Cause};
use lockkeeper::store::{DatabaseUrl, Store};
use tempfile::TempDir;

use super::panics;
use super::postgres::{self, Content};

/// Kind of database for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A file in a temporary directory.
    Sqlite,
    /// A database in the temporary cluster.
    Postgres,
}

/// A migrated database with one store on it. Every store on it shares the clock and the identifiers.
pub struct TestDb {
    /// Kind of the database.
    pub backend: Backend,
    /// Address for programs that open the database themselves.
    pub url: DatabaseUrl,
    /// Clock that stands still at [`start_of_time`] until the test moves it.
    pub clock: Arc<ManualClock>,
    /// Identifiers `…-000000000001` and so on.
    pub ids: Arc<CountingIds>,
    /// Directory with the file of SQLite. Otherwise the test may use it freely.
    pub dir: TempDir,
    store: Store,
}

impl TestDb {
    /// Creates a database with every migration applied.
    pub async fn new(backend: Backend) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let url = match backend {
            Backend::Sqlite => DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db")),
            Backend::Postgres => postgres::new_database(Content::Migrated).await,
        };
        let (clock, ids) = (
            Arc::new(ManualClock::new(start_of_time())),
            Arc::new(CountingIds::default()),
        );
        let store = open(&url, &clock, &ids).await;
        Self {
            backend,
            url,
            clock,
            ids,
            dir,
            store,
        }
    }

    /// Returns the store of the test.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Opens another store with the same database: a second replica, or the same one after a restart.
    pub async fn reopen(&self) -> Store {
        open(&self.url, &self.clock, &self.ids).await
    }

    /// Waits until PostgreSQL has executed what it was sent. A dead server does not take its last statement with it, and work
    /// of another one that ends in between would find its job claimed.
    pub async fn end_statements(&self) {
        if let DatabaseUrl::Postgres(_) = &self.url {
            let wait = "DO $$ BEGIN WHILE EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                 AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state = 'active') LOOP \
                 PERFORM pg_sleep(0.001); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$";
            execute(self, wait).await;
        }
    }

    /// Returns the time of the test's clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}

async fn open(url: &DatabaseUrl, clock: &Arc<ManualClock>, ids: &Arc<CountingIds>) -> Store {
    let store = Store::open(url, clock.clone(), ids.clone())
        .await
        .expect("a new database opens");
    // The test moves the clock, and every store has the same one.
    store.with_own_deadline_clock()
}

/// Returns the number of races on a database. SQLite lets one task write at a time, so a tenth proves the same there.
pub fn races(backend: Backend, many: usize) -> usize {
    match backend {
        Backend::Sqlite => many / 10,
        Backend::Postgres => many,
    }
}

/// Returns the number of races of dozens of tasks for one thing: a thousand in `make chaos`, and a quarter in `make test`,
/// where each hundred of them takes seconds.
pub fn large_races(backend: Backend) -> usize {
    let is_chaos = std::env::var_os("LOCKKEEPER_CHAOS").is_some();
    races(backend, if is_chaos { 1000 } else { 250 })
}

/// Returns nine o'clock on a Monday morning.
pub fn start_of_time() -> DateTime<Utc> {
    "2026-03-02T09:00:00Z"
        .parse()
        .expect("the constant is RFC 3339")
}

/// Runs each `async fn name(db: &TestDb)` on both databases, as the tests `name::sqlite` and `name::postgres`.
/// A test that is not listed is dead code and does not compile in CI.
macro_rules! store_test {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crate::support::db::{Backend, TestDb, tell};

            #[test]
            fn sqlite() {
                tell(async { super::$name(&TestDb::new(Backend::Sqlite).await).await });
            }

            #[test]
            fn postgres() {
                tell(async { super::$name(&TestDb::new(Backend::Postgres).await).await });
            }
        })+
    };
}

pub(crate) use store_test;

/// Runs each story `async fn name(backend: Backend)` on both databases, as the tests `name::sqlite` and
/// `name::postgres`. Both hold the same inline snapshots.
macro_rules! story {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crate::support::db::{Backend, tell};

            #[test]
            fn sqlite() {
                tell(super::$name(Backend::Sqlite));
            }

            #[test]
            fn postgres() {
                tell(super::$name(Backend::Postgres));
            }
        })+
    };
}

pub(crate) use story;

/// Runs a story to its end. Nothing in it may have panicked, even if nothing awaited it.
pub fn tell(story: impl Future<Output = ()>) {
    panics::watch();
    let name = panics::thread();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .thread_name(name.clone())
        .enable_all()
        .build()
        .unwrap();
    insta::allow_duplicates! { runtime.block_on(story) }
    drop(runtime);
    postgres::drop_databases_of(&name);
    panics::none_in(&name);
}

/// Returns the cause of changes of locks in tests.
pub fn by() -> &'static Cause {
    static BY: LazyLock<Cause> =
        LazyLock::new(|| Cause::new(Actor::commenter("ada"), "as the test wants it"));
    &BY
}

/// Returns the files of the audit log that a server with this database keeps outside of it.
pub fn audit_files(db: &TestDb) -> AuditFiles {
    AuditFiles::new(db.dir.path(), &db.url.to_string(), None, None)
}

/// Seals the audit log, as a server does every few seconds. Returns the number of new events.
pub async fn seal_log(db: &TestDb) -> u64 {
    locks::seal_log(db.store(), &audit_files(db))
        .await
        .expect("the log can be sealed")
}

/// Stops every apply on the server.
pub async fn stop_applies(store: &Store, who: &str, why: &str) -> ApplyLock {
    stop_applies_of(store, &ApplyScope::Server, None, who, why).await
}

/// Stops some applies that nobody has stopped before.
pub async fn stop_applies_of(
    store: &Store,
    scope: &ApplyScope,
    ends_at: Option<DateTime<Utc>>,
    who: &str,
    why: &str,
) -> ApplyLock {
    let cause = Cause::new(Actor::commenter(who), why);
    match store
        .apply_lock_set(scope, ends_at, &cause)
        .await
        .expect("the database")
    {
        SetApplyLock::Set(lock) => lock,
        other
        @ (SetApplyLock::AlreadySet(_) | SetApplyLock::Over(_) | SetApplyLock::TooMany(_)) => {
            panic!("{other:?}")
        }
    }
}

/// Allows applies again, except those that apply locks of other scopes stop. Returns `false` if applies were not
/// stopped.
pub async fn allow_applies(store: &Store) -> bool {
    store
        .apply_lock_clear(&ApplyScope::Server, by())
        .await
        .expect("the database")
        .is_some()
}

/// Returns the lock that stops every apply.
pub async fn stopped(store: &Store) -> Option<ApplyLock> {
    store
        .apply_lock_get(&ApplyScope::Server)
        .await
        .expect("the database")
}

/// Returns the scope of a directory in a repository.
pub fn applies_in(repo: &str, dir: &str) -> ApplyScope {
    ApplyScope::in_repo(repo.parse().unwrap(), Some(dir.parse().unwrap()))
}

/// Runs SQL, as only a person with the password of the database could.
pub async fn execute(db: &TestDb, sql: &str) {
    execute_on(&db.url, sql).await;
}

/// Executes SQL on the database with this address.
pub async fn execute_on(url: &DatabaseUrl, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    match url {
        DatabaseUrl::Sqlite(path) => {
            let options = sqlx_sqlite::SqliteConnectOptions::new().filename(path);
            let pool = sqlx_sqlite::SqlitePool::connect_with(options)
                .await
                .unwrap();
            sqlx::query(sql).execute(&pool).await.unwrap();
            pool.close().await;
        }
        DatabaseUrl::Postgres(options) => {
            let pool = sqlx_postgres::PgPool::connect_with((**options).clone())
                .await
                .unwrap();
            sqlx::query(sql).execute(&pool).await.unwrap();
            pool.close().await;
        }
    }
}
