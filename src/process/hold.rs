//! Waiting for an old run to be gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::time::{Instant, sleep};

/// How often the lock is tried.
const EVERY: Duration = Duration::from_millis(50);

/// Why a hold was not obtained.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Somebody has it, and still had it at the deadline.
    #[error("a run started earlier still uses {path:?} (waited {} seconds)", .waited.as_secs())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// The file cannot be opened or locked.
    #[error("cannot lock {path:?}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Proof that no supervised run uses what the lock file guards. Supervisors hold the file shared for as long as any
/// process of their run lives, and refuse to start while somebody holds it exclusively: drop this before a run.
#[derive(Debug)]
#[must_use = "the hold ends when it is dropped"]
pub struct Hold {
    file: File,
}

impl Drop for Hold {
    /// Unlocks by word: a child that is being started at this moment has a copy of the open file until it runs its
    /// program, and closing ours would leave the lock to that copy.
    fn drop(&mut self) {
        self.file.unlock().ok();
    }
}

/// A supervisor's share in a hold. It ends when the last process that inherited the open file has ended.
#[derive(Debug)]
pub(super) struct Share {
    _file: File,
}

impl Hold {
    /// Takes the file exclusively, waiting at most `deadline` for runs to end. The file is made when missing. It is
    /// tried again and again rather than waited for in a thread: a thread could not be called back, and would get
    /// the lock long after the caller has given up.
    pub async fn exclusive(path: &Path, deadline: Duration) -> Result<Self, HoldError> {
        let file = open(path)?;
        let end = Instant::now() + deadline;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(HoldError::Busy { path: path.to_owned(), waited: deadline });
                }
                Err(TryLockError::WouldBlock) => sleep(EVERY).await,
                Err(TryLockError::Error(source)) => return Err(HoldError::Io { path: path.to_owned(), source }),
            }
        }
    }
}

impl Share {
    /// Takes the file shared for this process and all it starts from now on, or says at once that somebody has it
    /// exclusively.
    pub(super) fn take(path: &Path) -> Result<Self, HoldError> {
        let file = open(path)?;
        let io = |source| HoldError::Io { path: path.to_owned(), source };
        // Every process of the run inherits the open file: even if the supervisor is killed the lock stays until the
        // last of them has gone.
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| io(errno.into()))?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(HoldError::Busy { path: path.to_owned(), waited: Duration::ZERO }),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }
}

fn open(path: &Path) -> Result<File, HoldError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(|source| HoldError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exclusive_waits_for_shared_and_shared_refuses_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hold");
        let run = Share::take(&path).unwrap();
        let second_run = Share::take(&path).unwrap();
        let error = Hold::exclusive(&path, Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, HoldError::Busy { .. }), "{error}");
        drop((run, second_run));
        let server = Hold::exclusive(&path, Duration::ZERO).await.unwrap();
        assert!(Share::take(&path).is_err());
        drop(server);
        assert!(Share::take(&path).is_ok());
    }
}
