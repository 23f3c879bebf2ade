//! Detects changes of the directory that `init` leaves beside the code (`.terraform`).
//!
//! A plan runs code of the pull request in the directory where its apply runs later, with the credentials of applies.
//! That code could exchange a provider or a script of a module in `.terraform`, where no reviewer looks. So the
//! server notes the state of the directory after each `init`, in a place that no run can write to. A directory that
//! differs from the note is removed before the next `init`, and an apply that finds a difference prepares the
//! directory again.
//!
//! The note is about one commit. Other projects of the pull request may run while an `init` works, and they can change what it
//! leaves before it is noted. That is code of the same commit. For another commit, which may be the one that people review,
//! the directory is made again.
//!
//! The note does not hold the contents, which can be gigabytes, but the metadata that the kernel keeps of each file.
//! Every change of a file also changes the time of its last change (`ctime`), and only root can set that time.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::inside;
use crate::model::{CommitSha, Sha256Digest};

/// File with the selected workspace. It may change: each plan may select another workspace, and a plan file names its
/// own.
const WORKSPACE: &str = "environment";

/// File with the backend of the last `init`.
const BACKEND: &str = "terraform.tfstate";

/// Maximum size of that file in bytes.
const MAX_BACKEND: u64 = 1024 * 1024;

/// List of the installed modules, which each `init` writes again.
const MODULES: &str = "modules/modules.json";

/// Maximum size of that list in bytes.
const MAX_MODULES: u64 = 64 * 1024 * 1024;

/// Maximum number of files and directories to look at. A directory with more counts as changed.
const MOST_ENTRIES: usize = 500_000;

/// Returns the path of the data directory of a project. `set` is the value of `TF_DATA_DIR`, which the tools ignore if it is
/// empty.
pub(super) fn path(project: &Path, set: Option<&OsStr>) -> PathBuf {
    let set = set.filter(|dir| !dir.is_empty());
    project.join(set.unwrap_or(OsStr::new(".terraform")))
}

/// Data directory of the tool for one project, and the path of the note about it.
#[derive(Clone, Debug)]
pub(super) struct DataDir {
    dir: PathBuf,
    note: PathBuf,
    commit: CommitSha,
    /// Root of the checkout.
    root: PathBuf,
    /// Directory of the project.
    project: PathBuf,
}

impl DataDir {
    /// Creates the value for the directory at `dir`. The note is stored beside the checkout that has the lock file
    /// `hold`, and is removed together with it. `commit` is the one that is checked out.
    pub fn new(
        dir: PathBuf,
        (root, project, hold): (&Path, &Path, &Path),
        commit: &CommitSha,
    ) -> Self {
        let of_pull = hold
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/nowhere"));
        let name = Sha256Digest::of(dir.as_os_str().as_bytes()).to_string();
        let note = of_pull
            .join(".init")
            .join(hold.file_name().unwrap_or_default())
            .join(name);
        Self {
            dir,
            note,
            commit: commit.clone(),
            root: root.to_owned(),
            project: project.to_owned(),
        }
    }

    /// Returns true if the directory exists and differs from the note of the last `init`.
    pub fn is_changed(&self) -> bool {
        let is_there = self.dir.symlink_metadata().is_ok();
        is_there && !self.is_as_noted()
    }

    fn is_as_noted(&self) -> bool {
        let noted = fs::read_to_string(&self.note);
        matches!((noted, self.fingerprint()), (Ok(noted), Ok(found)) if noted == self.text(&found))
    }

    fn text(&self, found: &Sha256Digest) -> String {
        format!("{} {found}", self.commit)
    }

    /// Returns true if the last `init` was for this commit and noted what it left.
    fn is_noted(&self) -> bool {
        let noted = fs::read_to_string(&self.note).unwrap_or_default();
        noted
            .split_once(' ')
            .is_some_and(|(commit, _)| commit == self.commit.as_str())
    }

    /// Removes a directory that differs from the note of the last `init`. Returns true if something has changed it since that
    /// note. Without a note for this commit nobody can tell.
    pub fn remove_changed(&self) -> Result<bool> {
        if !self.is_changed() {
            return Ok(false);
        }
        let is_noted = self.is_noted();
        let Some((parent, name)) = self.in_checkout()? else {
            return Ok(false);
        };
        // No link on the way is followed, also if somebody makes one now.
        let dir = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name);
        if dir.symlink_metadata()?.is_dir() {
            fs::remove_dir_all(&dir)?;
        } else {
            fs::remove_file(&dir)?;
        }
        Ok(is_noted)
    }

    /// Opens the parent of the directory. `None`: the directory is outside of the checkout. A step can choose any directory of
    /// this machine, and nothing is removed there.
    fn in_checkout(&self) -> Result<Option<(OwnedFd, &OsStr)>> {
        let (Some(parent), Some(name)) = (self.dir.parent(), self.dir.file_name()) else {
            return Ok(None);
        };
        let [root, project, parent] = [&self.root, &self.project, parent].map(Path::canonicalize);
        let (root, project, parent) = (root?, project?, parent?);
        match parent.strip_prefix(&root) {
            // With `.` or `..` it would be the code itself.
            Ok(below) if !project.starts_with(parent.join(name)) => {
                Ok(Some((inside::open_dir(&root, below)?, name)))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Returns true if the directory is in the checkout, so that it can be made again.
    pub fn is_in_checkout(&self) -> bool {
        match self.in_checkout() {
            Ok(found) => found.is_some(),
            Err(error) => error.kind() == ErrorKind::NotFound && self.will_be_in_checkout(),
        }
    }

    /// Returns true if an `init` would make the directory, with those above it, in the checkout.
    fn will_be_in_checkout(&self) -> bool {
        let is_there = |path: &&Path| path.symlink_metadata().is_ok();
        let Some(above) = self.dir.ancestors().find(is_there) else {
            return false;
        };
        let (Ok(root), Ok(found)) = (self.root.canonicalize(), above.canonicalize()) else {
            return false;
        };
        let below = self.dir.strip_prefix(above).unwrap_or(&self.dir);
        found.starts_with(root)
            && below
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
    }

    /// Removes the backend of an earlier `init`. An `init` without a backend would load it.
    pub fn remove_backend(&self) -> Result<()> {
        if self.dir.join(BACKEND).symlink_metadata().is_err() {
            return Ok(());
        }
        let Some((parent, name)) = self.in_checkout()? else {
            return Ok(());
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let removed = openat(&parent, name, flags, Mode::empty())
            .and_then(|dir| unlinkat(dir, BACKEND, UnlinkatFlags::NoRemoveDir));
        match removed {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the text about the backend of an earlier `init`; `None` if there is none. A link or a large file is an error.
    pub fn backend(&self) -> Result<Option<String>> {
        inside::read(&self.dir, Path::new(BACKEND), MAX_BACKEND)
    }

    /// Returns a digest of all that an `init` with a backend leaves alone after one without.
    pub fn without_backend(&self) -> Result<Sha256Digest> {
        let modules = inside::read(&self.dir, Path::new(MODULES), MAX_MODULES)?;
        let lines = self.lines(&[WORKSPACE, BACKEND, MODULES])?;
        Ok(digest(lines.into_iter().chain(entries(modules.as_deref()))))
    }

    /// Removes the note, so that the directory counts as changed.
    pub fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.note) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes the state that an `init` has left.
    pub fn note(&self) -> Result<()> {
        let text = match self.fingerprint() {
            Ok(found) => self.text(&found),
            // An empty note matches no directory: this one has too many entries to look at.
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => String::new(),
            Err(error) => return Err(error),
        };
        let parent = self.note.parent().expect("the note is in a directory");
        fs::create_dir_all(parent)?;
        let file = tempfile::NamedTempFile::new_in(parent)?;
        fs::write(file.path(), text)?;
        file.persist(&self.note).map_err(|error| error.error)?;
        Ok(())
    }

    /// Computes a digest of the metadata of all files.
    fn fingerprint(&self) -> Result<Sha256Digest> {
        self.lines(&[WORKSPACE]).map(digest)
    }

    /// Lists the metadata of all files but some, without following links. Of directories only names and permissions count,
    /// because their times change with the selected workspace.
    fn lines(&self, except: &[&str]) -> Result<Vec<Vec<u8>>> {
        let mut left = match self.dir.symlink_metadata() {
            Ok(found) if found.is_dir() => vec![PathBuf::new()],
            Ok(_) => return Err(Error::from(ErrorKind::NotADirectory)),
            // If there is nothing to fetch, `init` leaves no directory, and selecting a workspace creates it.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut lines = Vec::new();
        while let Some(below) = left.pop() {
            for entry in fs::read_dir(self.dir.join(&below))? {
                let entry = entry?;
                let path = below.join(entry.file_name());
                if except.iter().any(|except| path == Path::new(except)) {
                    continue;
                }
                let found = entry.metadata()?;
                lines.push(self.line(&path, &found)?);
                if lines.len() > MOST_ENTRIES {
                    return Err(Error::new(
                        ErrorKind::QuotaExceeded,
                        format!("it has more than {MOST_ENTRIES} files"),
                    ));
                }
                if found.is_dir() {
                    left.push(path);
                }
            }
        }
        lines.sort_unstable();
        Ok(lines)
    }

    fn line(&self, path: &Path, found: &Metadata) -> Result<Vec<u8>> {
        let mut line = path.as_os_str().as_bytes().to_vec();
        let mode = format!("\0{:o}", found.mode());
        line.extend(mode.into_bytes());
        if found.is_dir() {
            return Ok(line);
        }
        let times = [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ];
        let own = format!(
            "\0{} {} {} {times:?}\0",
            found.dev(),
            found.ino(),
            found.size()
        );
        line.extend(own.into_bytes());
        if found.is_symlink() {
            line.extend(fs::read_link(self.dir.join(path))?.as_os_str().as_bytes());
        }
        Ok(line)
    }
}

/// Returns the entries of a list of modules. Old versions of Terraform write them in any order.
fn entries(modules: Option<&str>) -> Vec<Vec<u8>> {
    let text = modules.unwrap_or_default();
    let Ok(Value::Object(mut list)) = serde_json::from_str(text) else {
        return vec![text.as_bytes().to_vec()];
    };
    let modules = match list.remove("Modules") {
        Some(Value::Array(modules)) => modules,
        other => other.into_iter().collect(),
    };
    let mut entries: Vec<Vec<u8>> = modules
        .iter()
        .map(|module| module.to_string().into_bytes())
        .collect();
    entries.sort_unstable();
    entries.push(Value::Object(list).to_string().into_bytes());
    entries
}

fn digest(lines: impl IntoIterator<Item = Vec<u8>>) -> Sha256Digest {
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(u64::try_from(line.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(line);
    }
    Sha256Digest::of(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::SystemTime;

    use super::*;

    fn commit(digit: char) -> CommitSha {
        CommitSha::new(&digit.to_string().repeat(40)).unwrap()
    }

    #[test]
    fn an_empty_variable_names_no_directory() {
        for (set, expected) in [
            (None, "/project/.terraform"),
            (Some(""), "/project/.terraform"),
            (Some(".cache/tf"), "/project/.cache/tf"),
            (Some("/var/tf"), "/var/tf"),
        ] {
            let found = path(Path::new("/project"), set.map(OsStr::new));
            assert_eq!(found, Path::new(expected));
        }
    }

    #[test]
    fn a_directory_of_another_commit_is_made_again() {
        let (_top, data_dir) = noted();
        let of_next = DataDir {
            commit: commit('b'),
            ..data_dir.clone()
        };
        assert!(of_next.is_changed());
        assert!(!of_next.remove_changed().unwrap(), "nobody has changed it");
        assert!(data_dir.dir.symlink_metadata().is_err());
    }

    /// Creates a directory as `init` leaves it, and a note of it.
    fn noted() -> (tempfile::TempDir, DataDir) {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("default/.terraform");
        fs::create_dir_all(dir.join("modules/m")).unwrap();
        fs::create_dir_all(dir.join("providers")).unwrap();
        fs::write(dir.join("modules/m/run.sh"), "echo reviewed\n").unwrap();
        symlink("/store/null", dir.join("providers/null")).unwrap();
        let hold = top.path().join(".hold/default");
        let root = top.path().join("default");
        let data_dir = DataDir::new(dir, (&root, &root, &hold), &commit('a'));
        assert!(data_dir.is_changed(), "nobody has noted it yet");
        data_dir.note().unwrap();
        assert!(!data_dir.is_changed());
        (top, data_dir)
    }

    #[test]
    fn every_way_to_change_it_is_seen() {
        type Change = fn(&Path) -> Result<()>;
        let ways: [(&str, Change); 8] = [
            ("other contents of the same size", |dir| {
                let file = dir.join("modules/m/run.sh");
                let times = file.metadata()?.modified()?;
                fs::write(&file, "echo attacked\n")?;
                fs::File::options()
                    .write(true)
                    .open(&file)?
                    .set_modified(times)
            }),
            ("another file in its place", |dir| {
                fs::write(dir.join("modules/m/new"), "echo reviewed\n")?;
                fs::rename(dir.join("modules/m/new"), dir.join("modules/m/run.sh"))
            }),
            ("a new file", |dir| {
                fs::write(dir.join("modules/m/more.sh"), "")
            }),
            ("a new directory", |dir| {
                fs::create_dir(dir.join("providers/more"))
            }),
            ("a file less", |dir| {
                fs::remove_file(dir.join("modules/m/run.sh"))
            }),
            ("another mode", |dir| {
                fs::set_permissions(
                    dir.join("modules/m/run.sh"),
                    fs::Permissions::from_mode(0o755),
                )
            }),
            ("another link", |dir| {
                fs::remove_file(dir.join("providers/null"))?;
                symlink("/tmp/null", dir.join("providers/null"))
            }),
            ("a link in its own place", |dir| {
                fs::rename(dir, dir.with_extension("moved"))?;
                symlink(dir.with_extension("moved"), dir)
            }),
        ];
        for (name, change) in ways {
            let (_top, data_dir) = noted();
            change(&data_dir.dir).unwrap();
            assert!(data_dir.is_changed(), "{name}");
            assert!(data_dir.remove_changed().unwrap(), "{name}");
            assert!(data_dir.dir.symlink_metadata().is_err(), "{name}");
            assert!(
                !data_dir.is_changed(),
                "{name}: what is not there has to be made, and is no change"
            );
        }
    }

    #[test]
    fn selecting_a_workspace_and_reading_change_nothing() {
        let (_top, data_dir) = noted();
        fs::write(data_dir.dir.join(WORKSPACE), "staging").unwrap();
        fs::read(data_dir.dir.join("modules/m/run.sh")).unwrap();
        fs::File::open(&data_dir.dir)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        assert!(!data_dir.is_changed());
        assert!(!data_dir.remove_changed().unwrap());
    }

    #[test]
    fn where_init_leaves_nothing_selecting_a_workspace_is_no_change() {
        let (_top, data_dir) = noted();
        fs::remove_dir_all(&data_dir.dir).unwrap();
        data_dir.note().unwrap();
        assert!(!data_dir.is_changed());
        fs::create_dir(&data_dir.dir).unwrap();
        fs::write(data_dir.dir.join(WORKSPACE), "staging").unwrap();
        assert!(!data_dir.is_changed());
        fs::create_dir(data_dir.dir.join("modules")).unwrap();
        assert!(data_dir.is_changed());
    }

    #[test]
    fn a_directory_that_no_init_has_noted_is_removed_and_not_called_changed() {
        let (_top, data_dir) = noted();
        data_dir.forget().unwrap();
        assert!(data_dir.is_changed());
        assert!(!data_dir.remove_changed().unwrap());
        assert!(data_dir.dir.symlink_metadata().is_err());
    }

    #[test]
    fn a_link_outwards_is_removed_and_what_it_leads_to_stays() {
        let (top, data_dir) = noted();
        let outside = top.path().join("outside");
        fs::rename(&data_dir.dir, &outside).unwrap();
        symlink(&outside, &data_dir.dir).unwrap();
        assert!(data_dir.remove_changed().unwrap());
        assert!(outside.join("modules/m/run.sh").exists());
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_in_the_checkout_if_init_makes_it_there() {
        let (top, data_dir) = noted();
        let root = data_dir.root.clone();
        fs::create_dir(top.path().join("outside")).unwrap();
        symlink(top.path().join("outside"), root.join("link")).unwrap();
        symlink(top.path().join("nowhere"), root.join("dangling")).unwrap();
        for (dir, expected) in [
            (".cache/tf", true),
            (".cache/../../tf", false),
            ("link/new/tf", false),
            ("dangling/tf", false),
            ("/nowhere/tf", false),
        ] {
            let chosen = DataDir {
                dir: root.join(dir),
                ..data_dir.clone()
            };
            assert_eq!(chosen.is_in_checkout(), expected, "{dir}");
            if expected {
                chosen.remove_backend().unwrap();
            }
        }
    }

    #[test]
    fn nothing_outside_of_the_checkout_is_removed() {
        let (top, data_dir) = noted();
        let outside = top.path().join("outside");
        fs::create_dir_all(outside.join("mirrors")).unwrap();
        let project = top.path().join("default/project");
        symlink(&outside, &project).unwrap();
        for dir in [outside.join("mirrors"), project.join("mirrors")] {
            let chosen = DataDir {
                dir,
                ..data_dir.clone()
            };
            assert!(chosen.is_changed());
            assert!(!chosen.remove_changed().unwrap());
            assert!(outside.join("mirrors").is_dir());
        }
    }

    #[test]
    fn the_note_of_one_directory_is_not_that_of_another() {
        let (_top, data_dir) = noted();
        let other = DataDir {
            dir: data_dir.dir.with_file_name("other"),
            ..data_dir.clone()
        };
        fs::create_dir_all(&other.dir).unwrap();
        assert!(other.is_changed());
    }
}
