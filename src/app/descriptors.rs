//! Raises and reads the limit of open files and connections of this process.
//!
//! The soft limit is often 1,024, so that old programs that use `select` still work. The administrator grants the
//! hard limit. The programs that the server starts inherit the raised limit. Git, Terraform and its providers do not
//! use `select`, and Go programs raise the limit themselves.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// Maximum limit that the server sets. Programs that close every descriptor they could have inherited become slow if
/// the limit is the largest number.
const ENOUGH: u64 = 65_536;
/// Limit to assume if the system does not report one.
const USUAL: u64 = 1024;

/// Raises the soft limit to the hard one, and logs the result.
pub(super) fn raise() {
    let (before, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => return warn!(%error, "Could not read the limit of open files"),
    };
    let wanted = hard.min(ENOUGH);
    if wanted <= before {
        return info!(open_files = before, "Kept the limit of open files");
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => info!(
            open_files = wanted,
            before, "Raised the limit of open files"
        ),
        Err(error) => {
            warn!(%error, open_files = before, "Could not raise the limit of open files");
        }
    }
}

/// Returns the current soft limit.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
}
