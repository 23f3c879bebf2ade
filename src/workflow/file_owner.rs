//! Changes the owner of the directories of a run to the user that its programs run as (`--run-as`).
//!
//! The server keeps the right to everything in them; the user becomes the owner. The files that a run leaves are as
//! hostile as its code, and programs of another run of that user may change them meanwhile. So two rules apply:
//! - *No link* is followed: each entry is opened by its name in its directory, and the ownership of the opened file
//!   is changed.
//! - *No file of others* changes its owner: a file that has a second name may be a file of the server.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, chownat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::thread::{Gid, Uid};

use crate::model::RunUser;

/// Maximum depth of directories in a checkout.
const DEEPEST: usize = 200;
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes the user the owner of a directory and all that is below, and lets the user search the directories from `top`
/// down to it. `top` contains the directory.
pub(super) fn change_owner(top: &Path, dir: &Path, user: RunUser) -> io::Result<()> {
    let (top, dir) = (top.canonicalize()?, dir.canonicalize()?);
    allow_search(&top, &dir, user)?;
    let opened = openat(rustix::fs::CWD, &dir, DIRECTORY, Mode::empty())?;
    chown_opened(&opened, &fstat(&opened)?, user)?;
    change_below(&opened, user, 0)
}

/// Lets the group of the user search the directories from `top` to the one that contains `path`. The group cannot
/// list them.
pub(super) fn allow_search(top: &Path, path: &Path, user: RunUser) -> io::Result<()> {
    for dir in path
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(top))
    {
        let meta = fs::metadata(dir)?;
        let mode = meta.mode() & 0o7777;
        let is_open = mode & 0o001 != 0 || meta.gid() == user.gid && mode & 0o010 != 0;
        if !is_open {
            chown(dir, None, Some(user.gid))?;
            fs::set_permissions(dir, fs::Permissions::from_mode(mode & !0o070 | 0o010))?;
        }
    }
    Ok(())
}

/// Lets the group of the user read a file of the server, in a directory below `parent`, and change nothing there.
pub(super) fn allow_read(parent: &Path, dir: &Path, file: &Path, user: RunUser) -> io::Result<()> {
    let top = parent.parent().unwrap_or(parent);
    allow_search(&top.canonicalize()?, &dir.canonicalize()?, user)?;
    for (path, mode) in [(file, 0o440), (dir, 0o750)] {
        chown(path, None, Some(user.gid))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Makes a directory of the server and all that is below readable for every user who can reach it.
pub(super) fn make_readable(dir: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(dir)?.mode() & 0o7777;
    let readable = mode | 0o044 | if mode & 0o100 == 0 { 0 } else { 0o011 };
    if readable != mode {
        fs::set_permissions(dir, fs::Permissions::from_mode(readable))?;
    }
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            make_readable(&entry?.path())?;
        }
    }
    Ok(())
}

/// Copies regular files and directories of the user of runs from an open directory. Any other kind of entry is an
/// error.
pub(super) fn copy_files(from: &OwnedFd, to: &Path) -> io::Result<()> {
    copy_below(from, to, 0)
}

fn copy_below(from: &OwnedFd, to: &Path, depth: usize) -> io::Result<()> {
    if depth == DEEPEST {
        return Err(too_deep());
    }
    fs::create_dir(to)?;
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let opened = openat(
            from,
            name,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let (stat, to) = (fstat(&opened)?, to.join(OsStr::from_bytes(name.to_bytes())));
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            copy_below(&opened, &to, depth + 1)?;
        } else if kind == FileType::RegularFile {
            io::copy(&mut fs::File::from(opened), &mut fs::File::create_new(&to)?)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(stat.st_mode & 0o777))?;
        } else {
            return Err(Error::new(
                ErrorKind::InvalidData,
                format!("{} is not a regular file", to.display()),
            ));
        }
    }
    Ok(())
}

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidData, "directories are nested too deep")
}

fn change_below(dir: &OwnedFd, user: RunUser, depth: usize) -> io::Result<()> {
    if depth == DEEPEST {
        return Err(too_deep());
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        // Another program of that user may have removed the entry.
        match change_entry(dir, name, user, depth) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            changed => changed?,
        }
    }
    Ok(())
}

fn change_entry(
    dir: &OwnedFd,
    name: &std::ffi::CStr,
    user: RunUser,
    depth: usize,
) -> io::Result<()> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let opened = match openat(dir, name, DIRECTORY, Mode::empty()) {
            // The entry was a directory a moment ago and has been replaced.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened?,
        };
        chown_opened(&opened, &fstat(&opened)?, user)?;
        return change_below(&opened, user, depth + 1);
    }
    if stat.st_uid == user.uid {
        return Ok(());
    }
    let opened = openat(dir, name, ANYTHING, Mode::empty())?;
    let stat = fstat(&opened)?;
    if stat.st_nlink == 1 {
        chown_opened(&opened, &stat, user)
    } else {
        Ok(())
    }
}

fn chown_opened(opened: impl AsFd, stat: &Stat, user: RunUser) -> io::Result<()> {
    if stat.st_uid == user.uid {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    Ok(chownat(
        opened,
        c"",
        Some(uid),
        Some(gid),
        AtFlags::EMPTY_PATH,
    )?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::inside::open_dir;
    use super::*;

    const USER: RunUser = RunUser {
        uid: 4343,
        gid: 4344,
    };

    /// Returns true if the test runs as root: only root may change owners.
    fn may_chown() -> bool {
        nix::unistd::geteuid().is_root()
    }

    #[test]
    fn the_directories_of_a_run_belong_to_the_user_and_nothing_else_does() {
        assert!(
            may_chown(),
            "this test needs root, who alone may change owners"
        );
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for dir in [
            "data",
            "data/checkouts",
            "data/checkouts/1",
            "data/checkouts/1/sub",
            "data/other",
        ] {
            fs::create_dir(at(dir)).unwrap();
            fs::set_permissions(at(dir), fs::Permissions::from_mode(0o700)).unwrap();
        }
        for file in [
            "data/database",
            "data/checkouts/1/sub/file",
            "data/checkouts/1/linked",
        ] {
            fs::write(at(file), "").unwrap();
        }
        fs::hard_link(at("data/database"), at("data/checkouts/1/hard")).unwrap();
        symlink(at("data/database"), at("data/checkouts/1/soft")).unwrap();
        symlink(at("data/other"), at("data/checkouts/1/away")).unwrap();
        for _ in 0..2 {
            change_owner(&at("data"), &at("data/checkouts/1"), USER).unwrap();
            for (path, uid, gid, mode) in [
                ("data", 0, 4344, 0o710),
                ("data/checkouts", 0, 4344, 0o710),
                ("data/checkouts/1", 4343, 4344, 0o700),
                ("data/checkouts/1/sub", 4343, 4344, 0o700),
                ("data/other", 0, 0, 0o700),
            ] {
                let meta = at(path).symlink_metadata().unwrap();
                assert_eq!(
                    (meta.uid(), meta.gid(), meta.mode() & 0o777),
                    (uid, gid, mode),
                    "{path}"
                );
            }
            for (path, uid) in [
                ("data/checkouts/1/sub/file", 4343),
                ("data/checkouts/1/linked", 4343),
                ("data/checkouts/1/soft", 4343),
                ("data/checkouts/1/away", 4343),
                ("data/checkouts/1/hard", 0),
                ("data/database", 0),
            ] {
                assert_eq!(at(path).symlink_metadata().unwrap().uid(), uid, "{path}");
            }
        }
        assert_eq!(top.path().metadata().unwrap().gid(), 0);
    }

    #[test]
    fn files_are_copied_and_nothing_that_leads_elsewhere() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("from/sub")).unwrap();
        fs::write(at("from/sub/program"), "content").unwrap();
        fs::set_permissions(at("from/sub/program"), fs::Permissions::from_mode(0o4755)).unwrap();
        let copy = |from: &str, to: &str| -> io::Result<()> {
            copy_files(&open_dir(top.path(), Path::new(from))?, &at(to))
        };
        copy("from", "to").unwrap();
        assert_eq!(fs::read_to_string(at("to/sub/program")).unwrap(), "content");
        assert_eq!(
            at("to/sub/program").metadata().unwrap().mode() & 0o7777,
            0o755
        );
        fs::write(at("secret"), "").unwrap();
        symlink(at("secret"), at("from/sub/link")).unwrap();
        assert!(copy("from", "second").is_err());
        symlink(at("from"), at("whole")).unwrap();
        assert!(copy("whole", "third").is_err());
    }

    #[test]
    fn a_package_is_readable_for_everyone_who_can_reach_it() {
        let top = tempfile::tempdir().unwrap();
        let (dir, file) = (top.path().join("1.0.0"), top.path().join("1.0.0/provider"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        for (before, after) in [(0o500, 0o555), (0o400, 0o444), (0o644, 0o644)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
            make_readable(&dir).unwrap();
            let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
            assert_eq!((mode(&dir), mode(&file)), (0o755, after));
        }
    }
}
