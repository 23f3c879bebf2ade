//! Reads files that a run could have replaced by anything, such as a link, or a pipe that nobody writes to.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum size of a small file in bytes.
const MAX_SMALL: u64 = 8192;

/// Returns the text of a regular file of at most 8 KiB, or `None` if there is no file.
pub(super) fn small(path: &Path) -> io::Result<Option<String>> {
    text(path, MAX_SMALL)
}

/// Returns the text of a regular file of at most `most` bytes, or `None` if there is no file.
pub(super) fn text(path: &Path, most: u64) -> io::Result<Option<String>> {
    let Some(file) = open(path)? else {
        return Ok(None);
    };
    let mut text = String::new();
    let length = file.take(most + 1).read_to_string(&mut text)?;
    if length as u64 > most {
        return Err(io::Error::other("the file is too large"));
    }
    Ok(Some(text))
}

/// Opens a regular file without waiting for anybody; `None` if there is no file.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path);
    let file = match file {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        file => file?,
    };
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Ok(None);
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(Some(file))
}

/// Returns what is at a path itself, without following a link; `None` if there is nothing.
pub(super) fn meta(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        meta => meta.map(Some),
    }
}
