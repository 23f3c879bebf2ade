//! Determines which repository a name means, and follows renames.
//!
//! The forge's own identifier identifies a repository. Every delivery and many answers contain it beside the name. If
//! both differ from the records, or if the forge redirects a request to another name, the repository was renamed or
//! transferred. Then everything stored for it moves to its current name. A delivery may be late, so nothing moves
//! before the forge was asked.
//!
//! A name can pass to another repository. Then the rows of the first one move before anything happens under the name:
//! to its own new name or, if it is gone, to a name that no forge can give.

use anyhow::anyhow;
use tracing::{info, warn};

use crate::context::Ctx;
use crate::forges::{ForgeError, RepoFacts};
use crate::model::{Actor, Cause, ForgeRepo, JobId, Origin, Pull, RepoId};
use crate::queue::JobError;
use crate::store::{KnownRepository, Rename, Renamed};

/// Maximum number of repositories of one delivery that are compared with the records. The App may get access to
/// thousands at once, and their own events report the others.
const MOST_OF_A_DELIVERY: usize = 500;

/// Returns the repositories of a delivery whose records differ from it. Repositories without a record get one.
pub(crate) async fn unsettled(
    ctx: &Ctx,
    told: Vec<ForgeRepo>,
) -> Result<Vec<ForgeRepo>, sqlx::Error> {
    let mut unsettled = Vec::new();
    for told in told.into_iter().take(MOST_OF_A_DELIVERY) {
        let known = ctx.store.repository_known(&told).await?;
        if (known == KnownRepository::Same && told.was.is_none())
            || !concerns_us(ctx, &told).await?
        {
            continue;
        }
        if known == KnownRepository::New && told.was.is_none() {
            note(ctx, &told).await?;
        } else {
            unsettled.push(told);
        }
    }
    Ok(unsettled)
}

/// Updates the records of a repository that a delivery names, after the forge was asked. Returns its current name.
/// Nothing moves while another job than `within` works on the repository.
pub(crate) async fn settle(
    ctx: &Ctx,
    told: &ForgeRepo,
    within: Option<JobId>,
) -> Result<RepoId, JobError> {
    if !concerns_us(ctx, told).await? {
        return Ok(told.repo.clone());
    }
    let before = ctx.store.repository_name(told.repo.host(), told.id).await?;
    match ctx.store.repository_known(told).await? {
        KnownRepository::Differs => match whereabouts(ctx, told, before.as_ref()).await? {
            Some(facts) => {
                arrange(ctx, &facts.at, None, within).await?;
                if before.is_none() && facts.at.id != told.id {
                    let at = &facts.at.repo;
                    return Err(JobError::fail(anyhow!(
                        "{at} is a different repository now, and the repository of the event is unknown"
                    )));
                }
            }
            // The records have another repository under this name, and nobody must confuse them.
            None if before.is_none() => {
                return Err(JobError::retry(anyhow!(
                    "the repository with the name {} cannot be determined",
                    told.repo
                )));
            }
            None => {}
        },
        KnownRepository::Same | KnownRepository::New => {}
    }
    if let Some(was) = told
        .was
        .as_ref()
        .filter(|was| before.as_ref() != Some(*was))
    {
        let there = found(ctx.forges.of(was)?.repository(was).await)?;
        if let Some(facts) = there.filter(|facts| facts.at.id == told.id) {
            arrange(ctx, &facts.at, Some(was), within).await?;
        }
    }
    if ctx.store.repository_known(told).await? == KnownRepository::New {
        note(ctx, told).await?;
    }
    let name = ctx.store.repository_name(told.repo.host(), told.id).await?;
    Ok(name.unwrap_or_else(|| told.repo.clone()))
}

/// Finds the current name of a repository. A recorded repository is requested with the credential for its recorded
/// name, because an owner may have stored a credential for that name.
async fn whereabouts(
    ctx: &Ctx,
    told: &ForgeRepo,
    before: Option<&RepoId>,
) -> Result<Option<RepoFacts>, JobError> {
    found(match before {
        Some(name) => ctx.forges.of(name)?.repository_by_id(told.id, name).await,
        None => ctx.forges.of(&told.repo)?.repository(&told.repo).await,
    })
}

/// Follows a redirect of the forge from one name to another: everything under the old name moves.
pub(crate) async fn follow_redirect(
    ctx: &Ctx,
    repo: &RepoId,
    within: Option<JobId>,
) -> Result<(), JobError> {
    match found(ctx.forges.of(repo)?.repository(repo).await)? {
        Some(facts) => arrange(ctx, &facts.at, Some(repo), within).await,
        None => Ok(()),
    }
}

/// Compares the repository of a pull request, as the forge reports it now, with the records. Returns `false` if the
/// name meant another repository until now, so the caller has to begin again.
pub(crate) async fn is_settled(
    ctx: &Ctx,
    pull: &Pull,
    within: Option<JobId>,
) -> Result<bool, JobError> {
    let Some(id) = pull.repo_id else {
        return Ok(true);
    };
    let told = ForgeRepo::new(id, pull.at.repo.clone());
    match ctx.store.repository_known(&told).await? {
        KnownRepository::Same => Ok(true),
        KnownRepository::New => Ok(ctx.store.repository_note(&told).await?),
        KnownRepository::Differs => arrange(ctx, &told, None, within).await.map(|()| false),
    }
}

/// Returns true if rows of a repository are stored, or may be stored later.
async fn concerns_us(ctx: &Ctx, told: &ForgeRepo) -> Result<bool, sqlx::Error> {
    let served = |repo: &RepoId| ctx.settings.repos.allowlist.allows(repo);
    if served(&told.repo) || told.was.as_ref().is_some_and(served) {
        return Ok(true);
    }
    Ok(ctx
        .store
        .repository_name(told.repo.host(), told.id)
        .await?
        .is_some())
}

/// Records a repository that a delivery names. Without webhook secrets anybody could have sent the delivery. Then
/// only an answer of the forge creates the record.
async fn note(ctx: &Ctx, told: &ForgeRepo) -> Result<bool, sqlx::Error> {
    Ok(ctx.webhooks.are_signed(told.repo.host()) && ctx.store.repository_note(told).await?)
}

/// Moves all rows of a repository to its current name. `also` is another name that leads to it.
async fn arrange(
    ctx: &Ctx,
    now: &ForgeRepo,
    also: Option<&RepoId>,
    within: Option<JobId>,
) -> Result<(), JobError> {
    match ctx.store.repository_id(&now.repo).await? {
        Some(other) if other != now.id => {
            // Boxed, because the future is large and can recurse.
            Box::pin(displace(
                ctx,
                &ForgeRepo::new(other, now.repo.clone()),
                within,
            ))
            .await?;
        }
        Some(_) | None => {}
    }
    match ctx.store.repository_name(now.repo.host(), now.id).await? {
        Some(name) if name != now.repo => rename(ctx, now, &name, within).await?,
        Some(_) => {}
        None => {
            ctx.store.repository_note(now).await?;
        }
    }
    let Some(also) = also.filter(|also| **also != now.repo) else {
        return Ok(());
    };
    match ctx.store.repository_id(also).await? {
        Some(other) if other != now.id => Ok(()),
        Some(_) | None => rename(ctx, now, also, within).await,
    }
}

/// Moves a repository away from a name that another one has now. It continues under its own current name, if it still
/// exists.
async fn displace(ctx: &Ctx, old: &ForgeRepo, within: Option<JobId>) -> Result<(), JobError> {
    let forge = ctx.forges.of(&old.repo)?;
    let elsewhere = found(forge.repository_by_id(old.id, &old.repo).await)?;
    let displaced = ForgeRepo::new(old.id, old.displaced());
    rename(ctx, &displaced, &old.repo, within).await?;
    match elsewhere {
        // At the moment of a rename the forge may still report the old name. The next event will correct it.
        Some(facts) if facts.at.repo != old.repo => arrange(ctx, &facts.at, None, within).await,
        Some(_) => Ok(()),
        None => {
            warn!(repo = %old.repo, id = old.id, kept_as = %displaced.repo, "A repository is gone, and another one has its name");
            Ok(())
        }
    }
}

async fn rename(
    ctx: &Ctx,
    now: &ForgeRepo,
    old: &RepoId,
    within: Option<JobId>,
) -> Result<(), JobError> {
    let new = &now.repo;
    let reason = "the forge reports the new name";
    let cause = Cause::new(Actor::lockkeeper(Origin::Reconciler), reason);
    let rename = Rename {
        id: now.id,
        old,
        new,
        cause: &cause,
        within,
    };
    let reseal = |credential: &_, url: &_| ctx.credentials.resealed_for(credential, url);
    match ctx.store.repository_rename(&rename, reseal).await? {
        Renamed::Done(rows) => {
            if rows > 0 {
                info!(%old, %new, id = now.id, rows, "A repository was renamed; its records were moved");
            }
            if !ctx.settings.repos.allowlist.allows(new) && rows > 0 {
                warn!(
                    %old, %new,
                    "A repository was renamed, and its new name is not on the allowlist. Lockkeeper does not serve it \
                     until you add the name (--repo-allowlist)"
                );
            }
            ctx.checkouts.follow_name(old, new).await;
            ctx.wake_up.send();
            ctx.mirror_wake_up.send();
            Ok(())
        }
        Renamed::Busy => Err(JobError::retry(anyhow!(
            "the repository {old} is {new} now: its work under the old name has to end first"
        ))),
        Renamed::Refused(why) => {
            warn!(%old, %new, %why, "A repository was renamed, but its records cannot be moved");
            Err(JobError::retry(why))
        }
    }
}

/// Returns the answer of the forge; `None` if the repository was not found.
fn found(answer: Result<RepoFacts, ForgeError>) -> Result<Option<RepoFacts>, JobError> {
    match answer {
        Ok(facts) => Ok(Some(facts)),
        Err(ForgeError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
