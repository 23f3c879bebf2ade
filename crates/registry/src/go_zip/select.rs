//! Choice of the files that belong to a package, from a tree of a repository.

use std::collections::HashSet;

use super::{GoZipError, GoZipFault, GoZipReason, MAX_FAULTS, MAX_GO_FILE, MAX_GO_ZIP};
use crate::go_mod::parse_go_mod;
use crate::limits::ExceededLimit;
use crate::paths::{Collisions, PathFault, check_go_path};
use crate::tree::{TreeFile, TreeMode};

/// Files of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoModuleFiles<'a> {
    /// Path in the module and content, sorted by path.
    pub files: Vec<(&'a str, &'a [u8])>,
    /// Files of the directory that do not belong to the package.
    pub omitted: Vec<OmittedFile>,
}

/// A file that a package leaves out, as the rules want it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedFile {
    /// Path from the directory of the module.
    pub path: String,
    /// The rule that leaves it out.
    pub reason: OmittedReason,
}

/// A rule that leaves out a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OmittedReason {
    /// The file is part of a vendored package.
    Vendored,
    /// The file belongs to a module in a directory below.
    OtherModule,
    /// The file was added by Mercurial.
    HgArchive,
    /// The file is a symbolic link.
    Link,
}

/// Chooses the files of the package of a module in this directory, which has no slash at its ends and is empty for the
/// top of the repository.
///
/// The tree has all entries of a commit, or at least those of the directory and `LICENSE` at the top.
pub fn select_go_files<'a>(
    tree: &[TreeFile<'a>],
    directory: &str,
) -> Result<GoModuleFiles<'a>, GoZipError> {
    let inside = |path: &'a [u8]| match directory {
        "" => Some(path),
        directory => path.strip_prefix(directory.as_bytes())?.strip_prefix(b"/"),
    };
    // A submodule is an empty folder of the archive that git makes for `go`.
    let mut entries: Vec<TreeFile<'a>> = tree
        .iter()
        .filter(|entry| entry.mode != TreeMode::Submodule)
        .filter_map(|entry| {
            Some(TreeFile {
                path: inside(entry.path)?,
                ..*entry
            })
        })
        .collect();
    entries.sort_by_key(|entry| entry.path);
    let has_license = entries.iter().any(|entry| entry.path == b"LICENSE");
    let top_license = tree
        .iter()
        .find(|entry| entry.path == b"LICENSE" && entry.mode != TreeMode::Submodule);
    if let Some(license) = top_license
        && !has_license
    {
        // A link at the top becomes a file with its target, because `go` reads the blob.
        entries.push(TreeFile {
            mode: TreeMode::File,
            ..*license
        });
    }
    check_files(&entries)
}

/// Applies the rules of `checkFiles` in `golang.org/x/mod/zip`, in the same order.
fn check_files<'a>(entries: &[TreeFile<'a>]) -> Result<GoModuleFiles<'a>, GoZipError> {
    let go_mods: HashSet<&[u8]> = entries
        .iter()
        .filter(|entry| entry.mode.is_file())
        .map(|entry| split_folder(entry.path))
        .filter(|(_, name)| name.eq_ignore_ascii_case(b"go.mod"))
        .map(|(folder, _)| folder)
        .collect();
    let go_mod = entries
        .iter()
        .find(|entry| entry.path == b"go.mod" && entry.mode.is_file());
    // A file with errors has the rules of the oldest version.
    let go_mod = go_mod.and_then(|entry| parse_go_mod(entry.content).ok());
    let is_new = go_mod.is_some_and(|go_mod| go_mod.language >= Some((1, 24)));

    let mut module = GoModuleFiles::default();
    let mut faults: Vec<GoZipFault> = Vec::new();
    let mut collisions = Collisions::default();
    let mut size = 0_u64;
    for entry in entries {
        let omitted = if !is_clean(entry.path) {
            None
        } else if is_vendored(entry.path, is_new) {
            Some(OmittedReason::Vendored)
        } else if is_in_other_module(entry.path, &go_mods) {
            Some(OmittedReason::OtherModule)
        } else if entry.path == b".hg_archival.txt" {
            Some(OmittedReason::HgArchive)
        } else {
            None
        };
        let shown = || String::from_utf8_lossy(entry.path).into_owned();
        if let Some(reason) = omitted {
            module.omitted.push(OmittedFile {
                path: shown(),
                reason,
            });
            continue;
        }
        let checked = check_file(entry, &mut collisions);
        match checked {
            Ok(path) if entry.mode.is_file() => {
                size += entry.content.len() as u64;
                module.files.push((path, entry.content));
            }
            Ok(_) => module.omitted.push(OmittedFile {
                path: shown(),
                reason: OmittedReason::Link,
            }),
            Err(reason) if faults.len() < MAX_FAULTS => {
                faults.push(GoZipFault {
                    path: shown(),
                    reason,
                });
            }
            Err(_) => {}
        }
    }
    if size > MAX_GO_ZIP {
        return Err(ExceededLimit::Unpacked(MAX_GO_ZIP).into());
    }
    if !faults.is_empty() {
        return Err(GoZipError::Files(faults));
    }
    module.files.sort_unstable();
    Ok(module)
}

/// Checks name and size of a file that belongs to the module.
fn check_file<'a>(
    entry: &TreeFile<'a>,
    collisions: &mut Collisions,
) -> Result<&'a str, GoZipReason> {
    let path = std::str::from_utf8(entry.path).map_err(|_| PathFault::NotUtf8)?;
    check_go_path(path)?;
    if path.eq_ignore_ascii_case("go.mod") && path != "go.mod" {
        return Err(GoZipReason::GoModCase);
    }
    collisions.add(path, false)?;
    let is_large = entry.content.len() as u64 > MAX_GO_FILE;
    let is_file = entry.mode.is_file();
    if is_file && is_large && matches!(path, "go.mod" | "LICENSE") {
        return Err(GoZipReason::TooLarge);
    }
    Ok(path)
}

/// Splits a path behind its last `/`.
fn split_folder(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    path.split_at(slash.map_or(0, |slash| slash + 1))
}

/// Git allows only clean paths, but trees can be made by other programs.
fn is_clean(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let is_clean = !parts.clone().any(|part| part.is_empty() || part == b".");
    // Leading `..` are clean, and refused as parts of a name.
    let after = parts.by_ref().find(|part| *part != b"..");
    is_clean && (after.is_none() || parts.all(|part| part != b".."))
}

fn is_in_other_module(path: &[u8], go_mods: &HashSet<&[u8]>) -> bool {
    let mut path = path;
    loop {
        let (folder, _) = split_folder(path);
        let Some((_, without_slash)) = folder.split_last() else {
            return false;
        };
        if go_mods.contains(folder) {
            return true;
        }
        path = without_slash;
    }
}

/// Returns true for files of packages below a folder `vendor`. Versions of Go before 1.24 looked for the slash behind it
/// at the wrong place, and packages of older modules keep that mistake because of their checksums.
fn is_vendored(path: &[u8], is_new: bool) -> bool {
    const INNER: &[u8] = b"/vendor/";
    if is_new && path == b"vendor/modules.txt" {
        return true;
    }
    let rest = if let Some(rest) = path.strip_prefix(b"vendor/") {
        rest
    } else if let Some(place) = path.windows(INNER.len()).position(|part| part == INNER) {
        let start = if is_new { place } else { 0 };
        &path[start + INNER.len()..]
    } else {
        return false;
    };
    rest.contains(&b'/')
}
