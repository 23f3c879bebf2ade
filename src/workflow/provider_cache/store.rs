//! The packages that are kept. A package is there when its checksum stands beside it, and is never changed after that.

use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{DEPTH, hash};

/// Packages on this disk.
#[derive(Debug, Clone)]
pub(super) struct Store(PathBuf);

/// Where a package is, from the top of the store: `registry.terraform.io/hashicorp/null/3.2.1/linux_amd64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackagePath(PathBuf);

impl PackagePath {
    /// Below a directory laid out as a cache.
    pub fn below(&self, top: &Path) -> PathBuf {
        top.join(&self.0)
    }

    /// `registry.terraform.io/hashicorp/null` and `3.2.1`, as lock files have them.
    pub fn provider(&self) -> Option<(String, String)> {
        let parts: Vec<&str> = self.0.iter().filter_map(|part| part.to_str()).collect();
        let [host, namespace, kind, version, _] = parts.as_slice() else { return None };
        Some((format!("{host}/{namespace}/{kind}"), (*version).to_owned()))
    }
}

/// Every package in a directory laid out as a cache: directories, and links in their place.
pub(super) fn packages(top: &Path) -> Result<Vec<PackagePath>> {
    let mut level = vec![PathBuf::new()];
    for depth in 1..=DEPTH {
        let mut below = Vec::new();
        for dir in &level {
            for name in entries(&top.join(dir), depth == DEPTH)? {
                below.push(dir.join(name));
            }
        }
        level = below;
    }
    Ok(level.into_iter().map(PackagePath).collect())
}

/// Names of the directories in a directory; none when it is not there.
fn entries(dir: &Path, or_links: bool) -> Result<Vec<std::ffi::OsString>> {
    let read = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut names = Vec::new();
    for entry in read {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() || or_links && kind.is_symlink() {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

impl Store {
    pub fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The packages that are kept, with their checksums.
    pub fn list(&self) -> Result<Vec<(PackagePath, String)>> {
        let checked = |package: PackagePath| Some((package.clone(), self.checksum(&package)?));
        Ok(packages(&self.0)?.into_iter().filter_map(checked).collect())
    }

    pub fn path_of(&self, package: &PackagePath) -> PathBuf {
        package.below(&self.0)
    }

    fn checksum(&self, package: &PackagePath) -> Option<String> {
        fs::read_to_string(self.checksum_file(package)).ok()
    }

    fn checksum_file(&self, package: &PackagePath) -> PathBuf {
        let mut file = self.path_of(package).into_os_string();
        file.push(".h1");
        file.into()
    }

    /// Moves an unpacked package into the store, unless it is there. Afterwards what is in the store is the same as what
    /// was at `from`; `false`: it is not, and `from` is where it was.
    pub fn take(&self, package: &PackagePath, from: &Path) -> Result<bool> {
        let checksum = hash::h1(from)?;
        for file in hash::files(from)? {
            let mode = fs::metadata(&file)?.permissions().mode();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode & 0o555))?;
        }
        let goal = self.path_of(package);
        fs::create_dir_all(goal.parent().unwrap_or(&self.0))?;
        match fs::rename(from, &goal) {
            Ok(()) => self.vouch(package, &checksum).map(|()| true),
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                self.compare(package, &checksum)
            }
            Err(error) => Err(error),
        }
    }

    /// Somebody was quicker. They may have died between the package and its checksum, which is then made up for.
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
        let new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(&self.0))?;
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
        let store = Store::new(dir.path().join("store"));
        let overlay = dir.path().join("overlay");
        assert!(store.list().unwrap().is_empty());
        let it = package(&overlay, "one");
        assert!(store.take(&it, &it.below(&overlay)).unwrap());
        assert!(!it.below(&overlay).exists());
        assert_eq!(fs::metadata(store.path_of(&it).join("provider")).unwrap().permissions().mode() & 0o222, 0);
        assert_eq!(store.list().unwrap().len(), 1);

        let same = package(&overlay, "one");
        assert!(store.take(&same, &same.below(&overlay)).unwrap());
        fs::remove_dir_all(&overlay).unwrap();
        let other = package(&overlay, "two");
        assert!(!store.take(&other, &other.below(&overlay)).unwrap(), "another one of the same name");
        assert_eq!(fs::read_to_string(store.path_of(&it).join("provider")).unwrap(), "one");
    }

    #[test]
    fn a_package_whose_checksum_was_never_written_is_not_used_until_somebody_proves_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("store"));
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
    fn a_package_is_named_as_in_lock_files() {
        let package = PackagePath("registry.terraform.io/hashicorp/null/3.2.1/linux_amd64".into());
        assert_eq!(package.provider(), Some(("registry.terraform.io/hashicorp/null".to_owned(), "3.2.1".to_owned())));
        assert_eq!(PackagePath("a/b".into()).provider(), None);
    }
}
