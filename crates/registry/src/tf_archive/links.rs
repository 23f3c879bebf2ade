//! Choice of the files of a package from a tree of a repository. Packages have no links, so links become what they lead to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{TF_LIMITS, TfArchiveError, TfFile};
use crate::limits::ExceededLimit;
use crate::names::begins_with;
use crate::paths::{MAX_PATH, PathFault};
use crate::tree::{TreeFile, TreeMode};

/// Maximum number of links on the way to a file, as on Linux.
const MAX_LINKS: usize = 40;

/// Maximum number of parts of paths that are walked for all links of a package together. Targets of links can be long, and
/// lead in and out of the same folder.
const MAX_STEPS: usize = 1_000_000;

/// Maximum depth of links to folders inside each other. A link to a folder above it would go on without end.
const MAX_DEPTH: usize = 4;

/// A link that cannot become a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// The link leads out of the repository.
    #[error("the link leads out of the repository")]
    Outside,
    /// The link leads to nothing, or to a submodule.
    #[error("the link leads to no file of the repository")]
    Broken,
    /// The links of the package lead through more folders than [`MAX_STEPS`] together.
    #[error("the links of the package lead through more than {MAX_STEPS} folders together")]
    TooMany,
    /// The link leads to itself, or to a folder that it is in.
    #[error("the link leads to itself")]
    Loop,
}

/// Chooses the files of a package. `is_part` decides by path in the repository, with the paths of links as they are.
///
/// A link to a file becomes a copy of the file, and a link to a folder one of the folder. Both can be outside of the part
/// that is chosen, but not outside of the tree. Submodules are left out, as they are not in the repository.
pub fn select_tf_files<'a>(
    tree: &[TreeFile<'a>],
    is_part: impl Fn(&str) -> bool,
) -> Result<Vec<TfFile<'a>>, TfArchiveError> {
    let mut paths = BTreeMap::new();
    for entry in tree {
        let path = std::str::from_utf8(entry.path).map_err(|_| TfArchiveError::Path {
            path: String::from_utf8_lossy(entry.path).into_owned(),
            fault: PathFault::NotUtf8,
        })?;
        paths.insert(path, *entry);
    }
    let tree = Tree(paths);
    let mut selection = Selection::default();
    for (path, entry) in tree.0.iter().filter(|(path, _)| is_part(path)) {
        tree.add(Cow::Borrowed(path), path, entry, 0, &mut selection)?;
    }
    Ok(selection.files)
}

/// Files chosen so far, and their bytes.
#[derive(Default)]
struct Selection<'a> {
    files: Vec<TfFile<'a>>,
    size: u64,
    /// Number of entries looked at.
    visited: usize,
    /// Number of parts of paths walked for links.
    steps: usize,
}

/// Entries of a repository by their paths.
struct Tree<'a>(BTreeMap<&'a str, TreeFile<'a>>);

impl<'a> Tree<'a> {
    /// Adds an entry at a path of the package. `place` is its path in the repository, where links start.
    fn add(
        &self,
        path: Cow<'a, str>,
        place: &str,
        entry: &TreeFile<'a>,
        depth: usize,
        selection: &mut Selection<'a>,
    ) -> Result<(), TfArchiveError> {
        // Links can multiply what is looked at, even without a file in it.
        selection.visited += 1;
        if selection.visited > TF_LIMITS.entries {
            return Err(ExceededLimit::Entries(TF_LIMITS.entries).into());
        }
        if entry.mode == TreeMode::Submodule {
            return Ok(());
        }
        if entry.mode.is_file() {
            return selection.push(path, entry);
        }
        let fault = |fault| TfArchiveError::Link {
            path: path.clone().into_owned(),
            fault,
        };
        let target = self.follow(place, &mut selection.steps).map_err(fault)?;
        if let Some(entry) = self.0.get(target.as_str()) {
            if entry.mode.is_file() {
                return selection.push(path, entry);
            }
            return Err(fault(LinkFault::Broken));
        }
        if depth >= MAX_DEPTH || is_inside(place, &target) {
            return Err(fault(LinkFault::Loop));
        }
        let folder = format!("{target}/");
        let below = self.0.range(folder.as_str()..);
        for (place, entry) in below.take_while(|(place, _)| place.starts_with(&folder)) {
            let path = format!("{path}/{}", &place[folder.len()..]);
            self.add(Cow::Owned(path), place, entry, depth + 1, selection)?;
        }
        Ok(())
    }

    /// Returns the path of the file or folder that a link leads to, through any links on the way.
    fn follow(&self, link: &str, steps: &mut usize) -> Result<String, LinkFault> {
        let mut done: Vec<String> = Vec::new();
        // Parts of the path that are still to go, the next one last.
        let mut rest: Vec<String> = link.rsplit('/').map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            *steps += 1;
            if *steps > MAX_STEPS {
                return Err(LinkFault::TooMany);
            }
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop().ok_or(LinkFault::Outside)?;
                    continue;
                }
                _ => done.push(part),
            }
            let here = done.join("/");
            match self.0.get(here.as_str()) {
                Some(entry) if entry.mode == TreeMode::Link => {
                    links += 1;
                    let target = std::str::from_utf8(entry.content);
                    let target = target.map_err(|_| LinkFault::Broken)?;
                    if links > MAX_LINKS {
                        return Err(LinkFault::Loop);
                    }
                    if target.len() > MAX_PATH {
                        return Err(LinkFault::Broken);
                    }
                    if target.starts_with('/') {
                        return Err(LinkFault::Outside);
                    }
                    done.pop();
                    rest.extend(target.rsplit('/').map(str::to_owned));
                }
                Some(_) if rest.iter().any(|part| !part.is_empty()) => {
                    return Err(LinkFault::Broken);
                }
                None if !self.has_folder(&here) => return Err(LinkFault::Broken),
                Some(_) | None => {}
            }
        }
        Ok(done.join("/"))
    }

    fn has_folder(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let mut below = self.0.range(folder.as_str()..);
        below
            .next()
            .is_some_and(|(path, _)| path.starts_with(&folder))
    }
}

impl<'a> Selection<'a> {
    /// Adds a file. Links can multiply files, so the limit holds here already.
    fn push(&mut self, path: Cow<'a, str>, entry: &TreeFile<'a>) -> Result<(), TfArchiveError> {
        self.size += entry.content.len() as u64;
        if self.size > TF_LIMITS.unpacked {
            return Err(ExceededLimit::Unpacked(TF_LIMITS.unpacked).into());
        }
        self.files.push(TfFile {
            path,
            content: entry.content,
            is_executable: entry.mode == TreeMode::Executable,
        });
        Ok(())
    }
}

/// Returns true if a path is in this folder, or below it. Everything is in the folder at the top.
fn is_inside(path: &str, folder: &str) -> bool {
    folder.is_empty() || begins_with(path, folder)
}
