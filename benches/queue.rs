//! Measures how many jobs per second are claimed and finished, by one server and by three.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chrono::TimeDelta;
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::store::{DatabaseUrl, JobClaim, JobFinish, NewJob, Store};

use crate::locks::{durable_postgres, open};
use crate::report::{Section, Table};

/// Number of jobs in the queue, each in its own lane.
const JOBS: u32 = 3000;
/// Number of workers per server, the same as for short jobs of a real server.
const WORKERS: u32 = 8;

/// Measures the queue and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let (url, version) = durable_postgres().await?;
    let sqlite = DatabaseUrl::Sqlite(work.join("queue.db"));
    let mut table = Table::new(&["jobs claimed and finished", "jobs/s", "jobs"]);
    let mut row = |name: &str, took: Duration| {
        let rate = f64::from(JOBS) / took.as_secs_f64();
        table.row(name, [format!("{rate:.0}"), JOBS.to_string()]);
        rate
    };
    row(
        "SQLite, 1 server",
        empty(&sqlite, 1).await.context("SQLite")?,
    );
    let one = row(
        "PostgreSQL, 1 server",
        empty(&url, 1).await.context("PostgreSQL")?,
    );
    let three = row(
        "PostgreSQL, 3 servers",
        empty(&url, 3).await.context("PostgreSQL")?,
    );
    table.row("3 servers : 1", [format!("{:.2}", three / one)]);
    let mut section = Section::new("Jobs: claim and finish, both durable").with_table(table);
    section.note(format!(
        "`Store::job_claim` and `job_finish_and_claim`, {WORKERS} workers per server, which does nothing else. {version}"
    ));
    Ok(section)
}

/// Fills the queue and returns how long it takes to empty it.
async fn empty(url: &DatabaseUrl, servers: u32) -> anyhow::Result<Duration> {
    let mut stores = Vec::new();
    for _ in 0..servers {
        stores.push(open(url).await?);
    }
    for n in 0..JOBS {
        stores[0].job_push(&job(n)).await?;
    }
    let since = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for (server, store) in stores.iter().enumerate() {
        for worker in 0..WORKERS {
            workers.spawn(work_off(store.clone(), format!("server-{server}-{worker}")));
        }
    }
    let mut done = 0;
    while let Some(count) = workers.join_next().await {
        done += count??;
    }
    let took = since.elapsed();
    ensure!(done == JOBS, "{done} of {JOBS} jobs were done");
    for store in stores {
        store.close().await;
    }
    Ok(took)
}

async fn work_off(store: Store, holder: String) -> anyhow::Result<u32> {
    let mut done = 0;
    let claim = || JobClaim {
        except: "none",
        ..JobClaim::any(&holder, SystemClock.now() + TimeDelta::minutes(1))
    };
    let mut next = store.job_claim(&claim()).await?;
    while let Some(lease) = next {
        let (finish, after) = store.job_finish_and_claim(&lease, &claim()).await?;
        ensure!(finish == JobFinish::Recorded, "a job was lost");
        next = after;
        done += 1;
    }
    Ok(done)
}

fn job(n: u32) -> NewJob {
    NewJob {
        kind: "work",
        payload: "{}".to_owned(),
        lane: format!("lane-{n}"),
        share: String::new(),
        priority: 0,
        run_after: None,
    }
}
