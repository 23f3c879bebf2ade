//! Manages the links in `.terraform/providers` to the packages that a project uses.
//!
//! Other programs of the pull request may work in the checkout at the same time, and could replace a directory there by
//! a link to files of the server. So each step opens the directory of an entry without following links, and works
//! relative to the open directory. A link in the place of a directory is an error.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, readlinkat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::super::inside;
use super::store::{PackagePath, packages};

/// Links of one project to packages.
#[derive(Debug)]
pub(super) struct ProjectLinks {
    /// Parent of all checkouts. No run can change the directory itself.
    checkouts: PathBuf,
    /// Path of the directory with the links, below `checkouts`.
    providers: PathBuf,
}

impl ProjectLinks {
    /// Finds the links of a project by the data directory of its tool. Returns `None` if that directory is not in a
    /// checkout.
    pub(super) fn within(checkouts: &Path, data_dir: &Path) -> Result<Option<Self>> {
        let real = checkouts.canonicalize()?;
        let below = data_dir
            .strip_prefix(&real)
            .or_else(|_| data_dir.strip_prefix(checkouts));
        let below = below.ok().filter(|below| {
            below
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        });
        Ok(below.map(|below| Self {
            providers: below.join("providers"),
            checkouts: real,
        }))
    }

    /// Lists the packages that a project links to below `top`, which is about to be removed.
    pub(super) fn leading_to(&self, top: &Path) -> Result<Vec<PackagePath>> {
        let providers = match inside::open_dir(&self.checkouts, &self.providers) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut found = packages(providers.as_fd())?;
        found.retain(|package| {
            self.target(package)
                .is_ok_and(|target| target.starts_with(top))
        });
        Ok(found)
    }

    /// Replaces a link by another atomically.
    pub(super) fn lead(&self, package: &PackagePath, target: &Path) -> Result<()> {
        let (dir, name) = self.open_parent(package)?;
        let mut next = name.clone();
        next.push(".new");
        match unlinkat(&dir, &next, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => symlinkat(target, &dir, &next)?,
        }
        Ok(renameat(&dir, &next, &dir, &name)?)
    }

    /// Replaces a link by the directory of the package below `top`.
    pub(super) fn replace(&self, package: &PackagePath, top: &Path) -> Result<()> {
        let (dir, name) = self.open_parent(package)?;
        let (from, _) = inside::open_parent(top, package.path())?;
        unlinkat(&dir, &name, AtFlags::empty())?;
        Ok(renameat(&from, &name, &dir, &name)?)
    }

    fn target(&self, package: &PackagePath) -> Result<PathBuf> {
        let (dir, name) = self.open_parent(package)?;
        let target = readlinkat(&dir, &name, Vec::<u8>::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Opens the directory that has the link of a package. Returns the name of the link too.
    fn open_parent(&self, package: &PackagePath) -> Result<(OwnedFd, OsString)> {
        let opened = inside::open_parent(&self.checkouts, &package.below(&self.providers));
        opened.map_err(|error| {
            let text = format!("cannot change the link of the provider {package}: {error}");
            Error::new(error.kind(), text)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const PACKAGE: &str = "example.com/acme/fake/1.0.0/linux_amd64";

    /// Creates a project with a link to a package of a session, and a data directory with a file of the server that has
    /// the name of the link.
    fn project() -> (TempDir, ProjectLinks, PackagePath) {
        let top = tempfile::tempdir().unwrap();
        let package = PackagePath::of(PACKAGE);
        let (own, link) = (
            package.below(&top.path().join("session")),
            package.below(&providers(&top)),
        );
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("program"), "fetched").unwrap();
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&own, &link).unwrap();
        fs::create_dir(top.path().join("data")).unwrap();
        fs::write(top.path().join("data/linux_amd64"), "database").unwrap();
        let checkouts = top.path().join("checkouts");
        let links = ProjectLinks::within(&checkouts, &checkouts.join("1/.terraform"));
        let links = links.unwrap().unwrap();
        (top, links, package)
    }

    fn providers(top: &TempDir) -> PathBuf {
        top.path().join("checkouts/1/.terraform/providers")
    }

    /// Replaces a directory by a link to the data directory, as a program of the pull request can.
    fn exchange(top: &TempDir, dir: &Path) {
        fs::rename(dir, top.path().join("moved")).unwrap();
        symlink(top.path().join("data"), dir).unwrap();
    }

    #[test]
    fn a_link_leads_to_another_target_or_becomes_the_directory() {
        let (top, links, package) = project();
        let (session, link) = (top.path().join("session"), package.below(&providers(&top)));
        assert_eq!(
            links.leading_to(&session).unwrap(),
            std::slice::from_ref(&package)
        );
        assert!(
            links
                .leading_to(&top.path().join("other"))
                .unwrap()
                .is_empty()
        );
        fs::write(link.with_file_name("linux_amd64.new"), "left behind").unwrap();
        links.lead(&package, Path::new("/store/fake")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/store/fake"));
        assert!(links.leading_to(&session).unwrap().is_empty());
        links.replace(&package, &session).unwrap();
        assert!(!link.is_symlink() && !package.below(&session).exists());
        assert_eq!(fs::read_to_string(link.join("program")).unwrap(), "fetched");
        assert_eq!(fs::read_dir(link.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_became_a_link_is_not_followed() {
        for dir in [
            "checkouts/1/.terraform/providers/example.com/acme/fake/1.0.0",
            "checkouts/1/.terraform/providers/example.com/acme",
            "checkouts/1/.terraform/providers",
            "checkouts/1/.terraform",
        ] {
            let (top, links, package) = project();
            let session = top.path().join("session");
            assert_eq!(
                links.leading_to(&session).unwrap(),
                std::slice::from_ref(&package)
            );
            exchange(&top, &top.path().join(dir));
            // The path of the link now leads to a file of the server.
            let file = package.below(&providers(&top));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "database").unwrap();
            let led = links.lead(&package, Path::new("/store/fake"));
            let replaced = links.replace(&package, &session);
            assert!(led.is_err() && replaced.is_err(), "{dir}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "database", "{dir}");
            let next = file.with_file_name("linux_amd64.new");
            assert!(!next.is_symlink(), "{dir}");
            assert!(package.below(&session).join("program").is_file(), "{dir}");
            let found = links.leading_to(&session).unwrap_or_default();
            assert!(found.is_empty(), "{dir}");
        }
    }

    #[test]
    fn a_directory_of_the_session_that_became_a_link_is_not_followed() {
        let (top, links, package) = project();
        let session = top.path().join("session");
        let version = session.join("example.com/acme/fake/1.0.0");
        exchange(&top, &version);
        assert!(links.replace(&package, &session).is_err());
        assert!(top.path().join("data/linux_amd64").is_file());
        assert!(package.below(&providers(&top)).is_symlink());
    }

    #[test]
    fn a_data_directory_elsewhere_has_no_links() {
        let (top, ..) = project();
        let checkouts = top.path().join("checkouts");
        for dir in ["/srv/terraform", "1/../../data", "../data"] {
            let links = ProjectLinks::within(&checkouts, &checkouts.join(dir)).unwrap();
            assert!(links.is_none(), "{dir}");
        }
        symlink(&checkouts, top.path().join("linked")).unwrap();
        let linked = top.path().join("linked");
        for dir in [checkouts, linked.clone()] {
            let links = ProjectLinks::within(&linked, &dir.join("1/.terraform")).unwrap();
            let found = links.unwrap().leading_to(&top.path().join("session"));
            assert_eq!(found.unwrap().len(), 1, "{}", dir.display());
        }
    }
}
