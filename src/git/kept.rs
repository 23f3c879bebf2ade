//! Decides which files of earlier runs stay in a checkout.
//!
//! The need: files made from an older commit must not take part in a newer plan. A local state, however, is the only
//! record of the created resources, and it cannot be created again. So local states survive, and nothing else does: not
//! the files of `init`, which could contain code of the older commit, and no name that a tool would load as code. A file
//! that a commit has under the name of a state belongs to that commit, like its other files. Links are never followed:
//! a run may have created them anywhere.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::mirror::{make_dir, remove_all};

/// Files that `git clean` leaves when a checkout moves to another commit, as its patterns. The last one that matches
/// decides. They are states, but neither directories with such names nor the settings of a backend. Directories of
/// Terragrunt are left to [`sweep_unseen`], because there states lie in other repositories, which `git clean` removes.
pub(super) const STAY: &[&str] = &[
    "*.tfstate",
    "*.tfstate.backup",
    "*.tfstate.[0-9]*.backup",
    ".*.tfstate.lock.info",
    "!*/",
    "!**/.terraform/**",
    ".terragrunt-cache/",
];
/// Directory where Terragrunt runs a project with remote code, so that local states lie there.
const CACHE: &str = ".terragrunt-cache";
/// Name of the directory or file of a repository. Git cleans none in a directory of the commit, and a program in that
/// directory that calls git would follow its settings.
const REPOSITORY: &str = ".git";
/// Rights of the owner that removing the contents of a directory needs.
const OWN_RIGHTS: u32 = 0o700;
/// Directory where the settings of a backend lie under the name of a state.
const DATA: &str = ".terraform";

/// Returns true if a file with this name is a local state, or a copy or lock of one. All other names go, because tools load
/// files by the end of their names: `x.tfstate.tf` is code.
fn is_state(name: &str) -> bool {
    if name.ends_with(".tfstate") {
        return true;
    }
    let Some((before, kind)) = name.rsplit_once(".tfstate.") else {
        return false;
    };
    match kind {
        "backup" => true,
        "lock.info" => before.starts_with('.'),
        // `state rm` and the like write a copy with the time.
        other => other
            .strip_suffix(".backup")
            .is_some_and(|time| !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit())),
    }
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

/// Removes everything below a directory except states that were not committed. `git clean` does much the same where it
/// looks, which excludes directories of submodules.
pub(super) fn sweep(root: &Path, committed: &Committed) -> io::Result<()> {
    sweep_below(root, Path::new(""), committed)
}

/// Removes what `git clean` would leave although it is no state: all but states in the directories of Terragrunt, links with
/// names of states, repositories in directories of the commit, and what git has no kind for, such as pipes. Files that a
/// commit has there are removed as well, so this comes before git writes the files of the commit.
pub(super) fn sweep_unseen(root: &Path) -> io::Result<()> {
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        for entry in entries(&root.join(&dir))? {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let path = dir.join(&name);
            let may_stay =
                kind.is_file() || kind.is_symlink() && !is_state(&name.to_string_lossy());
            if name == REPOSITORY {
                // The one at the top is that of the checkout.
                if !dir.as_os_str().is_empty() {
                    remove_all(&entry.path())?;
                }
            } else if kind.is_dir() && name == CACHE {
                sweep_below(root, &path, &Committed::default())?;
            } else if kind.is_dir() {
                todo.push(path);
            } else if !may_stay {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Lists a directory. A run may have taken the rights to list and to change it from its own user.
fn entries(dir: &Path) -> io::Result<fs::ReadDir> {
    let rights = dir.symlink_metadata()?.permissions().mode() & 0o7777;
    if rights & OWN_RIGHTS != OWN_RIGHTS {
        // The directory may belong to somebody else. Then what follows says so.
        fs::set_permissions(dir, Permissions::from_mode(rights | OWN_RIGHTS)).ok();
    }
    fs::read_dir(dir)
}

/// Restores the rights to list and to change a directory and those below it.
pub(super) fn restore_rights(root: &Path) -> io::Result<()> {
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in entries(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Sweeps a directory below the root, and removes directories that are empty then, but not the root.
fn sweep_below(root: &Path, top: &Path, committed: &Committed) -> io::Result<()> {
    let (mut swept, mut todo) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in entries(&root.join(&dir))? {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let path = dir.join(&name);
            let stays = kind.is_file()
                && is_state_in(&dir, &name.to_string_lossy())
                && !committed.has(&path);
            if kind.is_dir() {
                todo.push(path);
            } else if !stays {
                fs::remove_file(entry.path())?;
            }
        }
        swept.push(dir);
    }
    // A directory comes after the one that it is in.
    for dir in swept.iter().rev().filter(|dir| dir.as_os_str() != "") {
        match fs::remove_dir(root.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => removed?,
        }
    }
    Ok(())
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
        let entries = match entries(&root.join(&dir)) {
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

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

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

    /// The names of the first ones are made to look like states.
    const LEFT: [&str; 18] = [
        "x_override.tf",
        "x.tfstate.z_override.tf",
        "x.tfstate.auto.tfvars",
        "x.tfstate.1z.backup",
        "x.tfstate.lock.info",
        "evil.tfstate/main.tf",
        "terraform.tfstate.d/eu/main.tf",
        "a/made/gen.auto.tfvars",
        "a/.terraform/terraform.tfstate",
        "a/.terraform/providers/p",
        "a/.terraform.lock.hcl",
        "b/.terragrunt-cache/1/main.tf",
        "a/.terraform.tfstate.lock.info",
        "a/terraform.tfstate",
        "a/terraform.tfstate.1764500000.backup",
        "a/terraform.tfstate.backup",
        "a/terraform.tfstate.d/eu/terraform.tfstate",
        "b/.terragrunt-cache/1/terraform.tfstate",
    ];
    const STATES: usize = 6;

    #[test]
    fn a_sweep_leaves_states_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        write(&root, &LEFT);
        write(dir.path(), &["outside/x.tf"]);
        symlink(dir.path().join("outside"), root.join("link")).unwrap();
        symlink(dir.path().join("outside"), root.join("link.tfstate")).unwrap();
        sweep(&root, &Committed::default()).unwrap();
        let mut left = LEFT[LEFT.len() - STATES..].to_vec();
        left.sort_unstable();
        assert_eq!(told(&root), left.join(" "));
        assert!(!root.join("a/made").exists() && root.join("a").exists());
        assert_eq!(told(&dir.path().join("outside")), "x.tf");
        sweep(&root, &Committed::of(b"main.tf\0a/terraform.tfstate\0")).unwrap();
        left.retain(|file| *file != "a/terraform.tfstate");
        assert_eq!(told(&root), left.join(" "), "that was of a commit");
    }

    #[test]
    fn what_looks_like_a_state_goes_before_git_cleans() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, &LEFT);
        write(
            root,
            &[
                "b/.terragrunt-cache/2/x/.git/HEAD",
                "c/.terragrunt-cache/1/x.tf",
            ],
        );
        symlink("/etc", root.join("link.tfstate")).unwrap();
        symlink("/etc", root.join("link")).unwrap();
        write(root, &[".git/HEAD", "a/.git/config"]);
        fs::write(root.join("b/.git"), "gitdir: /elsewhere").unwrap();
        for pipe in ["a/z_override.tf", "x.tfstate.pipe.tfstate"] {
            mkfifo(&root.join(pipe), Mode::S_IRWXU).unwrap();
        }
        sweep_unseen(root).unwrap();
        let gone = "b/.terragrunt-cache/1/main.tf";
        let mut left: Vec<&str> = LEFT.into_iter().filter(|file| *file != gone).collect();
        left.extend(["link", ".git/HEAD"]);
        left.sort_unstable();
        assert_eq!(told(root), left.join(" "));
        assert!(root.join("c").exists() && !root.join("c/.terragrunt-cache").exists());
        assert!(!root.join("b/.terragrunt-cache/2").exists());
    }

    #[test]
    fn directories_without_rights_are_swept_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let close = |below: &str| {
            fs::set_permissions(root.join(below), Permissions::from_mode(0o0)).unwrap();
        };
        write(
            &root,
            &[
                "a/b/x.tf",
                "a/terraform.tfstate",
                "c/.terragrunt-cache/1/x.tf",
            ],
        );
        for below in ["a/b", "a", "c/.terragrunt-cache/1"] {
            close(below);
        }
        sweep_unseen(&root).unwrap();
        assert_eq!(told(&root), "a/b/x.tf a/terraform.tfstate");
        let rights = fs::metadata(root.join("a/b")).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, 0o700, "git can clean it now");
        close("a/b");
        close("a");
        sweep(&root, &Committed::default()).unwrap();
        assert_eq!(told(&root), "a/terraform.tfstate");
        close("a");
        remove_all(&root).unwrap();
        assert!(!root.exists());
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
        let mut states = LEFT[LEFT.len() - STATES..].to_vec();
        states.sort_unstable();
        let states = states.join(" ");
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
