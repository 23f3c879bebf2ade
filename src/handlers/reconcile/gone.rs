//! What is gone from the forge holds nothing any more: a repository that was deleted, or that Lockkeeper may not see any
//! more; one that is archived; a pull request that is not there.
//!
//! A forge may answer 404 for a moment, and so may credentials that somebody is changing. So one look decides nothing: the
//! first one is noted, and only a second one, some minutes later, gives back what is held. Both are told in the audit log.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use tracing::{info, warn};

use super::missed::follow;
use crate::context::Ctx;
use crate::jobs::CleanPull;
use crate::model::{Actor, Cause, Origin, PullRef, RepoId};
use crate::queue::Job;
use crate::store::Absence;
use crate::vcs::{ForgeError, RepoFacts};

/// Two looks that are less apart than this count as one. Shorter than the time from one round of a reconciler to the next.
const APART: TimeDelta = TimeDelta::minutes(4);

/// A look that was longer ago says nothing of now, because what is found again is not looked for any more. Longer than the
/// longest wait of a reconciler before it looks again.
const TOO_LONG_AGO: TimeDelta = TimeDelta::days(2);

/// The forge does not find a repository. Tells how many pulls hold nothing any more because of that.
pub(super) async fn repository(ctx: &Ctx, repo: &RepoId) -> anyhow::Result<u64> {
    if ctx.store.pull_list_of_repo(repo).await?.is_empty() {
        return Ok(0);
    }
    match ctx.forge.repository(repo, None).await {
        Err(ForgeError::NotFound { .. }) => {
            let Some(since) = confirmed(ctx, Absence::Repo(repo)).await? else {
                return Ok(0);
            };
            let why = format!(
                "the repository is gone, or Lockkeeper may not see it any more: {}",
                looks(ctx, since)
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

/// The forge does not find a pull: it is gone, or its whole repository is. Tells how many pulls hold nothing any more
/// because of that.
pub(super) async fn pull(ctx: &Ctx, at: &PullRef) -> anyhow::Result<u64> {
    match ctx.forge.repository(&at.repo, None).await {
        Ok(facts) if is_same(ctx, &facts, &at.repo).await? => {}
        Ok(_) | Err(ForgeError::NotFound { .. }) => return repository(ctx, &at.repo).await,
        Err(error) => return Err(error.into()),
    }
    let Some(since) = confirmed(ctx, Absence::Pull(at)).await? else {
        return Ok(0);
    };
    let why = format!("the pull request is gone: {}", looks(ctx, since));
    release_pull(ctx, at, &why).await?;
    ctx.store.absence_forget(Absence::Pull(at)).await?;
    Ok(1)
}

/// Whether what the forge found is the repository on record, and not another one that has its name.
async fn is_same(ctx: &Ctx, facts: &RepoFacts, repo: &RepoId) -> Result<bool, sqlx::Error> {
    let known = ctx.store.repository_id(repo).await?;
    Ok(facts.at.repo == *repo && known.is_none_or(|id| id == facts.at.id))
}

/// A repository is archived: nothing in it can be merged, closed or commented on.
pub(super) async fn archived(ctx: &Ctx, repo: &RepoId) -> anyhow::Result<u64> {
    release(
        ctx,
        repo,
        "the repository is archived: nothing in it can be merged or closed",
    )
    .await
}

/// Since when something is not found, if that was a while ago.
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

fn looks(ctx: &Ctx, since: DateTime<Utc>) -> String {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    format!(
        "the forge did not find it at {} and at {}",
        time(since),
        time(ctx.clock.now())
    )
}

/// Gives back everything that is held in a repository. Those who only wait go first, so that nothing is handed to them.
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
    if at.number.is_application() {
        let freed = ctx.store.lock_release_all(at, &cause).await?;
        info!(application = %at, locks = freed.len(), why, "An application holds nothing any more");
        return Ok(());
    }
    let freed = ctx.store.pull_gone(at, &cause).await?;
    let stopped = ctx.store.command_stop_plans(at, why).await?;
    ctx.stops.stop(&stopped);
    if at.repo.to_string().parse::<RepoId>().is_ok() {
        ctx.store
            .job_push(&CleanPull { pull: at.clone() }.to_new())
            .await?;
    } else if let Err(error) = ctx.checkouts.remove_pull(at).await {
        // No job is told such a name: another repository has that of this one.
        warn!(pull = %at, %error, "The checkouts of a pull request that is gone could not be removed");
    }
    warn!(pull = %at, locks = freed.len(), why, "A pull request holds nothing any more");
    Ok(())
}
