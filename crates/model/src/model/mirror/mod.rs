//! State of the mirror of a repository, on one data directory.
//!
//! The forge is the primary. A mirror is a copy that Lockkeeper syncs again and again, and its state is a row that
//! outlives the server.
//!
//! [`MirrorState::next`] is the whole state machine; the store only applies its results.

mod backoff;
mod data_dir_id;
mod failure;
mod next;

use chrono::{DateTime, Utc};

use super::plan::Sha256Digest;
use super::text::text_enum;

pub use backoff::Jitter;
pub use data_dir_id::{DataDirId, InvalidDataDirId};
pub use failure::{FailureKind, SyncFailure};
pub use next::NotAllowed;

text_enum! {
    /// State of a mirror.
    pub enum SyncState {
        /// The mirror needs a sync.
        Pending = "pending",
        /// A sync is under way, under a lease.
        Started = "started",
        /// The mirror was in sync at the last check, and no event has reported a change since.
        Synced = "synced",
        /// The last attempt failed. The next one has a time.
        Failed = "failed",
    }
}

text_enum! {
    /// Result of the comparison of a mirror's references with those that the forge advertises.
    pub enum Verification {
        /// The references have not been compared yet.
        Unknown = "unknown",
        /// The references were the same at the last comparison.
        Verified = "verified",
        /// The references differed at the last comparison.
        Mismatch = "mismatch",
    }
}

text_enum! {
    /// Kinds of events of a repository.
    pub enum RepositoryEventKind {
        /// Branches or tags were pushed, created or deleted.
        Push = "push",
        /// A pull was opened, changed or closed.
        Pull = "pull",
        /// The repository has another name or owner now.
        Renamed = "renamed",
        /// The repository was deleted, or the forge's app may not see it any more.
        Deleted = "deleted",
        /// Another property changed: the repository was created, archived, made public or private.
        Changed = "changed",
        /// A check found a change that no event had reported.
        Found = "found",
    }
}

/// A request to sync a mirror now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// Time of the request.
    pub at: DateTime<Utc>,
    /// Requester, in the form of the audit log.
    pub by: String,
    /// Reason of the requester, if one was given.
    pub reason: Option<String>,
}

/// The lease under which an attempt runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLease {
    /// Key of the lease.
    pub key: String,
    /// Holder of the lease, different for every attempt.
    pub holder: String,
}

/// Results of a successful attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFacts {
    /// Checksum over names and ids of all references, as the forge advertised them.
    pub checksum: Sha256Digest,
    /// Number of those references.
    pub refs: u64,
    /// References that git refused, each with the reason. The mirror does not have them.
    pub refused: Vec<String>,
    /// Size of the mirror in bytes, if it was measured.
    pub bytes: Option<u64>,
    /// True if the attempt found every object.
    pub connectivity: bool,
    /// True if the attempt cleaned up the mirror.
    pub maintained: bool,
}

/// Stored knowledge about a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorState {
    /// Current state of the mirror.
    pub state: SyncState,
    /// Time of the newest reason for a sync.
    pub pending_at: DateTime<Utc>,
    /// Start of the last attempt.
    pub started_at: Option<DateTime<Utc>>,
    /// Time of a change that arrived during the attempt. Another attempt follows.
    pub again_at: Option<DateTime<Utc>>,
    /// Lease of the attempt, while one is under way.
    pub lease: Option<AttemptLease>,
    /// End of the last attempt.
    pub synced_at: Option<DateTime<Utc>>,
    /// End of the last successful attempt.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// Time of the last event that reported a change of the repository.
    pub updated_at: Option<DateTime<Utc>>,
    /// Request for a sync, until an attempt succeeds.
    pub asked: Option<SyncRequest>,
    /// Number of failed attempts in a row.
    pub retry_count: u32,
    /// Earliest time of the next attempt after a failure.
    pub retry_at: Option<DateTime<Utc>>,
    /// Failure of the last attempt.
    pub failure: Option<SyncFailure>,
    /// Time of the next check, even if no event reports a change.
    pub refresh_at: Option<DateTime<Utc>>,
    /// Result of the comparison with the forge.
    pub verification: Verification,
    /// Checksum over the references at the last successful comparison.
    pub checksum: Option<Sha256Digest>,
    /// Number of references at that comparison.
    pub refs: Option<u64>,
    /// References that were omitted at that comparison because git refused their objects, each with the reason, one
    /// per line.
    pub refused: Option<String>,
    /// Time of the last successful comparison.
    pub verified_at: Option<DateTime<Utc>>,
    /// Number of attempts in a row that fetched but did not match the forge.
    pub verification_retry_count: u32,
    /// Difference at the last failed comparison.
    pub verification_failure: Option<String>,
    /// Time of the last check that found every object.
    pub connectivity_at: Option<DateTime<Utc>>,
    /// Time of the last cleanup.
    pub maintained_at: Option<DateTime<Utc>>,
    /// Time of the last use by a command.
    pub used_at: Option<DateTime<Utc>>,
    /// Time of the removal to free disk space. The mirror is not synced again until it is used.
    pub evicted_at: Option<DateTime<Utc>>,
    /// Size in bytes when it was last measured.
    pub bytes: Option<u64>,
}

/// Events of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// The repository was changed.
    Updated {
        /// Time when the change was recorded.
        at: DateTime<Utc>,
    },
    /// A person or program requested a sync now.
    Asked(SyncRequest),
    /// The time for a check has come although no event has reported a change.
    Due {
        /// Current time of the event.
        at: DateTime<Utc>,
    },
    /// An attempt began under a lease.
    Started {
        /// Start of the attempt.
        at: DateTime<Utc>,
        /// Lease of the attempt.
        lease: AttemptLease,
    },
    /// The attempt succeeded, and the mirror matches the forge.
    Succeeded {
        /// End of the attempt.
        at: DateTime<Utc>,
        /// Holder of the attempt's lease.
        holder: String,
        /// Results of the attempt.
        facts: SyncFacts,
        /// Jitter of the next check.
        jitter: Jitter,
    },
    /// An attempt ended with a failure.
    Failed {
        /// End of the attempt.
        at: DateTime<Utc>,
        /// Holder of the attempt's lease.
        holder: String,
        /// Failure of the attempt.
        failure: SyncFailure,
        /// Jitter of the next attempt.
        jitter: Jitter,
    },
    /// The attempt's lease is over, so its holder cannot end it.
    Orphaned {
        /// Time when that was found.
        at: DateTime<Utc>,
        /// Jitter of the next attempt.
        jitter: Jitter,
    },
    /// A command used the mirror, or fetched commits that it needs.
    Used {
        /// Time of the use.
        at: DateTime<Utc>,
    },
    /// The mirror was removed to free disk space.
    Evicted {
        /// Time of the removal.
        at: DateTime<Utc>,
    },
}

impl MirrorEvent {
    /// Returns the name of the event for people and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Updated { .. } => "updated",
            Self::Asked(_) => "asked",
            Self::Due { .. } => "due",
            Self::Started { .. } => "started",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Orphaned { .. } => "orphaned",
            Self::Used { .. } => "used",
            Self::Evicted { .. } => "evicted",
        }
    }
}
