//! Packages of Terraform modules: `.tar.gz` files without times and owners, so that the same files make the same package.
//!
//! The checksum of a package is that of its files, because the bytes also depend on the version of the compressor.
//!
//! Uploaded archives come from any tool, so they are read strictly: folders and files only, within the package, each
//! once, and nothing behind the end that another reader could find.

mod links;
mod read;
mod write;

use std::io;

pub use self::links::{LinkFault, select_tf_files};
pub use self::read::{TfContents, check_tf_archive};
pub use self::write::{TfFile, write_tf_archive};
use crate::dirhash::InvalidHashedName;
use crate::limits::{ArchiveLimits, ExceededLimit, ReadStop};
use crate::paths::PathFault;

/// Limits of an uploaded archive.
pub const TF_LIMITS: ArchiveLimits = ArchiveLimits {
    packed: 64 << 20,
    unpacked: 512 << 20,
    entries: 100_000,
    ratio: 100,
};

/// Files that do not make a package, or an archive that is none.
#[derive(Debug, thiserror::Error)]
pub enum TfArchiveError {
    /// The name of a file is not allowed.
    #[error("{path:?}: {fault}")]
    Path {
        /// Name of the entry.
        path: String,
        /// The rule that it breaks.
        fault: PathFault,
    },
    /// An entry is neither a file nor a folder.
    #[error("{path:?} is neither a file nor a folder, but {kind}")]
    Kind {
        /// Name of the entry.
        path: String,
        /// The kind of the entry, such as a symbolic link.
        kind: &'static str,
    },
    /// A link of a repository cannot become a file.
    #[error("{path:?}: {fault}")]
    Link {
        /// Path of the link in the package.
        path: String,
        /// Reason why there is no file.
        fault: LinkFault,
    },
    /// The archive is too large, or unpacks to too much.
    #[error(transparent)]
    Limit(#[from] ExceededLimit),
    /// A file cannot be part of a checksum.
    #[error(transparent)]
    Name(#[from] InvalidHashedName),
    /// The bytes are not an archive, or not a whole one.
    #[error("not a tar.gz archive: {0}")]
    Malformed(String),
    /// The archive cannot be read from its source or written.
    #[error("cannot read or write the archive")]
    Io(#[source] io::Error),
}

impl From<ReadStop> for TfArchiveError {
    fn from(stop: ReadStop) -> Self {
        match stop {
            ReadStop::Limit(limit) => Self::Limit(limit),
            ReadStop::Source(error) => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests;
