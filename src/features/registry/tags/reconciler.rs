//! Reads the tags of repositories, and takes up those that need something.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

use super::scan::{Budget, TagScan};
use super::store::TaggedRepo;
use crate::config::server::TaggedCommits;
use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::RepoId;

/// Maximum number of repositories in one tick.
const MAX_LOOKS: usize = 50;
/// Maximum number of versions that one tick packs.
const MAX_VERSIONS: usize = 50;
/// Time after which a tick begins nothing more, and the longest time for one repository. Together they are below the limit
/// of a tick, so that a large package can end.
const TICK_TIME: Duration = Duration::from_mins(2);
const LOOK_TIME: Duration = Duration::from_mins(11);

pub(in crate::features::registry) const RECONCILER: Reconciler = Reconciler::new(
    "registry_tags",
    "Publishes versions from tags of repositories whose owners have namespaces of the registry.",
    Duration::from_secs(30),
    |ctx| Box::pin(tick(ctx)),
);

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let parts = ctx.server.registry.as_ref();
    let Some(parts) = parts.filter(|parts| parts.config.tags_from != TaggedCommits::None) else {
        return Ok(TickResult::default());
    };
    let mut budget = Budget {
        versions: MAX_VERSIONS,
        until: Instant::now() + TICK_TIME,
    };
    let (mut registry, mut result) = (None, TickResult::default());
    for (repo, known) in due(ctx).await?.into_iter().take(MAX_LOOKS) {
        if budget.is_spent() || ctx.closing.is_cancelled() {
            break;
        }
        let mut scan = TagScan {
            ctx,
            parts,
            registry: &mut registry,
            budget: &mut budget,
        };
        result.looked_at += 1;
        // A failure of one repository, such as data that cannot be read, does not keep the others.
        let looked = timeout(LOOK_TIME, Box::pin(scan.scan(&repo, known.as_ref()))).await;
        let looked = looked.unwrap_or_else(|_| Err(anyhow::anyhow!("it takes too long")));
        match looked {
            Ok(decided) => result.repaired += decided,
            Err(error) => {
                let error = format!("{error:#}");
                warn!(%repo, error, "Could not look at the tags of a repository");
                let failures = known.map_or(0, |known| known.failures) + 1;
                let due_at = ctx.clock.now() + super::scan::pause(failures);
                ctx.store
                    .registry_tag_repo_failed(&repo, failures, &error, due_at)
                    .await?;
            }
        }
    }
    Ok(result)
}

/// Returns the repositories that are due, those that have waited longest first.
async fn due(ctx: &ServerCtx) -> anyhow::Result<Vec<(RepoId, Option<TaggedRepo>)>> {
    let now = ctx.clock.now();
    let mut places = ctx.store.registry_tag_places().await?;
    let allowlist = &ctx.settings.repos.allowlist;
    places.retain(|repo| ctx.forges.has(repo.host()) && allowlist.allows(repo));
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let known = ctx.store.registry_tag_repos().await?;
    let mut known: BTreeMap<RepoId, TaggedRepo> = known
        .into_iter()
        .map(|known| (known.repo.clone(), known))
        .collect();
    // News of the mirror come before the time of the next look.
    let data_dir_id = ctx.server.syncer.data_dir_id();
    let synced = ctx.store.registry_tag_repos_synced(data_dir_id).await?;
    let synced: BTreeSet<RepoId> = synced.into_iter().collect();
    let mut due: Vec<(RepoId, Option<TaggedRepo>)> = places
        .into_iter()
        .map(|repo| {
            let known = known.remove(&repo);
            (repo, known)
        })
        .filter(|(repo, known)| {
            let is_over = known.as_ref().is_none_or(|known| known.due_at <= now);
            is_over || synced.contains(repo)
        })
        .collect();
    due.sort_by_key(|(_, known)| known.as_ref().map(|known| known.due_at));
    Ok(due)
}
