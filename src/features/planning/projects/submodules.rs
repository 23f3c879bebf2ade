//! Decides which repositories may be submodules (`--checkout-submodules`).
//!
//! A submodule is fetched with the credential of its parent repository. A credential of the owner reads the
//! repositories that the owner may read, and the owner decides about that. The server's own credential reads every
//! repository that the server works for, so claims decide: nobody gets a repository into a checkout that another
//! owner has claimed.

use async_trait::async_trait;
use tracing::warn;

use crate::context::Ctx;
use crate::features::owners::claim_address;
use crate::git::{SubmoduleAdmission, SubmoduleRules};
use crate::model::{OwnerName, RepoId};

/// Rules for the submodules of a repository.
pub(super) struct SubmodulePolicy<'a> {
    pub ctx: &'a Ctx,
    pub parent: &'a RepoId,
}

#[async_trait]
impl SubmoduleRules for SubmodulePolicy<'_> {
    async fn admission(&self, repo: &RepoId, by_owner: bool) -> SubmoduleAdmission {
        if !self.ctx.settings.repos.allowlist.allows(repo) {
            return SubmoduleAdmission::Refused(not_allowed(repo));
        }
        if by_owner {
            return SubmoduleAdmission::Admitted;
        }
        match self.by_claims(repo).await {
            Ok(admission) => admission,
            Err(error) => {
                warn!(
                    %repo, %error,
                    "The owner of a repository cannot be looked up, so it is not fetched as a submodule"
                );
                SubmoduleAdmission::Unknown(format!(
                    "the database did not return the owner of {repo}"
                ))
            }
        }
    }
}

impl SubmodulePolicy<'_> {
    async fn by_claims(&self, repo: &RepoId) -> Result<SubmoduleAdmission, sqlx::Error> {
        let Self { ctx, parent } = self;
        let own = ctx.store.claim_owner_of(parent).await?;
        Ok(match ctx.store.claim_owner_of(repo).await? {
            None if ctx.settings.repos.allowlist.demands_claims() => {
                SubmoduleAdmission::Refused(unclaimed(repo, own.as_ref()))
            }
            Some(owner) if own.as_ref() != Some(&owner) => {
                SubmoduleAdmission::Refused(of_another(repo, &owner, parent, own.as_ref()))
            }
            None | Some(_) => SubmoduleAdmission::Admitted,
        })
    }
}

fn not_allowed(repo: &RepoId) -> String {
    format!(
        "it comes from {repo}, which `--repo-allowlist` does not allow. Ask an administrator to add {repo} to \
         `--repo-allowlist` or to disable `--checkout-submodules`, or name another repository in `.gitmodules`"
    )
}

fn of_another(
    repo: &RepoId,
    owner: &OwnerName,
    parent: &RepoId,
    own: Option<&OwnerName>,
) -> String {
    format!(
        "it comes from {repo}, which is owned by `{owner}`, and the server's own credential is not used for that. Give \
         {parent} a credential that may read both (`lockkeeper credentials add --owner {} --url {}`), or name another \
         repository in `.gitmodules`",
        name(own),
        claim_address(parent)
    )
}

fn unclaimed(repo: &RepoId, own: Option<&OwnerName>) -> String {
    format!(
        "it comes from {repo}, which has no owner, and this server only serves claimed repositories \
         (`--require-claims`). Claim it (`lockkeeper credentials add --owner {} --url {}`, or `lockkeeper apps add`), \
         or name another repository in `.gitmodules`",
        name(own),
        claim_address(repo)
    )
}

/// Returns the owner's name for a suggested command.
fn name(owner: Option<&OwnerName>) -> &str {
    owner.map_or("TEAM", OwnerName::as_str)
}
