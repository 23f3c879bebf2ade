//! What an Atlantis installation left behind: its bbolt file or its Redis, read and made sense of (reference 7.1, 15.2,
//! 15.3). Nothing is ever written there.
//!
//! Two steps. [`bolt`] and [`redis`] fetch keys and values as they are ([`Contents`]); [`Found::understand`] turns them
//! into our words and says of everything it cannot use why.

pub mod bolt;
mod found;
mod record;
pub mod redis;

use std::path::Path;

pub use found::{Found, FoundApplyLock, FoundLock, FoundPull, FoundStatus, Kind, Unusable, Why};
pub use record::{PlanStatus, Then};

use bolt::{BoltError, Entries};

const LOCKS: &str = "runLocks";
const PULLS: &str = "pulls";
const GLOBAL: &str = "globalLocks";
/// Key of the lock that stops applies.
const APPLY_LOCK: &str = "apply/lock";

/// Keys and values of an Atlantis database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Locks, by `repo/path/workspace/project`.
    pub locks: Entries,
    /// What is known of pulls, by `host::repo::number`.
    pub pulls: Entries,
    /// The lock that stops applies.
    pub apply_lock: Option<Vec<u8>>,
}

/// Why there is nothing to take over from a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Bolt(#[from] BoltError),
    /// It is somebody else's.
    #[error(
        "it is a bbolt database, but not one of Atlantis: it has no bucket `{LOCKS}`. Atlantis keeps its own as \
         `atlantis.db` in its data directory"
    )]
    NotAtlantis,
}

/// Reads Atlantis' database file.
pub fn read_file(path: &Path) -> Result<Contents, FileError> {
    let mut buckets = bolt::read_file(path, &[LOCKS, PULLS, GLOBAL])?;
    let locks = buckets.remove(LOCKS).ok_or(FileError::NotAtlantis)?;
    let mut global = buckets.remove(GLOBAL).unwrap_or_default().into_iter();
    let apply_lock = global
        .find(|(key, _)| key == APPLY_LOCK.as_bytes())
        .map(|(_, value)| value);
    Ok(Contents {
        locks,
        pulls: buckets.remove(PULLS).unwrap_or_default(),
        apply_lock,
    })
}
