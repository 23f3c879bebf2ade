//! Working copies: a worktree per pull and workspace.

use std::path::{Path, PathBuf};

use super::disk::apart;
use super::kept::{self, Committed};
use super::merge::Merge;
use super::mirror::{make_dir, remove_all};
use super::ours::leads_here;
use super::place::{self, CheckoutPlace};
use super::{Extent, GitError, Mirror, objects};
use crate::model::{CommitSha, PullNumber, RepoPath, WorkspaceName};
use crate::process::{Cmd, Hold};

/// What a checkout contains (reference 15.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutStrategy {
    /// The head of the pull.
    Branch,
    /// Base and head merged.
    Merge,
}

/// Which checkout, at which commits.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The pull.
    pub pull: PullNumber,
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// Head of the pull.
    pub head: &'a CommitSha,
    /// Commit of the base branch.
    pub base: &'a CommitSha,
    /// What to check out of the two.
    pub strategy: CheckoutStrategy,
    /// What of it has to be there. A checkout that is there already keeps what it has besides.
    pub extent: &'a Extent,
}

/// What came of preparing a checkout.
#[derive(Debug)]
#[must_use]
pub enum Prepared {
    /// It can be used.
    Ready(Checkout),
    /// Base and head cannot be merged by themselves; nothing on disk has changed.
    Conflict {
        /// Files in conflict.
        files: Vec<String>,
    },
}

/// A working copy at exactly one commit.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Its root.
    pub path: PathBuf,
    /// File for [`crate::process::Supervised::hold`]; every run in this checkout must name it.
    pub hold: PathBuf,
    /// What is checked out: the head, or the merge of base and head.
    pub commit: CommitSha,
    /// Head of the pull.
    pub head: CommitSha,
    /// Commit of the base branch.
    pub base: CommitSha,
    /// Whether `commit` is a merge made here.
    pub merged: bool,
    /// What of the commit is there.
    pub extent: Extent,
    /// Whether it was made just now, with nothing left of earlier runs but local states.
    pub fresh: bool,
    /// Copy of the mirror that it belongs to, see [`Mirror::copy`].
    pub copy: u64,
}

/// Why a directory of a checkout cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirError {
    /// There is none.
    #[error("the directory `{0}` does not exist at this commit")]
    Missing(RepoPath),
    /// Something else is there.
    #[error("`{0}` is not a directory")]
    NotADirectory(RepoPath),
    /// A symbolic link on the way leads out of the checkout.
    #[error("`{0}` leads out of the repository through a symbolic link")]
    Leaves(RepoPath),
    /// A project reaches a symbolic link that leads out of the checkout.
    #[error(
        "the project in `{dir}` cannot run: it reaches the symbolic link `{link}`, which leads to `{target}`. Nothing \
         outside of the repository is read or written through links; put a file or directory of the repository in its place"
    )]
    LinkOut {
        /// Directory of the project.
        dir: RepoPath,
        /// Path of the link.
        link: String,
        /// Its text.
        target: String,
    },
}

impl Checkout {
    /// The real path of a directory in the checkout, links resolved.
    pub fn resolve_dir(&self, dir: &RepoPath) -> Result<PathBuf, DirError> {
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|_| DirError::Missing(dir.clone()))
        };
        let (root, path) = (real(&self.path)?, real(&self.path.join(dir.as_str()))?);
        if !path.starts_with(&root) {
            return Err(DirError::Leaves(dir.clone()));
        }
        if path.is_dir() {
            Ok(path)
        } else {
            Err(DirError::NotADirectory(dir.clone()))
        }
    }
}

impl Mirror {
    /// Makes the checkout, or moves the one that is there. The commits must have been fetched. Tracked files are
    /// exactly those of the commit. Untracked files stay while the commit stays; when it changes only those of
    /// [`kept::PATTERNS`] do, and local states even where the checkout has to be made from nothing. Waits
    /// for runs that still use the checkout, see [`super::GitSettings::hold_wait`]. After [`GitError::Corrupt`] the
    /// next fetch replaces the mirror: fetch and prepare once more. What was checked out is compared with the commit, and
    /// [`GitError::Altered`] says what differs.
    pub async fn prepare(&self, wanted: &Wanted<'_>) -> Result<Prepared, GitError> {
        let doing = format!(
            "check out {} for pull {} of {}",
            wanted.head.short(),
            wanted.pull,
            self.repo
        );
        let pull_dir = place::pull(&self.settings.data_dir, &self.repo, wanted.pull);
        let place = CheckoutPlace::new(&pull_dir, wanted.workspace);
        // The hold comes before the mutex everywhere: waiting for an old run must not stop other pulls.
        let _hold = self.hold(&doing, &place.hold).await?;
        let _writer = self.locks.writer.lock().await;
        let commit = match self.commit_for(&doing, wanted).await? {
            Merge::Done(commit) => commit,
            Merge::Conflict(files) => return Ok(Prepared::Conflict { files }),
        };
        // Objects, index and configuration may have been changed on this disk: what is there now has to be the commit.
        let placed = async {
            let (fresh, extent) = self
                .place_commit(&doing, &place, &commit, wanted.extent)
                .await?;
            let git = self.git_in(&doing, &place.dir)?;
            self.check_tree(&doing, (git, &place.dir), &commit, &extent)
                .await
                .map(|()| (fresh, extent))
        };
        let (fresh, extent) = match placed.await {
            // Objects are missing that the refs promise: no fetch would bring them back as long as the refs are there.
            Err(damage @ GitError::Corrupt { .. }) => return self.note_damage().and(Err(damage)),
            result => result?,
        };
        Ok(Prepared::Ready(Checkout {
            path: place.dir,
            hold: place.hold,
            commit,
            head: wanted.head.clone(),
            base: wanted.base.clone(),
            merged: wanted.strategy == CheckoutStrategy::Merge,
            extent,
            fresh,
            copy: self.copy(),
        }))
    }

    /// Where the checkout of a workspace is, or would be.
    pub fn checkout_root(&self, pull: PullNumber, workspace: &WorkspaceName) -> PathBuf {
        CheckoutPlace::new(
            &place::pull(&self.settings.data_dir, &self.repo, pull),
            workspace,
        )
        .dir
    }

    /// Removes the checkout of one workspace; none is fine.
    pub async fn remove(
        &self,
        pull: PullNumber,
        workspace: &WorkspaceName,
    ) -> Result<(), GitError> {
        let doing = format!(
            "remove the checkout `{workspace}` of pull {pull} of {}",
            self.repo
        );
        let place = CheckoutPlace::new(
            &place::pull(&self.settings.data_dir, &self.repo, pull),
            workspace,
        );
        if [&place.dir, &place.mark, &place.aside]
            .into_iter()
            .all(|path| !path.exists())
        {
            return Ok(());
        }
        let _hold = self.hold(&doing, &place.hold).await?;
        let _writer = self.locks.writer.lock().await;
        remove_all(&place.dir).map_err(GitError::from_io(&doing))?;
        remove_all(&place.aside).map_err(GitError::from_io(&doing))?;
        remove_all(&place.mark).map_err(GitError::from_io(&doing))?;
        self.prune(&doing).await
    }

    /// Removes all checkouts of a pull; none is fine.
    pub async fn remove_pull(&self, pull: PullNumber) -> Result<(), GitError> {
        let doing = format!("remove the checkouts of pull {pull} of {}", self.repo);
        let dir = place::pull(&self.settings.data_dir, &self.repo, pull);
        let mut holds = Vec::new();
        for file in std::fs::read_dir(dir.join(place::HOLDS))
            .into_iter()
            .flatten()
            .flatten()
        {
            holds.push(self.hold(&doing, &file.path()).await?);
        }
        let _writer = self.locks.writer.lock().await;
        remove_all(&dir).map_err(GitError::from_io(&doing))?;
        match self.prune(&doing).await {
            // The checkouts are gone, which is what was wanted; the next fetch replaces the mirror.
            Err(GitError::Corrupt { .. } | GitError::Altered { .. }) => self.note_damage(),
            pruned => pruned,
        }
    }

    async fn commit_for(&self, doing: &str, wanted: &Wanted<'_>) -> Result<Merge, GitError> {
        if wanted.strategy == CheckoutStrategy::Merge
            && let Some(made) = self.merged_before(wanted.base, wanted.head).await?
        {
            return Ok(Merge::Done(made));
        }
        for commit in [wanted.head, wanted.base] {
            let needed = commit == wanted.head || wanted.strategy == CheckoutStrategy::Merge;
            if needed && !self.has_commit(commit).await? {
                let message =
                    format!("commit {commit} is not in the mirror; it must be fetched first");
                return Err(GitError::NotFound {
                    doing: doing.to_owned(),
                    message,
                });
            }
        }
        match wanted.strategy {
            CheckoutStrategy::Branch => Ok(Merge::Done(wanted.head.clone())),
            CheckoutStrategy::Merge => self.merge(wanted.base, wanted.head).await,
        }
    }

    pub(super) async fn hold(&self, doing: &str, file: &Path) -> Result<Hold, GitError> {
        make_dir(file.parent().unwrap_or(file)).map_err(GitError::from_io(doing))?;
        Hold::exclusive(file, self.settings.hold_wait)
            .await
            .map_err(|error| GitError::from_hold(doing, error))
    }

    /// Brings the worktree to the commit; says whether it was made anew, and what is in it.
    async fn place_commit(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        wanted: &Extent,
    ) -> Result<(bool, Extent), GitError> {
        let admin = if place.mark.exists() {
            None
        } else {
            self.admin_dir(&place.dir)
        };
        make_dir(place.mark.parent().unwrap_or(&place.mark)).map_err(GitError::from_io(doing))?;
        std::fs::write(&place.mark, "").map_err(GitError::from_io(doing))?;
        let moved = match &admin {
            Some(admin) => {
                self.widen_and_move(doing, admin, &place.dir, commit, wanted)
                    .await
            }
            None => Err(GitError::other(doing, "there is no whole checkout yet")),
        };
        let placed = match moved {
            Ok(extent) => (false, extent),
            Err(error) => {
                if admin.is_some() {
                    tracing::warn!(repo = %self.repo, dir = ?place.dir, %error, "Making a broken checkout anew");
                }
                self.make_anew(doing, place, commit, wanted).await?;
                (true, wanted.clone())
            }
        };
        remove_all(&place.mark).map_err(GitError::from_io(doing))?;
        Ok(placed)
    }

    async fn widen_and_move(
        &self,
        doing: &str,
        admin: &Path,
        dir: &Path,
        commit: &CommitSha,
        wanted: &Extent,
    ) -> Result<Extent, GitError> {
        let noted = Extent::noted(admin).map_err(GitError::from_io(doing))?;
        let extent = noted.with(wanted);
        self.move_to(doing, (admin, dir), commit, &extent).await?;
        Ok(extent)
    }

    /// The directory in the mirror that belongs to a worktree, or `None` when the worktree is not whole. The file
    /// `.git` in it could have been changed by a run, so it must point where git itself had pointed it.
    pub(super) fn admin_dir(&self, dir: &Path) -> Option<PathBuf> {
        let link = dir.join(".git");
        let is_file = link
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() < 8192);
        let text = is_file
            .then(|| std::fs::read_to_string(&link).ok())
            .flatten()?;
        let admin = Path::new(text.strip_prefix("gitdir: ")?.trim_end());
        let ours = self.dir().canonicalize().ok()?.join("worktrees");
        let back = std::fs::read_to_string(admin.join("gitdir")).ok()?;
        let same = Path::new(back.trim_end()).canonicalize().ok()? == link.canonicalize().ok()?;
        (admin.parent() == Some(&ours) && same && leads_here(admin)).then(|| admin.to_owned())
    }

    /// Git for the worktree in a directory.
    pub(super) fn git_in(&self, doing: &str, dir: &Path) -> Result<Cmd, GitError> {
        let admin = self
            .admin_dir(dir)
            .ok_or_else(|| GitError::other(doing, "the checkout is not whole"))?;
        Ok(self
            .git()
            .env("GIT_DIR", admin)
            .env("GIT_WORK_TREE", dir)
            .dir(dir))
    }

    async fn move_to(
        &self,
        doing: &str,
        (admin, dir): (&Path, &Path),
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<(), GitError> {
        let git = || {
            extent.applied_to(
                self.git()
                    .env("GIT_DIR", admin)
                    .env("GIT_WORK_TREE", dir)
                    .dir(dir),
            )
        };
        let old = self
            .run(doing, git().args(["rev-parse", "--verify", "HEAD"]))
            .await?;
        let same = old.stdout.text().trim() == commit.as_str();
        extent.note(admin).map_err(GitError::from_io(doing))?;
        // A new index: flags in the old one could make git overlook files that a run has changed.
        remove_all(&admin.join("index")).map_err(GitError::from_io(doing))?;
        self.run(doing, extent.read_into_index(git()).arg("HEAD"))
            .await?;
        self.run(
            doing,
            git().args([
                "checkout",
                "--quiet",
                "--force",
                "--detach",
                commit.as_str(),
            ]),
        )
        .await?;
        if same {
            return Ok(());
        }
        self.run(doing, clean(git())).await?;
        self.sweep_submodules(doing, git(), dir).await
    }

    /// Makes the worktree from nothing, but for the local states in it. They wait beside it meanwhile; whoever is killed
    /// over that leaves the mark, and then they come back with the next try.
    async fn make_anew(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<(), GitError> {
        let committed = self.committed(&place.dir).await;
        let (dir, aside) = (place.dir.clone(), place.aside.clone());
        let put = apart(move || kept::put_aside(&dir, &aside, &committed)).await;
        put.flatten().map_err(GitError::from_io(doing))?;
        self.add(doing, &place.dir, commit, extent).await?;
        let (dir, aside) = (place.dir.clone(), place.aside.clone());
        apart(move || kept::put_back(&aside, &dir))
            .await
            .flatten()
            .map_err(GitError::from_io(doing))
    }

    /// What the commit of a worktree has, as far as that can be told: it may be broken, or of a mirror that was replaced.
    async fn committed(&self, dir: &Path) -> Committed {
        let Some(admin) = self.admin_dir(dir) else {
            return Committed::default();
        };
        self.committed_in(self.git().env("GIT_DIR", admin), "HEAD")
            .await
    }

    /// What a commit has; nothing if it is not here.
    pub(super) async fn committed_in(&self, git: Cmd, commit: &str) -> Committed {
        let cmd = git.cap(objects::MAX_LIST).args([
            "ls-tree",
            "-r",
            "-z",
            "--name-only",
            "--full-tree",
            commit,
        ]);
        let listed = self.run("list the files of an earlier commit", cmd).await;
        listed
            .map(|output| Committed::of(&output.stdout.bytes))
            .unwrap_or_default()
    }

    /// Makes the worktree from nothing. Forced twice: also over the remains of a `worktree add` that was killed.
    async fn add(
        &self,
        doing: &str,
        dir: &Path,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<(), GitError> {
        remove_all(dir).map_err(GitError::from_io(doing))?;
        self.prune(doing).await?;
        let cmd = self.git().args([
            "worktree", "add", "--quiet", "--force", "--force", "--detach",
        ]);
        let cmd = cmd.args((*extent != Extent::Whole).then_some("--no-checkout"));
        self.run(doing, cmd.arg(dir).arg(commit.as_str())).await?;
        if *extent == Extent::Whole {
            return Ok(());
        }
        let admin = self
            .admin_dir(dir)
            .ok_or_else(|| GitError::other(doing, "the checkout is not whole"))?;
        self.move_to(doing, (&admin, dir), commit, extent).await
    }

    /// Forgets worktrees whose directory is gone.
    pub(super) async fn prune(&self, doing: &str) -> Result<(), GitError> {
        if !self.dir().exists() {
            return Ok(());
        }
        self.run(
            doing,
            self.git().args(["worktree", "prune", "--expire=now"]),
        )
        .await
        .map(drop)
    }
}

/// Removes what is not tracked, ignored or not, nested repositories too, except [`kept::PATTERNS`].
fn clean(git: Cmd) -> Cmd {
    git.args(["clean", "--quiet", "-ffdx"])
        .args(kept::PATTERNS.iter().flat_map(|pattern| ["-e", *pattern]))
}
