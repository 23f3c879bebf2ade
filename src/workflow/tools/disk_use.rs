//! Measures the downloaded programs and removes those that no run uses.
//!
//! A directory beside the programs has an empty file for each downloaded program; its modification time is the last
//! use. A program without such a file was put there by the administrator: it does not count, and stays. A search
//! holds a version before it looks, under the lock that protects removals, so that no program is removed between the
//! two.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use chrono::{DateTime, Utc};

/// Directory of the files that mark downloaded programs.
const MARKS: &str = ".downloaded";

/// A downloaded program with its disk use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadUse {
    /// File name, such as `terraform1.9.8`.
    pub name: String,
    /// Size of the program in bytes.
    pub bytes: u64,
    /// Time of the last search for the program.
    pub used_at: DateTime<Utc>,
}

/// Keeps a downloaded program on the disk until it is dropped. The program is not part of the comparison, so all
/// values are equal.
#[derive(Clone, Default)]
pub struct ToolInUse(#[expect(dead_code, reason = "held for its end")] Option<Arc<ProgramUse>>);

impl PartialEq for ToolInUse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ToolInUse {}

impl fmt::Debug for ToolInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InUse")
    }
}

/// Number of holders of each program, by file name.
type Holders = Arc<Mutex<HashMap<String, usize>>>;

struct ProgramUse {
    name: String,
    holders: Holders,
}

impl Drop for ProgramUse {
    fn drop(&mut self) {
        let mut holders = lock(&self.holders);
        if let Some(count) = holders.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                holders.remove(&self.name);
            }
        }
    }
}

fn lock(holders: &Holders) -> MutexGuard<'_, HashMap<String, usize>> {
    holders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Downloaded programs in a directory.
#[derive(Clone, Debug)]
pub(super) struct ToolDir {
    dir: PathBuf,
    holders: Holders,
}

impl ToolDir {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            holders: Holders::default(),
        }
    }

    /// Keeps a program from being removed, even if it does not exist yet.
    pub fn hold(&self, name: &str) -> ToolInUse {
        *lock(&self.holders).entry(name.to_owned()).or_default() += 1;
        ToolInUse(Some(Arc::new(ProgramUse {
            name: name.to_owned(),
            holders: Arc::clone(&self.holders),
        })))
    }

    /// Notes that a program was downloaded.
    pub fn note_download(&self, name: &str, now: DateTime<Utc>) -> io::Result<()> {
        fs::create_dir_all(self.dir.join(MARKS))?;
        File::create(self.mark(name))?.set_modified(SystemTime::from(now))
    }

    /// Notes that a program is used, if it was downloaded.
    pub fn note_use(&self, name: &str, now: DateTime<Utc>) -> io::Result<()> {
        match File::options().write(true).open(self.mark(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            mark => mark?.set_modified(SystemTime::from(now)),
        }
    }

    fn mark(&self, name: &str) -> PathBuf {
        self.dir.join(MARKS).join(name)
    }

    /// Lists all downloaded programs that still exist.
    pub fn disk_use(&self) -> io::Result<Vec<DownloadUse>> {
        let entries = match fs::read_dir(self.dir.join(MARKS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let counted = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let program = self
                .dir
                .join(&name)
                .symlink_metadata()
                .ok()
                .filter(fs::Metadata::is_file)?;
            let used_at = entry
                .metadata()
                .and_then(|meta| meta.modified())
                .ok()?
                .into();
            Some(DownloadUse {
                name,
                bytes: program.blocks() * 512,
                used_at,
            })
        };
        Ok(entries.filter_map(Result::ok).filter_map(counted).collect())
    }

    /// Removes a downloaded program. Returns `false` and does nothing if it is held or runs.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let (program, mark) = (self.dir.join(name), self.mark(name));
        let holders = lock(&self.holders);
        if holders.contains_key(name) || !mark.is_file() || is_running(&program) {
            return Ok(false);
        }
        fs::remove_file(&program)?;
        fs::remove_file(&mark)?;
        Ok(true)
    }
}

/// Returns true if a process runs the program. It may belong to an earlier server, or to a workflow command that uses
/// the program by name.
fn is_running(program: &Path) -> bool {
    let Ok(program) = program.canonicalize() else {
        return false;
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|process| process.path().join("exe"))
        .any(|exe| fs::read_link(exe).is_ok_and(|exe| exe == program))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn tools(names: &[&str]) -> (tempfile::TempDir, ToolDir) {
        let dir = tempfile::tempdir().unwrap();
        let tools = ToolDir::new(dir.path().to_owned());
        for name in names {
            fs::write(dir.path().join(name), "#!/bin/sh\n").unwrap();
            tools.note_download(name, DateTime::UNIX_EPOCH).unwrap();
        }
        (dir, tools)
    }

    #[test]
    fn what_is_held_stays_until_the_last_holder_has_gone() {
        let (dir, tools) = tools(&["terraform1.9.8"]);
        let first = tools.hold("terraform1.9.8");
        let second = [tools.hold("terraform1.9.8"), first.clone()];
        drop(first);
        assert!(!tools.remove("terraform1.9.8").unwrap());
        drop(second);
        assert!(tools.remove("terraform1.9.8").unwrap());
        assert!(!dir.path().join("terraform1.9.8").exists());
        assert_eq!(tools.disk_use().unwrap(), []);
        assert!(lock(&tools.holders).is_empty());
    }

    #[test]
    fn what_was_not_downloaded_neither_counts_nor_goes() {
        let (dir, tools) = tools(&["terraform1.9.8"]);
        fs::write(dir.path().join("terraform1.5.7"), "the operator's own").unwrap();
        tools
            .note_use("terraform1.5.7", DateTime::UNIX_EPOCH)
            .unwrap();
        let names = || {
            tools
                .disk_use()
                .unwrap()
                .into_iter()
                .map(|program| program.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), ["terraform1.9.8"]);
        assert!(
            !tools.remove("terraform1.5.7").unwrap() && dir.path().join("terraform1.5.7").exists()
        );
        let later = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        tools.note_use("terraform1.9.8", later).unwrap();
        assert_eq!(tools.disk_use().unwrap()[0].used_at, later);
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a program that somebody else has started"
    )]
    fn what_runs_stays() {
        let (dir, tools) = tools(&["terraform1.9.8"]);
        let program = dir.path().join("terraform1.9.8");
        fs::remove_file(&program).unwrap();
        fs::copy("/bin/cat", &program).unwrap();
        let mut running = std::process::Command::new(&program)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(!tools.remove("terraform1.9.8").unwrap());
        drop(running.stdin.take());
        running.wait().unwrap();
        assert!(tools.remove("terraform1.9.8").unwrap());
    }
}
