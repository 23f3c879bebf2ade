//! `--require-claims`: repositories that nobody has claimed are left alone.

use crate::context::Ctx;
use crate::handlers::Spec;
use crate::jobs::RunCommand;
use crate::model::{Actor, CommandKind, DeliveryId, PullRef, RepoId, RepoUrl};
use crate::queue::{Job, JobError};
use crate::render::Refusal;
use crate::store::{CreateCommand, NewCommand};
use crate::vcs::Installation;

/// The note of a delivery about repositories that nobody has claimed.
pub(crate) const UNCLAIMED: &str = "nobody has claimed the repository (--require-claims)";

/// Whether the server works for a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// It does.
    Served,
    /// It is not on the allow-list.
    NotAllowlisted,
    /// Nobody has claimed it, and somebody would have to.
    Unclaimed,
}

/// Whether the server works for a repository at this moment. A claim that cannot be looked up is an error: nothing is let
/// through then (P6).
pub(crate) async fn service(ctx: &Ctx, repo: &RepoId) -> Result<Service, sqlx::Error> {
    if !ctx.settings.allowlist.allows(repo) {
        return Ok(Service::NotAllowlisted);
    }
    Ok(if is_claimed(ctx, repo).await? {
        Service::Served
    } else {
        Service::Unclaimed
    })
}

/// Whether somebody has claimed a repository, or nobody has to.
pub(super) async fn is_claimed(ctx: &Ctx, repo: &RepoId) -> Result<bool, sqlx::Error> {
    Ok(!ctx.settings.allowlist.demands_claims() || ctx.store.claim_owner_of(repo).await?.is_some())
}

/// What is said where nobody has claimed the repository.
pub(super) fn refusal(ctx: &Ctx, repo: &RepoId) -> Refusal {
    Refusal::unclaimed(
        repo,
        &address(repo),
        &format!("{}/claims", ctx.settings.public_url),
    )
}

/// The address by which a repository is claimed.
pub(super) fn address(repo: &RepoId) -> String {
    RepoUrl::of(repo).map_or_else(|_| repo.to_string(), |url| url.to_string())
}

/// What led to the pull being told.
pub(super) struct Told<'a> {
    pub delivery: DeliveryId,
    pub pull: &'a PullRef,
    pub comment: Option<u64>,
    pub actor: Actor,
    pub via: Installation,
}

/// The pull is told who can help, the first time that something of it is refused.
pub(super) async fn tell_once(ctx: &Ctx, told: Told<'_>) -> Result<(), JobError> {
    if ctx.settings.silence_allowlist || ctx.store.command_told_unclaimed(told.pull).await? {
        return Ok(());
    }
    let kind = CommandKind::Help;
    let new = NewCommand {
        kind,
        pull: told.pull.clone(),
        comment: told.comment,
        delivery: Some(told.delivery),
        actor: told.actor,
        installation: told.via,
        spec: Spec::Unclaimed.to_json(),
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
        assert_eq!(Spec::Unclaimed.to_json(), crate::store::UNCLAIMED_SPEC);
        for schema in [
            include_str!("../../migrations/sqlite/0001_start.sql"),
            include_str!("../../migrations/postgres/0001_start.sql"),
        ] {
            assert!(schema.contains(&format!("WHERE spec = '{}'", crate::store::UNCLAIMED_SPEC)));
        }
    }
}
