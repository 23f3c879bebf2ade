//! Measures the pages that grow with the server: `/locks` with 100,000 locks and `/audit` with a million events, beside
//! the same pages of the same server while it has none.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::emulator::Emulator;
use lockkeeper::store::DatabaseUrl;
use sqlx::ConnectOptions as _;
use sqlx_sqlite::SqliteConnectOptions;

use crate::locks::durable_postgres;
use crate::report::{Section, Table};
use crate::server::{self, PASSWORD, Server};
use crate::stats::{Samples, ratio};

/// Number of requests for a page.
const ROUNDS: usize = 300;
/// Number of requests for a search, which reads every lock.
const SEARCHES: usize = 20;

/// Open pull requests, each with a lock. `$1` is now, `$2` the first number and `$3` the last.
const ADD_PULLS: &str = "INSERT INTO pulls (repo, number, state, url, title, updated_at) \
     SELECT 'github.test/acme/r' || (n % 500), n, 'open', 'https://github.test/acme/r' || (n % 500) || '/pull/' || n, NULL, $1 \
     FROM (WITH RECURSIVE s(n) AS (SELECT $2 UNION ALL SELECT n + 1 FROM s WHERE n < $3) SELECT n FROM s) AS s";
const ADD_LOCKS: &str = "INSERT INTO locks (id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, \
     taken_at, active_at) SELECT '00000000-0000-7000-8000-' || substr('' || (1000000000000 + n), 2), \
     'github.test/acme/r' || (n % 500), 'stacks/app' || n, 'default', '', '', n, \
     'https://github.test/acme/r' || (n % 500) || '/pull/' || n, 'alice', 'planned by comment', $1, $1 \
     FROM (WITH RECURSIVE s(n) AS (SELECT $2 UNION ALL SELECT n + 1 FROM s WHERE n < $3) SELECT n FROM s) AS s";
const ADD_EVENTS: &str = "INSERT INTO lock_events (seq, at, kind, repo, dir, workspace, pull, actor, origin, reason, \
     previous, hash) SELECT n, $1, 'taken', 'github.test/acme/r' || (n % 500), 'stacks/app' || n, 'default', n, 'alice', \
     'comment', 'planned by comment', '0000000000000000000000000000000000000000000000000000000000000000', '0000000000000000000000000000000000000000000000000000000000000000' \
     FROM (WITH RECURSIVE s(n) AS (SELECT $2 UNION ALL SELECT n + 1 FROM s WHERE n < $3) SELECT n FROM s) AS s";

/// Number of locks on a full page, and of all locks.
const LOCKS: [i64; 2] = [300, 100_000];
/// Number of events on a full page, and of all events.
const EVENTS: [i64; 2] = [100, 1_000_000];

/// Measures the pages and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let (postgres, version) = durable_postgres().await?;
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "requests", "p99 ÷ empty"]);
    for database in [None, Some(&postgres)] {
        let name = database.map_or("SQLite", |_| "PostgreSQL");
        pages(&work.join(format!("pages-{name}")), database, &mut table)
            .await
            .context(name)?;
    }
    let mut section = Section::new("Long lists on pages").with_table(table);
    section.note("Whole requests over one connection, one after the other, with a password. `/locks` shows 300 locks, `/audit` 100 events.");
    section.note(format!("Both databases are durable. {version}"));
    Ok(section)
}

async fn pages(
    dir: &Path,
    database: Option<&DatabaseUrl>,
    table: &mut Table,
) -> anyhow::Result<()> {
    std::fs::create_dir(dir)?;
    let name = database.map_or("SQLite", |_| "PostgreSQL");
    let github = server::github(dir).await?;
    let own = DatabaseUrl::Sqlite(dir.join("data/lockkeeper.db"));
    let filled = database.unwrap_or(&own);

    let server = start(dir, &github, database).await?;
    let mut empty = Vec::new();
    for page in ["locks", "audit"] {
        let samples = load(&server, page, ROUNDS).await?;
        row(table, &format!("{name}, /{page}, empty"), &samples, None);
        empty.push(samples);
    }
    let (no_locks, no_events) = (empty[0].clone(), empty[1].clone());
    server.stop().await?;

    let (mut locks, mut events) = (0, 0);
    for (more_locks, more_events) in LOCKS.into_iter().zip(EVENTS) {
        fill(filled, ADD_PULLS, locks + 1, more_locks).await?;
        fill(filled, ADD_LOCKS, locks + 1, more_locks).await?;
        fill(filled, ADD_EVENTS, events + 1, more_events).await?;
        (locks, events) = (more_locks, more_events);
        let server = start(dir, &github, database).await?;
        let samples = load(&server, "locks", ROUNDS).await?;
        row(
            table,
            &format!("{name}, /locks, {locks} locks"),
            &samples,
            Some(&no_locks),
        );
        let samples = load(&server, "audit", ROUNDS).await?;
        row(
            table,
            &format!("{name}, /audit, {events} events"),
            &samples,
            Some(&no_events),
        );
        server.stop().await?;
    }
    let server = start(dir, &github, database).await?;
    let samples = load(&server, "locks?q=app99999", SEARCHES).await?;
    row(
        table,
        &format!("{name}, a search in {locks} locks"),
        &samples,
        Some(&no_locks),
    );
    server.stop().await
}

async fn start(
    dir: &Path,
    github: &Emulator,
    database: Option<&DatabaseUrl>,
) -> anyhow::Result<Server> {
    match database {
        None => Server::start(dir, github).await,
        Some(database) => Server::start_on(dir, github, database).await,
    }
}

fn row(table: &mut Table, what: &str, samples: &Samples, empty: Option<&Samples>) {
    let compared = empty.map_or_else(
        || "1".to_owned(),
        |empty| ratio(samples.quantile(99), empty.quantile(99)),
    );
    table.row(what, samples.cells().into_iter().chain([compared]));
}

async fn load(server: &Server, page: &str, rounds: usize) -> anyhow::Result<Samples> {
    let client = reqwest::Client::new();
    let url = server.events.replace("events", page);
    let mut samples = Samples::default();
    // The first request opens the connection, and the databases read what later ones find in memory.
    for round in 0..=rounds {
        let since = Instant::now();
        let answer = client
            .get(&url)
            .basic_auth("lockkeeper", Some(PASSWORD))
            .send()
            .await?;
        ensure!(answer.status() == 200, "{url}: {}", answer.status());
        answer.bytes().await?;
        if round > 0 {
            samples.push(since.elapsed());
        }
    }
    Ok(samples)
}

/// Adds the rows with these numbers.
async fn fill(
    database: &DatabaseUrl,
    sql: &'static str,
    first: i64,
    last: i64,
) -> anyhow::Result<()> {
    let now = SystemClock.now();
    match database {
        DatabaseUrl::Sqlite(path) => {
            let options = SqliteConnectOptions::new()
                .filename(path)
                .busy_timeout(Duration::from_mins(1));
            let mut connection = options.connect().await?;
            sqlx::query(sql)
                .bind(now)
                .bind(first)
                .bind(last)
                .execute(&mut connection)
                .await?;
        }
        DatabaseUrl::Postgres(options) => {
            let mut connection = options.connect().await?;
            sqlx::query(sql)
                .bind(now)
                .bind(first)
                .bind(last)
                .execute(&mut connection)
                .await?;
            // As autovacuum does some time after so many rows.
            sqlx::query("VACUUM ANALYZE")
                .execute(&mut connection)
                .await?;
        }
    }
    Ok(())
}
