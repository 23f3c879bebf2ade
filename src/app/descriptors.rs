//! How many files and connections this process may have open.
//!
//! The soft limit is often 1,024, so that programs of the time of `select` go on to work; the hard limit is what the
//! administrator grants. What the server starts inherits the raised limit: git, Terraform and its providers do not use
//! `select`, and programs in Go raise the limit themselves.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// Programs that close every descriptor they could have inherited become slow when the limit is the largest number.
const ENOUGH: u64 = 65_536;
/// What is assumed if the system does not say.
const USUAL: u64 = 1024;

/// Raises the soft limit to the hard one, and says so in the log.
pub(super) fn raise() {
    let (before, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => return warn!(%error, "The limit of open files could not be read"),
    };
    let wanted = hard.min(ENOUGH);
    if wanted <= before {
        return info!(open_files = before, "The limit of open files stays");
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => info!(
            open_files = wanted,
            before, "Raised the limit of open files"
        ),
        Err(error) => {
            warn!(%error, open_files = before, "The limit of open files could not be raised");
        }
    }
}

/// The limit of this moment.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
}
