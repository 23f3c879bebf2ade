//! Bringing a mirror in step with its forge.
//!
//! The need: after a synchronisation the mirror has exactly the refs that the forge advertised at one moment, also when
//! somebody pushes meanwhile. So the list is asked for first, the commits of what has moved are fetched by their ids (in
//! one exchange, their number does not matter), and only then the refs are moved: those that are gone first, because
//! their names may be in the way of new ones (`release` and `release/1`), then all others in one transaction.
//!
//! Killed at any point the mirror has old refs or new ones, and every commit a ref names; the next synchronisation does
//! the rest.

use std::collections::BTreeSet;

use tracing::{info, warn};

use super::refs::Changes;
use super::remote::Checked;
use super::{GitError, Mirror, RefList, RefSelection, Remote, advertise, classify};

/// So often the list of refs is asked for when commits in it are gone before they can be fetched.
const ATTEMPTS: usize = 3;

/// What a synchronisation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The refs the mirror has now: those that the forge advertised when it was asked.
    pub refs: RefList,
    /// How many refs are new, moved or gone.
    pub changed: usize,
    /// Bytes of the packs that were received.
    pub bytes: u64,
}

impl Mirror {
    /// Brings exactly the wanted refs in step with the forge and removes all others; makes the mirror when there is none.
    /// A damaged mirror is replaced by a fresh clone, see [`Self::rebuild`].
    pub async fn sync(&self, remote: &Remote<'_>, wanted: &RefSelection) -> Result<Synced, GitError> {
        let remote = self.check(&self.syncing(), remote)?;
        let _transfer = self.locks.transfer.lock().await;
        self.clear_leftovers()?;
        match self.sync_once(&remote, wanted).await {
            Err(GitError::Corrupt { message, .. }) => {
                warn!(repo = %self.repo, %message, "Replacing a damaged mirror by a fresh clone");
                self.replace(async |fresh| fresh.sync_once(&remote, wanted).await).await
            }
            result => result,
        }
    }

    /// The refs of the mirror; none when there is no mirror.
    pub async fn refs(&self) -> Result<RefList, GitError> {
        if !self.dir().exists() {
            return Ok(RefList::default());
        }
        let doing = format!("list the refs of the mirror of {}", self.repo);
        let cmd = self.git().cap(advertise::MAX_BYTES).args(["for-each-ref", "--format=%(objectname)%09%(refname)"]);
        let output = self.run(&doing, cmd).await?;
        // A ref that cannot be read is passed over with a warning only.
        if !output.stderr.bytes.is_empty() {
            return Err(GitError::from_output(&doing, &output, None));
        }
        advertise::read_all(&output.stdout).map_err(|error| GitError::other(&doing, error))
    }

    fn syncing(&self) -> String {
        format!("synchronise the mirror of {}", self.repo)
    }

    pub(super) async fn sync_once(&self, remote: &Checked<'_>, wanted: &RefSelection) -> Result<Synced, GitError> {
        self.check_damage(&self.syncing())?;
        self.init().await?;
        let here = self.refs().await?;
        for _ in 0..ATTEMPTS {
            let refs = self.list(remote, wanted).await?;
            let changes = Changes::between(&here, &refs);
            let count = changes.len();
            if let Some(bytes) = self.bring(remote, &changes).await? {
                self.move_refs(&changes).await?;
                return Ok(Synced { refs, changed: count, bytes });
            }
            info!(repo = %self.repo, "A commit was replaced while it was to be fetched; asking for the refs again");
        }
        let message = "its refs change faster than they can be fetched".to_owned();
        Err(GitError::Unreachable { doing: self.syncing(), message })
    }

    /// Fetches the commits of what has moved, and says how many bytes came; `None`: the server no longer has one of them.
    async fn bring(&self, remote: &Checked<'_>, changes: &Changes<'_>) -> Result<Option<u64>, GitError> {
        let ids: BTreeSet<&str> = changes.moved.iter().map(|(_, id)| id.as_str()).collect();
        if ids.is_empty() {
            return Ok(Some(0));
        }
        let before = self.packs().bytes;
        let list = ids.into_iter().map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
        let cmd = self.fetch_cmd(remote).arg("--stdin").operands([remote.name(self)]).input(list);
        let output = self.call(&self.syncing(), &cmd).await?;
        if output.is_success() {
            self.tell_ignored_filter(&output);
            return Ok(Some(self.packs().bytes.saturating_sub(before)));
        }
        let gone = classify::is_refused_commit(&output.stderr.text());
        if gone { Ok(None) } else { Err(remote.failure(&self.syncing(), &output)) }
    }

    async fn move_refs(&self, changes: &Changes<'_>) -> Result<(), GitError> {
        let gone = changes.gone.iter().map(|name| format!("delete {name}\n")).collect::<Vec<_>>().concat();
        let moved = changes.moved.iter().map(|(name, id)| format!("update {name} {id}\n")).collect::<Vec<_>>().concat();
        for list in [gone, moved] {
            self.update_refs(list).await?;
        }
        Ok(())
    }

    /// All of them or none.
    async fn update_refs(&self, list: String) -> Result<(), GitError> {
        if list.is_empty() {
            return Ok(());
        }
        let cmd = self.git().args(["update-ref", "--no-deref", "--stdin"]).input(list);
        self.run(&self.syncing(), cmd).await.map(drop)
    }
}
