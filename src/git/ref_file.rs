//! Reads refs of a mirror from their files.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::RefName;
use super::plain_file::{open, small};
use crate::model::CommitSha;

/// Maximum size of the file with packed refs in bytes, enough for a million of them.
const MAX_PACKED: u64 = 128 * 1024 * 1024;

/// Returns the id that a ref has, or `None` if it cannot be told: the ref does not exist, refers to another ref, or is
/// not written as git does it.
pub(super) fn read(mirror: &Path, name: &RefName) -> Option<CommitSha> {
    match small(&mirror.join(name.as_str())) {
        Ok(Some(text)) => CommitSha::new(text.strip_suffix('\n')?).ok(),
        Ok(None) => packed(mirror, name).ok().flatten(),
        Err(_) => None,
    }
}

/// Returns the id in the file of a ref, without a look at the packed ones.
pub(super) fn loose(mirror: &Path, name: &RefName) -> Option<CommitSha> {
    let text = small(&mirror.join(name.as_str())).ok()??;
    CommitSha::new(text.strip_suffix('\n')?).ok()
}

/// Finds a ref in the file `packed-refs` (`<id> SP <name> LF`).
fn packed(mirror: &Path, name: &RefName) -> io::Result<Option<CommitSha>> {
    let Some(file) = open(&mirror.join("packed-refs"))? else {
        return Ok(None);
    };
    let (mut file, mut line) = (BufReader::new(file.take(MAX_PACKED)), Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        let is_named = line
            .strip_suffix(b"\n")
            .and_then(|line| line.strip_suffix(name.as_str().as_bytes()))
            .and_then(|line| line.strip_suffix(b" "));
        if let Some(id) = is_named {
            return Ok(std::str::from_utf8(id)
                .ok()
                .and_then(|id| CommitSha::new(id).ok()));
        }
        line.clear();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "5626abf0f72e58d7a153368ba57db4c673c0e171";
    const TWO: &str = "72b1e463a5b39c126b1192760f8c9bec3c700fee";

    fn of(dir: &Path, name: &str) -> Option<String> {
        read(dir, &RefName::new(name).unwrap()).map(|commit| commit.to_string())
    }

    #[test]
    fn a_loose_ref_comes_before_a_packed_one() {
        let dir = tempfile::tempdir().unwrap();
        let packed = format!(
            "# pack-refs with: peeled fully-peeled sorted\n{TWO} refs/heads/a/main\n{TWO} refs/heads/main\n^{ONE}\n"
        );
        std::fs::write(dir.path().join("packed-refs"), packed).unwrap();
        assert_eq!(of(dir.path(), "refs/heads/main").as_deref(), Some(TWO));
        assert_eq!(of(dir.path(), "refs/heads/in"), None);
        std::fs::create_dir_all(dir.path().join("refs/heads/a/main")).unwrap();
        assert_eq!(of(dir.path(), "refs/heads/a/main").as_deref(), Some(TWO));
        std::fs::write(dir.path().join("refs/heads/main"), format!("{ONE}\n")).unwrap();
        assert_eq!(of(dir.path(), "refs/heads/main").as_deref(), Some(ONE));
    }

    #[test]
    fn what_is_no_ref_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let refs = dir.path().join("refs/heads");
        std::fs::create_dir_all(&refs).unwrap();
        std::fs::write(dir.path().join("one"), format!("{ONE}\n")).unwrap();
        std::os::unix::fs::symlink("../../one", refs.join("link")).unwrap();
        nix::unistd::mkfifo(&refs.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(refs.join("symbolic"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(refs.join("large"), "a".repeat(9000)).unwrap();
        std::fs::write(refs.join("cut"), ONE).unwrap();
        for name in ["link", "pipe", "symbolic", "large", "cut", "none"] {
            assert_eq!(
                of(dir.path(), &format!("refs/heads/{name}")),
                None,
                "{name}"
            );
        }
    }
}
