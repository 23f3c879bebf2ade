//! Manages the links in `.terraform/providers` to the packages that a project uses.

use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::store::{PackagePath, packages};

/// Lists the packages that a project links to below `top`, which is about to be removed.
pub(super) fn into(providers: &Path, top: &Path) -> Result<Vec<PackagePath>> {
    let leads_there = |package: &PackagePath| {
        let target = fs::read_link(package.below(providers));
        target.is_ok_and(|target| target.starts_with(top))
    };
    Ok(packages(providers)?
        .into_iter()
        .filter(leads_there)
        .collect())
}

/// Replaces a link by another atomically.
pub(super) fn lead(link: &Path, target: &Path) -> Result<()> {
    let next = beside(link);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => symlink(target, &next)?,
    }
    fs::rename(next, link)
}

/// Replaces a link by a directory.
pub(super) fn replace(link: &Path, dir: &Path) -> Result<()> {
    fs::remove_file(link)?;
    fs::rename(dir, link)
}

fn beside(link: &Path) -> PathBuf {
    let mut name = link.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
