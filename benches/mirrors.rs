//! Measures a round of the mirror scheduler with 10,000 mirrored repositories: its duration and its number of
//! statements, with nothing to do, after pushes, and when many syncs are due.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chrono::TimeDelta;
use lockkeeper::clock::{Clock, RandomIds, SystemClock};
use lockkeeper::config::server::RepoAllowlist;
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts, TokenSource};
use lockkeeper::forges::{Forge, Forges};
use lockkeeper::git::{Git, GitSettings};
use lockkeeper::leases::Leases;
use lockkeeper::model::{DataDirId, RepoId, RepositoryChange, RepositoryEventKind};
use lockkeeper::secret::Secret;
use lockkeeper::store::{DatabaseUrl, Store};
use lockkeeper::sync::{SyncSettings, Syncer, SyncerDependencies};
use lockkeeper::telemetry::Metrics;
use sqlx::ConnectOptions as _;
use sqlx_sqlite::SqliteConnectOptions;
use tokio_util::sync::CancellationToken;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use crate::locks::{durable_postgres, open};
use crate::report::{Section, Table};
use crate::stats::{Samples, millis};

/// Number of mirrored repositories.
const REPOSITORIES: u64 = 10_000;
/// Number of pushes between two rounds, each to another repository.
const PUSHES: u64 = 100;
/// Number of times that each case is measured.
const ROUNDS: usize = 50;

/// Inserts rows made of numbers, in the SQL of both databases. `$1` is the data directory, `$2` now, `$3` later.
const FILL: &str = "INSERT INTO repository_syncs (replica, repo, revision, state, pending_at, succeeded_at, updated_at, \
     retry_count, retry_at, failure_kind, failure, refresh_at, verification, verification_retry_count, created_at) \
     SELECT $1, 'github.test/acme/r' || (1000000 + n), 1, 'synced', $2, $2, $2, 0, NULL, NULL, NULL, $3, 'verified', 0, $2 \
     FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 10000) SELECT n FROM s) AS s";
/// Simulates a forge that was unreachable: a third of the repositories may be retried.
const MANY_DUE: &str = "UPDATE repository_syncs SET state = 'failed', retry_count = 3, retry_at = $2, \
     failure_kind = 'unreachable', failure = 'away' WHERE replica = $1 AND repo > 'github.test/acme/r1007000' \
     AND created_at <= $3";

/// Number of statements of this program so far, except those that begin and end transactions.
static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// Counts the statements that the database driver logs.
struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, _event: &Event<'_>, _context: Context<'_, S>) {
        STATEMENTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Measures the scheduler and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let only = Targets::new().with_target("sqlx::query", LevelFilter::DEBUG);
    tracing::subscriber::set_global_default(Registry::default().with(Counter.with_filter(only)))
        .context("the statements cannot be counted")?;
    let (postgres, version) = durable_postgres().await?;
    let sqlite = DatabaseUrl::Sqlite(work.join("mirrors.db"));
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "rounds", "statements"]);
    for (name, url) in [("SQLite", &sqlite), ("PostgreSQL", &postgres)] {
        let bench = Bench::start(url, &work.join(name)).await.context(name)?;
        for (what, kind) in [
            ("nothing new", Kind::Quiet),
            ("after 100 pushes", Kind::Pushed),
            ("3,000 due", Kind::Due),
        ] {
            let (samples, statements) = bench.rounds(kind).await.context(name)?;
            table.row(
                format!("{name}, {what}"),
                samples
                    .cells()
                    .into_iter()
                    .chain([format!("{statements:.0}")]),
            );
        }
        bench.store.close().await;
    }
    let mut section =
        Section::new("The scheduler of mirrors, 10,000 repositories").with_table(table);
    section
        .note("A round takes up what happened and what is due; no worker begins anything. Servers turn it every 5 s.");
    section.note("Statements per round, without those that begin and end transactions.");
    section.note(format!("Both databases are durable. {version}"));
    Ok(section)
}

/// Work that waits in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quiet,
    Pushed,
    Due,
}

struct Bench {
    url: DatabaseUrl,
    data_dir_id: DataDirId,
    store: Store,
    syncer: Syncer,
    wants: SyncSettings,
}

impl Bench {
    async fn start(url: &DatabaseUrl, data: &Path) -> anyhow::Result<Self> {
        let store = open(url).await?;
        let data_dir_id: DataDirId = "measured".parse()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Metrics::default();
        let leases = Leases::new(
            store.clone(),
            Arc::clone(&clock),
            Arc::new(RandomIds),
            "measured".to_owned(),
            metrics.clone(),
        );
        let syncer = Syncer::new(SyncerDependencies {
            data_dir_id: data_dir_id.clone(),
            store: store.clone(),
            git: Git::new(GitSettings::new(data, "/usr/local/bin:/usr/bin:/bin")),
            forges: Forges::new([Arc::new(forge(&clock)?) as Arc<dyn Forge>]),
            clock,
            leases,
            lease_time: Duration::from_hours(3),
            fetch_time: Duration::from_mins(1),
            metrics,
            closing: CancellationToken::new(),
        });
        let wants = SyncSettings {
            allowlist: RepoAllowlist::new(&["github.test/*"])?,
            parallel: 0,
        };
        let bench = Self {
            url: url.clone(),
            data_dir_id,
            store,
            syncer,
            wants,
        };
        // The first round stores the position among the events. A start with 10,000 known repositories is another
        // measurement.
        bench.syncer.round(&bench.wants).await?;
        bench.execute(FILL).await?;
        ensure!(bench.looked_at().await? == 0, "nothing is due yet");
        Ok(bench)
    }

    /// Runs a statement with the data directory, the present time, and the time six hours later as parameters.
    async fn execute(&self, sql: &'static str) -> anyhow::Result<()> {
        let (data_dir_id, now) = (self.data_dir_id.as_str(), SystemClock.now());
        let later = now + TimeDelta::hours(6);
        match &self.url {
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_secs(20));
                let mut connection = options.connect().await?;
                sqlx::query(sql)
                    .bind(data_dir_id)
                    .bind(now)
                    .bind(later)
                    .execute(&mut connection)
                    .await?;
            }
            DatabaseUrl::Postgres(options) => {
                let mut connection = options.connect().await?;
                sqlx::query(sql)
                    .bind(data_dir_id)
                    .bind(now)
                    .bind(later)
                    .execute(&mut connection)
                    .await?;
                sqlx::query("ANALYZE repository_syncs")
                    .execute(&mut connection)
                    .await?;
            }
        }
        Ok(())
    }

    async fn looked_at(&self) -> anyhow::Result<u64> {
        Ok(self.syncer.round(&self.wants).await?.looked_at)
    }

    /// Measures the duration of rounds, and the number of statements per round.
    async fn rounds(&self, kind: Kind) -> anyhow::Result<(Samples, f64)> {
        let (mut samples, mut statements) = (Samples::default(), 0);
        if kind == Kind::Due {
            self.execute(MANY_DUE).await?;
        }
        for round in 0..ROUNDS {
            if kind == Kind::Pushed {
                self.push(round as u64 * PUSHES).await?;
            }
            let (before, since) = (STATEMENTS.load(Ordering::Relaxed), Instant::now());
            let looked_at = self.looked_at().await?;
            samples.push(since.elapsed());
            statements += STATEMENTS.load(Ordering::Relaxed) - before;
            ensure!(
                (looked_at == 0) == (kind == Kind::Quiet),
                "{looked_at} were looked at in {}",
                millis(since.elapsed())
            );
        }
        let rounds = u32::try_from(ROUNDS)?;
        Ok((
            samples,
            f64::from(u32::try_from(statements)?) / f64::from(rounds),
        ))
    }

    /// Stores push events of the next [`PUSHES`] repositories.
    async fn push(&self, from: u64) -> anyhow::Result<()> {
        for push in from..from + PUSHES {
            let repo = format!("github.test/acme/r{}", 1_000_001 + push % REPOSITORIES)
                .parse::<RepoId>()?;
            let news = RepositoryChange {
                repo,
                kind: RepositoryEventKind::Push,
            };
            self.store.repository_event_append(&news).await?;
        }
        Ok(())
    }
}

/// Returns a forge that nobody sends requests to.
fn forge(clock: &Arc<dyn Clock>) -> anyhow::Result<GitHub> {
    let endpoints = GitHubEndpoints::new(
        "github.test",
        Some("http://127.0.0.1:9/api/v3".parse::<url::Url>()?),
    )?;
    let auth = GitHubAuth::Token {
        user: None,
        token: TokenSource::Fixed(Secret::new("none")),
    };
    Ok(GitHub::new(
        endpoints,
        auth,
        Arc::clone(clock),
        Timeouts::default(),
    )?)
}
