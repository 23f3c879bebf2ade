//! Measures how many locks per second can be taken and released, on both databases.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::model::{Actor, Cause, LockKey, ProjectKey, PullRef, PullState, RepoPath, Subject};
use lockkeeper::store::{DatabaseUrl, LockAttempt, Store, TakeLock};
use sqlx::ConnectOptions as _;
use sqlx_postgres::PgConnectOptions;
use sqlx_postgres::PgConnection;

use crate::report::{Section, Table};
use crate::stats::Samples;
use crate::support::postgres::{self, Content};

/// Numbers of concurrent tasks.
const TASKS: [u32; 3] = [1, 8, 64];
/// Time before the measurement starts, so that connections and statements are ready.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(5);

/// Measures locks and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let sqlite = open(&DatabaseUrl::Sqlite(work.join("locks.db"))).await?;
    let (url, version) = durable_postgres().await?;
    let postgres = open(&url).await?;
    let head = [
        "pairs of take and release",
        "pairs/s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "pairs",
    ];
    let mut table = Table::new(&head);
    for tasks in TASKS {
        let on_sqlite = run(&sqlite, tasks).await.context("SQLite")?;
        let on_postgres = run(&postgres, tasks).await.context("PostgreSQL")?;
        let times = |tasks| {
            if tasks == 1 {
                "1 task".to_owned()
            } else {
                format!("{tasks} tasks")
            }
        };
        for (name, result) in [("SQLite", &on_sqlite), ("PostgreSQL", &on_postgres)] {
            let cells =
                std::iter::once(format!("{:.0}", result.rate())).chain(result.latency.cells());
            table.row(format!("{name}, {}", times(tasks)), cells);
        }
        let ratio = format!("{:.2}", on_postgres.rate() / on_sqlite.rate());
        table.row(format!("PostgreSQL : SQLite, {}", times(tasks)), [ratio]);
    }
    sqlite.close().await;
    postgres.close().await;
    let mut section = Section::new("Locks: take and release, both durable").with_table(table);
    section.note(format!("SQLite: WAL, synchronous = FULL. {version}"));
    section.note("Through `Store::lock_take` and `lock_release`; every task has a pull and a project of its own.");
    Ok(section)
}

struct Result {
    latency: Samples,
    took: Duration,
}

impl Result {
    fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.latency.count()).unwrap_or(u32::MAX)) / self.took.as_secs_f64()
    }
}

/// Opens the database with the clock of the machine.
pub async fn open(url: &DatabaseUrl) -> anyhow::Result<Store> {
    let store = Store::open(url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    store.with_context(|| format!("cannot open {url}"))
}

async fn run(store: &Store, tasks: u32) -> anyhow::Result<Result> {
    note_pulls(store, tasks).await?;
    together(store, tasks, WARM_UP).await?;
    let since = Instant::now();
    let latency = together(store, tasks, MEASURED).await?;
    Ok(Result {
        latency,
        took: since.elapsed(),
    })
}

/// Takes and releases this many locks in each of some tasks. Returns how long each was taken for.
pub async fn taken(store: &Store, tasks: u32, locks: u32) -> anyhow::Result<Samples> {
    note_pulls(store, tasks).await?;
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let store = store.clone();
        running.spawn(async move {
            let own = TaskLock::new(task)?;
            let mut samples = Vec::new();
            for _ in 0..locks {
                let since = Instant::now();
                own.take(&store).await?;
                samples.push(since.elapsed());
                own.release(&store).await?;
            }
            anyhow::Ok(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(samples) = running.join_next().await {
        all.extend(samples??);
    }
    Ok(all)
}

async fn note_pulls(store: &Store, tasks: u32) -> anyhow::Result<()> {
    for task in 0..tasks {
        let url = "https://github.test/acme/infra/pull/1";
        store.pull_seen(&pull(task), PullState::Open, url).await?;
    }
    Ok(())
}

async fn together(store: &Store, tasks: u32, time: Duration) -> anyhow::Result<Samples> {
    let until = Instant::now() + time;
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let store = store.clone();
        running.spawn(async move { take_and_release(&store, task, until).await });
    }
    let mut all = Samples::default();
    while let Some(samples) = running.join_next().await {
        all.extend(samples??);
    }
    Ok(all)
}

async fn take_and_release(
    store: &Store,
    task: u32,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let own = TaskLock::new(task)?;
    let mut samples = Vec::new();
    while Instant::now() < until {
        let since = Instant::now();
        own.take(store).await?;
        own.release(store).await?;
        samples.push(since.elapsed());
    }
    Ok(samples)
}

/// The lock of a task, on a project that nobody else locks.
struct TaskLock {
    pull: PullRef,
    project: ProjectKey,
    key: LockKey,
    cause: Cause,
}

impl TaskLock {
    fn new(task: u32) -> anyhow::Result<Self> {
        let (pull, project) = (
            pull(task),
            ProjectKey::of_dir(RepoPath::new(&format!("project-{task}"))?),
        );
        Ok(Self {
            key: LockKey::of(&pull.repo, &project),
            cause: Cause::new(Actor::commenter("alice"), "planned"),
            pull,
            project,
        })
    }

    async fn take(&self, store: &Store) -> anyhow::Result<()> {
        let attempt = LockAttempt {
            key: &self.key,
            project: &self.project,
            pull: &self.pull,
            pull_url: "https://github.test/acme/infra/pull/1",
            cause: &self.cause,
        };
        let taken = store.lock_take(&attempt).await?;
        ensure!(
            matches!(taken, TakeLock::Taken(_)),
            "the lock was not free: {taken:?}"
        );
        Ok(())
    }

    async fn release(&self, store: &Store) -> anyhow::Result<()> {
        let released = store.lock_release(&self.pull, &self.project, &self.cause);
        ensure!(released.await?, "the lock was not ours");
        Ok(())
    }
}

fn pull(task: u32) -> PullRef {
    let repo = "github.test/acme/infra"
        .parse()
        .expect("the constant is the name of a repository");
    PullRef {
        repo,
        subject: Subject::pull(i64::from(task) + 1),
    }
}

/// Makes the test cluster durable, which otherwise is fast because it may lose data. Returns the address of a new
/// database and a description of the cluster.
pub async fn durable_postgres() -> anyhow::Result<(DatabaseUrl, String)> {
    let url = postgres::new_database(Content::Migrated).await;
    let DatabaseUrl::Postgres(options) = &url else {
        bail!("the cluster gave the address of something else")
    };
    let mut connection = options.connect().await?;
    for setting in ["fsync", "full_page_writes", "autovacuum"] {
        let sql = format!("ALTER SYSTEM SET {setting} = on");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut connection)
            .await?;
    }
    sqlx::raw_sql("SELECT pg_reload_conf()")
        .execute(&mut connection)
        .await?;
    wait_for_sync(options).await?;
    // A checkpoint makes earlier writes durable outside of the measurement.
    sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await?;
    let version = show(&mut connection, "server_version").await?;
    let said = format!(
        "PostgreSQL {version}: fsync, full_page_writes, synchronous_commit on, over TCP on loopback."
    );
    Ok((url, said))
}

/// Waits for `fsync`, because a reload reaches running sessions a little later.
async fn wait_for_sync(options: &PgConnectOptions) -> anyhow::Result<()> {
    for _ in 0..100 {
        let mut connection = options.connect().await?;
        let (fsync, commit) = (
            show(&mut connection, "fsync").await?,
            show(&mut connection, "synchronous_commit").await?,
        );
        if (fsync.as_str(), commit.as_str()) == ("on", "on") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("PostgreSQL does not sync")
}

async fn show(connection: &mut PgConnection, setting: &str) -> anyhow::Result<String> {
    Ok(sqlx::query_scalar("SELECT current_setting($1)")
        .bind(setting)
        .fetch_one(connection)
        .await?)
}
