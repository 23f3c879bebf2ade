//! Pulls whose opening, push, change of base or close was never told: the open pulls of every known repository are listed
//! and compared with where they stood when that was last taken up.
//!
//! A repository is known once an event of it came, or a pull of it is on record. What had changed before that is only
//! noted: nobody wants the backlog of a repository planned because Lockkeeper was switched on. Whether a pull really
//! stands elsewhere, or is closed, the forge is asked for each before anything is done, and then the same is done as if
//! the event had come (`handlers/events`), in a transaction that does nothing if it has.
//!
//! The repository that was not looked at for longest goes first, and only one replica looks at it. Pages that have not
//! changed are not sent again, which costs nothing of the forge's rate limit; when little of that is left, the rest
//! waits for the next time, because commands need it more.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use tracing::{info, warn};

use super::listing::{Look, look};
use super::{Found, gone};
use crate::context::Ctx;
use crate::handlers::claimed::{self, Service};
use crate::handlers::identity::{self, Asker};
use crate::model::RepoId;
use crate::store::{Absence, WatchedRepo};
use crate::vcs::{Budget, ForgeError};

/// Repositories that are looked at in one go; others have their turn the next time.
const AT_ONCE: i64 = 500;
/// Shorter than the time from one go to the next, so that no repository misses a turn.
const NOT_AGAIN_FOR: TimeDelta = TimeDelta::seconds(270);
/// What is not served any more may be served again some day.
const NOT_SERVED_FOR: TimeDelta = TimeDelta::days(1);
/// Longest wait for a repository that could not be looked at; waits double up to it.
const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);
/// Percent of a window of requests that are left to commands.
pub(super) const LEFT_TO_COMMANDS: u64 = 20;

/// Finds what no event has told.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    ctx.store.watched_discover().await?;
    let mut found = Found::default();
    let mut thrift = Thrift::default();
    for watched in ctx.store.watched_list_due(AT_ONCE).await? {
        if ctx.closing.is_cancelled() || thrift.stops_all() {
            break;
        }
        if thrift.allows(&watched.repo) {
            found += turn(ctx, &watched, &mut thrift).await?;
        }
    }
    thrift.tell();
    Ok(found)
}

/// The turn of one repository, unless another replica has it.
async fn turn(ctx: &Ctx, watched: &WatchedRepo, thrift: &mut Thrift) -> anyhow::Result<Found> {
    let is_served = claimed::service(ctx, &watched.repo).await? == Service::Served;
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
        return Ok(Found::default());
    }
    let mut found = Found {
        looked_at: 1,
        repaired: 0,
    };
    match look(ctx, watched, &mut found).await? {
        Look::Done { budget, complete } => {
            thrift.note(&watched.repo, budget);
            ctx.store.watched_seen(&watched.repo, complete).await?;
            ctx.store
                .absence_forget(Absence::Repo(&watched.repo))
                .await?;
        }
        Look::Failed(error @ (ForgeError::RateLimited { .. } | ForgeError::Unavailable { .. })) => {
            thrift.give_up(&error);
        }
        Look::Failed(ForgeError::Moved { repo, .. }) => follow(ctx, &repo).await,
        Look::Failed(error @ ForgeError::NotFound { .. }) => {
            put_off(ctx, watched, &error).await?;
            match gone::repository(ctx, &watched.repo).await {
                Ok(repaired) => found.repaired += repaired,
                Err(error) => {
                    warn!(repo = %watched.repo, error = format!("{error:#}"), "Whether a repository is gone cannot be told");
                }
            }
        }
        Look::Failed(error @ (ForgeError::Denied { .. } | ForgeError::Rejected { .. })) => {
            put_off(ctx, watched, &error).await?;
        }
    }
    Ok(found)
}

/// The repository has another name now: everything that is kept of it moves there. What keeps it from that passes, or
/// somebody has to do something about it; the next look tries again.
pub(super) async fn follow(ctx: &Ctx, repo: &RepoId) {
    if let Err(error) = identity::look(ctx, repo, Asker::default()).await {
        warn!(%repo, error = error.message(), "What is kept of a repository that was renamed could not be moved yet");
    }
}

/// A repository that is gone, or that we may not see any more, is asked about ever more rarely.
async fn put_off(ctx: &Ctx, watched: &WatchedRepo, error: &ForgeError) -> anyhow::Result<()> {
    let doublings = u32::try_from(watched.failures.clamp(0, 16)).unwrap_or_default();
    let wait = (NOT_AGAIN_FOR * 2_i32.pow(doublings)).min(LONGEST_WAIT);
    warn!(repo = %watched.repo, %error, "The open pull requests of a repository cannot be listed; it is tried again later");
    ctx.store
        .watched_failed(&watched.repo, ctx.clock.now() + wait)
        .await?;
    Ok(())
}

/// Who is not to be asked about any more this time, because little is left of the right to ask, or there is no answer.
#[derive(Default)]
struct Thrift {
    all: bool,
    owners: BTreeSet<String>,
    /// Why it stopped, for the log.
    words: Vec<String>,
}

impl Thrift {
    fn stops_all(&self) -> bool {
        self.all
    }

    fn allows(&self, repo: &RepoId) -> bool {
        !self.owners.contains(repo.owner())
    }

    fn note(&mut self, repo: &RepoId, budget: Option<Budget>) {
        let Some(budget) = budget.filter(|budget| budget.is_below(LEFT_TO_COMMANDS)) else {
            return;
        };
        let Budget {
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
        self.all |= !per_owner;
        self.owners.insert(repo.owner().to_owned());
    }

    /// The next question would end in the same way.
    fn give_up(&mut self, error: &ForgeError) {
        self.words.push(error.to_string());
        self.all = true;
    }

    fn tell(&self) {
        if !self.words.is_empty() {
            let why = self.words.join("; ");
            info!(
                why,
                "The search for missed events leaves the rest for later"
            );
        }
    }
}
