//! Reads and restores `.terraform.lock.hcl`, the file with the provider versions and checksums that an `init` accepts.
//! It lies in a checkout, so links in its place are neither followed nor written through.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Result, Write as _};
use std::path::Path;

use hcl_edit::structure::{Block, BlockLabel, Body};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::inside;

pub(super) const NAME: &str = ".terraform.lock.hcl";

/// Maximum size of a lock file. Lock files of large projects have some 100 KB.
const MAX_BYTES: u64 = 4 << 20;

/// Text of a lock file with what it says about providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockFile {
    text: String,
    /// Version of each provider by its source address; `None` if the file names none.
    versions: BTreeMap<String, Option<String>>,
    /// Packages that are accepted: source address, version and checksum.
    packages: HashSet<(String, String, String)>,
}

impl LockFile {
    /// Reads the lock file of a directory. `None`: there is none, or it cannot be read. The same goes for a link, because
    /// it may lead to any file of the server.
    pub fn read(dir: &Path) -> Option<Self> {
        let text = inside::read(dir, Path::new(NAME), MAX_BYTES);
        text.ok().flatten().map(Self::parse)
    }

    /// Parses a lock file. One that cannot be parsed accepts nothing: Terraform then reports the problem.
    fn parse(text: String) -> Self {
        let mut file = Self::default();
        if let Ok(body) = text.parse::<Body>() {
            for provider in body.get_blocks("provider") {
                file.add(provider);
            }
        }
        Self { text, ..file }
    }

    fn add(&mut self, provider: &Block) {
        let Some(address) = provider.labels.first().map(BlockLabel::as_str) else {
            return;
        };
        let version = provider.body.get_attribute("version");
        let version = version.and_then(|version| version.value.as_str());
        let hashes = provider.body.get_attribute("hashes");
        let hashes = hashes.and_then(|hashes| hashes.value.as_array());
        self.versions
            .insert(address.to_owned(), version.map(str::to_owned));
        if let (Some(version), Some(hashes)) = (version, hashes) {
            let hashes = hashes.iter().filter_map(|hash| hash.as_str());
            let package = |hash: &str| (address.to_owned(), version.to_owned(), hash.to_owned());
            self.packages.extend(hashes.map(package));
        }
    }

    /// Returns true if the lock file accepts a package.
    pub fn accepts(&self, provider: &str, version: &str, checksum: &str) -> bool {
        let package = (provider.to_owned(), version.to_owned(), checksum.to_owned());
        self.packages.contains(&package)
    }

    /// Returns true if the lock file has each provider of another one.
    pub fn has_all_of(&self, other: &Self) -> bool {
        let mut theirs = other.versions.keys();
        theirs.all(|provider| self.versions.contains_key(provider))
    }

    /// Returns true if the lock file selects the same versions of the same providers as another one.
    pub fn selects_the_same_as(&self, other: &Self) -> bool {
        self.versions == other.versions
    }

    /// Writes back the lock file that was read. A link in its place is replaced.
    pub fn restore(&self, dir: &Path) -> Result<()> {
        let (parent, name) = inside::open_parent(dir, Path::new(NAME))?;
        match unlinkat(&parent, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        let file = openat(&parent, name.as_os_str(), flags, mode)?;
        File::from(file).write_all(self.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> LockFile {
        LockFile::parse(text.to_owned())
    }

    #[test]
    fn a_package_is_accepted_by_address_version_and_checksum() {
        let lock = parsed(
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
            put(&dir.path().join(NAME));
            LockFile::read(dir.path()).is_some_and(|lock| lock.accepts("a", "1", "h1:x"))
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
            assert!(parsed(text).packages.is_empty(), "{text}");
        }
        assert_eq!(LockFile::read(Path::new("/nowhere")), None);
    }

    #[test]
    fn lock_files_are_compared_by_their_providers_and_versions() {
        const ONE: &str = "provider \"x/y/aws\" {\n  version = \"1.0.0\"\n}\n";
        const NEWER: &str = "provider \"x/y/aws\" {\n  version = \"2.0.0\"\n}\n";
        const BOTH: &str = "provider \"x/y/null\" {\n  version = \"3.0.0\"\n}\n\n\
                            provider \"x/y/aws\" {\n  version = \"1.0.0\"\n}\n";
        const WITH_HASHES: &str = "provider \"x/y/aws\" {\n  version = \"1.0.0\"\n  hashes = [\n    \
                                   \"h1:x\",\n  ]\n}\n";
        for (before, now, has_all, selects_the_same) in [
            (ONE, ONE, true, true),
            (BOTH, ONE, false, false),
            (ONE, BOTH, true, false),
            (ONE, NEWER, true, false),
            (ONE, WITH_HASHES, true, true),
            (ONE, "", false, false),
        ] {
            let (before, now) = (parsed(before), parsed(now));
            assert_eq!(now.has_all_of(&before), has_all, "{before:?} {now:?}");
            assert_eq!(
                now.selects_the_same_as(&before),
                selects_the_same,
                "{before:?} {now:?}"
            );
        }
    }

    #[test]
    fn a_lock_file_is_not_restored_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join(NAME), dir.path().join("other"));
        std::fs::write(&file, "# before\n").unwrap();
        let before = LockFile::read(dir.path()).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&other, "stays").unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        before.restore(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "stays");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# before\n");
    }
}
