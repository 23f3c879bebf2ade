//! Keeps a mirror whole and small.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{GitError, Mirror, place};

/// Deadline for walking or repacking the largest repositories.
pub(super) const DEADLINE: Duration = Duration::from_hours(1);
/// Messages of git when this machine causes the failure, and not the mirror.
const SHORTAGES: [&str; 4] = [
    "Out of memory",
    "Cannot allocate memory",
    "Too many open files",
    "Resource temporarily unavailable",
];
/// Growth in bytes that does not justify packing everything again.
const SMALL: u64 = 8 << 20;
/// Number of packs that slows every call down.
const MANY: usize = 50;

fn is_short_of_something(stderr: &str) -> bool {
    SHORTAGES.iter().any(|shortage| stderr.contains(shortage))
}

impl Mirror {
    /// Checks that every object that the refs need is present; returns [`GitError::Corrupt`] if not. A missing mirror
    /// is fine.
    pub async fn check_connectivity(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        if self.dir().exists() {
            self.connected().await
        } else {
            Ok(())
        }
    }

    /// Does the check of `check_connectivity`. Needs the mutex `transfer`.
    pub(super) async fn connected(&self) -> Result<(), GitError> {
        let doing = format!("check that the mirror of {} is complete", self.repo);
        let cmd = self.git().deadline(DEADLINE).args([
            "rev-list",
            "--objects",
            "--quiet",
            "--single-worktree",
            "--all",
        ]);
        // Objects that a partial mirror left at the forge are not missing.
        let cmd = cmd.args(self.filter().map(|_| "--exclude-promisor-objects"));
        let output = self.call(&doing, &cmd).await?;
        // Git skips an unreadable ref and only prints a warning.
        if output.is_success() && output.stderr.bytes.is_empty() {
            return Ok(());
        }
        let error = GitError::from_output(&doing, &output, None);
        if output.code.is_none() || is_short_of_something(&output.stderr.text()) {
            return Err(error);
        }
        Err(GitError::Corrupt {
            doing,
            message: error.into_message(),
        })
    }

    /// Packs refs and objects and removes unneeded objects. A reconciler calls this periodically. The objects that
    /// checkouts need stay, and so do those that came within a day. A kill at any time is harmless, because the next
    /// call removes the remains. A missing mirror is fine. The caller must ensure that nothing brings submodules or
    /// LFS files at the same time.
    pub async fn maintain(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        self.clear_leftovers()?;
        if !self.dir().exists() {
            return Ok(());
        }
        let writer = self.locks.writer.lock().await;
        // A git that writes the spare checkout may hold a lock file. The next call finds what is left.
        if let Ok(_spare) = self.locks.spare.try_lock() {
            self.clear_locks()
                .map_err(GitError::from_io(self.maintaining()))?;
        }
        self.forget_refused()
            .map_err(GitError::from_io(self.maintaining()))?;
        self.prune(&self.maintaining()).await?;
        drop(writer);
        self.tidy_parts(&self.maintaining()).await?;
        // The steps below remove nothing that a checkout in progress needs, so checkouts need not wait.
        self.run(
            &self.maintaining(),
            self.git().args(["pack-refs", "--all", "--prune"]),
        )
        .await?;
        self.pack().await?;
        let graph =
            self.git()
                .deadline(DEADLINE)
                .args(["commit-graph", "write", "--reachable", "--split"]);
        self.run(&self.maintaining(), graph.arg("--no-progress"))
            .await
            .map(drop)
    }

    fn maintaining(&self) -> String {
        format!("clean up the mirror of {}", self.repo)
    }

    /// Packs the objects. Usually it joins packs so that few remain, each at least twice as large as the one before.
    /// This makes the objects of a day cheap to pack, regardless of the size of the repository. When the mirror has
    /// grown, it packs everything again and removes unneeded objects. Then it records the size for later comparisons.
    async fn pack(&self) -> Result<(), GitError> {
        let noted = self.dir().join(place::PACKED);
        let last = fs::read_to_string(&noted)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let packs = self.packs();
        match packing(packs, last, self.filter().is_some()) {
            Packing::Nothing => {}
            Packing::Join => {
                let cmd =
                    self.git()
                        .deadline(DEADLINE)
                        .args(["repack", "--geometric=2", "-d", "-q"]);
                self.run(&self.maintaining(), cmd).await?;
            }
            Packing::Everything => self.collect().await?,
        }
        if last.is_none() || packing(packs, last, self.filter().is_some()) == Packing::Everything {
            fs::write(noted, self.packs().bytes.to_string())
                .map_err(GitError::from_io(self.maintaining()))?;
        }
        Ok(())
    }

    async fn collect(&self) -> Result<(), GitError> {
        let cmd = self.git().deadline(DEADLINE).args([
            "gc",
            "--quiet",
            "--force",
            "--no-cruft",
            "--prune=1.day.ago",
        ]);
        self.run(&self.maintaining(), cmd).await.map(drop)
    }

    /// Returns the number and the total size of the packs.
    pub(super) fn packs(&self) -> Packs {
        let entries = fs::read_dir(self.dir().join("objects/pack"))
            .into_iter()
            .flatten()
            .flatten();
        let packs = entries.filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "pack")
        });
        packs
            .filter_map(|pack| pack.metadata().ok())
            .fold(Packs::default(), |packs, meta| Packs {
                count: packs.count + 1,
                bytes: packs.bytes + meta.len(),
            })
    }

    /// Removes unfinished packs of killed processes. Needs the mutex `transfer`.
    pub(super) fn clear_unfinished_packs(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir().join("objects/pack"))
            .into_iter()
            .flatten()
        {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("tmp_") || name.starts_with(".tmp-") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the lock files of killed processes. Needs all mutexes.
    fn clear_locks(&self) -> io::Result<()> {
        let dir = self.dir();
        ["refs", "worktrees", "objects/info"]
            .iter()
            .try_for_each(|name| remove_locks(&dir.join(name)))?;
        remove_locks_in(dir)
    }

    /// Removes a lock file that git named. For a ref, it removes all lock files of refs: the same killed process may
    /// have left thousands, and git names one at a time.
    pub(super) fn remove_lock(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)?;
        let is_ref = ["refs", "packed-refs.lock"]
            .iter()
            .any(|name| self.is_at(file, name));
        if is_ref {
            remove_locks(&self.dir().join("refs"))
        } else {
            Ok(())
        }
    }

    fn is_at(&self, file: &Path, name: &str) -> bool {
        let dir = self.dir();
        file.starts_with(dir.join(name))
            || dir
                .canonicalize()
                .is_ok_and(|dir| file.starts_with(dir.join(name)))
    }
}

/// Number and total size in bytes of a mirror's packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packs {
    pub(super) count: usize,
    pub(super) bytes: u64,
}

/// Packing that a mirror needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Nothing,
    Join,
    Everything,
}

/// Chooses the packing. The packs of a partial mirror cannot be joined: git would lose track of the objects that may
/// be missing.
fn packing(packs: Packs, last: Option<u64>, is_partial: bool) -> Packing {
    let has_grown = last.is_some_and(|last| packs.bytes > last / 2 * 3 + SMALL);
    match (has_grown, is_partial) {
        (true, _) => Packing::Everything,
        (false, false) => Packing::Join,
        (false, true) if packs.count > MANY => Packing::Everything,
        (false, true) => Packing::Nothing,
    }
}

/// Removes the lock files below a directory, which need not exist. The caller is the only writer, so nothing can hold
/// one.
fn remove_locks(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_locks(&entry.path())?;
        }
    }
    remove_locks_in(dir)
}

/// Removes the lock files directly in a directory.
fn remove_locks_in(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_packed_again_only_when_it_has_grown() {
        let packs = |count, mib: u64| Packs {
            count,
            bytes: mib << 20,
        };
        for (now, last, partial, wanted) in [
            (packs(3, 5000), None, false, Packing::Join),
            (packs(3, 5000), Some(4000 << 20), false, Packing::Join),
            (packs(3, 6100), Some(4000 << 20), false, Packing::Everything),
            (packs(900, 6), Some(0), false, Packing::Join),
            (packs(3, 5000), None, true, Packing::Nothing),
            (packs(51, 10), None, true, Packing::Everything),
            (packs(3, 6100), Some(4000 << 20), true, Packing::Everything),
        ] {
            assert_eq!(
                packing(now, last, partial),
                wanted,
                "{now:?} {last:?} {partial}"
            );
        }
    }

    #[test]
    fn only_lock_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let team = dir.path().join("heads/team");
        fs::create_dir_all(&team).unwrap();
        for name in ["a", "a.lock", "lock", "b.lock"] {
            fs::write(team.join(name), "").unwrap();
        }
        remove_locks(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(team)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["a", "lock"]);
        remove_locks(&dir.path().join("none")).unwrap();
    }
}
