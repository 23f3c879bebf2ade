//! Packages of Go modules: zip files by exactly the rules of the `go` command, so that the checksum of a version is the
//! same wherever its package was made.
//!
//! `golang.org/x/mod/zip` is the reference, and so is the way in which `go` lists a repository: with `git archive`,
//! without export attributes. Rules that uploaded packages have to follow beyond those of Go have errors of their own.

mod read;
mod select;
mod write;

use std::fmt::Write as _;
use std::io;

pub use self::read::{GoZipContents, check_go_zip};
pub use self::select::{GoModuleFiles, OmittedFile, OmittedReason, select_go_files};
pub use self::write::write_go_zip;
use crate::dirhash::InvalidHashedName;
use crate::limits::{ArchiveLimits, ExceededLimit, ReadStop};
use crate::names::GoPath;
use crate::paths::PathFault;
use crate::versions::GoVersion;

/// Maximum number of bytes of a package, and of its files together.
pub const MAX_GO_ZIP: u64 = 500 << 20;

/// Maximum number of bytes of `go.mod` and of `LICENSE`.
pub const MAX_GO_FILE: u64 = 16 << 20;

/// Limits of an uploaded package. Go itself limits only the sizes.
pub const GO_LIMITS: ArchiveLimits = ArchiveLimits {
    packed: MAX_GO_ZIP,
    unpacked: MAX_GO_ZIP,
    entries: 100_000,
    ratio: 200,
};

/// Files that do not make a package, or a zip file that is none.
#[derive(Debug, thiserror::Error)]
pub enum GoZipError {
    /// Files break the rules. There is at least one fault.
    #[error("{}", list(.0))]
    Files(Vec<GoZipFault>),
    /// The archive is too large, or unpacks to too much.
    #[error(transparent)]
    Limit(#[from] ExceededLimit),
    /// A file cannot be part of a checksum.
    #[error(transparent)]
    Name(#[from] InvalidHashedName),
    /// The bytes are not a zip file that every reader understands in the same way.
    #[error("not a zip file: {0}")]
    Malformed(String),
    /// The archive cannot be read from its source or written.
    #[error("cannot read or write the archive")]
    Io(#[source] io::Error),
}

impl From<ReadStop> for GoZipError {
    fn from(stop: ReadStop) -> Self {
        match stop {
            ReadStop::Limit(limit) => Self::Limit(limit),
            ReadStop::Source(error) => Self::Io(error),
        }
    }
}

/// A file that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?}: {reason}")]
pub struct GoZipFault {
    /// Name of the file.
    pub path: String,
    /// The rule that it breaks.
    pub reason: GoZipReason,
}

/// A rule for the files of a package.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoZipReason {
    /// The name of the file is not allowed.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// The file is called `GO.MOD`, or otherwise in capitals.
    #[error("the name of a go.mod file is in lower case")]
    GoModCase,
    /// A package has the `go.mod` file of another module.
    #[error("a go.mod file is at the top of a module")]
    GoModNotAtTop,
    /// The file is `go.mod` or `LICENSE`, and larger than [`MAX_GO_FILE`].
    #[error("the file is larger than {MAX_GO_FILE} bytes")]
    TooLarge,
    /// The entry is outside the folder of the module and version.
    #[error("the name does not begin with {0:?}")]
    Prefix(String),
    /// The entry is a symbolic link or a device.
    #[error("the entry is neither a file nor a folder")]
    Kind,
    /// The entry is encrypted, or compressed in a way that Go does not know.
    #[error("the entry is encrypted, or not compressed with deflate")]
    Method,
    /// The entry has another size than it says.
    #[error("the file has another size than the archive says")]
    Size,
}

/// Maximum number of faults in an error. Nobody reads more at once.
const MAX_FAULTS: usize = 50;

/// Returns the `go.mod` file of a module without one. No module path has to be quoted.
pub fn synthetic_go_mod(path: &GoPath) -> String {
    format!("module {path}\n")
}

/// Returns the folder of a version, which begins each name in its package.
fn prefix_of(path: &GoPath, version: &GoVersion) -> String {
    format!("{path}@{version}/")
}

fn list(faults: &[GoZipFault]) -> String {
    let mut text = String::new();
    for (number, fault) in faults.iter().enumerate() {
        let separator = if number == 0 { "" } else { "; " };
        write!(text, "{separator}{fault}").expect("memory takes every text");
    }
    text
}

#[cfg(test)]
mod tests;
