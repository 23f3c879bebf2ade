//! Finds symbolic links that lead out of a checkout. Files that a tool reads or writes through them are no part of
//! the repository.
//!
//! The commit says where links are, and the disk says where they lead. Links that steps and hooks create later are
//! not checked: they belong to the administrator, such as links to packages of providers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::objects::path_of;
use super::{Checkout, GitError, Mirror};
use crate::model::{CommitSha, RepoPath};

/// Maximum number of links of one commit, including its submodules; checking them takes some seconds.
const MAX_LINKS: usize = 100_000;
/// Maximum number of files and directories visited in submodules.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum number of links followed for one path, the same as in Linux.
const MAX_STEPS: usize = 40;
/// Directory where the tools keep their own files. A link in its place is always refused, because the tools write
/// there.
const TOOL_DIR: &str = ".terraform";

/// Paths of the links and submodules of a commit.
#[derive(Debug, Default)]
pub struct CommitLinks {
    links: Vec<PathBuf>,
    submodules: Vec<PathBuf>,
}

/// Symbolic link that leads out of its checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOut {
    /// Path of the link in the checkout.
    pub link: PathBuf,
    /// Text of the link.
    pub target: PathBuf,
}

impl LinkOut {
    /// Returns the path of the link, unless it is not text and cannot be compared.
    pub fn path(&self) -> Option<RepoPath> {
        path_of(self.link.as_os_str().as_bytes())
    }
}

impl Mirror {
    /// Returns the paths of the links of a commit.
    pub async fn links(&self, commit: &CommitSha) -> Result<CommitLinks, GitError> {
        let doing = format!("list the symbolic links of {}", commit.short());
        let listing = self.commit_listing(&doing, commit).await?;
        let mut found = CommitLinks::default();
        for (path, entry) in &listing.entries {
            let path = || PathBuf::from(OsStr::from_bytes(path));
            if entry.is_link() {
                found.links.push(path());
            } else if entry.is_submodule() {
                found.submodules.push(path());
            }
        }
        if !listing.is_whole {
            return Err(GitError::other(
                doing,
                "the file names have more than 64 MiB in total",
            ));
        }
        if found.links.len() > MAX_LINKS {
            Err(too_many(doing))
        } else {
            Ok(found)
        }
    }
}

impl Checkout {
    /// Returns the links that lead out of the checkout or replace the tool's own directory. Reads the disk.
    pub fn links_out(&self, of_commit: &CommitLinks) -> Result<Vec<LinkOut>, GitError> {
        let doing = format!("check the symbolic links of {}", self.commit.short());
        let mut links = of_commit.links.clone();
        let mut left = MAX_ENTRIES;
        for submodule in &of_commit.submodules {
            let found = links_below(&self.path, submodule, &mut left)
                .ok_or_else(|| too_many(doing.clone()))?;
            links.extend(found);
        }
        if links.len() > MAX_LINKS {
            return Err(too_many(doing));
        }
        let out = |link: PathBuf| {
            let target = std::fs::read_link(self.path.join(&link)).ok()?;
            let is_out =
                link.file_name() == Some(OsStr::new(TOOL_DIR)) || !stays_inside(&self.path, &link);
            is_out.then_some(LinkOut { link, target })
        };
        Ok(links.into_iter().filter_map(out).collect())
    }
}

fn too_many(doing: String) -> GitError {
    GitError::other(
        doing,
        format!(
            "there are more than {MAX_LINKS} symbolic links, or {MAX_ENTRIES} files in submodules"
        ),
    )
}

/// Returns the links in a directory of a checkout, or `None` when the directory contains too many files.
fn links_below(root: &Path, dir: &Path, left: &mut usize) -> Option<Vec<PathBuf>> {
    let (mut links, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(root.join(&dir))
            .into_iter()
            .flatten()
            .flatten()
        {
            *left = left.checked_sub(1)?;
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = dir.join(entry.file_name());
            if kind.is_symlink() {
                links.push(path);
            } else if kind.is_dir() {
                todo.push(path);
            }
        }
    }
    Some(links)
}

/// Returns true if a path stays in the checkout when links are followed as the system does. A cycle of links leads
/// nowhere, so it counts as inside.
fn stays_inside(root: &Path, path: &Path) -> bool {
    let mut at = PathBuf::new();
    let mut todo: Vec<OsString> = reversed(path);
    let mut steps = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            if !at.pop() {
                return false;
            }
            continue;
        }
        at.push(&part);
        if let Ok(target) = std::fs::read_link(root.join(&at)) {
            steps += 1;
            if steps > MAX_STEPS {
                return true;
            }
            if target.is_absolute() {
                return false;
            }
            at.pop();
            todo.extend(reversed(&target));
        }
    }
    !at.starts_with(".git")
}

/// Returns the parts of a relative path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::CurDir => None,
        Component::ParentDir | Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
            Some(part.as_os_str().to_owned())
        }
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::git::Extent;

    fn checkout(links: &[(&str, &str)]) -> (tempfile::TempDir, Checkout, CommitLinks) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkout");
        for place in ["live/prod", "base", "sub/inner"] {
            std::fs::create_dir_all(path.join(place)).unwrap();
        }
        std::fs::write(path.join("base/main.tf"), "").unwrap();
        std::fs::write(path.join(".git"), "gitdir: elsewhere").unwrap();
        std::fs::write(dir.path().join("secret"), "").unwrap();
        for (link, target) in links {
            symlink(
                target.replace("ROOT", path.to_str().unwrap()),
                path.join(link),
            )
            .unwrap();
        }
        let commit = CommitSha::new(&"1".repeat(40)).unwrap();
        let (head, base, hold) = (commit.clone(), commit.clone(), dir.path().join("hold"));
        let checkout = Checkout {
            path,
            hold,
            commit,
            head,
            base,
            merged: false,
            extent: Extent::Whole,
            fresh: true,
            copy: 0,
        };
        let links = links
            .iter()
            .map(|(link, _)| PathBuf::from(link))
            .filter(|link| !link.starts_with("sub"))
            .collect();
        (
            dir,
            checkout,
            CommitLinks {
                links,
                submodules: vec!["sub".into(), "missing".into()],
            },
        )
    }

    fn out(links: &[(&str, &str)]) -> Vec<String> {
        let (_dir, checkout, of_commit) = checkout(links);
        let found = checkout.links_out(&of_commit).unwrap();
        found
            .iter()
            .map(|out| out.link.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn links_within_the_checkout_are_fine() {
        let links = [
            ("live/prod/common.tf", "../../base/main.tf"),
            ("live/prod/again.tf", "./common.tf"),
            ("live/prod/lib", "../../base"),
            ("live/prod/through.tf", "lib/main.tf"),
            ("live/prod/gone.tf", "../../base/gone.tf"),
            ("live/prod/circle", "circle"),
            ("live/prod/root", "../.."),
            ("sub/inner/up", "../../base"),
        ];
        assert_eq!(out(&links), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_out_are_found_however_they_do_it() {
        let links = [
            ("live/prod/passwd.tf", "/etc/passwd"),
            ("live/prod/own.tf", "ROOT/base/main.tf"),
            ("live/prod/secret.tf", "../../../secret"),
            ("live/prod/back.tf", "../../../checkout/base/main.tf"),
            ("live/prod/later", "../../../nowhere"),
            ("live/prod/second", "passwd.tf"),
            ("live/up", "../../.."),
            ("live/prod/through", "../../live/prod/root2/../secret"),
            ("live/prod/root2", "../.."),
            ("live/prod/of-git", "../../.git"),
            ("live/prod/.terraform", "../../base"),
            ("sub/inner/out", "../../../secret"),
        ];
        let expected: Vec<&str> = links
            .iter()
            .map(|(link, _)| *link)
            .filter(|link| *link != "live/prod/root2")
            .collect();
        assert_eq!(out(&links), expected);
    }

    #[test]
    fn links_that_are_not_on_the_disk_count_for_nothing() {
        let (_dir, checkout, mut of_commit) = checkout(&[]);
        of_commit.links.push("live/prod/sparse".into());
        assert_eq!(checkout.links_out(&of_commit).unwrap(), []);
    }
}
