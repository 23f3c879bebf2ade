//! Reads the checksums of each provider from `.terraform.lock.hcl`.

use std::collections::HashSet;

use hcl_edit::structure::{Block, Body};

/// Maximum size of a lock file. Lock files of large projects have some 100 KB.
const MAX_BYTES: u64 = 4 << 20;

/// Packages that a lock file accepts: source address, version and checksum.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LockFile(HashSet<(String, String, String)>);

impl LockFile {
    /// Reads the lock file of a directory. A file that is missing or cannot be read accepts nothing: Terraform then
    /// reports the problem.
    pub fn read(dir: &std::path::Path) -> Self {
        let file = dir.join(".terraform.lock.hcl");
        let is_small = file
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES);
        let text = is_small
            .then(|| std::fs::read_to_string(file).ok())
            .flatten();
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
    fn what_is_no_lock_file_accepts_nothing() {
        for text in [
            "",
            "provider {",
            "provider \"a\" {}",
            "provider \"a\" {\n version = 1\n hashes = 2\n}",
        ] {
            assert_eq!(LockFile::parse(text), LockFile::default(), "{text}");
        }
        assert_eq!(
            LockFile::read(std::path::Path::new("/nowhere")),
            LockFile::default()
        );
    }
}
