//! Releases the locks of repositories and pull requests that are gone from the forge: a repository that was deleted,
//! or is archived, or that Lockkeeper may not see any more, and a pull request that does not exist.
//!
//! A forge may answer 404 for a moment, and so may credentials that somebody is changing. So a single check decides
//! nothing: the first one is noted, and only a second one, some minutes later, releases the locks. The audit log has
//! the times of both.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use tracing::{info, warn};

use super::CleanPull;
use super::missed::follow;
use crate::context::Ctx;
use crate::forges::{ForgeError, RepoFacts};
use crate::model::{Actor, Cause, Origin, PullRef, RepoId};
use crate::queue::Job;
use crate::store::Absence;

/// Minimum time between two checks. It is shorter than the period of a reconciler.
const APART: TimeDelta = TimeDelta::minutes(4);

/// Maximum age of the first check. An older one proves nothing, because a repository that was found again is not
/// checked any more. It is longer than the longest wait of a reconciler before the next check.
const TOO_LONG_AGO: TimeDelta = TimeDelta::days(2);

/// Handles a repository that the forge does not find. Returns how many pull requests hold nothing any more because of
/// that.
pub(crate) async fn repository(ctx: &Ctx, repo: &RepoId) -> anyhow::Result<u64> {
    if ctx.store.pull_list_of_repo(repo).await?.is_empty() {
        return Ok(0);
    }
    match ctx.forges.of(repo)?.repository(repo).await {
        Err(ForgeError::NotFound { .. }) => {
            let Some(since) = confirmed(ctx, Absence::Repo(repo)).await? else {
                return Ok(0);
            };
            let why = format!(
                "the repository is gone, or Lockkeeper may not see it any more: {}",
                two_lookups(ctx, since)
            );
            release(ctx, repo, &why).await
        }
        Err(error) => Err(error.into()),
        Ok(facts) if !is_same(ctx, &facts, repo).await? => {
            follow(ctx, repo).await;
            Ok(0)
        }
        Ok(facts) => {
            ctx.store.absence_forget(Absence::Repo(repo)).await?;
            if facts.archived {
                archived(ctx, repo).await
            } else {
                Ok(0)
            }
        }
    }
}

/// Handles a pull request that the forge does not find: it is gone, or its whole repository is. Returns how many pull
/// requests hold nothing any more because of that.
pub(crate) async fn pull(ctx: &Ctx, at: &PullRef) -> anyhow::Result<u64> {
    match ctx.forges.of(&at.repo)?.repository(&at.repo).await {
        Ok(facts) if is_same(ctx, &facts, &at.repo).await? => {}
        Ok(_) | Err(ForgeError::NotFound { .. }) => return repository(ctx, &at.repo).await,
        Err(error) => return Err(error.into()),
    }
    let Some(since) = confirmed(ctx, Absence::Pull(at)).await? else {
        return Ok(0);
    };
    let why = format!("the pull request is gone: {}", two_lookups(ctx, since));
    release_pull(ctx, at, &why).await?;
    ctx.store.absence_forget(Absence::Pull(at)).await?;
    Ok(1)
}

/// Returns true if the forge found the recorded repository, and not another one with its name.
async fn is_same(ctx: &Ctx, facts: &RepoFacts, repo: &RepoId) -> Result<bool, sqlx::Error> {
    let known = ctx.store.repository_id(repo).await?;
    Ok(facts.at.repo == *repo && known.is_none_or(|id| id == facts.at.id))
}

/// Releases the locks of an archived repository, because nothing in it can be merged, closed or commented on.
pub(crate) async fn archived(ctx: &Ctx, repo: &RepoId) -> anyhow::Result<u64> {
    release(
        ctx,
        repo,
        "the repository is archived: nothing in it can be merged or closed",
    )
    .await
}

/// Returns the time when the object was first missing, if that was long enough ago.
async fn confirmed(ctx: &Ctx, what: Absence<'_>) -> anyhow::Result<Option<DateTime<Utc>>> {
    let since = ctx.store.absence_note(what).await?;
    let age = ctx.clock.now() - since;
    if age > TOO_LONG_AGO {
        ctx.store.absence_forget(what).await?;
        ctx.store.absence_note(what).await?;
        return Ok(None);
    }
    Ok((age >= APART).then_some(since))
}

fn two_lookups(ctx: &Ctx, since: DateTime<Utc>) -> String {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    format!(
        "the forge did not find it at {} and at {}",
        time(since),
        time(ctx.clock.now())
    )
}

/// Releases everything that is held in a repository. Waiting pull requests go first, so that no lock is handed over
/// to them.
async fn release(ctx: &Ctx, repo: &RepoId, why: &str) -> anyhow::Result<u64> {
    let mut pulls = Vec::new();
    for at in ctx.store.pull_list_of_repo(repo).await? {
        let holds = !ctx.store.lock_list_of_pull(&at).await?.is_empty();
        pulls.push((holds, at));
    }
    pulls.sort();
    for (_, at) in &pulls {
        release_pull(ctx, at, why).await?;
    }
    Ok(pulls.len() as u64)
}

async fn release_pull(ctx: &Ctx, at: &PullRef, why: &str) -> anyhow::Result<()> {
    let cause = Cause::new(Actor::lockkeeper(Origin::Reconciler), why);
    if at.subject.is_application() {
        let freed = ctx.store.lock_release_all(at, &cause).await?;
        info!(application = %at, locks = freed.len(), why, "Released the locks of an application");
        return Ok(());
    }
    let freed = ctx.store.pull_close_missing(at, &cause).await?;
    let stopped = ctx.store.command_stop_plans(at, why).await?;
    ctx.stops.stop(&stopped);
    if at.repo.to_string().parse::<RepoId>().is_ok() {
        ctx.store
            .job_push(&CleanPull { pull: at.clone() }.to_new())
            .await?;
    } else if let Err(error) = ctx.checkouts.remove_pull(at).await {
        // No job may have such a name, because another repository has the name of this one.
        warn!(pull = %at, %error, "The checkouts of a deleted pull request could not be removed");
    }
    warn!(pull = %at, locks = freed.len(), why, "Released the locks of a pull request");
    Ok(())
}
