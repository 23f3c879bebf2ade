//! Detects repositories in a checkout whose configuration git or Mercurial would read.
//!
//! `init` fetches modules with git, and git reads the configuration of the repository around its directory. That configuration
//! can name programs, and a pull request can have the files of a bare repository beside its code, or a directory `.hg`, which
//! Mercurial reads. So an `init` in such a place gets neither the shared cache of providers nor credentials.

use std::io::{ErrorKind, Read as _, Result};
use std::path::{Component, Path};

use crate::workflow::inside;

/// Maximum size of the file that leads from a checkout to its mirror, in bytes.
const MAX_LINK: u64 = 16 * 1024;

/// Option of git that makes it ignore bare repositories that it was not told to use. Git knows it since 2.38.
pub(super) const IGNORE_BARE: (&str, &str) = ("safe.bareRepository", "explicit");

/// Returns the reason that git may read a configuration of the pull request in the directory of a project, if any. `root` is
/// the checkout, and `mirror` the repository that it belongs to.
pub(super) fn why(project: &Path, root: &Path, mirror: &Path) -> Result<Option<String>> {
    // Git looks in the real directory, and in those above it.
    let (project, root) = (project.canonicalize()?, root.canonicalize()?);
    if !project.starts_with(&root) {
        return Ok(Some(
            "the directory of the project is outside of the checkout".to_owned(),
        ));
    }
    for dir in project.ancestors().take_while(|dir| dir.starts_with(&root)) {
        let has = |name: &str| match dir.join(name).symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let is_repository = if dir == root {
            has(".git")? && !leads_to(dir, mirror)?
        } else {
            has(".git")?
        };
        // Every repository of git has this file, and Mercurial reads its configuration in the same way.
        if is_repository || has("HEAD")? || has(".hg")? {
            let below = dir.strip_prefix(&root).unwrap_or(dir);
            let shown = below.to_string_lossy().escape_debug().to_string();
            let shown = if shown.is_empty() { "." } else { &shown };
            return Ok(Some(format!(
                "`{shown}` has `.git`, `.hg` or `HEAD`, so it may be a repository that configures programs"
            )));
        }
    }
    Ok(None)
}

/// Returns true if the checkout is a worktree of its mirror, as the server has made it.
fn leads_to(root: &Path, mirror: &Path) -> Result<bool> {
    let Ok(file) = inside::open(root, Path::new(".git")) else {
        return Ok(false);
    };
    let mut text = String::new();
    if file.take(MAX_LINK).read_to_string(&mut text).is_err() {
        return Ok(false);
    }
    let mirror = mirror.canonicalize()?;
    let admin = text
        .strip_prefix("gitdir: ")
        .map(|path| Path::new(path.trim_end()));
    Ok(admin.is_some_and(|admin| {
        admin.starts_with(mirror.join("worktrees"))
            && !admin.components().any(|part| part == Component::ParentDir)
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_repository_around_a_project_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (root, mirror) = (dir.path().join("checkout"), dir.path().join("mirror"));
        let project = root.join("a/b");
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(mirror.join("worktrees/1")).unwrap();
        let reason = || why(&project, &root, &mirror).unwrap();
        assert_eq!(reason(), None, "a checkout without git");
        let own = format!(
            "gitdir: {}\n",
            mirror.canonicalize().unwrap().join("worktrees/1").display()
        );
        fs::write(root.join(".git"), &own).unwrap();
        assert_eq!(reason(), None);
        for place in [
            "HEAD", "a/HEAD", "a/b/HEAD", "a/.git", "a/b/.git", ".hg", "a/.hg",
        ] {
            fs::write(root.join(place), "ref: refs/heads/main\n").unwrap();
            assert!(reason().is_some(), "{place}");
            fs::remove_file(root.join(place)).unwrap();
            symlink("/nowhere", root.join(place)).unwrap();
            assert!(reason().is_some(), "{place}: a link");
            fs::remove_file(root.join(place)).unwrap();
        }
        fs::write(root.join("a/b/HEAD"), "").unwrap();
        assert_eq!(
            reason().unwrap(),
            "`a/b` has `.git`, `.hg` or `HEAD`, so it may be a repository that configures programs"
        );
        fs::remove_file(root.join("a/b/HEAD")).unwrap();
        for other in [
            "gitdir: a\n".to_owned(),
            own.replace("worktrees", "worktrees/../.."),
            own.replace("gitdir: ", ""),
        ] {
            fs::write(root.join(".git"), &other).unwrap();
            assert!(reason().is_some(), "{other}");
        }
        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        assert!(reason().is_some(), "a directory");
    }

    #[test]
    fn a_project_outside_has_no_protection() {
        let dir = tempfile::tempdir().unwrap();
        let (root, other) = (dir.path().join("checkout"), dir.path().join("other"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&other).unwrap();
        symlink(&other, root.join("link")).unwrap();
        assert!(why(&root.join("link"), &root, &other).unwrap().is_some());
    }
}
