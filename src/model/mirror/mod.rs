//! Where the mirror of a repository stands, on one data directory. The forge is the primary: a mirror is a copy that is
//! brought in step again and again, and what is known of it is a row that outlives the server.
//!
//! [`MirrorState::next`] is the whole state machine; the store only carries out what it says.

mod backoff;
mod failure;
mod home;
mod next;

use chrono::{DateTime, Utc};

use super::plan::Sha256Digest;
use super::text::text_enum;

pub use backoff::Jitter;
pub use failure::{FailureKind, SyncFailure};
pub use home::{HomeId, InvalidHomeId};
pub use next::NotAllowed;

text_enum! {
    /// Where a mirror stands.
    pub enum SyncState {
        /// It is to be brought in step.
        Pending = "pending",
        /// Somebody is at it, under a lease.
        Started = "started",
        /// It was in step when that was last looked at, and nobody has told of a change since.
        Synced = "synced",
        /// The last attempt failed; there is a time for the next.
        Failed = "failed",
    }
}

text_enum! {
    /// Whether the references of a mirror are those that the forge advertises.
    pub enum Verification {
        /// Nobody has compared them yet.
        Unknown = "unknown",
        /// They were when they were last compared.
        Verified = "verified",
        /// They were not.
        Mismatch = "mismatch",
    }
}

text_enum! {
    /// What happened to a repository.
    pub enum RepositoryEventKind {
        /// Branches or tags were pushed, made or deleted.
        Push = "push",
        /// A pull was opened, changed or closed.
        Pull = "pull",
        /// It has another name or owner now.
        Renamed = "renamed",
        /// It was deleted, or the forge's app may not see it any more.
        Deleted = "deleted",
        /// Something else about it changed: it was made, archived, made public or private.
        Changed = "changed",
        /// Nobody had told of a change that was found.
        Found = "found",
    }
}

/// Somebody wants a mirror to be brought in step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When.
    pub at: DateTime<Utc>,
    /// Who, as people are named in the audit log.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// The claim under which an attempt is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLease {
    /// Its key.
    pub key: String,
    /// Its holder, unlike that of any other attempt.
    pub holder: String,
}

/// What an attempt that came to its end found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFacts {
    /// Over names and ids of all references, as the forge advertised them.
    pub checksum: Sha256Digest,
    /// How many references those are.
    pub refs: u64,
    /// References that git refused, each with the reason: the mirror does not have them.
    pub refused: Vec<String>,
    /// Room the mirror takes, in bytes, if that was measured.
    pub bytes: Option<u64>,
    /// Every object was found to be there.
    pub connectivity: bool,
    /// The mirror was tidied up.
    pub maintained: bool,
}

/// What is known of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorState {
    /// Where it stands.
    pub state: SyncState,
    /// Since when there has been a reason to bring it in step, the newest of them.
    pub pending_at: DateTime<Utc>,
    /// When the last attempt began.
    pub started_at: Option<DateTime<Utc>>,
    /// What came in while the attempt runs: when that has ended, another is made.
    pub again_at: Option<DateTime<Utc>>,
    /// Under what the attempt runs; only of one that is under way.
    pub lease: Option<AttemptLease>,
    /// When the last attempt ended.
    pub synced_at: Option<DateTime<Utc>>,
    /// When one last succeeded.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// When an event last told of a change of the repository.
    pub updated_at: Option<DateTime<Utc>>,
    /// Who asked for an attempt, until one has succeeded.
    pub asked: Option<Asked>,
    /// Attempts in a row that failed.
    pub retry_count: u32,
    /// When the next attempt may be made after a failure.
    pub retry_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed.
    pub failure: Option<SyncFailure>,
    /// When it is looked at again although nobody has told of a change.
    pub refresh_at: Option<DateTime<Utc>>,
    /// Whether it holds what the forge advertises.
    pub verification: Verification,
    /// Over the references, when they were last found to be right.
    pub checksum: Option<Sha256Digest>,
    /// How many they were.
    pub refs: Option<u64>,
    /// References that were left out then because git refused what is in them, each with the reason, one a line.
    pub refused: Option<String>,
    /// When that was.
    pub verified_at: Option<DateTime<Utc>>,
    /// Attempts in a row that fetched, and did not hold what the forge advertises.
    pub verification_retry_count: u32,
    /// What differed then.
    pub verification_failure: Option<String>,
    /// When every object was last found to be there.
    pub connectivity_at: Option<DateTime<Utc>>,
    /// When it was last tidied up.
    pub maintained_at: Option<DateTime<Utc>>,
    /// When a command last used it.
    pub used_at: Option<DateTime<Utc>>,
    /// When it was removed to make room; nothing is done for it until somebody uses it.
    pub evicted_at: Option<DateTime<Utc>>,
    /// Room it took when that was last measured.
    pub bytes: Option<u64>,
}

/// What can happen to a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// The repository was changed.
    Updated {
        /// When that was taken up.
        at: DateTime<Utc>,
    },
    /// Somebody wants it to be brought in step now.
    Asked(Asked),
    /// Its time to be looked at has come although nobody has told of a change.
    Due {
        /// Now.
        at: DateTime<Utc>,
    },
    /// An attempt begins.
    Started {
        /// When.
        at: DateTime<Utc>,
        /// Under what.
        lease: AttemptLease,
    },
    /// The attempt came to its end, and the mirror holds what the forge advertises.
    Succeeded {
        /// When.
        at: DateTime<Utc>,
        /// Whose attempt.
        holder: String,
        /// What it found.
        facts: SyncFacts,
        /// Spreads the next look.
        jitter: Jitter,
    },
    /// The attempt failed.
    Failed {
        /// When.
        at: DateTime<Utc>,
        /// Whose attempt.
        holder: String,
        /// Why.
        failure: SyncFailure,
        /// Spreads the next attempt.
        jitter: Jitter,
    },
    /// The attempt's lease is over, and nobody will end it.
    Orphaned {
        /// When that was found.
        at: DateTime<Utc>,
        /// Spreads the next attempt.
        jitter: Jitter,
    },
    /// A command used it, or fetched what it needs.
    Used {
        /// When.
        at: DateTime<Utc>,
    },
    /// It was removed to make room.
    Evicted {
        /// When.
        at: DateTime<Utc>,
    },
}

impl MirrorEvent {
    /// Its name for people and logs.
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
