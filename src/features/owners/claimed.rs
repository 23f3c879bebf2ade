//! Implements `--require-claims`: the server ignores repositories that nobody has claimed.

use crate::context::Ctx;
use crate::features::planning::{CommandSpec, RunCommand};
use crate::model::{Actor, CommandKind, CommentId, DeliveryId, PullRef, RepoId, RepoUrl};
use crate::queue::{Job, JobError};
use crate::render::CommandRefusal;
use crate::store::{CreateCommand, NewCommand};

/// Note of a delivery about a repository that nobody has claimed.
pub(crate) const UNCLAIMED: &str = "nobody has claimed the repository (--require-claims)";

/// Answer to the question if the server works for a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// The server works for it.
    Served,
    /// The repository is not on the allow-list.
    NotAllowlisted,
    /// The repository needs a claim, and nobody has claimed it.
    Unclaimed,
}

/// Determines whether the server works for a repository at this moment. A claim that cannot be looked up is an error,
/// and nothing is served then (P6).
pub(crate) async fn service(ctx: &Ctx, repo: &RepoId) -> Result<Service, sqlx::Error> {
    if !ctx.settings.repos.allowlist.allows(repo) {
        return Ok(Service::NotAllowlisted);
    }
    Ok(if is_claimed(ctx, repo).await? {
        Service::Served
    } else {
        Service::Unclaimed
    })
}

/// Returns true if somebody has claimed a repository, or if it needs no claim.
pub(crate) async fn is_claimed(ctx: &Ctx, repo: &RepoId) -> Result<bool, sqlx::Error> {
    Ok(!ctx.settings.repos.allowlist.demands_claims()
        || ctx.store.claim_owner_of(repo).await?.is_some())
}

/// Builds the refusal for a repository that nobody has claimed.
pub(crate) fn unclaimed_refusal(ctx: &Ctx, repo: &RepoId) -> CommandRefusal {
    CommandRefusal::unclaimed(
        repo,
        &claim_address(repo),
        &format!("{}/claims", ctx.settings.base_url),
    )
}

/// Returns the address by which a repository is claimed.
pub(crate) fn claim_address(repo: &RepoId) -> String {
    RepoUrl::of(repo).map_or_else(|_| repo.to_string(), |url| url.to_string())
}

/// Cause of a notification that the repository is unclaimed.
pub(crate) struct UnclaimedNotice<'a> {
    pub delivery: DeliveryId,
    pub pull: &'a PullRef,
    pub comment: Option<CommentId>,
    pub actor: Actor,
}

/// Notifies the pull request who can help, the first time that something on it is refused.
pub(crate) async fn notify_unclaimed(ctx: &Ctx, told: UnclaimedNotice<'_>) -> Result<(), JobError> {
    if ctx.settings.comments.silence.allowlist_errors
        || ctx.store.command_has_unclaimed_notice(told.pull).await?
    {
        return Ok(());
    }
    let kind = CommandKind::Help;
    let new = NewCommand {
        kind,
        pull: told.pull.clone(),
        comment: told.comment,
        delivery: Some(told.delivery),
        actor: told.actor,
        spec: CommandSpec::Unclaimed.to_json(),
    };
    let job = |command| {
        vec![
            RunCommand {
                command,
                pull: told.pull.clone(),
                kind,
            }
            .to_new(),
        ]
    };
    match ctx.store.command_create(&new, job).await? {
        CreateCommand::Created(_) | CreateCommand::Known => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_those_that_were_told_knows_the_words() {
        assert_eq!(
            CommandSpec::Unclaimed.to_json(),
            crate::store::UNCLAIMED_SPEC
        );
        for schema in [
            include_str!("../../../migrations/sqlite/0001_start.sql"),
            include_str!("../../../migrations/postgres/0001_start.sql"),
        ] {
            assert!(schema.contains(&format!("WHERE spec = '{}'", crate::store::UNCLAIMED_SPEC)));
        }
    }
}
