//! Brings a mirror in sync with its forge.
//!
//! The need: after a sync the mirror has exactly the refs that the forge advertised at one moment, even when somebody
//! pushes meanwhile. So the list of refs is requested first. Then the commits of moved refs are fetched by their ids,
//! in one exchange regardless of their number. Only then are the refs moved. Removed refs come first, because their
//! names may conflict with new ones (`release` and `release/1`). All others follow in one transaction.
//!
//! Killed at any point, the mirror has old refs or new ones, and every commit that a ref names. The next sync does
//! the rest.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};

use super::refs::RefChanges;
use super::refused::{PartialFetch, RefusedRef, known_among, refs_of, without_refused};
use super::remote::Checked;
use super::{GitError, Mirror, RefList, RefSelection, Remote, advertise, classify};

/// Maximum number of attempts when listed commits disappear before they can be fetched.
const ATTEMPTS: usize = 3;

/// Result of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Refs that the mirror has now: those that the forge advertised, except the refused ones.
    pub refs: RefList,
    /// Refs that git refused and the mirror does not have.
    pub refused: Vec<RefusedRef>,
    /// Number of refs that are new, moved or removed.
    pub changed: usize,
    /// Size of the received packs in bytes.
    pub bytes: u64,
}

impl Mirror {
    /// Brings exactly the wanted refs in sync with the forge and removes all others. Creates the mirror when there is
    /// none. A fresh clone replaces a damaged mirror, see [`Self::rebuild`].
    pub async fn sync(
        &self,
        remote: &Remote<'_>,
        wanted: &RefSelection,
    ) -> Result<Synced, GitError> {
        let remote = self.check(&self.syncing(), remote)?;
        let _transfer = self.locks.transfer.lock().await;
        self.clear_leftovers()?;
        match self.sync_once(&remote, wanted).await {
            Err(GitError::Corrupt { message, .. } | GitError::Altered { message, .. }) => {
                warn!(repo = %self.repo, %message, "Replacing a damaged mirror with a new clone");
                self.replace(async |fresh| fresh.sync_once(&remote, wanted).await)
                    .await
            }
            result => result,
        }
    }

    /// Returns the refs of the mirror, or none when there is no mirror.
    pub async fn refs(&self) -> Result<RefList, GitError> {
        if !self.dir().exists() {
            return Ok(RefList::default());
        }
        let doing = format!("list the refs of the mirror of {}", self.repo);
        let cmd = self
            .git()
            .cap(advertise::MAX_BYTES)
            .args(["for-each-ref", "--format=%(objectname)%09%(refname)"]);
        let output = self.run(&doing, cmd).await?;
        // Git skips an unreadable ref and only prints a warning.
        if !output.stderr.bytes.is_empty() {
            return Err(GitError::from_output(&doing, &output, None));
        }
        advertise::read_all(&output.stdout).map_err(|error| GitError::other(&doing, error))
    }

    fn syncing(&self) -> String {
        format!("sync the mirror of {}", self.repo)
    }

    pub(super) async fn sync_once(
        &self,
        remote: &Checked<'_>,
        wanted: &RefSelection,
    ) -> Result<Synced, GitError> {
        self.check_damage(&self.syncing())?;
        self.init().await?;
        let here = self.refs().await?;
        for _ in 0..ATTEMPTS {
            let there = self.list(remote, wanted).await?;
            let mut bad = known_among(&there, &self.refused());
            let refs = without_refused(&there, &refs_of(&there, &bad));
            if let Some((bytes, more)) = self
                .bring(remote, &RefChanges::between(&here, &refs))
                .await?
            {
                bad.extend(more);
                let left_out = refs_of(&there, &bad);
                let refs = without_refused(&there, &left_out);
                let changes = RefChanges::between(&here, &refs);
                self.move_refs(&changes).await?;
                self.drop_parts(&self.syncing()).await?;
                self.note_refused(&self.syncing(), &left_out)?;
                let count = changes.len();
                return Ok(Synced {
                    refs,
                    refused: left_out,
                    changed: count,
                    bytes,
                });
            }
            info!(repo = %self.repo, "A commit was replaced before it was fetched; listing the refs again");
        }
        let message = "its refs change too fast to be fetched".to_owned();
        Err(GitError::Unreachable {
            doing: self.syncing(),
            message,
        })
    }

    /// Fetches the commits of moved refs. Returns the number of received bytes and the refused commits, or `None`
    /// when the server no longer has one of the commits.
    async fn bring(
        &self,
        remote: &Checked<'_>,
        changes: &RefChanges<'_>,
    ) -> Result<Option<(u64, BTreeMap<String, String>)>, GitError> {
        let ids: BTreeSet<&str> = changes.moved.iter().map(|(_, id)| id.as_str()).collect();
        if ids.is_empty() {
            return Ok(Some((0, BTreeMap::new())));
        }
        let (doing, before) = (self.syncing(), self.packs().bytes);
        let came = || self.packs().bytes.saturating_sub(before);
        let ids: Vec<&str> = ids.into_iter().collect();
        let output = self.fetch_ids(remote, &doing, &ids).await?;
        if output.is_success() {
            self.warn_ignored_filter(&output);
            return Ok(Some((came(), BTreeMap::new())));
        }
        if classify::is_fsck(&output.stderr.text()) {
            return Ok(match self.sift(remote, &doing, ids, &output).await? {
                PartialFetch::Without(refused) => Some((came(), refused)),
                PartialFetch::Gone => None,
            });
        }
        let gone = classify::is_refused_commit(&output.stderr.text());
        if gone {
            Ok(None)
        } else {
            Err(remote.failure(&doing, &output))
        }
    }

    async fn move_refs(&self, changes: &RefChanges<'_>) -> Result<(), GitError> {
        let gone = changes
            .gone
            .iter()
            .map(|name| format!("delete {name}\n"))
            .collect::<Vec<_>>()
            .concat();
        let moved = changes
            .moved
            .iter()
            .map(|(name, id)| format!("update {name} {id}\n"))
            .collect::<Vec<_>>()
            .concat();
        for list in [gone, moved] {
            self.update_refs(list).await?;
        }
        Ok(())
    }

    /// Updates all refs of the list or none.
    async fn update_refs(&self, list: String) -> Result<(), GitError> {
        if list.is_empty() {
            return Ok(());
        }
        let cmd = self
            .git()
            .args(["update-ref", "--no-deref", "--stdin"])
            .input(list);
        self.run(&self.syncing(), cmd).await.map(drop)
    }
}
