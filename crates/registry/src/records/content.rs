//! Content of a version: checksums that clients verify, and packages that the storage has.

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::{CommitSha, RepoPath, Sha256Digest, text_type};

use super::InvalidField;
use crate::dirhash::DirHash;
use crate::names::NameKind;

/// File name of a package, without a directory.
///
/// The name of a package of Terraform also tells where in it the module is, because clients have to know it before they
/// download the package: `module.tar.gz` has the module at its top, and `module~modules~vpc.tar.gz` in `modules/vpc`,
/// with other directories of the same repository beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackageFileName(String);

/// Beginning and end of the names of packages of Terraform, and the sign between the parts of a directory.
const MODULE: &str = "module";
const MODULE_END: &str = ".tar.gz";
const SEPARATOR: &str = "~";

impl PackageFileName {
    /// Maximum length in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a package that has its Terraform module in this directory. `None` if the directory has other
    /// characters than letters, digits and `-._`, or is too long.
    pub fn of_module_in(dir: &RepoPath) -> Option<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        let name = if dir.is_root() {
            format!("{MODULE}{MODULE_END}")
        } else if dir.as_str().chars().all(is_allowed) {
            let dir = dir.as_str().replace('/', SEPARATOR);
            format!("{MODULE}{SEPARATOR}{dir}{MODULE_END}")
        } else {
            return None;
        };
        name.parse().ok()
    }

    /// Returns the directory of the Terraform module in a package with this name. `None`: the name is another one.
    pub fn module_dir(&self) -> Option<RepoPath> {
        let dir = self.0.strip_prefix(MODULE)?.strip_suffix(MODULE_END)?;
        let dir = match dir.strip_prefix(SEPARATOR) {
            Some(dir) => RepoPath::new(&dir.replace(SEPARATOR, "/")).ok()?,
            None if dir.is_empty() => RepoPath::root(),
            None => return None,
        };
        // Another spelling of a directory is none.
        (Self::of_module_in(&dir).as_ref() == Some(self)).then_some(dir)
    }
}

impl FromStr for PackageFileName {
    type Err = InvalidField;

    fn from_str(text: &str) -> Result<Self, InvalidField> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._+~".contains(c);
        let has_good_ends = text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric());
        if text.len() <= Self::MAX_BYTES && has_good_ends && text.chars().all(is_allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidField::FileName)
        }
    }
}

impl fmt::Display for PackageFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(PackageFileName);

/// A package of a version: a file that clients download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    /// File name, without a directory.
    pub name: PackageFileName,
    /// SHA-256 of the bytes.
    pub digest: Sha256Digest,
    /// Length of the package in bytes.
    pub size: u64,
}

/// The packages of a version, sorted by file name. A version has at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFiles(Vec<PackageFile>);

/// Packages cannot be those of one version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPackages {
    /// No package, or more than [`PackageFiles::MAX`].
    #[error("a version has 1 to {} packages", PackageFiles::MAX)]
    Number,
    /// Two packages have the same name but for case.
    #[error("two packages are named `{0}`")]
    Twice(PackageFileName),
    /// A package is larger than [`PackageFiles::MAX_SIZE`].
    #[error("the package `{0}` is larger than a terabyte")]
    Size(PackageFileName),
}

impl PackageFiles {
    /// Maximum number of packages of a version.
    pub const MAX: usize = 64;

    /// Maximum size of a package in bytes. The limits of uploads are lower.
    pub const MAX_SIZE: u64 = 1 << 40;

    /// Checks packages and sorts them by name.
    pub fn new(mut packages: Vec<PackageFile>) -> Result<Self, InvalidPackages> {
        if !(1..=Self::MAX).contains(&packages.len()) {
            return Err(InvalidPackages::Number);
        }
        if let Some(large) = packages
            .iter()
            .find(|package| package.size > Self::MAX_SIZE)
        {
            return Err(InvalidPackages::Size(large.name.clone()));
        }
        let mut names: Vec<String> = packages
            .iter()
            .map(|package| package.name.as_str().to_ascii_lowercase())
            .collect();
        names.sort();
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        let same = names.windows(2).find(|pair| pair[0] == pair[1]);
        match same.and_then(|pair| pair[0].parse().ok()) {
            Some(name) => Err(InvalidPackages::Twice(name)),
            None => Ok(Self(packages)),
        }
    }

    /// Returns the packages, sorted by name.
    pub fn iter(&self) -> std::slice::Iter<'_, PackageFile> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a PackageFiles {
    type Item = &'a PackageFile;
    type IntoIter = std::slice::Iter<'a, PackageFile>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Checksums of the files of a version. Two versions with the same ones have the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// Checksum of a module of Terraform.
    Module {
        /// Hash of all files of the package.
        files: DirHash,
    },
    /// Checksums of a Go module, the two lines of `go.sum`.
    Go {
        /// Hash of all files of the zip.
        zip: DirHash,
        /// Hash of `go.mod` alone.
        go_mod: DirHash,
    },
}

impl Checksums {
    /// Returns the kind of the names that have these checksums.
    pub fn kind(&self) -> NameKind {
        match self {
            Self::Module { .. } => NameKind::Module,
            Self::Go { .. } => NameKind::Go,
        }
    }
}

/// Content of an added version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionContent {
    /// Checksums that clients verify.
    pub checksums: Checksums,
    /// Packages that clients download.
    pub packages: PackageFiles,
    /// Commit that was published. An upload need not have one.
    pub commit: Option<CommitSha>,
}

impl VersionContent {
    /// Returns true if the files are the same, and so is the directory of the module in the package. Packages of the same
    /// files may differ in bytes, because another release or another program compressed them, and each deployment goes on
    /// to serve its own.
    pub fn has_same_files(&self, other: &Self) -> bool {
        let dir = |content: &Self| {
            let mut names = content.packages.iter().map(|package| &package.name);
            names.find_map(PackageFileName::module_dir)
        };
        self.checksums == other.checksums && dir(self) == dir(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_package_tells_the_directory_of_its_module() {
        for (dir, name) in [
            (".", "module.tar.gz"),
            ("modules/vpc", "module~modules~vpc.tar.gz"),
            (".infra/a-b_c.d", "module~.infra~a-b_c.d.tar.gz"),
        ] {
            let (dir, name): (RepoPath, PackageFileName) =
                (dir.parse().unwrap(), name.parse().unwrap());
            assert_eq!(PackageFileName::of_module_in(&dir).as_ref(), Some(&name));
            assert_eq!(name.module_dir().as_ref(), Some(&dir));
        }
        for dir in ["a b", "a~b", "a+b", "ä", &"x".repeat(115)] {
            assert_eq!(
                PackageFileName::of_module_in(&dir.parse().unwrap()),
                None,
                "{dir}"
            );
        }
        for name in [
            "module.zip",
            "modules.tar.gz",
            "module~.tar.gz",
            "module~a~.tar.gz",
            "module~a~~b.tar.gz",
            "module~..~a.tar.gz",
            "module~a~..~b.tar.gz",
            "module~a+b.tar.gz",
        ] {
            let parsed: PackageFileName = name.parse().unwrap();
            assert_eq!(parsed.module_dir(), None, "{name}");
        }
    }
}
