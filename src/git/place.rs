//! Defines the paths below the data directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::model::{RepoId, Subject, WorkspaceName};

/// Returns `mirrors/<host>/<owner>/<name>.git`. The path always has three levels, so that one mirror never lies
/// inside another: groups in groups (`a/b/c`) become one directory `a%2Fb`.
pub(super) fn mirror(data_dir: &Path, repo: &RepoId) -> PathBuf {
    repo_dir(&data_dir.join("mirrors"), repo).with_added_extension("git")
}

/// Name endings of mirrors and of the directories that may lie beside one.
pub(super) const MIRRORS: [&str; 3] = [".git", ".git.new~", ".git.old~"];

/// Returns the path beside a mirror where its replacement is made. No encoded name has this ending.
pub(super) fn replacement_path(mirror: &Path) -> PathBuf {
    mirror.with_added_extension("new~")
}

/// Returns the path where a replaced mirror waits until the new one is in its place.
pub(super) fn replaced(mirror: &Path) -> PathBuf {
    mirror.with_added_extension("old~")
}

/// Returns `modules/<owner and name>.git` in the mirror of the parent repository. It is removed with that mirror and
/// is of no use to others.
pub(super) fn submodule(mirror: &Path, repo: &RepoId) -> PathBuf {
    let path = format!("{}/{}", repo.owner(), repo.name());
    mirror
        .join("modules")
        .join(segment(&path))
        .with_added_extension("git")
}

/// Returns `checkouts/<host>/<owner>/<name>/<pull>`.
pub(super) fn pull(data_dir: &Path, repo: &RepoId, number: Subject) -> PathBuf {
    repo_dir(&data_dir.join("checkouts"), repo).join(number.to_string())
}

/// Returns the directory of all checkouts of a repository.
pub(super) fn pulls(data_dir: &Path, repo: &RepoId) -> PathBuf {
    repo_dir(&data_dir.join("checkouts"), repo)
}

/// Returns the repository whose directories have these names, or `None` when Lockkeeper did not choose the names.
pub(super) fn repo_of(host: &str, owner: &str, name: &str) -> Option<RepoId> {
    RepoId::of_record(&format!("{}/{}/{}", text(host)?, text(owner)?, text(name)?)).ok()
}

/// File whose modification time is that of the last use, in a mirror and in the directory of a pull's checkouts.
pub(super) const USED: &str = ".lockkeeper-used";
/// File in a partial mirror that names its filter.
pub(super) const FILTER: &str = ".lockkeeper-filter";
/// File that marks a mirror for replacement.
pub(super) const DAMAGED: &str = ".lockkeeper-damaged";
/// File in a mirror that lists the refs left out of it, one `<commit> <ref> <reason>` per line.
pub(super) const REFUSED: &str = ".lockkeeper-refused";
/// File in a mirror that records the size of its packs when everything was last packed.
pub(super) const PACKED: &str = ".lockkeeper-packed";
/// Directory in the repository of a submodule with a file for each whole commit. The time of each file is that of the
/// last use.
pub(super) const COMMITS: &str = "lockkeeper-commits";
/// File in the repository of a submodule that marks dropped commits whose objects are still present.
pub(super) const UNTIDY: &str = "lockkeeper-untidy";
/// File beside the index of a checkout that lists its submodules, one `<commit> <path>` per line.
pub(super) const SUBMODULES: &str = "lockkeeper-submodules";
/// File beside the index of a checkout that lists the LFS files of its commit, one `<id> <path>` per line.
pub(super) const LFS_FILES: &str = "lockkeeper-lfs";
/// Directory in a mirror where the record of a worktree is written before git can see it.
pub(super) const WORKTREE: &str = ".lockkeeper-worktree";
/// Directory in a mirror with a checkout for the next pull.
pub(super) const SPARE: &str = "lockkeeper-spare";
/// Directory of lock files in the directory of a pull's checkouts.
pub(super) const HOLDS: &str = ".hold";

/// Paths of a workspace's checkout and its companions in the directory of the pull. No encoded name starts with a
/// dot.
#[derive(Clone, Debug)]
pub(super) struct CheckoutPlace {
    /// Directory of the worktree.
    pub(super) dir: PathBuf,
    /// Lock file for [`crate::process::FileHold`].
    pub(super) hold: PathBuf,
    /// Mark that exists while the worktree is being changed.
    pub(super) mark: PathBuf,
    /// Directory for the local states of a worktree while it is created again.
    pub(super) aside: PathBuf,
}

impl CheckoutPlace {
    pub(super) fn new(pull_dir: &Path, workspace: &WorkspaceName) -> Self {
        let name = segment(workspace.as_str());
        Self {
            dir: pull_dir.join(&name),
            hold: pull_dir.join(HOLDS).join(&name),
            mark: pull_dir.join(".unfinished").join(&name),
            aside: pull_dir.join(".aside").join(&name),
        }
    }
}

/// Returns a free directory in `worktrees/` of a mirror for the record of a checkout. The name is part of the name of
/// a ref, so it has only characters that git allows there.
pub(super) fn free_worktree(worktrees: &Path, checkout: &Path) -> PathBuf {
    let name = checkout.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().take(50).map(plain).collect();
    (0..=u32::MAX)
        .map(|number| match number {
            0 => worktrees.join(&name),
            _ => worktrees.join(format!("{name}{number}")),
        })
        .find(|path| path.symlink_metadata().is_err())
        .expect("a directory has fewer entries than there are numbers")
}

fn repo_dir(root: &Path, repo: &RepoId) -> PathBuf {
    root.join(segment(repo.host().as_str()))
        .join(segment(repo.owner()))
        .join(segment(repo.name()))
}

/// Encodes a text as one file name: letters, digits, `-`, `_` and inner dots stay, other bytes become `%XX`. Two
/// texts never share a name. A name that is too long for a file system ends in `~` and the digest of the text
/// instead.
fn segment(text: &str) -> String {
    let mut name = String::new();
    for (at, byte) in text.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    if name.len() > 200 {
        name.truncate(100);
        name.push('~');
        name.push_str(&hex::encode(Sha256::digest(text)));
    }
    name
}

/// Decodes a file name. Returns `None` for a name that [`segment`] would have encoded differently or that contains
/// only a digest.
fn text(name: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(name)
        .decode_utf8()
        .ok()?
        .into_owned();
    (segment(&text) == name && !name.contains('~')).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_as_documented() {
        let data = Path::new("/data");
        let at = |repo: &str| mirror(data, &repo.parse().unwrap()).display().to_string();
        assert_eq!(
            at("GitHub.com/Acme/Infra"),
            "/data/mirrors/github.com/acme/infra.git"
        );
        assert_eq!(
            at("git.example.com:8443/a/b.git/c"),
            "/data/mirrors/git.example.com%3A8443/a%2Fb.git/c.git"
        );
        assert_eq!(at("h/a/.b.c"), "/data/mirrors/h/a/%2Eb.c.git");
        let pull = pull(data, &"h/a/b.tf".parse().unwrap(), Subject::Application(3));
        let place = CheckoutPlace::new(&pull, &"eu:prod".parse().unwrap());
        assert_eq!(
            place.dir.to_str(),
            Some("/data/checkouts/h/a/b.tf/-3/eu%3Aprod")
        );
        assert_eq!(
            place.hold.to_str(),
            Some("/data/checkouts/h/a/b.tf/-3/.hold/eu%3Aprod")
        );
    }

    #[test]
    fn records_of_worktrees_have_names_that_git_allows() {
        let dir = tempfile::tempdir().unwrap();
        let name = |checkout: &str| {
            let path = free_worktree(dir.path(), &Path::new("/data/12").join(checkout));
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(name("default"), "default");
        std::fs::create_dir(dir.path().join("default")).unwrap();
        std::fs::write(dir.path().join("default1"), "").unwrap();
        assert_eq!(name("default"), "default2");
        assert_eq!(name("eu%3Aprod~.lock"), "eu-3Aprod--lock");
        assert_eq!(name(&"x".repeat(200)), "x".repeat(50));
    }

    proptest! {
        #[test]
        fn two_texts_never_share_a_name(a in "[a-c.%~/ ä-]{1,90}", b in "[a-c.%~/ ä-]{1,90}") {
            let (x, y) = (segment(&a), segment(&b));
            prop_assert_eq!(a == b, x == y);
            prop_assert!(x.len() <= 255 && !x.contains('/') && !x.starts_with('.'));
            prop_assert!(text(&x).is_none_or(|known| known == a));
            prop_assert!(x.contains('~') || text(&x) == Some(a));
        }
    }
}
