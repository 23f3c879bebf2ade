//! The bare clone of one repository.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedRwLockReadGuard;

use super::environment::{git, git_in};
use super::{GitError, GitSettings, Locks, classify, place};
use crate::model::RepoId;
use crate::process::{Cmd, Output};

/// A run works in a checkout of a mirror: until this is dropped no other copy takes the place of the mirror.
#[derive(Debug)]
#[must_use = "the run ends when it is dropped"]
pub struct MirrorInUse {
    _run: OwnedRwLockReadGuard<()>,
}

/// The bare clone of one repository. Reading needs no lock; what writes is serialised inside. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub(super) settings: Arc<GitSettings>,
    pub(super) repo: RepoId,
    pub(super) locks: Arc<Locks>,
    dir: PathBuf,
}

impl Mirror {
    pub(super) fn new(settings: Arc<GitSettings>, repo: &RepoId, locks: Arc<Locks>) -> Self {
        let dir = place::mirror(&settings.data_dir, repo);
        Self {
            settings,
            repo: repo.clone(),
            locks,
            dir,
        }
    }

    /// Which repository this is.
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// Where it lies on disk.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins a run in a checkout. It waits for a switch to another copy of the mirror, which takes moments.
    pub async fn begin_run(&self) -> MirrorInUse {
        MirrorInUse {
            _run: Arc::clone(&self.locks.runs).read_owned().await,
        }
    }

    /// Number of the copy that is in place. A checkout of an earlier one is not whole any more.
    pub fn copy(&self) -> u64 {
        self.locks.replaced.load(Ordering::Acquire)
    }

    /// The same repository in another directory.
    pub(super) fn at(&self, dir: PathBuf) -> Self {
        Self {
            dir,
            ..self.clone()
        }
    }

    pub(super) fn git(&self) -> Cmd {
        git_in(&self.settings, &self.dir, self.filter().as_ref())
    }

    /// Runs a local command that is expected to succeed. When a killed git has left a lock file behind, that is removed
    /// and the command tried again: the caller is the only writer, so nobody can hold it.
    pub(super) async fn run(&self, doing: &str, cmd: Cmd) -> Result<Output, GitError> {
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
    /// [`GitError::Altered`] if the mirror is not as we left it: then git is not called.
    pub(super) async fn call(&self, doing: &str, cmd: &Cmd) -> Result<Output, GitError> {
        self.check_ours(doing)?;
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

    /// Git names files by their real path, and the data directory may be a link.
    fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.dir)
            || self
                .dir
                .canonicalize()
                .is_ok_and(|dir| path.starts_with(dir))
    }

    /// Makes the mirror, or completes one whose making was interrupted: doing it again is harmless.
    pub(super) async fn init(&self) -> Result<(), GitError> {
        let doing = format!("make the mirror of {}", self.repo);
        self.check_ours(&doing)?;
        let begun = make_dir(&self.dir).and_then(|()| self.begin_partial());
        // Git then sets what is there already, so that nobody ever finds another configuration.
        begun
            .and_then(|()| self.write_config())
            .map_err(GitError::from_io(&doing))?;
        let cmd = git(&self.settings)
            .args(["init", "--bare", "--quiet", "--template="])
            .operands([&self.dir]);
        self.run(&doing, cmd).await?;
        // On file systems without some of what is common, git adds settings.
        self.write_config().map_err(GitError::from_io(doing))
    }

    /// Notes that objects or files of the mirror are damaged: whoever fetches next replaces it by a fresh one. Until then
    /// it serves what it still can.
    pub(super) fn note_damage(&self) -> Result<(), GitError> {
        let noted = match fs::write(self.dir.join(place::DAMAGED), "") {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            noted => noted,
        };
        noted.map_err(GitError::from_io(format!(
            "note that the mirror of {} is damaged",
            self.repo
        )))
    }

    /// Whether it was found to be damaged; the next fetch replaces it.
    pub fn is_damaged(&self) -> bool {
        self.dir.join(place::DAMAGED).exists()
    }

    /// Nothing is fetched into a mirror that is damaged.
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

/// Makes a directory and its parents, for nobody but us.
pub(super) fn make_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Removes a file or a whole directory; nothing to remove is fine. Symbolic links are removed, not followed.
pub(super) fn remove_all(path: &Path) -> std::io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}
