//! Decides which files of earlier runs stay in a checkout.
//!
//! The need: files made from an older commit must not take part in a newer plan. A local state, however, is the only
//! record of the created resources, and it cannot be created again. So states always survive, and the files of `init`
//! stay as long as the checkout does. A file that a commit has under such a name belongs to that commit, like its
//! other files. Links are never followed: a run may have created them anywhere.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::mirror::{make_dir, remove_all};

/// Files that stay when a checkout moves to another commit, as patterns of git.
pub(super) const PATTERNS: &[&str] = &[
    ".terraform/",
    ".terragrunt-cache/",
    ".terraform.lock.hcl",
    "*.tfstate",
    "*.tfstate.*",
    "terraform.tfstate.d/",
];
/// Directories of [`PATTERNS`]. Its other entry that is no state is `LOCK_FILE`.
const DIRS: [&str; 3] = [DATA, ".terragrunt-cache", "terraform.tfstate.d"];
const LOCK_FILE: &str = ".terraform.lock.hcl";
/// Directory where the settings of a backend lie under the name of a state.
const DATA: &str = ".terraform";

/// Returns true if a file with this name is a local state, or a copy or lock of one.
fn is_state(name: &str) -> bool {
    name.ends_with(".tfstate") || name.contains(".tfstate.")
}

/// Returns true if a file in this directory is a state; the directory `.terraform` contains none.
pub(super) fn is_state_in(dir: &Path, name: &str) -> bool {
    is_state(name) && dir.components().all(|part| part.as_os_str() != DATA)
}

/// Files of a commit, as paths from its root.
#[derive(Debug, Default)]
pub(super) struct Committed(HashSet<PathBuf>);

impl Committed {
    /// Reads names that each end with a NUL.
    pub(super) fn of(names: &[u8]) -> Self {
        let names = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        Self(
            names
                .map(|name| PathBuf::from(OsStr::from_bytes(name)))
                .collect(),
        )
    }

    fn has(&self, file: &Path) -> bool {
        self.0.contains(file)
    }
}

/// Removes everything below a directory except files and directories of [`PATTERNS`] that were not committed.
/// `git clean` does much the same where it looks, which excludes directories of submodules.
pub(super) fn sweep(root: &Path, committed: &Committed) -> io::Result<()> {
    sweep_dir(root, Path::new(""), committed).map(drop)
}

/// Sweeps one directory and returns true if it is empty afterwards.
fn sweep_dir(root: &Path, dir: &Path, committed: &Committed) -> io::Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let from_root = dir.join(&name);
        let name = name.to_string_lossy();
        let goes = if entry.file_type()?.is_dir() {
            let goes = !DIRS.contains(&&*name) && sweep_dir(root, &from_root, committed)?;
            if goes {
                fs::remove_dir(&path)?;
            }
            goes
        } else {
            let goes = !is_state(&name) && name != LOCK_FILE || committed.has(&from_root);
            if goes {
                fs::remove_file(&path)?;
            }
            goes
        };
        is_empty &= goes;
    }
    Ok(is_empty)
}

/// Moves uncommitted states out of a checkout that will be created again. A state that is already aside stays there,
/// unless the checkout has the same one.
pub(super) fn put_aside(checkout: &Path, aside: &Path, committed: &Committed) -> io::Result<()> {
    for state in states(checkout)?
        .into_iter()
        .filter(|state| !committed.has(state))
    {
        let place = aside.join(&state);
        make_dir(place.parent().unwrap_or(aside))?;
        fs::rename(checkout.join(&state), place)?;
    }
    Ok(())
}

/// Moves the states back. A file of the commit takes precedence over a state with the same path. A state stays aside
/// if the commit has a file in place of its directory.
pub(super) fn put_back(aside: &Path, checkout: &Path) -> io::Result<()> {
    let mut is_all = true;
    for state in states(aside)? {
        if !make_way(checkout, &state)? {
            is_all = false;
            warn!(
                ?state,
                ?aside,
                "A local state no longer fits into the checkout and is kept beside it"
            );
            continue;
        }
        let place = checkout.join(&state);
        if place.symlink_metadata().is_err() {
            fs::rename(aside.join(&state), place)?;
        }
    }
    if is_all { remove_all(aside) } else { Ok(()) }
}

/// Returns the states below a directory, as paths relative to it; none if the directory does not exist.
fn states(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut todo) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        let entries = match fs::read_dir(root.join(&dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            if kind.is_dir() {
                todo.push(dir.join(name));
            } else if kind.is_file() && is_state_in(&dir, &name.to_string_lossy()) {
                found.push(dir.join(name));
            }
        }
    }
    Ok(found)
}

/// Creates the directories of a file. Returns `false` when something other than a directory is in their place.
fn make_way(root: &Path, file: &Path) -> io::Result<bool> {
    let mut dir = root.to_owned();
    for part in file.parent().unwrap_or(Path::new("")) {
        dir.push(part);
        match dir.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_dir(&dir)?,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, files: &[&str]) {
        for file in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), file).unwrap();
        }
    }

    /// Returns the files below a directory.
    fn told(root: &Path) -> String {
        let mut found = Vec::new();
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    todo.push(entry.path());
                } else {
                    found.push(
                        entry
                            .path()
                            .strip_prefix(root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        found.sort();
        found.join(" ")
    }

    const LEFT: [&str; 9] = [
        "x_override.tf",
        "a/made/gen.auto.tfvars",
        "a/terraform.tfstate",
        "a/terraform.tfstate.backup",
        "a/.terraform/terraform.tfstate",
        "a/.terraform/providers/p",
        "a/.terraform.lock.hcl",
        "a/terraform.tfstate.d/eu/terraform.tfstate",
        "b/.terragrunt-cache/1/main.tf",
    ];

    #[test]
    fn a_sweep_leaves_what_init_brought_and_states() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        write(&root, &LEFT);
        write(dir.path(), &["outside/x.tf"]);
        symlink(dir.path().join("outside"), root.join("link")).unwrap();
        sweep(&root, &Committed::default()).unwrap();
        let mut left = LEFT[2..].to_vec();
        left.sort_unstable();
        assert_eq!(told(&root), left.join(" "));
        assert!(!root.join("a/made").exists() && root.join("a").exists());
        assert_eq!(told(&dir.path().join("outside")), "x.tf");
        sweep(
            &root,
            &Committed::of(b"main.tf\0a/terraform.tfstate\0a/.terraform.lock.hcl\0"),
        )
        .unwrap();
        left.retain(|file| !["a/terraform.tfstate", "a/.terraform.lock.hcl"].contains(file));
        assert_eq!(told(&root), left.join(" "), "those were of a commit");
    }

    #[test]
    fn states_come_back_unless_the_commit_has_them_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (root, aside) = (dir.path().join("root"), dir.path().join("aside"));
        put_aside(&root, &aside, &Committed::default()).unwrap();
        put_back(&aside, &root).unwrap();
        assert!(!aside.exists(), "nothing was there");
        write(&root, &LEFT);
        write(
            &root,
            &[
                "own/terraform.tfstate",
                "gone/deep/terraform.tfstate",
                "c/terraform.tfstate",
            ],
        );
        put_aside(&root, &aside, &Committed::of(b"c/terraform.tfstate\0")).unwrap();
        let states = "a/terraform.tfstate a/terraform.tfstate.backup a/terraform.tfstate.d/eu/terraform.tfstate";
        assert_eq!(
            told(&aside),
            format!("{states} gone/deep/terraform.tfstate own/terraform.tfstate")
        );
        fs::remove_dir_all(&root).unwrap();
        write(&root, &["main.tf", "gone"]);
        fs::create_dir(root.join("own")).unwrap();
        fs::write(root.join("own/terraform.tfstate"), "of the commit").unwrap();
        put_back(&aside, &root).unwrap();
        assert_eq!(
            told(&root),
            format!("{states} gone main.tf own/terraform.tfstate")
        );
        assert_eq!(
            fs::read_to_string(root.join("own/terraform.tfstate")).unwrap(),
            "of the commit"
        );
        assert_eq!(
            told(&aside),
            "gone/deep/terraform.tfstate own/terraform.tfstate"
        );
        // The path is a directory again.
        fs::remove_file(root.join("gone")).unwrap();
        put_back(&aside, &root).unwrap();
        assert!(root.join("gone/deep/terraform.tfstate").exists() && !aside.exists());
    }
}
