//! Checks byte by byte that the files of a mirror that control git are Lockkeeper's own.
//!
//! The need: without a sandbox, a program from a pull request runs as the same user. It could write into the mirror
//! of another repository (a filter in `config` and `info/attributes`). That would change checkouts there, and the
//! filter would run. So these files are checked before every call of git on a mirror, which is cheap compared with
//! the call. `config` must have exactly the expected bytes, `info/` must be empty, no file may lead git to other
//! files, and worktrees must have a plain `HEAD`. The content of a checkout is also compared with its commit, see `tree_check`.
//!
//! A mirror that Lockkeeper did not write like this is marked as damaged. The next fetch or sync replaces it by a
//! fresh clone.

use std::fs;
use std::io;
use std::path::Path;

use tracing::error;

use super::plain_file::meta;
use super::{GitError, Mirror};

/// Configuration of every mirror, in the form of `git init --bare`. Settings that differ between calls are passed
/// with the call. `git-lfs` would add the last two lines automatically; it looks for them only in this file.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n\
                      [lfs]\n\trepositoryformatversion = 0\n";
/// Configuration of earlier releases, without the part for `git-lfs`.
const PLAIN_CONFIG: &str =
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";
/// Path from a linked worktree to its repository.
pub(super) const COMMON: &str = "../..\n";
/// Files that would make git read something other than the mirror (gitrepository-layout). `hooks` do not run, and
/// Lockkeeper does not create them.
const STRANGE: [&str; 7] = [
    "commondir",
    "gitdir",
    "config.worktree",
    "hooks",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "refs/replace",
];
/// Maximum size of a `HEAD` in bytes. It has the id of a commit or the name of a branch.
const MAX_HEAD: u64 = 1024;
/// File written by `git repack` of earlier releases, for servers without git. Nothing reads it here.
const LIST_OF_REFS: &str = "refs";

impl Mirror {
    /// Refuses a mirror with foreign configuration. A missing mirror is accepted.
    pub fn check_integrity(&self, doing: &str) -> Result<(), GitError> {
        let strange = foreign(self.dir(), self.is_submodule()).map_err(GitError::from_io(doing))?;
        strange.map_or(Ok(()), |what| Err(self.altered(doing, &what)))
    }

    /// Refuses a mirror that would make git wait: commands such as a fetch read the `HEAD` of every worktree.
    pub(super) fn check_worktrees(&self, doing: &str) -> Result<(), GitError> {
        let strange =
            in_worktrees(&self.dir().join("worktrees")).map_err(GitError::from_io(doing))?;
        strange.map_or(Ok(()), |what| Err(self.altered(doing, &what)))
    }

    /// Marks a mirror that was changed by another program, and returns the error about it. The next fetch replaces the
    /// mirror.
    pub(super) fn altered(&self, doing: &str, what: &str) -> GitError {
        let dir = self.dir().display();
        error!(repo = %self.repo, mirror = %dir, what, "A mirror was changed by something other than Lockkeeper; the next fetch replaces it. Find out which program runs as the user of the server");
        if let Err(error) = self.note_damage() {
            return error;
        }
        GitError::Altered {
            doing: doing.to_owned(),
            message: what.to_owned(),
        }
    }

    /// Writes the configuration unless it is already present. The write is atomic, because others may be reading the
    /// file.
    pub(super) fn write_config(&self) -> io::Result<()> {
        let path = self.dir().join("config");
        if is_config(&path)? {
            return Ok(());
        }
        let beside = tempfile::Builder::new()
            .prefix(".lockkeeper-config-")
            .tempfile_in(self.dir())?
            .into_temp_path();
        fs::write(&beside, CONFIG)?;
        beside.persist(&path).map_err(|error| error.error)
    }

    /// Returns true for the repository of a submodule. It is fetched without history, so it has a list of where the
    /// history ends.
    fn is_submodule(&self) -> bool {
        self.dir()
            .parent()
            .and_then(Path::file_name)
            .is_some_and(|name| name == "modules")
    }
}

/// Returns true if a linked worktree leads to the mirror that contains it.
pub(super) fn leads_here(admin: &Path) -> bool {
    is_file_with(&admin.join("commondir"), COMMON).unwrap_or(false)
}

/// Names the first file that Lockkeeper did not write.
fn foreign(dir: &Path, is_submodule: bool) -> io::Result<Option<String>> {
    // A directory without this file is no repository: git reads nothing and reports that.
    match has_plain_head(dir)? {
        None => return Ok(None),
        Some(true) => {}
        Some(false) => return Ok(Some("`HEAD` is not a small file".to_owned())),
    }
    if !is_config(&dir.join("config"))? {
        return Ok(Some(
            "`config` does not have the content that Lockkeeper writes".to_owned(),
        ));
    }
    let strange = STRANGE
        .into_iter()
        .chain((!is_submodule).then_some("shallow"));
    for name in strange {
        if meta(&dir.join(name))?.is_some() {
            return Ok(Some(format!(
                "`{name}` exists, but Lockkeeper does not create it"
            )));
        }
    }
    in_info(&dir.join("info"))
}

/// Names the first worktree without a plain `HEAD`.
fn in_worktrees(worktrees: &Path) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(worktrees) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // A worktree that is being removed has none.
        if has_plain_head(&entry.path())? == Some(false) {
            let name = entry.file_name();
            let name = name.to_string_lossy().replace(char::is_control, "\u{FFFD}");
            return Ok(Some(format!("`worktrees/{name}/HEAD` is not a small file")));
        }
    }
    Ok(None)
}

/// Returns true if `HEAD` in a directory is a small regular file, and `None` if it does not exist.
fn has_plain_head(dir: &Path) -> io::Result<Option<bool>> {
    let head = meta(&dir.join("HEAD"))?;
    Ok(head.map(|meta| meta.is_file() && meta.len() <= MAX_HEAD))
}

/// Checks for attributes, exclusions and grafts.
fn in_info(info: &Path) -> io::Result<Option<String>> {
    match info.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(meta) if !meta.is_dir() => return Ok(Some("`info` is not a directory".to_owned())),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    for entry in fs::read_dir(info)? {
        let name = entry?.file_name();
        if name != LIST_OF_REFS {
            let name = name.to_string_lossy().replace(char::is_control, "\u{FFFD}");
            return Ok(Some(format!(
                "`info/{name}` exists, but Lockkeeper does not create it"
            )));
        }
    }
    Ok(None)
}

/// Returns true if the directory is a whole repository with our configuration, so that `git init` would change nothing.
pub(super) fn is_initialised(dir: &Path) -> bool {
    let has =
        |name: &str| meta(&dir.join(name)).is_ok_and(|meta| meta.is_some_and(|meta| meta.is_dir()));
    has_plain_head(dir).is_ok_and(|head| head == Some(true))
        && is_file_with(&dir.join("config"), CONFIG).unwrap_or(false)
        && ["refs/heads", "objects/info", "objects/pack"]
            .into_iter()
            .all(has)
}

fn is_config(path: &Path) -> io::Result<bool> {
    Ok(is_file_with(path, CONFIG)? || is_file_with(path, PLAIN_CONFIG)?)
}

/// Returns true if the path is a regular file, not a link, with exactly this content.
fn is_file_with(path: &Path, content: &str) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(meta) if !meta.is_file() || meta.len() != content.len() as u64 => Ok(false),
        Ok(_) => fs::read(path).map(|bytes| bytes == content.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.path().join("config"), CONFIG).unwrap();
        for name in ["objects/info", "refs/heads", "info"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("info/refs"), "").unwrap();
        dir
    }

    #[test]
    fn a_mirror_as_it_was_made_is_ours() {
        let dir = mirror();
        assert_eq!(foreign(dir.path(), false).unwrap(), None);
        fs::remove_file(dir.path().join("info/refs")).unwrap();
        fs::remove_dir(dir.path().join("info")).unwrap();
        assert_eq!(foreign(dir.path(), false).unwrap(), None);
        assert_eq!(foreign(&dir.path().join("none"), false).unwrap(), None);
        fs::write(dir.path().join("shallow"), "").unwrap();
        assert_eq!(foreign(dir.path(), true).unwrap(), None);
    }

    #[test]
    fn a_worktree_has_a_plain_head() {
        let dir = mirror();
        let admin = dir.path().join("worktrees/one");
        fs::create_dir_all(&admin).unwrap();
        let found = || in_worktrees(&dir.path().join("worktrees")).unwrap();
        assert_eq!(found(), None);
        let head = admin.join("HEAD");
        fs::write(&head, "5626abf0f72e58d7a153368ba57db4c673c0e171\n").unwrap();
        assert_eq!(found(), None);
        fs::write(&head, "x".repeat(2000)).unwrap();
        assert!(found().is_some());
        fs::remove_file(&head).unwrap();
        nix::unistd::mkfifo(&head, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let named = found().unwrap();
        assert!(named.contains("`worktrees/one/HEAD`"), "{named}");
    }

    #[test]
    fn whatever_leads_git_elsewhere_is_named() {
        for name in STRANGE.into_iter().chain([
            "shallow",
            "info/attributes",
            "info/exclude",
            "info/grafts",
            "info/x",
        ]) {
            let dir = mirror();
            fs::write(dir.path().join(name), "x").unwrap();
            let named = foreign(dir.path(), false).unwrap().unwrap();
            assert!(named.contains(&format!("`{name}`")), "{named}");
        }
        let changed = [
            format!("{CONFIG}[filter \"x\"]\n\tsmudge = x\n"),
            CONFIG.replace("true", "trUe"),
            String::new(),
        ];
        for config in changed {
            let dir = mirror();
            fs::write(dir.path().join("config"), config).unwrap();
            assert!(
                foreign(dir.path(), false)
                    .unwrap()
                    .unwrap()
                    .contains("`config`")
            );
        }
        for (name, to) in [("config", "ours"), ("info", "elsewhere")] {
            let dir = mirror();
            fs::rename(dir.path().join(name), dir.path().join(to)).unwrap();
            std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
            assert!(foreign(dir.path(), false).unwrap().unwrap().contains(name));
        }
    }
}
