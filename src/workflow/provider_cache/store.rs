//! Stores the packages of the cache. A package exists if it has a checksum file, and is never changed after that.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::uses::SharedUses;
use super::{DEPTH, hash};

/// Store of the packages on this disk.
#[derive(Debug, Clone)]
pub(super) struct PackageStore {
    dir: PathBuf,
    pub uses: SharedUses,
}

/// Path of a package below the store, such as `registry.terraform.io/hashicorp/null/3.2.1/linux_amd64`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackagePath(PathBuf);

impl fmt::Display for PackagePath {
    /// Prints provider and version, such as `registry.terraform.io/hashicorp/null 3.2.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provider() {
            Some((provider, version)) => write!(f, "{provider} {version}"),
            None => write!(f, "{}", self.0.display()),
        }
    }
}

impl PackagePath {
    #[cfg(test)]
    pub(super) fn of(path: &str) -> Self {
        Self(path.into())
    }

    /// Returns the path of the package relative to a directory with the layout of a cache.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the package below a directory with the layout of a cache.
    pub(super) fn below(&self, top: &Path) -> PathBuf {
        top.join(&self.0)
    }

    /// Returns provider and version as lock files have them: `registry.terraform.io/hashicorp/null` and `3.2.1`.
    pub(super) fn provider(&self) -> Option<(String, String)> {
        let parts: Vec<&str> = self.0.iter().filter_map(|part| part.to_str()).collect();
        let [host, namespace, kind, version, _] = parts.as_slice() else {
            return None;
        };
        Some((format!("{host}/{namespace}/{kind}"), (*version).to_owned()))
    }
}

/// Lists every package below an open directory with the layout of a cache, and the links in place of packages. Follows
/// no link: the directory may be one of a checkout.
pub(super) fn packages(top: BorrowedFd<'_>) -> Result<Vec<PackagePath>> {
    let mut found = Vec::new();
    add_packages(top, Path::new(""), &mut found)?;
    Ok(found)
}

/// Adds the packages below a directory, which has the path `above` in the layout.
fn add_packages(dir: BorrowedFd<'_>, above: &Path, found: &mut Vec<PackagePath>) -> Result<()> {
    let has_packages = above.components().count() + 1 == DEPTH;
    let entries = match Dir::read_from(dir) {
        // The directory is being removed.
        Err(Errno::NOENT) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => FileType::from_raw_mode(stat?.st_mode),
        };
        let path = above.join(OsStr::from_bytes(name.to_bytes()));
        if has_packages && matches!(kind, FileType::Directory | FileType::Symlink) {
            found.push(PackagePath(path));
        } else if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(dir, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {}
                opened => add_packages(opened?.as_fd(), &path, found)?,
            }
        }
    }
    Ok(())
}

impl PackageStore {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            uses: SharedUses::default(),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists all packages of the store, even those without a checksum.
    pub fn packages(&self) -> Result<Vec<PackagePath>> {
        match File::open(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            dir => packages(dir?.as_fd()),
        }
    }

    /// Returns the package that a link leads to, or into.
    pub fn package_at(&self, target: &Path) -> Option<PackagePath> {
        let path: PathBuf = target
            .strip_prefix(&self.dir)
            .ok()?
            .components()
            .take(DEPTH)
            .collect();
        (path.components().count() == DEPTH).then_some(PackagePath(path))
    }

    /// Lists the packages of the store with their checksums.
    pub fn list(&self) -> Result<Vec<(PackagePath, String)>> {
        let checked = |package: PackagePath| Some((package.clone(), self.checksum(&package)?));
        Ok(self.packages()?.into_iter().filter_map(checked).collect())
    }

    pub fn path_of(&self, package: &PackagePath) -> PathBuf {
        package.below(&self.dir)
    }

    fn checksum(&self, package: &PackagePath) -> Option<String> {
        fs::read_to_string(self.checksum_file(package)).ok()
    }

    pub fn checksum_file(&self, package: &PackagePath) -> PathBuf {
        self.with_suffix(package, ".h1")
    }

    /// Returns the file whose modification time is the last use of the package, by the clock of the server.
    pub fn used_file(&self, package: &PackagePath) -> PathBuf {
        self.with_suffix(package, ".used")
    }

    fn with_suffix(&self, package: &PackagePath, ending: &str) -> PathBuf {
        let mut file = self.path_of(package).into_os_string();
        file.push(ending);
        file.into()
    }

    /// Notes that a project uses a package now. The caller keeps `uses` locked while it creates the link to the
    /// package.
    pub fn note_use(&self, package: &PackagePath, now: DateTime<Utc>) -> Result<()> {
        File::create(self.used_file(package))?.set_modified(SystemTime::from(now))
    }

    /// Returns the time of the last use. Without a note, it is the time when the package was created.
    pub fn used_at(&self, package: &PackagePath) -> DateTime<Utc> {
        let time = |path: PathBuf| {
            path.symlink_metadata()
                .and_then(|meta| meta.modified())
                .ok()
        };
        let used = time(self.used_file(package)).or_else(|| time(self.path_of(package)));
        used.unwrap_or(SystemTime::UNIX_EPOCH).into()
    }

    /// Moves an unpacked package, which the caller holds, into the store, unless the store has it already. Returns
    /// true if the store now has the same content as `from` had. Otherwise `from` stays where it is.
    pub fn take(&self, package: &PackagePath, from: &Path) -> Result<bool> {
        let checksum = hash::h1(from)?;
        for file in hash::files(from)? {
            let mode = fs::metadata(&file)?.permissions().mode();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode & 0o555))?;
        }
        let goal = self.path_of(package);
        let _uses = self.uses.lock();
        fs::create_dir_all(goal.parent().unwrap_or(&self.dir))?;
        match fs::rename(from, &goal) {
            Ok(()) => self.vouch(package, &checksum).map(|()| true),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
                ) =>
            {
                self.compare(package, &checksum)
            }
            Err(error) => Err(error),
        }
    }

    /// Compares a package with the one that another `init` stored first. If that one died between the package and its
    /// checksum, the missing checksum is written.
    fn compare(&self, package: &PackagePath, checksum: &str) -> Result<bool> {
        if let Some(known) = self.checksum(package) {
            return Ok(known == checksum);
        }
        let is_same = hash::h1(&self.path_of(package))? == checksum;
        if is_same {
            self.vouch(package, checksum)?;
        }
        Ok(is_same)
    }

    fn vouch(&self, package: &PackagePath, checksum: &str) -> Result<()> {
        let file = self.checksum_file(package);
        let new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(&self.dir))?;
        fs::write(new.path(), checksum)?;
        new.persist(file).map(drop).map_err(|error| error.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(top: &Path, content: &str) -> PackagePath {
        let package = PackagePath("example.com/acme/fake/1.0.0/linux_amd64".into());
        fs::create_dir_all(package.below(top)).unwrap();
        fs::write(package.below(top).join("provider"), content).unwrap();
        package
    }

    #[test]
    fn a_package_is_taken_once_and_cannot_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path().join("store"));
        let overlay = dir.path().join("overlay");
        assert!(store.list().unwrap().is_empty());
        let it = package(&overlay, "one");
        assert!(store.take(&it, &it.below(&overlay)).unwrap());
        assert!(!it.below(&overlay).exists());
        assert_eq!(
            fs::metadata(store.path_of(&it).join("provider"))
                .unwrap()
                .permissions()
                .mode()
                & 0o222,
            0
        );
        assert_eq!(store.list().unwrap().len(), 1);

        let same = package(&overlay, "one");
        assert!(store.take(&same, &same.below(&overlay)).unwrap());
        fs::remove_dir_all(&overlay).unwrap();
        let other = package(&overlay, "two");
        assert!(
            !store.take(&other, &other.below(&overlay)).unwrap(),
            "another one of the same name"
        );
        assert_eq!(
            fs::read_to_string(store.path_of(&it).join("provider")).unwrap(),
            "one"
        );
    }

    #[test]
    fn a_package_whose_checksum_was_never_written_is_not_used_until_somebody_proves_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path().join("store"));
        let it = package(&dir.path().join("store"), "one");
        assert!(store.list().unwrap().is_empty());
        let overlay = dir.path().join("overlay");
        let other = package(&overlay, "two");
        assert!(!store.take(&other, &other.below(&overlay)).unwrap());
        assert!(store.list().unwrap().is_empty());
        fs::remove_dir_all(&overlay).unwrap();
        let same = package(&overlay, "one");
        assert!(store.take(&same, &same.below(&overlay)).unwrap());
        assert_eq!(store.list().unwrap().first().unwrap().0, it);
    }

    #[test]
    fn a_link_to_a_package_or_into_it_names_it() {
        let store = PackageStore::new("/data/plugin-cache".into());
        let it = PackagePath::of("a/b/c/1.0.0/linux_amd64");
        for (target, expected) in [
            ("/data/plugin-cache/a/b/c/1.0.0/linux_amd64", Some(&it)),
            (
                "/data/plugin-cache/a/b/c/1.0.0/linux_amd64/program",
                Some(&it),
            ),
            ("/data/plugin-cache/a/b/c/1.0.0", None),
            ("/data/tmp/a/b/c/1.0.0/linux_amd64", None),
            ("../plugin-cache/a/b/c/1.0.0/linux_amd64", None),
        ] {
            assert_eq!(
                store.package_at(Path::new(target)).as_ref(),
                expected,
                "{target}"
            );
        }
        assert_eq!(it.to_string(), "a/b/c 1.0.0");
    }

    #[test]
    fn a_package_is_named_as_in_lock_files() {
        let package = PackagePath("registry.terraform.io/hashicorp/null/3.2.1/linux_amd64".into());
        assert_eq!(
            package.provider(),
            Some((
                "registry.terraform.io/hashicorp/null".to_owned(),
                "3.2.1".to_owned()
            ))
        );
        assert_eq!(PackagePath("a/b".into()).provider(), None);
    }
}
