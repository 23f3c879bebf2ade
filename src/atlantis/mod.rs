//! Reads the data that an Atlantis installation left behind, from its bbolt file or its Redis (reference 7.1, 15.2,
//! 15.3). Nothing is ever written there.
//!
//! There are two steps. [`bolt`] and [`redis`] fetch keys and values unchanged ([`Contents`]). [`AtlantisRecords::understand`]
//! converts them and gives a reason for everything that it cannot use.

pub mod bolt;
mod found;
mod record;
pub mod redis;

use std::path::Path;

pub use found::{
    AtlantisRecords, FoundApplyLock, FoundLock, FoundPull, FoundStatus, RecordKind, Unusable,
    UnusableReason,
};
pub use record::{NextStep, PlanStatus};

use bolt::{BoltError, BucketEntries};

const LOCKS: &str = "runLocks";
const PULLS: &str = "pulls";
const GLOBAL: &str = "globalLocks";
/// Key of the lock that stops all applies.
const APPLY_LOCK: &str = "apply/lock";

/// Keys and values of an Atlantis database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Locks, with keys of the form `repo/path/workspace/project`.
    pub locks: BucketEntries,
    /// Status of pull requests, with keys of the form `host::repo::number`.
    pub pulls: BucketEntries,
    /// Lock that stops all applies.
    pub apply_lock: Option<Vec<u8>>,
}

/// Reason that a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is not a readable bbolt database.
    #[error(transparent)]
    Bolt(#[from] BoltError),
    /// The file is a database of another program.
    #[error(
        "the file is a bbolt database, but not one of Atlantis: it has no bucket `{LOCKS}`. Atlantis' database is \
         `atlantis.db` in its data directory"
    )]
    NotAtlantis,
}

/// Reads the database file of Atlantis.
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
