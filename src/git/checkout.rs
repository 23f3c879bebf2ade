//! Creates and updates checkouts: one worktree per pull and workspace.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::run_blocking;
use super::integrity::{COMMON, leads_here};
use super::kept::{self, Committed};
use super::known::{FileClock, VerifiedFiles};
use super::merge::Merge;
use super::mirror::{make_dir, remove_all};
use super::place::{self, CheckoutPlace};
use super::tree_check::KnownFiles;
use super::{Extent, GitError, Mirror, objects, plain_file};
use crate::model::{CommitSha, RepoPath, Subject, WorkspaceName};
use crate::process::{Cmd, FileHold};

/// Commit that a checkout contains (reference 15.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutStrategy {
    /// Head of the pull alone.
    Branch,
    /// Merge of base and head.
    Merge,
}

/// Checkout to prepare, and its commits.
#[derive(Clone, Debug)]
pub struct CheckoutRequest<'a> {
    pub pull: Subject,
    pub workspace: &'a WorkspaceName,
    /// Head of the pull.
    pub head: &'a CommitSha,
    /// Commit of the base branch.
    pub base: &'a CommitSha,
    /// Choice between the head and the merge of both commits.
    pub strategy: CheckoutStrategy,
    /// Part of the commit that must be present. An existing checkout keeps its other parts.
    pub extent: &'a Extent,
}

/// Result of preparing a checkout.
#[derive(Debug)]
#[must_use]
pub enum Prepared {
    /// Checkout that is ready for use.
    Ready(Checkout),
    /// Base and head cannot be merged automatically; nothing on disk has changed.
    Conflict {
        /// Paths of the conflicting files.
        files: Vec<String>,
    },
}

/// Working copy at exactly one commit.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Root directory of the checkout.
    pub path: PathBuf,
    /// File for [`crate::process::Supervised::hold`]; every run in this checkout must name it.
    pub hold: PathBuf,
    /// Commit that is checked out: the head, or the merge of base and head.
    pub commit: CommitSha,
    /// Head of the pull.
    pub head: CommitSha,
    /// Commit of the base branch.
    pub base: CommitSha,
    /// True if `commit` is a merge commit made by Lockkeeper.
    pub merged: bool,
    /// Part of the commit that is checked out.
    pub extent: Extent,
    /// True if the checkout was just created, with nothing left of earlier runs except local states.
    pub fresh: bool,
    /// Number of the mirror copy that the checkout belongs to, see [`Mirror::copy`].
    pub copy: u64,
}

/// Result of bringing a worktree to a commit.
struct Placed {
    /// True if the worktree was created from nothing.
    fresh: bool,
    /// True if git wrote only what its index did not have.
    kept_index: bool,
    extent: Extent,
}

/// Reason why a directory of a checkout cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirError {
    /// No such directory exists at this commit.
    #[error("the directory `{0}` does not exist at this commit")]
    Missing(RepoPath),
    /// The path leads to something other than a directory.
    #[error("`{0}` is not a directory")]
    NotADirectory(RepoPath),
    /// A symbolic link in the path leads out of the checkout.
    #[error("`{0}` leads out of the repository through a symbolic link")]
    Leaves(RepoPath),
    /// A project uses a symbolic link that leads out of the checkout.
    #[error(
        "the project in `{dir}` cannot run: it uses the symbolic link `{link}`, which leads to `{target}`. Links must \
         not lead out of the repository. Replace the link with a file or directory of the repository"
    )]
    LinkOut {
        /// Directory of the project.
        dir: RepoPath,
        /// Path of the symbolic link.
        link: String,
        /// Text of the symbolic link.
        target: String,
    },
}

impl Checkout {
    /// Returns the real path of a directory in the checkout, with links resolved.
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
    /// Creates the checkout, or moves the existing one to the commit. The commits must have been fetched. Tracked
    /// files are exactly those of the commit. Untracked files stay while the commit stays. When the commit changes,
    /// only local states stay, see [`kept`], even when the checkout has to be created from nothing.
    ///
    /// Waits for runs that still use the checkout, see [`super::GitSettings::hold_wait`]. After [`GitError::Corrupt`]
    /// the next fetch replaces the mirror, so fetch and prepare again. The checked-out files are compared with the
    /// commit, and [`GitError::Altered`] names the difference.
    pub async fn prepare(&self, wanted: &CheckoutRequest<'_>) -> Result<Prepared, GitError> {
        let doing = format!(
            "check out {} for pull request {} of {}",
            wanted.head.short(),
            wanted.pull,
            self.repo
        );
        let pull_dir = place::pull(&self.settings.data_dir, &self.repo, wanted.pull);
        let place = CheckoutPlace::new(&pull_dir, wanted.workspace);
        // The hold always comes before the mutex: waiting for an old run must not stop other pulls.
        let _hold = self.hold(&doing, &place.hold).await?;
        let _writer = self.locks.writer.lock().await;
        let commit = match self.commit_for(&doing, wanted).await? {
            Merge::Done(commit) => commit,
            Merge::Conflict(files) => return Ok(Prepared::Conflict { files }),
        };
        let placed = async {
            if let Some(extent) = self
                .up_to_date_extent(&doing, &place, &commit, wanted.extent)
                .await?
            {
                return Ok((false, extent));
            }
            let mut placed = self
                .place_commit(&doing, &place, &commit, wanted.extent)
                .await?;
            if placed.kept_index {
                let exact = self
                    .exact_files(&doing, &place, &commit, &placed.extent)
                    .await?;
                if let Some(verified) = exact {
                    self.remember_written(&doing, &place.dir, verified).await?;
                    return Ok((placed.fresh, placed.extent));
                }
                // The index did not show that a run had changed something, such as a directory that is a link now.
                self.locks.known.forget_index(&place.dir);
                placed = self
                    .place_commit(&doing, &place, &commit, wanted.extent)
                    .await?;
            }
            // A process may have changed objects, index or configuration on this disk, so the files are compared with
            // the commit.
            let (admin, git) = self.worktree(&doing, &place.dir)?;
            let known = self.known_files(&place.dir, &admin);
            let verified = self
                .check_tree(&doing, (git, &place.dir), &known, &commit, &placed.extent)
                .await?;
            self.remember_written(&doing, &place.dir, verified).await?;
            Ok((placed.fresh, placed.extent))
        };
        let (fresh, extent) = match placed.await {
            // The refs promise objects that are missing. No fetch would bring them back as long as the refs exist.
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

    /// Returns the path of the checkout of a workspace, which need not exist.
    pub fn checkout_root(&self, pull: Subject, workspace: &WorkspaceName) -> PathBuf {
        CheckoutPlace::new(
            &place::pull(&self.settings.data_dir, &self.repo, pull),
            workspace,
        )
        .dir
    }

    /// Removes the checkout of one workspace, if it exists.
    pub async fn remove(&self, pull: Subject, workspace: &WorkspaceName) -> Result<(), GitError> {
        let doing = format!(
            "remove the checkout `{workspace}` of pull request {pull} of {}",
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

    /// Removes all checkouts of a pull, if there are any.
    pub async fn remove_pull(&self, pull: Subject) -> Result<(), GitError> {
        let doing = format!(
            "remove the checkouts of pull request {pull} of {}",
            self.repo
        );
        let dir = place::pull(&self.settings.data_dir, &self.repo, pull);
        let mut holds = Vec::new();
        for file in fs::read_dir(dir.join(place::HOLDS))
            .into_iter()
            .flatten()
            .flatten()
        {
            holds.push(self.hold(&doing, &file.path()).await?);
        }
        let _writer = self.locks.writer.lock().await;
        remove_all(&dir).map_err(GitError::from_io(&doing))?;
        match self.prune(&doing).await {
            // The checkouts are removed, as requested; the next fetch replaces the mirror.
            Err(GitError::Corrupt { .. } | GitError::Altered { .. }) => self.note_damage(),
            pruned => pruned,
        }
    }

    async fn commit_for(
        &self,
        doing: &str,
        wanted: &CheckoutRequest<'_>,
    ) -> Result<Merge, GitError> {
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

    pub(super) async fn hold(&self, doing: &str, file: &Path) -> Result<FileHold, GitError> {
        make_dir(file.parent().unwrap_or(file)).map_err(GitError::from_io(doing))?;
        FileHold::exclusive(file, self.settings.hold_wait)
            .await
            .map_err(|error| GitError::from_hold(doing, error))
    }

    /// Returns the extent of a checkout that already has exactly the files of the commit, so that nothing needs to be
    /// written. `None` means that it does not.
    async fn up_to_date_extent(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        wanted: &Extent,
    ) -> Result<Option<Extent>, GitError> {
        if place.mark.exists() {
            return Ok(None);
        }
        let Some(admin) = self.admin_dir(&place.dir) else {
            return Ok(None);
        };
        let Ok(extent) = Extent::noted(&admin) else {
            return Ok(None);
        };
        if !is_at(&admin, commit) || extent.clone().with(wanted) != extent {
            return Ok(None);
        }
        let exact = self.exact_files(doing, place, commit, &extent).await?;
        Ok(exact.map(|verified| {
            self.locks.known.remember_files(&place.dir, verified);
            extent
        }))
    }

    /// Returns the verified files of a checkout, if each has exactly the bytes of the commit.
    async fn exact_files(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<Option<VerifiedFiles>, GitError> {
        let (admin, _) = self.worktree(doing, &place.dir)?;
        let known = self.known_files(&place.dir, &admin);
        self.has_exactly(doing, &place.dir, &known, commit, extent)
            .await
            .map(Result::ok)
    }

    /// Remembers a checkout that git has just written.
    pub(super) async fn remember_written(
        &self,
        doing: &str,
        dir: &Path,
        verified: VerifiedFiles,
    ) -> Result<(), GitError> {
        let (admin, _) = self.worktree(doing, dir)?;
        let (locks, dir) = (Arc::clone(&self.locks), dir.to_owned());
        run_blocking(move || locks.known.remember_written(&dir, &admin, verified))
            .await
            .map_err(GitError::from_io(doing))
    }

    /// Returns the files of a checkout that this process has verified before. Without a clock of the file system,
    /// nothing can be remembered.
    pub(super) fn known_files(&self, dir: &Path, admin: &Path) -> KnownFiles {
        KnownFiles {
            files: self.locks.known.files(dir),
            clock: FileClock::of(admin).ok(),
        }
    }

    /// Brings the worktree to the commit.
    async fn place_commit(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        wanted: &Extent,
    ) -> Result<Placed, GitError> {
        let admin = if place.mark.exists() {
            None
        } else {
            self.admin_dir(&place.dir)
        };
        make_dir(place.mark.parent().unwrap_or(&place.mark)).map_err(GitError::from_io(doing))?;
        fs::write(&place.mark, "").map_err(GitError::from_io(doing))?;
        let moved = match &admin {
            Some(admin) => {
                self.widen_and_move(doing, admin, &place.dir, commit, wanted)
                    .await
            }
            None => Err(GitError::other(doing, "there is no complete checkout yet")),
        };
        let placed = match moved {
            Ok((extent, kept_index)) => Placed {
                fresh: false,
                kept_index,
                extent,
            },
            Err(error) => {
                if admin.is_some() {
                    tracing::warn!(repo = %self.repo, dir = ?place.dir, %error, "Creating a broken checkout again");
                }
                self.make_anew(doing, place, commit, wanted).await?;
                Placed {
                    fresh: true,
                    kept_index: false,
                    extent: wanted.clone(),
                }
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
    ) -> Result<(Extent, bool), GitError> {
        let noted = Extent::noted(admin).map_err(GitError::from_io(doing))?;
        let extent = noted.with(wanted);
        let kept_index = self.move_to(doing, (admin, dir), commit, &extent).await?;
        Ok((extent, kept_index))
    }

    /// Returns the directory in the mirror that belongs to a worktree, or `None` when the worktree is not whole. A
    /// run could have changed the file `.git` in the worktree, so it must contain the path that git wrote.
    pub(super) fn admin_dir(&self, dir: &Path) -> Option<PathBuf> {
        let link = dir.join(".git");
        let text = plain_file::small(&link).ok()??;
        let admin = Path::new(text.strip_prefix("gitdir: ")?.trim_end());
        let ours = self.dir().canonicalize().ok()?.join("worktrees");
        let back = plain_file::small(&admin.join("gitdir")).ok()??;
        let same = Path::new(back.trim_end()).canonicalize().ok()? == link.canonicalize().ok()?;
        (admin.parent() == Some(&ours) && same && leads_here(admin)).then(|| admin.to_owned())
    }

    /// Creates a git command for the worktree in a directory.
    pub(super) fn git_in(&self, doing: &str, dir: &Path) -> Result<Cmd, GitError> {
        self.worktree(doing, dir).map(|(_, git)| git)
    }

    /// Returns the directory in the mirror that belongs to a worktree, and a git command for the worktree.
    pub(super) fn worktree(&self, doing: &str, dir: &Path) -> Result<(PathBuf, Cmd), GitError> {
        let admin = self
            .admin_dir(dir)
            .ok_or_else(|| GitError::other(doing, "the checkout is not complete"))?;
        let git = self
            .git()
            .env("GIT_DIR", &admin)
            .env("GIT_WORK_TREE", dir)
            .dir(dir);
        Ok((admin, git))
    }

    /// Moves the worktree to the commit. Returns true if git knew its files by the index that it had left, and false if
    /// the index was created again.
    async fn move_to(
        &self,
        doing: &str,
        (admin, dir): (&Path, &Path),
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<bool, GitError> {
        let git = || {
            extent.applied_to(
                self.git()
                    .env("GIT_DIR", admin)
                    .env("GIT_WORK_TREE", dir)
                    .dir(dir),
            )
        };
        let same = is_at(admin, commit);
        let same_extent = Extent::noted(admin).is_ok_and(|noted| noted == *extent);
        // Only an index that is as git left it can be kept: flags in another one could make git overlook files that a
        // run has changed. With it, git writes only what differs.
        let kept_index = same_extent && {
            let (locks, dir, admin) = (Arc::clone(&self.locks), dir.to_owned(), admin.to_owned());
            run_blocking(move || locks.known.has_index(&dir, &admin))
                .await
                .map_err(GitError::from_io(doing))?
        };
        if !kept_index {
            extent.note(admin).map_err(GitError::from_io(doing))?;
            remove_all(&admin.join("index")).map_err(GitError::from_io(doing))?;
            self.run(doing, extent.read_into_index(git()).arg("HEAD"))
                .await?;
        }
        self.locks.known.forget_index(dir);
        if !same {
            let dir = dir.to_owned();
            run_blocking(move || kept::sweep_unseen(&dir))
                .await
                .flatten()
                .map_err(GitError::from_io(doing))?;
        }
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
        if !same {
            self.run(doing, clean(git())).await?;
            self.sweep_submodules(doing, git(), dir).await?;
        }
        Ok(kept_index)
    }

    /// Creates the worktree from nothing but keeps its local states. They are moved beside it meanwhile. A process
    /// that is killed here leaves the mark, and the next attempt moves the states back.
    async fn make_anew(
        &self,
        doing: &str,
        place: &CheckoutPlace,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<(), GitError> {
        let committed = self.committed(&place.dir).await;
        let (dir, aside) = (place.dir.clone(), place.aside.clone());
        let put = run_blocking(move || kept::put_aside(&dir, &aside, &committed)).await;
        put.flatten().map_err(GitError::from_io(doing))?;
        self.add(doing, &place.dir, commit, extent).await?;
        let (dir, aside) = (place.dir.clone(), place.aside.clone());
        run_blocking(move || kept::put_back(&aside, &dir))
            .await
            .flatten()
            .map_err(GitError::from_io(doing))
    }

    /// Returns the files of the commit of a worktree. Returns none when the worktree is broken or belongs to a
    /// replaced mirror.
    async fn committed(&self, dir: &Path) -> Committed {
        let Some(admin) = self.admin_dir(dir) else {
            return Committed::default();
        };
        self.committed_in(self.git().env("GIT_DIR", admin), "HEAD")
            .await
    }

    /// Returns the files of a commit, or none if the mirror does not have the commit.
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

    /// Creates the worktree from nothing. Removes the remains of a killed attempt.
    async fn add(
        &self,
        doing: &str,
        dir: &Path,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<(), GitError> {
        remove_all(dir).map_err(GitError::from_io(doing))?;
        self.prune(doing).await?;
        if *extent == Extent::Whole {
            match self.take_spare(doing, dir, commit).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(repo = %self.repo, %error, "Could not use the spare checkout; writing all files");
                    remove_all(dir).map_err(GitError::from_io(doing))?;
                    self.prune(doing).await?;
                }
            }
        }
        let admin = self
            .register(dir, commit)
            .map_err(GitError::from_io(doing))?;
        if *extent != Extent::Whole {
            return self
                .move_to(doing, (&admin, dir), commit, extent)
                .await
                .map(drop);
        }
        let git = self
            .git_in(doing, dir)?
            .args(["reset", "--hard", "--quiet"]);
        self.run(doing, git).await.map(drop)
    }

    /// Registers an empty worktree at a commit (gitrepository-layout) and returns its directory in the mirror. Needs
    /// the mutex `writer`.
    ///
    /// `git worktree add` would write a `HEAD` of zeros before the commit. A fetch reads the `HEAD` of every worktree,
    /// and in between it fails as if an object of the mirror was missing. So the record is written aside, and git
    /// finds it only when it is complete.
    pub(super) fn register(&self, dir: &Path, commit: &CommitSha) -> io::Result<PathBuf> {
        fs::create_dir_all(dir)?;
        let link = dir.canonicalize()?.join(".git");
        let mirror = self.dir().canonicalize()?;
        let (worktrees, aside) = (mirror.join("worktrees"), mirror.join(place::WORKTREE));
        fs::create_dir_all(&worktrees)?;
        forget_worktree(&worktrees, &link)?;
        remove_all(&aside)?;
        fs::create_dir(&aside)?;
        fs::write(aside.join("HEAD"), format!("{commit}\n"))?;
        fs::write(aside.join("commondir"), COMMON)?;
        fs::write(aside.join("gitdir"), path_line(&link))?;
        let admin = place::free_worktree(&worktrees, dir);
        let pointer = [b"gitdir: ", &*path_line(&admin)].concat();
        fs::write(&link, pointer)?;
        fs::rename(&aside, &admin)?;
        Ok(admin)
    }

    /// Removes the records of worktrees whose directory is gone.
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

/// Removes the records of a checkout that is made again. `git worktree prune` keeps those that a killed
/// `git worktree add` of an earlier release left locked.
fn forget_worktree(worktrees: &Path, link: &Path) -> io::Result<()> {
    let ours = path_line(link);
    for entry in fs::read_dir(worktrees)? {
        let admin = entry?.path();
        if fs::read(admin.join("gitdir")).is_ok_and(|text| text == ours) {
            remove_all(&admin)?;
        }
    }
    Ok(())
}

pub(super) fn path_line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}

/// Removes untracked files, ignored or not, and nested repositories, except those that match [`kept::STAY`].
fn clean(git: Cmd) -> Cmd {
    git.args(["clean", "--quiet", "-ffdx"])
        .args(kept::STAY.iter().flat_map(|pattern| ["-e", *pattern]))
}

/// Returns true if the `HEAD` of a worktree is this commit. A run may have replaced the file with anything.
fn is_at(admin: &Path, commit: &CommitSha) -> bool {
    plain_file::small(&admin.join("HEAD"))
        .is_ok_and(|text| text.is_some_and(|text| text.trim_end() == commit.as_str()))
}
