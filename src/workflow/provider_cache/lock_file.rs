//! Reads the checksums of each provider from `.terraform.lock.hcl`.

use std::collections::HashSet;
use std::path::Path;

use hcl_edit::structure::{Block, Body};

use super::super::beneath;

/// Maximum size of a lock file. Lock files of large projects have some 100 KB.
const MAX_BYTES: u64 = 4 << 20;

/// Packages that a lock file accepts: source address, version and checksum.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LockFile(HashSet<(String, String, String)>);

impl LockFile {
    /// Reads the lock file of a directory. A file that is missing or cannot be read accepts nothing: Terraform then
    /// reports the problem. The same goes for a link, because it may lead to any file of the server.
    pub fn read(dir: &Path) -> Self {
        let text = beneath::read(dir, Path::new(".terraform.lock.hcl"), MAX_BYTES);
        let text = text.ok().flatten();
        text.map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let Ok(body) = text.parse::<Body>() else {
            return Self::default();
        };
        Self(body.get_blocks("provider").flat_map(accepted).collect())
    }

    /// Returns true if the lock file accepts a package.
    pub fn accepts(&self, provider: &str, version: &str, checksum: &str) -> bool {
        self.0
            .contains(&(provider.to_owned(), version.to_owned(), checksum.to_owned()))
    }
}

fn accepted(provider: &Block) -> Vec<(String, String, String)> {
    let address = provider
        .labels
        .first()
        .map(|label| label.as_str().to_owned());
    let version = provider
        .body
        .get_attribute("version")
        .and_then(|version| version.value.as_str());
    let hashes = provider
        .body
        .get_attribute("hashes")
        .and_then(|hashes| hashes.value.as_array());
    let (Some(address), Some(version), Some(hashes)) = (address, version, hashes) else {
        return Vec::new();
    };
    let hashes = hashes.iter().filter_map(|hash| hash.as_str());
    hashes
        .map(|hash| (address.clone(), version.to_owned(), hash.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_accepted_by_address_version_and_checksum() {
        let lock = LockFile::parse(
            "provider \"example.com/acme/fake\" {\n  version = \"1.1.0\"\n  hashes = [\n    \"h1:abc=\",\n    \"zh:12\",\n  ]\n}\n",
        );
        assert!(lock.accepts("example.com/acme/fake", "1.1.0", "h1:abc="));
        assert!(!lock.accepts("example.com/acme/fake", "1.1.0", "h1:other="));
        assert!(!lock.accepts("example.com/acme/fake", "1.2.0", "h1:abc="));
        assert!(!lock.accepts("example.com/acme/other", "1.1.0", "h1:abc="));
    }

    #[test]
    fn a_lock_file_is_a_regular_file() {
        let content = "provider \"a\" {\n version = \"1\"\n hashes = [\"h1:x\"]\n}\n";
        let reads = |put: &dyn Fn(&Path)| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("other"), content).unwrap();
            put(&dir.path().join(".terraform.lock.hcl"));
            LockFile::read(dir.path()).accepts("a", "1", "h1:x")
        };
        assert!(reads(&|file| std::fs::write(file, content).unwrap()));
        assert!(!reads(
            &|file| std::os::unix::fs::symlink("other", file).unwrap()
        ));
        let mode = nix::sys::stat::Mode::S_IRWXU;
        assert!(
            !reads(&|file| nix::unistd::mkfifo(file, mode).unwrap()),
            "a pipe is not waited for"
        );
    }

    #[test]
    fn what_is_no_lock_file_accepts_nothing() {
        for text in [
            "",
            "provider {",
            "provider \"a\" {}",
            "provider \"a\" {\n version = 1\n hashes = 2\n}",
        ] {
            assert_eq!(LockFile::parse(text), LockFile::default(), "{text}");
        }
        assert_eq!(LockFile::read(Path::new("/nowhere")), LockFile::default());
    }
}
