//! Waits for old runs to end, with lock files.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgid, getpid, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal,
};
use tokio::time::{Instant, sleep};

/// Interval between attempts to lock the file.
const EVERY: Duration = Duration::from_millis(50);

/// Reason why a hold was not obtained.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Another process held the file until the deadline.
    #[error("a run started earlier still uses {path:?} (waited {} seconds)", .waited.as_secs())]
    Busy {
        /// Path of the lock file.
        path: PathBuf,
        /// Duration of the wait.
        waited: Duration,
    },
    /// The file cannot be opened or locked.
    #[error("cannot lock {path:?}")]
    Io {
        /// Path of the lock file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Proof that no supervised run uses the files that the lock file guards. Supervisors hold the file shared while any
/// process of their run lives. They refuse to start while another process holds it exclusively, so drop this before a
/// run.
#[derive(Debug)]
#[must_use = "the hold ends when it is dropped"]
pub struct FileHold {
    file: File,
}

impl Drop for FileHold {
    /// Unlocks explicitly: a child that is just being started has a copy of the open file until it runs its program.
    /// Closing our copy would leave the lock to that child.
    fn drop(&mut self) {
        self.file.unlock().ok();
    }
}

/// Supervisor's share in a hold. It ends when this value is dropped and the last process that inherited the open file
/// has ended.
#[derive(Debug)]
pub(super) struct HoldShare {
    /// Open file of the supervisor alone. A lock belongs to an open file, so no program of the run can release this one.
    _own: File,
    /// Open file that the processes of the run inherit, so that they hold it even if the supervisor is killed. Each of
    /// them can release its lock.
    _inherited: File,
}

impl FileHold {
    /// Takes the file exclusively and waits at most `deadline` for runs to end. Creates a missing file. The function
    /// polls the lock instead of blocking a thread: a blocked thread cannot be cancelled, and would get the lock long
    /// after the caller has given up.
    pub async fn exclusive(path: &Path, deadline: Duration) -> Result<Self, HoldError> {
        let file = open(path)?;
        let end = Instant::now() + deadline;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(HoldError::Busy {
                        path: path.to_owned(),
                        waited: deadline,
                    });
                }
                Err(TryLockError::WouldBlock) => sleep(EVERY).await,
                Err(TryLockError::Error(source)) => {
                    return Err(HoldError::Io {
                        path: path.to_owned(),
                        source,
                    });
                }
            }
        }
    }

    /// Takes the file exclusively and kills the processes that hold it: short calls of a server that has ended, which
    /// nobody else would end. Returns the number of killed processes too. If the kernel does not show the open files
    /// of a process, waits for its end.
    pub async fn by_force(path: &Path, deadline: Duration) -> Result<(Self, usize), HoldError> {
        let file = open(path)?;
        let end = Instant::now() + deadline;
        let mut killed = BTreeSet::new();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok((Self { file }, killed.len())),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(HoldError::Busy {
                        path: path.to_owned(),
                        waited: deadline,
                    });
                }
                Err(TryLockError::WouldBlock) => {
                    killed.extend(kill_holders(&file));
                    sleep(EVERY).await;
                }
                Err(TryLockError::Error(source)) => {
                    return Err(HoldError::Io {
                        path: path.to_owned(),
                        source,
                    });
                }
            }
        }
    }
}

/// Locks the file for a child that inherits it. This process drops its part in the lock when it drops the file.
pub(super) fn for_child(path: &Path) -> io::Result<File> {
    open(path)
        .and_then(|_| share_to_inherit(path))
        .map_err(|error| match error {
            HoldError::Io { source, .. } => source,
            HoldError::Busy { .. } => io::Error::other(error),
        })
}

/// Kills every other process that has the file open, and returns the process ids.
fn kill_holders(file: &File) -> Vec<i32> {
    let Ok(meta) = file.metadata() else {
        return Vec::new();
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != getpid());
    let killed = others.filter(|pid| kill_holder(*pid, (meta.dev(), meta.ino())).is_some());
    killed.map(|pid| pid.as_raw_nonzero().get()).collect()
}

/// Kills a process that has the file open, and its process group: a helper of git that brings objects need not have
/// the file. The handle comes first, so that the signal cannot reach another process that got the same number.
/// Without kernel support for handles, the number is used.
fn kill_holder(pid: Pid, file: (u64, u64)) -> Option<()> {
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Some(handle),
        Err(Errno::NOSYS | Errno::PERM) => None,
        Err(_) => return None,
    };
    let open = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))
        .ok()?
        .flatten();
    let mut open = open.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    open.find(|meta| (meta.dev(), meta.ino()) == file)?;
    if getpgid(Some(pid)) == Ok(pid) {
        // The process may have ended at this moment. Then its group has ended too, or is killed anyway.
        kill_process_group(pid, Signal::KILL).ok();
    }
    match handle {
        Some(handle) => pidfd_send_signal(handle, Signal::KILL).ok(),
        None => kill_process(pid, Signal::KILL).ok(),
    }
}

impl HoldShare {
    /// Takes the file shared for this process and all processes it starts from now on. Fails at once if another
    /// process holds it exclusively.
    pub(super) fn take(path: &Path) -> Result<Self, HoldError> {
        let own = open_shared(path)?;
        let inherited = share_to_inherit(path)?;
        let inherits = fcntl(&inherited, FcntlArg::F_SETFD(FdFlag::empty()));
        inherits.map_err(|errno| HoldError::Io {
            path: path.to_owned(),
            source: errno.into(),
        })?;
        Ok(Self {
            _own: own,
            _inherited: inherited,
        })
    }
}

/// Opens the file and locks it shared. Programs do not inherit it.
fn open_shared(path: &Path) -> Result<File, HoldError> {
    locked_shared(path, open(path)?)
}

/// Opens the existing file and locks it shared, for programs. They must not be able to write to it: it lies outside of
/// their checkout, and what they wrote would stay there.
fn share_to_inherit(path: &Path) -> Result<File, HoldError> {
    let file = File::open(path).map_err(|source| HoldError::Io {
        path: path.to_owned(),
        source,
    })?;
    locked_shared(path, file)
}

fn locked_shared(path: &Path, file: File) -> Result<File, HoldError> {
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HoldError::Busy {
            path: path.to_owned(),
            waited: Duration::ZERO,
        }),
        Err(TryLockError::Error(source)) => Err(HoldError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn open(path: &Path) -> Result<File, HoldError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(|source| HoldError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Cmd;
    use super::*;

    #[tokio::test]
    async fn what_a_call_has_started_holds_its_file_and_is_ended_by_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hold");
        let sh = |script: &str| {
            Cmd::new("sh")
                .env("PATH", "/usr/bin:/bin")
                .args(["-c", script])
                .dir(dir.path())
                .holds(&path)
        };
        sh("true").output().await.unwrap();
        drop(FileHold::exclusive(&path, Duration::ZERO).await.unwrap());
        // A child in its own session survives the end of the call, like a git process of a killed server.
        let survivor = "exec >/dev/null 2>&1; echo $$ >number; exec sleep 1000";
        // By default, a shell gives its background processes another input.
        let script = format!(
            "exec 5<&0; setsid sh -c '{survivor}' <&5 & while ! [ -s number ]; do sleep 0.01; done; cat number"
        );
        let output = sh(&script).output().await.unwrap();
        let left: i32 = output.stdout.text().trim().parse().unwrap();
        let error = FileHold::exclusive(&path, Duration::ZERO)
            .await
            .unwrap_err();
        assert!(matches!(error, HoldError::Busy { .. }), "{error}");
        let (hold, killed) = FileHold::by_force(&path, Duration::from_mins(1))
            .await
            .unwrap();
        assert_eq!(
            (
                killed,
                std::fs::read(format!("/proc/{left}/cmdline")).unwrap_or_default()
            ),
            (1, Vec::new())
        );
        let error = sh("true").output().await.unwrap_err();
        assert!(
            format!("{:#}", anyhow::Error::new(error)).contains("still uses"),
            "nothing begins meanwhile"
        );
        drop(hold);
        assert_eq!(
            FileHold::by_force(&path, Duration::ZERO).await.unwrap().1,
            0
        );
    }

    #[tokio::test]
    async fn a_program_that_reads_from_a_pipe_holds_its_file_and_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hold");
        let cat = Cmd::new("cat").env("PATH", "/usr/bin:/bin").holds(&path);
        let program = cat.resolve().unwrap();
        let (mut holder, _) = cat.start(&program, true).unwrap();
        let other = Cmd::new("cat").env("PATH", "/usr/bin:/bin");
        let (mut other, _) = other.start(&program, true).unwrap();
        let error = FileHold::exclusive(&path, Duration::ZERO)
            .await
            .unwrap_err();
        assert!(matches!(error, HoldError::Busy { .. }), "{error}");
        drop(holder.child.stdin.take());
        holder.wait().await.unwrap();
        // The other one still runs.
        drop(
            FileHold::exclusive(&path, Duration::from_mins(1))
                .await
                .unwrap(),
        );
        assert_eq!(other.child.try_wait().unwrap(), None);
        drop(other.child.stdin.take());
        assert!(other.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn exclusive_waits_for_shared_and_shared_refuses_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hold");
        let run = HoldShare::take(&path).unwrap();
        let second_run = HoldShare::take(&path).unwrap();
        let error = FileHold::exclusive(&path, Duration::ZERO)
            .await
            .unwrap_err();
        assert!(matches!(error, HoldError::Busy { .. }), "{error}");
        drop((run, second_run));
        // A child that another test starts at this moment has every open file until it runs its program.
        let server = FileHold::exclusive(&path, Duration::from_mins(1))
            .await
            .unwrap();
        assert!(HoldShare::take(&path).is_err());
        drop(server);
        while HoldShare::take(&path).is_err() {
            tokio::task::yield_now().await;
        }
    }
}
