//! Opens files and directories of a checkout on behalf of the server without following links, neither at the end of a
//! path nor on the way to it: a pull request could have put a link there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// Flags for the directory that paths are relative to. Opening a pipe in its place would block.
const TOP: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// Opens a regular file below a directory.
pub(super) fn open(dir: &Path, path: &Path) -> Result<File> {
    let mut at = fcntl::open(dir, TOP, Mode::empty())?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let kind = if parts.peek().is_some() {
            OFlag::O_DIRECTORY
        } else {
            OFlag::O_NONBLOCK
        };
        at = open_part(&at, part, kind)?;
    }
    let file = File::from(at);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(Error::new(
        ErrorKind::InvalidData,
        "it is not a regular file",
    ))
}

/// Opens a directory below a directory.
pub(super) fn open_dir(dir: &Path, path: &Path) -> Result<OwnedFd> {
    let mut at = fcntl::open(dir, TOP, Mode::empty())?;
    for part in path.components() {
        at = open_part(&at, part, OFlag::O_DIRECTORY)?;
    }
    Ok(at)
}

/// Opens the directory of an entry below a directory. Returns the name of the entry too.
pub(super) fn open_parent(dir: &Path, path: &Path) -> Result<(OwnedFd, OsString)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::from(ErrorKind::InvalidInput));
    };
    Ok((open_dir(dir, parent)?, name.to_owned()))
}

fn open_part(at: &OwnedFd, part: Component<'_>, kind: OFlag) -> Result<OwnedFd> {
    let Component::Normal(name) = part else {
        return Err(Error::from(ErrorKind::InvalidInput));
    };
    let opened = openat(
        at,
        name,
        OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | kind,
        Mode::empty(),
    );
    opened.map_err(|error| {
        if is_plain_file(at, name) {
            Errno::ENOENT.into()
        } else {
            error.into()
        }
    })
}

/// Tests for a regular file, which cannot have entries. A link is not a plain file, because it may lead to a
/// directory.
fn is_plain_file(dir: &OwnedFd, name: &OsStr) -> bool {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG)
}

/// Returns true if the path is a regular file. Any other kind of file, or a link on the way, is an error.
pub(super) fn is_there(dir: &Path, path: &Path) -> Result<bool> {
    match open(dir, path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a text of at most `most` bytes; `None` if the file does not exist.
pub(super) fn read(dir: &Path, path: &Path, most: u64) -> Result<Option<String>> {
    let file = match open(dir, path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let length = file.take(most + 1).read_to_string(&mut text)?;
    if length as u64 > most {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("it is larger than {most} bytes"),
        ));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_are_opened_and_no_links_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        symlink("../../other", root.join("a/link")).unwrap();
        let opened = |path: &str| match open_dir(&root, Path::new(path)) {
            Ok(_) => "opened",
            Err(error) if error.kind() == ErrorKind::NotFound => "none",
            Err(_) => "refused",
        };
        assert_eq!((opened("a/b"), opened("")), ("opened", "opened"));
        for path in ["a/none", "a/file", "a/none/b"] {
            assert_eq!(opened(path), "none", "{path}");
        }
        for path in ["a/link", "a/link/b", "a/../a/b", "/"] {
            assert_eq!(opened(path), "refused", "{path}");
        }
        let (parent, name) = open_parent(&root, Path::new("a/link")).unwrap();
        assert!(is_plain_file(&parent, OsStr::new("file")) && name == "link");
        assert!(open_parent(&root, Path::new("a/link/b")).is_err());
        assert!(open_parent(&root, Path::new("")).is_err());
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(read(dir.path(), Path::new("pipe"), 4).is_err());
        assert!(read(&pipe, Path::new("file"), 4).is_err());
        assert!(open_dir(&pipe, Path::new("")).is_err());
    }

    #[test]
    fn regular_files_are_read_and_nothing_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("env/sub")).unwrap();
        std::fs::write(root.join("env/prod"), "prod").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("prod", root.join("env/link")).unwrap();
        symlink("../../secret", root.join("env/out")).unwrap();
        symlink("env", root.join("linked")).unwrap();
        let text = |path: &str| read(&root, Path::new(path), 4).map_err(|_| "refused");
        assert_eq!(text("env/prod"), Ok(Some("prod".to_owned())));
        for path in ["env/none", "none/prod", "env/prod/below"] {
            assert_eq!(text(path), Ok(None), "{path}");
        }
        for path in [
            "env/link",
            "env/out",
            "linked/prod",
            "env/sub",
            "env/../env/prod",
            "../secret",
            "/etc/passwd",
        ] {
            assert_eq!(text(path), Err("refused"), "{path}");
            assert!(is_there(&root, Path::new(path)).is_err(), "{path}");
        }
        assert!(
            read(&root, Path::new("env/prod"), 3).is_err(),
            "it is longer"
        );
        assert!(
            is_there(&root, Path::new("env/prod")).unwrap()
                && !is_there(&root, Path::new("env/none")).unwrap()
        );
    }
}
