//! Keeping a mirror whole and small.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{GitError, Mirror, place};

/// Walking or repacking the largest repositories.
pub(super) const DEADLINE: Duration = Duration::from_hours(1);
/// What git says when this machine is to blame, and not the mirror.
const SHORTAGES: [&str; 4] = [
    "Out of memory",
    "Cannot allocate memory",
    "Too many open files",
    "Resource temporarily unavailable",
];
/// Growth that is not worth packing everything again.
const SMALL: u64 = 8 << 20;
/// So many packs slow every call down.
const MANY: usize = 50;

fn is_short_of_something(stderr: &str) -> bool {
    SHORTAGES.iter().any(|shortage| stderr.contains(shortage))
}

impl Mirror {
    /// Looks whether every object that the refs need is here; [`GitError::Corrupt`] if not. No mirror is fine.
    pub async fn check_connectivity(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        if self.dir().exists() {
            self.connected().await
        } else {
            Ok(())
        }
    }

    /// Needs the mutex `transfer`.
    pub(super) async fn connected(&self) -> Result<(), GitError> {
        let doing = format!("check that the mirror of {} is whole", self.repo);
        let cmd = self.git().deadline(DEADLINE).args([
            "rev-list",
            "--objects",
            "--quiet",
            "--single-worktree",
            "--all",
        ]);
        // What a partial mirror left at the forge is not missing.
        let cmd = cmd.args(self.filter().map(|_| "--exclude-promisor-objects"));
        let output = self.call(&doing, &cmd).await?;
        // A ref that cannot be read is passed over with a warning only.
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

    /// Packs refs and objects and drops what nothing needs, for a reconciler to call now and then. Checkouts keep what
    /// they need, and what came within a day stays. It may be killed at any time; what it leaves behind the next one
    /// removes. No mirror is fine. The caller sees to it that nobody brings submodules or files of LFS meanwhile.
    pub async fn maintain(&self) -> Result<(), GitError> {
        let _transfer = self.locks.transfer.lock().await;
        self.clear_leftovers()?;
        if !self.dir().exists() {
            return Ok(());
        }
        let writer = self.locks.writer.lock().await;
        self.clear_locks()
            .map_err(GitError::from_io(self.maintaining()))?;
        self.forget_refused()
            .map_err(GitError::from_io(self.maintaining()))?;
        self.prune(&self.maintaining()).await?;
        drop(writer);
        self.tidy_parts(&self.maintaining()).await?;
        // Nothing below takes away what a checkout that is being made just now needs, so it need not wait.
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

    /// Usually packs are joined so that few remain, each at least twice as large as the one before: what a day brought is
    /// cheap, whatever the size of the repository. When it has grown, everything is packed again and what nothing needs
    /// goes: the size then is noted to compare with.
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

    /// How many packs there are, and what they take.
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

    /// Removes packs that were not finished because somebody was killed. Needs the mutex `transfer`.
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

    /// Removes the lock files of killed processes. Needs both mutexes.
    fn clear_locks(&self) -> io::Result<()> {
        let dir = self.dir();
        ["refs", "worktrees", "objects/info"]
            .iter()
            .try_for_each(|name| remove_locks(&dir.join(name)))?;
        remove_locks_in(dir)
    }

    /// Removes a lock file that git named. When it is one of the refs' there may be thousands more, of the same killed
    /// process, and git names one at a time.
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

/// The packs of a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packs {
    pub(super) count: usize,
    pub(super) bytes: u64,
}

/// What there is to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Nothing,
    Join,
    Everything,
}

/// A partial mirror cannot have its packs joined: git would lose sight of which objects may be missing.
fn packing(packs: Packs, last: Option<u64>, is_partial: bool) -> Packing {
    let has_grown = last.is_some_and(|last| packs.bytes > last / 2 * 3 + SMALL);
    match (has_grown, is_partial) {
        (true, _) => Packing::Everything,
        (false, false) => Packing::Join,
        (false, true) if packs.count > MANY => Packing::Everything,
        (false, true) => Packing::Nothing,
    }
}

/// Removes the lock files below a directory, which need not exist. The caller is the only writer, so nobody can hold one.
fn remove_locks(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_locks(&entry.path())?;
        }
    }
    remove_locks_in(dir)
}

/// Those right in a directory.
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
