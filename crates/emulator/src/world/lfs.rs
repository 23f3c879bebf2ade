//! Stores contents for Git LFS.

use crate::EmulatorError;
use crate::model::Sha256Digest;

use super::EmulatedWorld;

impl EmulatedWorld {
    /// Stores a content for a repository. Returns the pointer that commits contain in its place.
    pub(crate) fn keep_lfs(&self, repo: &str, content: &str) -> Result<String, EmulatorError> {
        let oid = Sha256Digest::of(content.as_bytes()).to_string();
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {}\n",
            content.len()
        );
        self.change(|state| {
            state
                .repo_mut(repo)
                .map(|repo| repo.lfs.insert(oid, content.to_owned()))
        })?;
        Ok(pointer)
    }

    /// Returns the content with this id, if the repository has it.
    pub(crate) fn lfs_content(&self, repo: &str, oid: &str) -> Option<String> {
        self.state().repo(repo).ok()?.lfs.get(oid).cloned()
    }
}
