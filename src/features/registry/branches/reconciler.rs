//! Looks at the default branches of repositories that are due, and forgets repositories that are gone.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper_registry::names::{NameKind, RegistryName};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::super::RegistryNamespace;
use super::super::blobs::blocking;
use super::super::tags::{list_forge, pause};
use super::read::{is_wanted, uses_in};
use super::store::{BranchReading, BranchUse, WatchedBranch};
use crate::context::ServerCtx;
use crate::git::{FileLimits, Mirror, Remote};
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{CommitSha, RepoId, Sha256Digest};

/// Maximum number of repositories in one tick, and of those that are forgotten.
const MAX_LOOKS: usize = 50;
const MAX_FORGOTTEN: i64 = 20;
/// Time after which a tick begins nothing more, and the longest time for one repository. Together they are below the limit
/// of a tick.
const TICK_TIME: Duration = Duration::from_mins(2);
const LOOK_TIME: Duration = Duration::from_mins(6);
/// Longest time for the files of a commit that the mirror does not have.
const COMMIT_TIME: Duration = Duration::from_mins(5);
/// Time between two looks at a repository whose mirror is not synced meanwhile.
const LOOK_EVERY: TimeDelta = TimeDelta::hours(1);
/// Maximum number of files with code of a repository, of their bytes together, and of the bytes of one.
const LIMITS: FileLimits = FileLimits {
    entries: 20_000,
    bytes: 128 << 20,
};
const MAX_FILE: u64 = 1 << 20;
/// Maximum number of uses of a repository. Each is a row.
const MAX_USES: usize = 2_000;
/// Maximum number of uses that are searched for, with Go modules that are not in the registry. Each is in memory, and the
/// longest ones have about three KiB.
const MAX_FOUND: usize = 20_000;
/// Failure of a reading that has begun and not ended.
const CUT_OFF: &str = "the server stopped while it read the files";
/// Number of this version of the rules. A larger one lets all default branches be read again.
const RULES: u32 = 1;

pub(in crate::features::registry) const RECONCILER: Reconciler = Reconciler::new(
    "registry_branches",
    "Reads which modules of the registry the default branches of repositories use, and forgets repositories that are gone.",
    Duration::from_mins(1),
    |ctx| Box::pin(tick(ctx)),
);

/// Facts that decide what counts as a use.
struct UseFacts<'a> {
    host: &'a str,
    namespaces: Vec<RegistryNamespace>,
    basis: String,
}

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let Some(parts) = &ctx.server.registry else {
        return Ok(TickResult::default());
    };
    let store = &ctx.store;
    let most = usize::try_from(MAX_FORGOTTEN).unwrap_or_default();
    let forgotten = store.registry_branches_forget(MAX_FORGOTTEN).await?
        + store.registry_tags_forget(most).await?;
    let mut result = TickResult::repaired(forgotten);
    let facts = UseFacts::of(ctx, &parts.config.host).await?;
    let allowlist = &ctx.settings.repos.allowlist;
    let mut due = store
        .registry_branches_due(ctx.server.syncer.data_dir_id())
        .await?;
    due.retain(|known| ctx.forges.has(known.repo.host()) && allowlist.allows(&known.repo));
    let until = Instant::now() + TICK_TIME;
    for known in due.into_iter().take(MAX_LOOKS) {
        if Instant::now() >= until || ctx.closing.is_cancelled() {
            break;
        }
        result.looked_at += 1;
        let repo = &known.repo;
        let looked = timeout(LOOK_TIME, Box::pin(read_branch(ctx, &facts, &known))).await;
        match looked.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
            Ok(is_new) => result.repaired += u64::from(is_new),
            // A failure of one repository does not keep the others.
            Err(failure) => {
                let failures = known.failures + 1;
                warn!(%repo, failures, failure, "Could not read which modules of the registry a default branch uses");
                let due_at = ctx.clock.now() + pause(failures);
                store
                    .registry_branch_failed(repo, failures, &failure, due_at)
                    .await?;
            }
        }
    }
    Ok(result)
}

impl<'a> UseFacts<'a> {
    async fn of(ctx: &ServerCtx, host: &'a str) -> anyhow::Result<Self> {
        let namespaces = ctx.store.registry_namespaces().await?;
        let prefixes = namespaces.iter().map(|one| one.prefix.to_string());
        let mut prefixes: Vec<String> = prefixes.collect();
        prefixes.sort();
        let basis = format!("{RULES} {host} {}", prefixes.join(","));
        Ok(Self {
            host,
            namespaces,
            basis: Sha256Digest::of(basis.as_bytes()).to_string(),
        })
    }

    fn covers(&self, name: &RegistryName) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.prefix.covers(name))
    }
}

/// Looks at a repository. Returns true if its default branch was read. The error is a sentence for the log.
async fn read_branch(
    ctx: &ServerCtx,
    facts: &UseFacts<'_>,
    known: &WatchedBranch,
) -> Result<bool, String> {
    let (store, repo) = (&ctx.store, &known.repo);
    let mirror = ctx.server.syncer.mirror(repo);
    let (url, credentials, listed) = list_forge(ctx, repo, &mirror).await?;
    let due_at = ctx.clock.now() + LOOK_EVERY;
    let is_same = known.basis.as_ref() == Some(&facts.basis) && known.head_sha == listed.head;
    if is_same {
        let same = store.registry_branch_same(repo, due_at).await;
        return same.map(|()| false).map_err(|error| error.to_string());
    }
    let uses = match &listed.head {
        None => BTreeSet::new(),
        Some(head) => {
            let remote = Remote {
                url: &url,
                credentials: Some(&credentials),
                deadline: ctx.server.syncer.fetch_time().min(COMMIT_TIME),
            };
            // A reading that ends with the server counts as a failure, so that the next one waits.
            let failures = known.failures + 1;
            let retry_at = ctx.clock.now() + pause(failures);
            let begun = store.registry_branch_failed(repo, failures, CUT_OFF, retry_at);
            begun.await.map_err(|error| error.to_string())?;
            read(ctx, facts, (repo, &mirror), (&remote, head)).await?
        }
    };
    let reading = BranchReading {
        head: listed.head.as_ref(),
        basis: &facts.basis,
        uses: &uses,
        due_at,
    };
    let recorded = store.registry_branch_record(repo, &reading).await;
    recorded.map_err(|error| error.to_string())?;
    info!(%repo, uses = uses.len(), "Read which modules of the registry a default branch uses");
    Ok(true)
}

/// Returns everything of the registry that a commit uses.
async fn read(
    ctx: &ServerCtx,
    facts: &UseFacts<'_>,
    (repo, mirror): (&RepoId, &Mirror),
    (remote, head): (&Remote<'_>, &CommitSha),
) -> Result<BTreeSet<BranchUse>, String> {
    // The sync that brings the commit begins now, and the next look comes after a pause. A partial mirror has no files, so the
    // forge sends them.
    let has_head = mirror.has_commit(head).await.unwrap_or(false);
    if !has_head {
        ctx.server.syncer.used(repo).await;
        return Err(format!(
            "the mirror does not have the default branch ({}) yet",
            head.short()
        ));
    }
    let files = mirror.commit_files(remote, head).await;
    let files = files.map_err(|error| error.to_string())?;
    let selected = files.select(is_wanted, LIMITS, MAX_FILE).await;
    let selected = selected.map_err(|error| error.to_string())?;
    let left_out = selected.left_out;
    if left_out > 0 {
        warn!(%repo, left_out, "A repository has more or larger files with code than are read for its uses of the registry");
    }
    let host = facts.host.to_owned();
    let mut uses = blocking(move || uses_in(&host, &selected.files, MAX_FOUND)).await;
    if uses.len() >= MAX_FOUND {
        warn!(%repo, "A repository has more uses of modules than are read; those beyond {MAX_FOUND} are left out");
    }
    let of_go = uses.iter().filter(|used| used.name.kind() == NameKind::Go);
    let of_go: BTreeSet<&str> = of_go.map(|used| used.name.as_str()).collect();
    let of_go: Vec<&str> = of_go.into_iter().collect();
    let here = ctx.store.registry_go_known(&of_go).await;
    let here = here.map_err(|error| error.to_string())?;
    // Most Go modules are in no registry of a company.
    uses.retain(|used| match used.name.kind() {
        NameKind::Module => true,
        NameKind::Go => facts.covers(&used.name) || here.contains(used.name.as_str()),
    });
    if uses.len() > MAX_USES {
        let many = uses.len();
        warn!(%repo, many, "A repository uses the registry in more places than are stored");
        uses = uses.into_iter().take(MAX_USES).collect();
    }
    Ok(uses)
}
