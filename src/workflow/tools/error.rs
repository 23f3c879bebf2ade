//! Why there is no program to run a project with.

use std::path::PathBuf;

use semver::Version;

use super::choice::list;
use crate::discovery::RequiredVersions;
use crate::process::ProcessError;

/// Why there is no program to run a project with.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No executable of that name.
    #[error("no `{program}` was found in {searched}")]
    Missing {
        /// Name of the executable.
        program: String,
        /// Where was looked.
        searched: String,
    },
    /// There is one, but of another version.
    #[error("{title} {wanted} is asked for, and this server has {found}")]
    OtherVersion {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// The version asked for.
        wanted: Version,
        /// The version found.
        found: Version,
    },
    /// There is one without a version in its name, and it cannot be told whether it is that one.
    #[error(
        "{title} {wanted} is asked for, and the one that this server has cannot be asked which it is: {error}"
    )]
    Unasked {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// The version asked for.
        wanted: Version,
        /// Why not; it names the program.
        error: Box<Self>,
    },
    /// It is not here, and downloading it failed.
    #[error("{title} {wanted} is not installed on this server, and downloading it failed: {error}")]
    Download {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// The version asked for.
        wanted: Version,
        /// Why not.
        error: DownloadError,
    },
    /// A constraint in the code cannot be read.
    #[error("the version to use cannot be found out: {0}")]
    Constraint(String),
    /// No version meets what the code demands.
    #[error("no version of {title} meets what the code demands: {demands}. {} {list}", here(.installed))]
    Unsatisfied {
        /// `Terraform` or `OpenTofu`.
        title: &'static str,
        /// What is demanded, and where.
        demands: RequiredVersions,
        /// What this server has.
        installed: Vec<Version>,
        /// What is known of released versions.
        list: ReleaseList,
    },
    /// It would not say what it is.
    #[error("`{program} version` did not answer with a version: {answer}")]
    Unreadable {
        /// The executable.
        program: String,
        /// What it said instead, cut to one line.
        answer: String,
    },
    /// It could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl ToolError {
    /// Whether another version may be all that is missing.
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

/// What is known of the versions that were released.
#[derive(Debug)]
pub enum ReleaseList {
    /// The operator allows no downloads.
    NotAllowed,
    /// Of that many none meets the demands.
    Searched(usize),
    /// The list cannot be had.
    Unreadable(DownloadError),
    /// One does, but it could not be downloaded.
    NotDownloaded(DownloadError),
}

impl std::fmt::Display for ReleaseList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("it may not download others (`--tf-download=false`)"),
            Self::Searched(count) => write!(f, "none of the {count} released ones does either"),
            Self::Unreadable(error) => {
                write!(f, "the list of released ones cannot be read: {error}")
            }
            Self::NotDownloaded(error) => write!(f, "downloading another one failed: {error}"),
        }
    }
}

/// Why a program was not downloaded. Addresses are shown without what may be a password.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server of the file cannot be reached, or the answer broke off.
    #[error("{url} cannot be fetched: {reason}")]
    Http {
        /// What was to be fetched.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The server has something to say instead.
    #[error("{url} was answered with {status}")]
    Status {
        /// What was to be fetched.
        url: String,
        /// The status.
        status: reqwest::StatusCode,
    },
    /// More than anything of this kind has.
    #[error("{url} is larger than {limit} bytes")]
    TooLarge {
        /// What was to be fetched.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// The list of releases is not one.
    #[error("{url} is not a list of releases: {reason}")]
    List {
        /// The list.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// Nobody whom this program trusts signed the checksums.
    #[error(
        "the signature of {url} is not good, so nothing that it lists can be trusted: {reason}"
    )]
    Signature {
        /// The list of checksums.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The signed list does not have the file: there is no such build.
    #[error("there is no {file}: {url} does not list it")]
    NotListed {
        /// The archive.
        file: String,
        /// The list of checksums.
        url: String,
    },
    /// The file is not the one that was signed.
    #[error(
        "{url} is not the file that was signed: its SHA-256 is {found}, not {expected}. It was thrown away"
    )]
    Checksum {
        /// The archive.
        url: String,
        /// What the signed list says.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The archive has no program in it.
    #[error("{url} cannot be unpacked: {reason}")]
    Archive {
        /// The archive.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// This machine's disk.
    #[error("cannot write to {}: {error}", .dir.display())]
    Disk {
        /// Where downloads are kept.
        dir: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
}
