//! Checksums of the files of a package, independent of the archive: `h1:` of Go, which Terraform uses as well.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use lockkeeper_model::model::text_type;
use sha2::{Digest as _, Sha256};

use crate::encoding::{base64, from_base64};

/// SHA-256 over names and checksums of files, in the form `h1:` of `go.sum`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirHash([u8; 32]);

/// A text is not a hash of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash of files is `h1:` and the Base64 of 32 bytes")]
pub struct InvalidDirHash;

/// Name of a file that cannot be part of a checksum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHashedName {
    /// A name with a newline would look like two files.
    #[error("the name {0:?} has a newline")]
    Newline(String),
    /// A name is there twice.
    #[error("the file {0:?} is there twice")]
    Twice(String),
}

/// Checksum in progress. Files come in any order, so that archives are hashed as they are read.
#[derive(Clone, Debug, Default)]
pub struct DirHasher {
    files: BTreeMap<String, [u8; 32]>,
}

impl DirHasher {
    /// Creates the checksum of no files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file by its name and the SHA-256 of its content.
    pub fn add(&mut self, name: &str, sha256: [u8; 32]) -> Result<(), InvalidHashedName> {
        if name.contains('\n') {
            return Err(InvalidHashedName::Newline(name.to_owned()));
        }
        match self.files.insert(name.to_owned(), sha256) {
            None => Ok(()),
            Some(_) => Err(InvalidHashedName::Twice(name.to_owned())),
        }
    }

    /// Returns the checksum of the added files.
    pub fn finish(&self) -> DirHash {
        // The lines are those of `sha256sum` over the sorted names.
        let mut hash = Sha256::new();
        for (name, sha256) in &self.files {
            hash.update(format!("{}  {name}\n", hex::encode(sha256)));
        }
        DirHash(hash.finalize().into())
    }
}

/// Reader that computes the SHA-256 of a file while somebody reads it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    size: u64,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            size: 0,
        }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the SHA-256 of the bytes read so far.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        self.size += count as u64;
        Ok(count)
    }
}

/// Returns the checksum of files by name and content.
pub fn hash_files<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<DirHash, InvalidHashedName> {
    let mut hasher = DirHasher::new();
    for (name, content) in files {
        hasher.add(name, Sha256::digest(content).into())?;
    }
    Ok(hasher.finish())
}

/// Returns the checksum of a `go.mod` file, which Go records apart from that of the package.
pub fn hash_go_mod(content: &[u8]) -> DirHash {
    let files = BTreeMap::from([("go.mod".to_owned(), Sha256::digest(content).into())]);
    DirHasher { files }.finish()
}

impl DirHash {
    /// Creates a hash from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for DirHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h1:{}", base64(&self.0))
    }
}

impl fmt::Debug for DirHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirHash({self})")
    }
}

impl FromStr for DirHash {
    type Err = InvalidDirHash;

    fn from_str(text: &str) -> Result<Self, InvalidDirHash> {
        let bytes = text.strip_prefix("h1:").and_then(from_base64);
        bytes.map(Self).ok_or(InvalidDirHash)
    }
}

text_type!(DirHash);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn checksums_are_those_of_the_lines_of_sha256sum() {
        // `printf 'data for abc' | sha256sum`, and the same for xyz.
        let lines = "c807b6b431cbbfff4dcc032527d0e106e7f76e6aa20b3cab70fa00154144f351  abc\n\
                     1a163d344504db00bdf3944d1b36c771245f19cc90df3dc2e5ca78d25d19d51e  xyz\n";
        let files = [
            ("xyz", b"data for xyz".as_slice()),
            ("abc", b"data for abc".as_slice()),
        ];
        let expected = base64(&Sha256::digest(lines));
        let hash = hash_files(files).unwrap();
        assert_eq!(hash.to_string(), format!("h1:{expected}"));
    }

    #[test]
    fn a_go_mod_file_has_the_checksum_that_go_records() {
        // `rsc.io/quote v1.5.2`, as in Go's documentation.
        let content = b"module \"rsc.io/quote\"\n\nrequire \"rsc.io/sampler\" v1.3.0\n";
        assert_eq!(
            hash_go_mod(content).to_string(),
            "h1:LzX7hefJvL54yjefDEDHNONDjII0t9xZLPXsUe+TKr0="
        );
    }

    #[test]
    fn names_that_deceive_are_refused() {
        let newline = InvalidHashedName::Newline("a\nb".to_owned());
        assert_eq!(hash_files([("a\nb", b"".as_slice())]), Err(newline));
        let twice = InvalidHashedName::Twice("a".to_owned());
        let files = [("a", b"1".as_slice()), ("a", b"2".as_slice())];
        assert_eq!(hash_files(files), Err(twice));
        for bad in [
            "",
            "h1:",
            "h2:w5fcysjrx7yqtD/aO+QwRjYZOKnaM9Uh2b40tElTs3Y=",
            "h1:AAAA",
        ] {
            assert_eq!(bad.parse::<DirHash>(), Err(InvalidDirHash));
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn the_order_of_files_does_not_matter(
            files in prop::collection::btree_map("[a-z/A-Z.]{1,6}", any::<[u8; 3]>(), 0..8),
            text in "(h1:)?\\PC{0,50}",
        ) {
            let there = files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
            let hash = hash_files(there.clone()).unwrap();
            prop_assert_eq!(hash_files(there.rev()).unwrap(), hash);
            prop_assert_eq!(hash.to_string().parse(), Ok(hash));
            if let Ok(hash) = text.parse::<DirHash>() {
                prop_assert_eq!(hash.to_string(), text);
            }
        }
    }
}
