//! Measures how long it takes to release a lock for which a thousand pull requests are queued.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use lockkeeper::locks::{LockRequest, QueuedPlan, take_all};
use lockkeeper::model::{Actor, Cause, LockKey, ProjectKey, PullRef, PullState, RepoPath, Subject};
use lockkeeper::store::{DatabaseUrl, Store};

use crate::locks::{durable_postgres, open};
use crate::report::{Section, Table};
use crate::stats::Samples;

/// Number of queued pull requests at the beginning.
const WAITERS: i64 = 1000;
/// Number of measured releases. Each shortens the queue by one pull request.
const RELEASES: i64 = 100;
const URL: &str = "https://github.test/acme/infra/pull/1";

/// Measures releases and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let sqlite = open(&DatabaseUrl::Sqlite(work.join("line.db"))).await?;
    let (url, version) = durable_postgres().await?;
    let postgres = open(&url).await?;
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "releases"]);
    for (name, store) in [("SQLite", &sqlite), ("PostgreSQL", &postgres)] {
        let alone = releases(store, "alone", 0).await.context(name)?;
        let queued = releases(store, "wanted", WAITERS).await.context(name)?;
        table.row(format!("{name}, nobody waits"), alone.cells());
        table.row(
            format!("{name}, {WAITERS} pull requests wait"),
            queued.cells(),
        );
    }
    sqlite.close().await;
    postgres.close().await;
    let mut section = Section::new("Release of a lock that others wait for").with_table(table);
    section
        .note(format!("`Store::lock_release` until it is durable, with the hand-over to the next in the queue. {version}"));
    Ok(section)
}

/// Releases a lock again and again. With an empty queue, the lock is taken again in between, which is not measured.
async fn releases(store: &Store, dir: &str, waiters: i64) -> anyhow::Result<Samples> {
    let project = ProjectKey::of_dir(RepoPath::new(dir)?);
    for number in 0..=waiters {
        take(store, &pull(number), &project).await?;
    }
    let cause = Arc::new(Cause::new(Actor::commenter("alice"), "unlocked"));
    let mut samples = Samples::default();
    for number in 0..RELEASES {
        let holder = pull(if waiters == 0 { 0 } else { number });
        let since = Instant::now();
        ensure!(
            store.lock_release(&holder, &project, &cause).await?,
            "{holder} did not hold the lock"
        );
        samples.push(since.elapsed());
        if waiters == 0 {
            take(store, &holder, &project).await?;
        }
    }
    Ok(samples)
}

async fn take(store: &Store, pull: &PullRef, project: &ProjectKey) -> anyhow::Result<()> {
    store.pull_seen(pull, PullState::Open, URL).await?;
    let ask = QueuedPlan {
        project: project.clone(),
        extra_args: Vec::new(),
    };
    let request = LockRequest {
        key: LockKey::of(&pull.repo, project),
        ask,
    };
    let cause = Cause::new(Actor::commenter("alice"), "planned");
    take_all(store, pull, URL, &[request], &cause, true).await?;
    Ok(())
}

fn pull(number: i64) -> PullRef {
    let repo = "github.test/acme/infra"
        .parse()
        .expect("the constant is the name of a repository");
    PullRef {
        repo,
        subject: Subject::pull(number + 1),
    }
}
