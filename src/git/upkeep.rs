//! Keeping a mirror whole and small.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{GitError, Mirror};

/// Walking or repacking the largest repositories.
const DEADLINE: Duration = Duration::from_hours(1);

impl Mirror {
    /// Looks whether every object that the refs need is here; [`GitError::Corrupt`] if not. No mirror is fine.
    pub async fn check_connectivity(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        if self.dir().exists() { self.connected().await } else { Ok(()) }
    }

    /// Needs the mutex `transfer`.
    pub(super) async fn connected(&self) -> Result<(), GitError> {
        let doing = format!("check that the mirror of {} is whole", self.repo);
        let cmd =
            self.git().deadline(DEADLINE).args(["rev-list", "--objects", "--quiet", "--single-worktree", "--all"]);
        let output = self.call(&doing, &cmd).await?;
        // A ref that cannot be read is passed over with a warning only.
        if output.is_success() && output.stderr.bytes.is_empty() {
            return Ok(());
        }
        let message = GitError::from_output(&doing, &output, None).into_message();
        Err(GitError::Corrupt { doing, message })
    }

    /// Packs objects and drops what nothing needs, for a reconciler to call now and then. Checkouts keep what they
    /// need.
    pub async fn maintain(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        let _writer = self.locks.writer.lock().await;
        self.run("clean up the mirror", self.git().deadline(DEADLINE).args(["gc", "--quiet"])).await.map(drop)
    }

    /// Removes a lock file that git named. When it is one of the refs' there may be thousands more, of the same killed
    /// process, and git names one at a time.
    pub(super) fn remove_lock(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)?;
        let is_ref = ["refs", "packed-refs.lock"].iter().any(|name| self.is_at(file, name));
        if is_ref { remove_locks(&self.dir().join("refs")) } else { Ok(()) }
    }

    fn is_at(&self, file: &Path, name: &str) -> bool {
        let dir = self.dir();
        file.starts_with(dir.join(name)) || dir.canonicalize().is_ok_and(|dir| file.starts_with(dir.join(name)))
    }
}

/// Removes the lock files below a directory. The caller is the only writer, so nobody can hold one.
fn remove_locks(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
