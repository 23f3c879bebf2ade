//! Represents the bare clone of one repository.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedRwLockReadGuard;

use super::environment::{git, git_in};
use super::integrity::is_initialised;
use super::{GitError, GitSettings, MirrorLocks, classify, kept, place};
use crate::model::RepoId;
use crate::process::{CallOutput, Cmd};

/// Use of a mirror by a run in one of its checkouts. Until this is dropped, no other copy replaces the mirror.
#[derive(Debug)]
#[must_use = "the run ends when it is dropped"]
pub struct MirrorInUse {
    _run: OwnedRwLockReadGuard<()>,
}

/// Bare clone of one repository. Reads need no lock; writes are serialised internally. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub(super) settings: Arc<GitSettings>,
    pub(super) repo: RepoId,
    pub(super) locks: Arc<MirrorLocks>,
    dir: PathBuf,
}

impl Mirror {
    pub(super) fn new(settings: Arc<GitSettings>, repo: &RepoId, locks: Arc<MirrorLocks>) -> Self {
        let dir = place::mirror(&settings.data_dir, repo);
        Self {
            settings,
            repo: repo.clone(),
            locks,
            dir,
        }
    }

    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// Returns the directory of the mirror.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins a run in a checkout. Waits for a switch to another copy of the mirror, which takes moments.
    pub async fn begin_run(&self) -> MirrorInUse {
        MirrorInUse {
            _run: Arc::clone(&self.locks.runs).read_owned().await,
        }
    }

    /// Returns the number of the current copy. A checkout of an earlier copy is no longer whole.
    pub fn copy(&self) -> u64 {
        self.locks.replaced.load(Ordering::Acquire)
    }

    /// Returns the same repository in another directory.
    pub(super) fn at(&self, dir: PathBuf) -> Self {
        Self {
            dir,
            ..self.clone()
        }
    }

    pub(super) fn git(&self) -> Cmd {
        git_in(&self.settings, &self.dir, self.filter().as_ref())
    }

    /// Runs a local command that should succeed. If a killed git has left a lock file behind, removes the file and
    /// runs the command again. The caller is the only writer, so nothing can hold the lock.
    pub(super) async fn run(&self, doing: &str, cmd: Cmd) -> Result<CallOutput, GitError> {
        let output = self.call(doing, &cmd).await?;
        if output.is_success() {
            Ok(output)
        } else {
            Err(GitError::from_output(doing, &output, None))
        }
    }

    /// Runs a command whose exit code the caller reads.
    ///
    /// # Errors
    ///
    /// [`GitError::Altered`] if the mirror is not as Lockkeeper left it: then git is not called.
    pub(super) async fn call(&self, doing: &str, cmd: &Cmd) -> Result<CallOutput, GitError> {
        self.check_integrity(doing)?;
        self.check_worktrees(doing)?;
        let mut output = cmd
            .output()
            .await
            .map_err(|error| GitError::from_process(doing, error))?;
        for _ in 0..3 {
            let stderr = output.stderr.text();
            let stale = classify::stale_lock(&stderr)
                .map(Path::new)
                .filter(|path| self.contains(path));
            let Some(stale) = stale.filter(|_| !output.is_success()) else {
                break;
            };
            tracing::warn!(repo = %self.repo, file = ?stale, "Removing a lock file that a killed git left behind");
            self.remove_lock(stale).map_err(GitError::from_io(doing))?;
            output = cmd
                .output()
                .await
                .map_err(|error| GitError::from_process(doing, error))?;
        }
        Ok(output)
    }

    /// Returns true if a path lies in the mirror. Git names files by their real path, and the data directory may be a
    /// link.
    fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.dir)
            || self
                .dir
                .canonicalize()
                .is_ok_and(|dir| path.starts_with(dir))
    }

    /// Creates the mirror, or completes an interrupted creation; a repetition is harmless.
    pub(super) async fn init(&self) -> Result<(), GitError> {
        let doing = format!("create the mirror of {}", self.repo);
        self.check_integrity(&doing)?;
        if is_initialised(&self.dir) {
            return Ok(());
        }
        let begun = make_dir(&self.dir).and_then(|()| self.begin_partial());
        // The file is complete before git sets the same values, so no process ever finds another configuration.
        begun
            .and_then(|()| self.write_config())
            .map_err(GitError::from_io(&doing))?;
        let cmd = git(&self.settings)
            .args(["init", "--bare", "--quiet", "--template="])
            .operands([&self.dir]);
        self.run(&doing, cmd).await?;
        // Git adds settings on file systems that lack common features.
        self.write_config().map_err(GitError::from_io(doing))
    }

    /// Marks the mirror as damaged. The next fetch replaces it by a fresh one; until then it stays readable.
    pub(super) fn note_damage(&self) -> Result<(), GitError> {
        let noted = match fs::write(self.dir.join(place::DAMAGED), "") {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            noted => noted,
        };
        noted.map_err(GitError::from_io(format!(
            "mark the mirror of {} as damaged",
            self.repo
        )))
    }

    /// Returns true if the mirror is marked as damaged; the next fetch replaces it.
    pub fn is_damaged(&self) -> bool {
        self.dir.join(place::DAMAGED).exists()
    }

    /// Refuses to fetch into a damaged mirror.
    pub(super) fn check_damage(&self, doing: &str) -> Result<(), GitError> {
        if !self.is_damaged() {
            return Ok(());
        }
        let message = "objects or files of the mirror are damaged".to_owned();
        Err(GitError::Corrupt {
            doing: doing.to_owned(),
            message,
        })
    }
}

/// Creates a directory and its parents, accessible only to the user of the server.
pub(super) fn make_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Removes a file or a whole directory if it exists, also without the rights to list and to change directories in it. Symbolic
/// links are removed, not followed.
pub(super) fn remove_all(path: &Path) -> std::io::Result<()> {
    let remove = || match path.symlink_metadata()? {
        meta if meta.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    let is_dir = || path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let removed = match remove() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && is_dir() => {
            // Where this fails, the second attempt does as well, and says what is in the way.
            kept::restore_rights(path).ok();
            remove()
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
