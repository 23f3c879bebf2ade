//! Finds missed events: an opened pull request, a push, a change of the base, or a close. It lists the open pull
//! requests of every known repository and compares them with their last handled state.
//!
//! A repository is known once it had an event, or a pull request of it was recorded. Earlier changes are only noted:
//! nobody wants plans for the backlog of a repository because Lockkeeper was switched on. Before anything is done,
//! the forge confirms each pull request that seems to have changed or closed. Then the change is handled as if the
//! event had arrived (`features/events`), in a transaction that does nothing if it has.
//!
//! The repository with the oldest check goes first, and only one replica checks it. Unchanged pages are not sent
//! again, which costs nothing of the forge's rate limit. If few requests are left, the remaining repositories wait
//! for the next tick, because commands need the requests more.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use tracing::{info, warn};

use super::listing::{ListingResult, compare_open_pulls};
use super::{WatchedRepo, gone};
use crate::context::Ctx;
use crate::features::owners::{self, Service};
use crate::features::renames;
use crate::forges::{ForgeError, RequestBudget};
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{HostName, RepoId};
use crate::store::Absence;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "missed_events",
    "Lists the open pull requests of the forge and handles changes whose events never arrived.",
    Duration::from_mins(5),
    |ctx| Box::pin(tick(ctx)),
);

/// Maximum number of repositories in one tick; others follow in the next ones.
const AT_ONCE: i64 = 500;
/// Time until the next check of a repository. It is shorter than the period, so that no repository misses a tick.
const NOT_AGAIN_FOR: TimeDelta = TimeDelta::seconds(270);
/// Time until the next check of a repository that is not served. It may be served again later.
const NOT_SERVED_FOR: TimeDelta = TimeDelta::days(1);
/// Longest wait for a repository that could not be checked; waits double up to it.
const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);
/// Percentage of a rate limit window that is left to commands.
pub(crate) const LEFT_TO_COMMANDS: u64 = 20;

/// Finds changes that no event has reported.
async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    ctx.store.watched_discover().await?;
    let mut found = TickResult::default();
    let mut exhausted = ExhaustedForges::default();
    for watched in ctx.store.watched_list_due(AT_ONCE).await? {
        if ctx.closing.is_cancelled() {
            break;
        }
        if exhausted.allows(&watched.repo) {
            found += turn(ctx, &watched, &mut exhausted).await?;
        }
    }
    exhausted.log();
    Ok(found)
}

/// Checks one repository, unless another replica does.
async fn turn(
    ctx: &Ctx,
    watched: &WatchedRepo,
    exhausted: &mut ExhaustedForges,
) -> anyhow::Result<TickResult> {
    let is_served = owners::service(ctx, &watched.repo).await? == Service::Served;
    let wait = if is_served {
        NOT_AGAIN_FOR
    } else {
        NOT_SERVED_FOR
    };
    if !ctx
        .store
        .watched_claim(watched, ctx.clock.now() + wait)
        .await?
        || !is_served
    {
        return Ok(TickResult::default());
    }
    let mut found = TickResult {
        looked_at: 1,
        repaired: 0,
    };
    match compare_open_pulls(ctx, watched, &mut found).await? {
        ListingResult::Done { budget, complete } => {
            exhausted.note(&watched.repo, budget);
            ctx.store.watched_seen(&watched.repo, complete).await?;
            ctx.store
                .absence_forget(Absence::Repo(&watched.repo))
                .await?;
        }
        ListingResult::Failed(
            error @ (ForgeError::RateLimited { .. } | ForgeError::Unavailable { .. }),
        ) => {
            exhausted.give_up(&watched.repo, &error);
        }
        ListingResult::Failed(ForgeError::Moved { repo, .. }) => follow(ctx, &repo).await,
        ListingResult::Failed(error @ ForgeError::NotFound { .. }) => {
            put_off(ctx, watched, &error).await?;
            match gone::repository(ctx, &watched.repo).await {
                Ok(repaired) => found.repaired += repaired,
                Err(error) => {
                    warn!(repo = %watched.repo, error = format!("{error:#}"), "Cannot check whether a repository still exists");
                }
            }
        }
        ListingResult::Failed(
            error @ (ForgeError::Denied { .. }
            | ForgeError::NotConfigured { .. }
            | ForgeError::Rejected { .. }),
        ) => {
            put_off(ctx, watched, &error).await?;
        }
    }
    Ok(found)
}

/// Follows a renamed repository: all its rows move to the new name. An obstacle is temporary, or an administrator has
/// to remove it; the next tick tries again.
pub(crate) async fn follow(ctx: &Ctx, repo: &RepoId) {
    if let Err(error) = renames::follow_redirect(ctx, repo, None).await {
        warn!(%repo, error = error.message(), "The records of a renamed repository could not be moved yet");
    }
}

/// Increases the wait for a repository that is gone or not visible any more.
async fn put_off(ctx: &Ctx, watched: &WatchedRepo, error: &ForgeError) -> anyhow::Result<()> {
    let doublings = u32::try_from(watched.failures.clamp(0, 16)).unwrap_or_default();
    let wait = (NOT_AGAIN_FOR * 2_i32.pow(doublings)).min(LONGEST_WAIT);
    warn!(repo = %watched.repo, %error, "The open pull requests of a repository cannot be listed; retrying later");
    if let Ok(forge) = ctx.forges.of(&watched.repo) {
        forge.renew_access(&watched.repo);
    }
    ctx.store
        .watched_failed(&watched.repo, ctx.clock.now() + wait)
        .await?;
    Ok(())
}

/// Forges and owners without further requests in this tick, because few requests are left or the forge does not
/// answer.
#[derive(Default)]
struct ExhaustedForges {
    hosts: BTreeSet<HostName>,
    owners: BTreeSet<(HostName, String)>,
    /// Reasons to stop, for the log.
    words: Vec<String>,
}

impl ExhaustedForges {
    fn allows(&self, repo: &RepoId) -> bool {
        !self.hosts.contains(repo.host()) && !self.owners.contains(&owner_of(repo))
    }

    fn note(&mut self, repo: &RepoId, budget: Option<RequestBudget>) {
        let Some(budget) = budget.filter(|budget| budget.is_below(LEFT_TO_COMMANDS)) else {
            return;
        };
        let RequestBudget {
            remaining,
            limit,
            resets_at,
            per_owner,
        } = budget;
        let whose = if per_owner {
            format!(" for {}", repo.owner())
        } else {
            String::new()
        };
        self.words.push(format!(
            "{remaining} of {limit} requests are left{whose} until {resets_at}"
        ));
        if per_owner {
            self.owners.insert(owner_of(repo));
        } else {
            self.hosts.insert(repo.host().clone());
        }
    }

    /// Stops all further requests to a forge, because they would fail in the same way.
    fn give_up(&mut self, repo: &RepoId, error: &ForgeError) {
        self.words.push(error.to_string());
        self.hosts.insert(repo.host().clone());
    }

    fn log(&self) {
        if !self.words.is_empty() {
            let why = self.words.join("; ");
            info!(why, "The search for missed events continues later");
        }
    }
}

fn owner_of(repo: &RepoId) -> (HostName, String) {
    (repo.host().clone(), repo.owner().to_owned())
}
