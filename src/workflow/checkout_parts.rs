//! Fetches and places the parts of a checkout that are not files of its commit: submodules and LFS content.

use super::{CheckoutError, Checkouts, Source};
use crate::git::{Checkout, GitError, LfsFile, Mirror, Remote, Submodule, SubmoduleRules};
use crate::model::{CommitSha, RepoId};

/// Submodules and LFS content that were fetched for a checkout.
#[derive(Clone, Debug, Default)]
pub struct CheckoutParts {
    submodules: Vec<Submodule>,
    lfs: Vec<LfsFile>,
}

impl Checkouts {
    /// Fetches submodules and LFS content for a checkout of this source, as far as the administrator enabled them.
    /// `rules` say which repositories may be submodules. A commit that has none of these waits for nothing.
    ///
    /// # Errors
    ///
    /// [`CheckoutError::Part`] is an error that people at the pull request have to fix.
    pub async fn bring_parts(
        &self,
        source: &Source,
        rules: &dyn SubmoduleRules,
    ) -> Result<CheckoutParts, CheckoutError> {
        if !self.contents.submodules && !self.contents.lfs {
            return Ok(CheckoutParts::default());
        }
        let repo = &source.pull.repo;
        let commit = self.commit(source).await?;
        if !self.has_parts(&self.git.mirror(repo), &commit).await {
            return Ok(CheckoutParts::default());
        }
        let _gate = self.syncer.gate(repo).await;
        let forge = self.forges.of(repo)?;
        let credentials = forge.git_credentials(repo).await?;
        let held = self
            .leases
            .obtain(
                repo,
                &format!("fetch submodules and LFS files for {}", source.pull),
            )
            .await?;
        let url = forge.clone_url(repo);
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: self.fetch_time,
        };
        let brought = held
            .run(self.bring(&self.git.mirror(repo), &remote, &commit, rules))
            .await
            .done();
        let brought = brought.ok_or_else(|| CheckoutError::LeaseLost { repo: repo.clone() })?;
        brought.map_err(of_part)
    }

    /// Returns true if a commit has submodules or LFS content to fetch. If the mirror cannot be read now, the answer
    /// is true, and the caller finds out later, with exclusive access to the mirror.
    async fn has_parts(&self, mirror: &Mirror, commit: &CommitSha) -> bool {
        let has_submodules =
            self.contents.submodules && mirror.has_submodules(commit).await.unwrap_or(true);
        has_submodules || (self.contents.lfs && mirror.has_lfs(commit).await.unwrap_or(true))
    }

    async fn bring(
        &self,
        mirror: &Mirror,
        remote: &Remote<'_>,
        commit: &CommitSha,
        rules: &dyn SubmoduleRules,
    ) -> Result<CheckoutParts, GitError> {
        let mut parts = CheckoutParts::default();
        if self.contents.submodules {
            parts.submodules = mirror.bring_submodules(remote, commit, rules).await?;
        }
        if self.contents.lfs {
            parts.lfs = mirror.bring_lfs(remote, commit).await?;
        }
        Ok(parts)
    }

    /// Returns true if a fetched commit has submodules that its checkouts lack. A commit that cannot be read counts
    /// as one without submodules.
    pub async fn leaves_submodules_out(&self, repo: &RepoId, commit: &CommitSha) -> bool {
        !self.contents.submodules
            && self
                .git
                .mirror(repo)
                .has_submodules(commit)
                .await
                .unwrap_or(false)
    }

    /// Puts the fetched parts into a checkout that was just prepared.
    pub(super) async fn place_parts(
        &self,
        checkout: &Checkout,
        parts: &CheckoutParts,
        of: &Mirror,
    ) -> Result<(), GitError> {
        if self.contents.submodules {
            of.place_submodules(checkout, &parts.submodules).await?;
        }
        if self.contents.lfs {
            of.place_lfs(checkout, parts.lfs.clone()).await?;
        }
        Ok(())
    }
}

/// Separates errors that may pass on a retry from those that somebody has to fix.
fn of_part(error: GitError) -> CheckoutError {
    match error {
        GitError::Unreachable { .. }
        | GitError::TimedOut { .. }
        | GitError::Busy { .. }
        | GitError::Corrupt { .. }
        | GitError::Altered { .. } => CheckoutError::Git(error),
        GitError::NotFound { .. }
        | GitError::AuthFailed { .. }
        | GitError::TooLarge { .. }
        | GitError::Fsck { .. }
        | GitError::Other { .. } => CheckoutError::Part(error),
    }
}
