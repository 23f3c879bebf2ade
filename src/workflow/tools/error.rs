//! Defines the errors of finding and downloading programs.

use std::path::PathBuf;

use semver::Version;

use super::choice::list;
use crate::discovery::RequiredVersions;
use crate::process::ProcessError;

/// Reason that there is no program to run a project with.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No executable with that name exists.
    #[error("no `{program}` was found in {searched}")]
    Missing {
        /// Name of the executable.
        program: String,
        /// Places that were searched.
        searched: String,
    },
    /// An executable exists, but with another version.
    #[error("{title} {wanted} is required, but this server has {found}")]
    OtherVersion {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// Version that was requested.
        wanted: Version,
        /// Version that was found.
        found: Version,
    },
    /// An executable without a version in its name exists, and its version cannot be determined.
    #[error(
        "{title} {wanted} is required, but the version on this server cannot be determined: {error}"
    )]
    Unasked {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// Version that was requested.
        wanted: Version,
        /// Reason of the failure, with the name of the program.
        error: Box<Self>,
    },
    /// The version is not installed, and the download failed.
    #[error("{title} {wanted} is not installed on this server, and the download failed: {error}")]
    Download {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// Version that was requested.
        wanted: Version,
        /// Reason of the failed download.
        error: DownloadError,
    },
    /// A constraint in the code cannot be read.
    #[error("cannot determine the version to use: {0}")]
    Constraint(String),
    /// No version meets the demands of the code.
    #[error("no version of {title} matches the code: {demands}. {} {list}", here(.installed))]
    Unsatisfied {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// Demands of the code, with their files.
        demands: RequiredVersions,
        /// Versions on this server.
        installed: Vec<Version>,
        /// Result of the search among released versions.
        list: ReleaseList,
    },
    /// The program does not report its version.
    #[error("`{program} version` did not print a version: {answer}")]
    Unreadable {
        /// Path of the executable.
        program: String,
        /// Output of the program, cut to one line.
        answer: String,
    },
    /// The program could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl ToolError {
    /// Returns true if installing another version may fix the error.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::OtherVersion { .. } | Self::Unasked { .. } => true,
            Self::Download { .. }
            | Self::Constraint(_)
            | Self::Unsatisfied { .. }
            | Self::Unreadable { .. }
            | Self::Process(_) => false,
        }
    }
}

fn here(installed: &[Version]) -> String {
    if installed.is_empty() {
        "This server has none;".to_owned()
    } else {
        format!("This server has {};", list(installed))
    }
}

/// Result of the search among released versions.
#[derive(Debug)]
pub enum ReleaseList {
    /// The administrator allows no downloads.
    NotAllowed,
    /// None of that many released versions meets the demands.
    Searched(usize),
    /// The list of releases cannot be fetched.
    Unreadable(DownloadError),
    /// A released version meets the demands, but it could not be downloaded.
    NotDownloaded(DownloadError),
}

impl std::fmt::Display for ReleaseList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("it may not download others (`--tf-download=false`)"),
            Self::Searched(count) => write!(f, "none of the {count} released versions matches"),
            Self::Unreadable(error) => {
                write!(f, "the list of released versions cannot be read: {error}")
            }
            Self::NotDownloaded(error) => {
                write!(f, "the download of another version failed: {error}")
            }
        }
    }
}

/// Reason that a program was not downloaded. Addresses are shown without parts that may be a password.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server cannot be reached, or the answer broke off.
    #[error("{url} cannot be fetched: {reason}")]
    Http {
        /// Address of the file.
        url: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The server answered with an error status.
    #[error("{url} returned {status}")]
    Status {
        /// Address of the file.
        url: String,
        /// HTTP status of the answer.
        status: reqwest::StatusCode,
    },
    /// The file is larger than any file of its kind should be.
    #[error("{url} is larger than {limit} bytes")]
    TooLarge {
        /// Address of the file.
        url: String,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The list of releases cannot be parsed.
    #[error("{url} is not a list of releases: {reason}")]
    List {
        /// Address of the list.
        url: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The checksums are not signed by a trusted key.
    #[error("the signature of {url} is not valid, so its checksums cannot be trusted: {reason}")]
    Signature {
        /// Address of the list of checksums.
        url: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The list does not contain the file, so there is no such build.
    #[error("there is no {file}: {url} does not list it")]
    NotListed {
        /// Name of the archive.
        file: String,
        /// Address of the list of checksums.
        url: String,
    },
    /// The file differs from the one in the list of checksums.
    #[error(
        "{url} is not the released file: its SHA-256 is {found}, not {expected}. The download was deleted"
    )]
    Checksum {
        /// Address of the archive.
        url: String,
        /// Checksum in the list.
        expected: String,
        /// Checksum of the fetched file.
        found: String,
    },
    /// The archive does not contain the program.
    #[error("{url} cannot be unpacked: {reason}")]
    Archive {
        /// Address of the archive.
        url: String,
        /// Reason of the failure.
        reason: String,
    },
    /// A file operation on the disk of this server failed.
    #[error("cannot write to {}: {error}", .dir.display())]
    Disk {
        /// Directory of downloaded programs.
        dir: PathBuf,
        /// Cause of the failure.
        error: std::io::Error,
    },
}
