//! Measures how many repositories per second owners can claim, on both databases. Some repositories are new, others
//! are already claimed by another owner.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lockkeeper::claims::{ApplicationSaved, application_add};
use lockkeeper::model::{
    Actor, ApplicationSpec, Cause, OwnerName, RepoPath, RepoUrl, Rights, WorkspaceName,
};
use lockkeeper::store::{Acquired, CreateOwner, DatabaseUrl, Owner, Store};

use crate::locks::{durable_postgres, open};
use crate::report::{Section, Table};
use crate::stats::Samples;

/// Numbers of concurrent tasks.
const TASKS: [u64; 3] = [1, 8, 64];
/// Time before the measurement starts, so that connections and statements are ready.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(3);

static CAUSE: LazyLock<Cause> = LazyLock::new(|| Cause::new(Actor::commenter("alice"), "measured"));

/// Number of owners that register in turn, because the number of applications of one owner is limited.
const TEAMS: u64 = 32;

/// Operation that is measured.
#[derive(Clone, Copy)]
enum What {
    /// Claiming a repository that has no owner.
    Acquire,
    /// Registering an application, which includes its claim and its reference.
    Register,
    /// Claiming a repository that another owner has claimed.
    Refused,
}

impl What {
    const ALL: [(Self, &str); 3] = [
        (Self::Acquire, "acquire"),
        (Self::Register, "application with its claim"),
        (Self::Refused, "refused, it is another's"),
    ];
}

/// Measures claims and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let sqlite = open(&DatabaseUrl::Sqlite(work.join("claims.db"))).await?;
    let (url, version) = durable_postgres().await?;
    let postgres = open(&url).await?;
    let mut table = Table::new(&[
        "claims",
        "per second",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "count",
    ]);
    for (name, store) in [("SQLite", &sqlite), ("PostgreSQL", &postgres)] {
        let owners = [owner(store, "net").await?, owner(store, "dns").await?];
        for team in 0..TEAMS {
            owner(store, &format!("team{team}")).await?;
        }
        ensure!(
            acquire(store, &owners[0], 0).await?,
            "the first claim was refused"
        );
        for (what, label) in What::ALL {
            for tasks in TASKS {
                let (latency, took) = run(store, &owners, what, tasks).await.context(name)?;
                let count = u32::try_from(latency.count()).unwrap_or(u32::MAX);
                let rate = format!("{:.0}", f64::from(count) / took.as_secs_f64());
                table.row(
                    format!("{name}, {label}, {tasks} at once"),
                    std::iter::once(rate).chain(latency.cells()),
                );
            }
        }
    }
    sqlite.close().await;
    postgres.close().await;
    let mut section = Section::new("Claims on repositories, both durable").with_table(table);
    section.note(format!("SQLite: WAL, synchronous = FULL. {version}"));
    section.note("Each new claim is an event of the audit log, in the same transaction.");
    Ok(section)
}

async fn owner(store: &Store, name: &str) -> anyhow::Result<Owner> {
    let name: OwnerName = name.parse()?;
    match store.owner_create(&name, &CAUSE).await? {
        CreateOwner::Created(owner) => Ok(owner),
        CreateOwner::AlreadyThere(_) | CreateOwner::TooMany(_) => {
            bail!("a new database has an owner")
        }
    }
}

async fn run(
    store: &Store,
    owners: &[Owner; 2],
    what: What,
    tasks: u64,
) -> anyhow::Result<(Samples, Duration)> {
    together(store, owners, what, tasks, WARM_UP).await?;
    let since = Instant::now();
    let latency = together(store, owners, what, tasks, MEASURED).await?;
    Ok((latency, since.elapsed()))
}

async fn together(
    store: &Store,
    owners: &[Owner; 2],
    what: What,
    tasks: u64,
    time: Duration,
) -> anyhow::Result<Samples> {
    let (until, owners) = (Instant::now() + time, Arc::new(owners.clone()));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let (store, owners) = (store.clone(), Arc::clone(&owners));
        running.spawn(async move {
            let mut samples = Vec::new();
            while Instant::now() < until {
                let since = Instant::now();
                once(&store, &owners, what).await?;
                samples.push(since.elapsed());
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

async fn once(store: &Store, owners: &[Owner; 2], what: What) -> anyhow::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let fresh = || NEXT.fetch_add(1, Ordering::Relaxed);
    let as_expected = match what {
        What::Acquire => acquire(store, &owners[0], fresh()).await?,
        What::Refused => !acquire(store, &owners[1], 0).await?,
        What::Register => {
            let number = fresh();
            let team: OwnerName = format!("team{}", number % TEAMS).parse()?;
            let saved =
                application_add(store, &team, &spec(number)?, (Rights::Whole, &CAUSE)).await?;
            matches!(saved, ApplicationSaved::Saved(_))
        }
    };
    ensure!(as_expected, "the claim was not as it had to be");
    Ok(())
}

/// Claims a repository. Returns true if the owner holds it now.
async fn acquire(store: &Store, owner: &Owner, number: u64) -> anyhow::Result<bool> {
    Ok(matches!(
        store.claim_acquire(owner.id, &url(number)?, &CAUSE).await?,
        Acquired::Claimed(_)
    ))
}

fn url(number: u64) -> anyhow::Result<RepoUrl> {
    Ok(RepoUrl::parse(&format!(
        "https://github.com/acme/r{number}"
    ))?)
}

fn spec(number: u64) -> anyhow::Result<ApplicationSpec> {
    let (dir, workspace) = (RepoPath::root(), WorkspaceName::default());
    Ok(ApplicationSpec {
        url: url(number)?,
        branch: "main".parse()?,
        dir,
        workspace,
        name: None,
        any_branch: false,
    })
}
