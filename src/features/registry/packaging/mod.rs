//! A directory or an upload becomes a checked package.
//!
//! Both go through the same checks, which read the finished package as a client will: nothing enters the log that this
//! server would refuse from somebody else.
//!
//! | File | Content |
//! |--|--|
//! | `directory.rs` | reads a directory, and leaves out everything that belongs to no package |
//! | `commit.rs` | reads a directory at a commit |
//! | `reach.rs` | finds the directories that a Terraform module reaches by local sources |
//! | `module.rs`, `go.rs` | rules for packages of each kind |
//! | `leaks.rs` | finds tokens of registries in files |

mod commit;
mod directory;
mod go;
mod leaks;
mod module;
mod reach;

use std::fs::File;
use std::path::Path;

use chrono::{DateTime, Utc};
use lockkeeper_registry::go_zip::{GO_LIMITS, GoZipError};
use lockkeeper_registry::limits::{ArchiveLimits, ExceededLimit};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::records::{
    Checksums, PackageFile, PackageFileName, PackageFiles, VersionContent,
};
use lockkeeper_registry::tf_archive::{TF_LIMITS, TfArchiveError};
use lockkeeper_registry::versions::VersionKey;

pub use self::commit::{CommitFault, PackingPlace, packing_place};
pub use self::directory::{DirectoryFault, SourceDirectory};
pub use self::go::GoModFault;
pub use self::module::ModuleFault;
use super::blobs::{BlobError, StagedBlob, blocking};
use crate::model::{CommitSha, RepoPath};

/// A package that follows all rules of its kind, with its checksums.
#[derive(Debug)]
pub struct CheckedPackage {
    /// Version that the package is published as.
    pub key: VersionKey,
    /// Checksums and the package.
    pub content: VersionContent,
    /// The `go.mod` file of a Go module.
    pub go_mod: Option<Vec<u8>>,
    /// Time of the commit, if the package was made from a repository that is not here.
    pub committed_at: Option<DateTime<Utc>>,
    /// Path of the first file that has a token of a registry.
    pub token_in: Option<String>,
    /// Bytes of the package.
    pub staged: StagedBlob,
}

/// Reason why there is no package.
#[derive(Debug, thiserror::Error)]
pub enum PackagingError {
    /// Files do not make a package of a Terraform module, or the upload is none.
    #[error(transparent)]
    Archive(#[from] TfArchiveError),
    /// Files do not make a package of a Go module, or the upload is none.
    #[error(transparent)]
    Zip(#[from] GoZipError),
    /// The package has no file.
    #[error("the package has no file")]
    Empty,
    /// The files are no Terraform module.
    #[error(transparent)]
    Module(#[from] ModuleFault),
    /// The files are not the Go module that is published.
    #[error(transparent)]
    GoMod(#[from] GoModFault),
    /// The directory cannot be read, or has something that no package can have.
    #[error(transparent)]
    Directory(#[from] DirectoryFault),
    /// A file has a token of a registry.
    #[error(
        "`{0}` has a token of a registry (`lkr_…`), and everyone who may read the version could use it. Remove it from the \
         files. Revoke it if others have seen it"
    )]
    Token(String),
    /// The store of packages failed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

impl PackagingError {
    /// Returns the limit that the package exceeds by its size.
    pub fn exceeded(&self) -> Option<ExceededLimit> {
        match self {
            Self::Archive(TfArchiveError::Limit(limit)) | Self::Zip(GoZipError::Limit(limit)) => {
                Some(*limit)
            }
            Self::Archive(_)
            | Self::Zip(_)
            | Self::Empty
            | Self::Module(_)
            | Self::GoMod(_)
            | Self::Directory(_)
            | Self::Token(_)
            | Self::Blobs(_) => None,
        }
    }

    /// Returns true if the server failed, and not the package.
    pub fn is_internal(&self) -> bool {
        match self {
            Self::Archive(TfArchiveError::Io(_)) | Self::Zip(GoZipError::Io(_)) => true,
            Self::Blobs(error) => !matches!(error, BlobError::TooLarge(_)),
            Self::Archive(_)
            | Self::Zip(_)
            | Self::Empty
            | Self::Module(_)
            | Self::GoMod(_)
            | Self::Directory(_)
            | Self::Token(_) => false,
        }
    }
}

/// Results of reading a package.
struct CheckedFile {
    checksums: Checksums,
    go_mod: Option<Vec<u8>>,
    /// Path of the first file that has a token of a registry.
    token_in: Option<String>,
}

/// Returns the limits of packages of a kind.
pub fn limits(kind: NameKind) -> &'static ArchiveLimits {
    match kind {
        NameKind::Module => &TF_LIMITS,
        NameKind::Go => &GO_LIMITS,
    }
}

/// Name of the package of each version of Go. Clients find the format of an archive by its ending.
const GO_FILE: &str = "module.zip";

/// Returns true if this release makes and serves packages with this name.
pub(super) fn is_served(kind: NameKind, name: &PackageFileName) -> bool {
    match kind {
        NameKind::Module => name.module_dir().is_some(),
        NameKind::Go => name.as_str() == GO_FILE,
    }
}

impl CheckedPackage {
    /// Checks a package that somebody uploaded. `module_dir` is the directory of a Terraform module in it, which is the top
    /// for all others. `place` is kept until the check has ended, also if nobody waits for it any more, and is returned.
    pub async fn of_upload<P: Send + 'static>(
        key: VersionKey,
        staged: StagedBlob,
        module_dir: RepoPath,
        place: P,
    ) -> Result<(Self, P), PackagingError> {
        blocking(move || {
            let checked = Self::check(key, staged, &module_dir, None)?;
            Ok((checked, place))
        })
        .await
    }

    /// Packs a directory. `staging` is the directory for the package.
    pub async fn of_directory(
        key: VersionKey,
        source: SourceDirectory,
        staging: &Path,
    ) -> Result<Self, PackagingError> {
        let staging = staging.to_owned();
        blocking(move || {
            let write = |file: &mut File| source.write(&key, file);
            let ((), staged) = StagedBlob::write_in(&staging, write)?;
            Self::check(key, staged, source.module_dir(), source.commit().cloned())
        })
        .await
    }

    fn check(
        key: VersionKey,
        staged: StagedBlob,
        module_dir: &RepoPath,
        commit: Option<CommitSha>,
    ) -> Result<Self, PackagingError> {
        let file = staged.open()?;
        let (name, checked) = if let Some((path, version)) = key.as_go() {
            let name = GO_FILE.parse().expect("the name is valid");
            (name, go::check(path, version, file)?)
        } else {
            let checked = module::check(file, module_dir)?;
            (module::file_name(module_dir)?, checked)
        };
        let package = PackageFile {
            name,
            digest: staged.digest.clone(),
            size: staged.size,
        };
        let content = VersionContent {
            checksums: checked.checksums,
            packages: PackageFiles::new(vec![package])
                .expect("one package within the limits is valid"),
            commit,
        };
        Ok(Self {
            key,
            content,
            go_mod: checked.go_mod,
            committed_at: None,
            token_in: checked.token_in,
            staged,
        })
    }

    /// Refuses a package with a token of a registry in one of its files.
    pub fn check_token(&self) -> Result<(), PackagingError> {
        match &self.token_in {
            Some(path) => Err(PackagingError::Token(path.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
