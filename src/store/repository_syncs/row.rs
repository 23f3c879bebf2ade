//! Reads and writes the row of a mirror.

use chrono::{DateTime, Utc};

use crate::model::{
    AttemptLease, DataDirId, FailureKind, MirrorState, RepoId, Sha256Digest, SyncFailure,
    SyncRequest, SyncState, Verification,
};
use crate::store::{Result, Tx, execute, free_text};

/// State of one mirror on one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorRow {
    /// Data directory of the mirror.
    pub data_dir_id: DataDirId,
    /// Repository of the mirror.
    pub repo: RepoId,
    /// State of the mirror.
    pub state: MirrorState,
    /// Time when the mirror was added.
    pub created_at: DateTime<Utc>,
    /// Number of changes of the row.
    pub(super) revision: i64,
}

/// All columns, in one place.
macro_rules! columns {
    () => {
        "replica, repo, revision, state, pending_at, started_at, again_at, lease_key, lease_holder, \
         synced_at, succeeded_at, updated_at, asked_at, asked_by, asked_reason, retry_count, retry_at, failure_kind, \
         failure, refresh_at, verification, checksum, refs, verified_at, verification_retry_count, \
         verification_failure, connectivity_at, maintained_at, used_at, evicted_at, bytes, refused, created_at"
    };
}
pub(super) use columns;

const CHANGE: &str = "UPDATE repository_syncs SET revision = revision + 1, state = $4, pending_at = $5, started_at = $6, \
     again_at = $7, lease_key = $8, lease_holder = $9, synced_at = $10, succeeded_at = $11, updated_at = $12, \
     asked_at = $13, asked_by = $14, asked_reason = $15, retry_count = $16, retry_at = $17, failure_kind = $18, \
     failure = $19, refresh_at = $20, verification = $21, checksum = $22, refs = $23, verified_at = $24, \
     verification_retry_count = $25, verification_failure = $26, connectivity_at = $27, maintained_at = $28, \
     used_at = $29, evicted_at = $30, bytes = $31, refused = $32 \
     WHERE replica = $1 AND repo = $2 AND revision = $3 AND NOT EXISTS (SELECT 1 FROM leases l \
     WHERE l.key = repository_syncs.lease_key AND l.holder = repository_syncs.lease_holder AND l.until > $33)";

#[derive(sqlx::FromRow)]
pub(super) struct RepositorySyncColumns {
    replica: DataDirId,
    repo: RepoId,
    revision: i64,
    state: SyncState,
    pending_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    again_at: Option<DateTime<Utc>>,
    lease_key: Option<String>,
    lease_holder: Option<String>,
    synced_at: Option<DateTime<Utc>>,
    succeeded_at: Option<DateTime<Utc>>,
    updated_at: Option<DateTime<Utc>>,
    asked_at: Option<DateTime<Utc>>,
    asked_by: Option<String>,
    asked_reason: Option<String>,
    retry_count: i64,
    retry_at: Option<DateTime<Utc>>,
    failure_kind: Option<FailureKind>,
    failure: Option<String>,
    refresh_at: Option<DateTime<Utc>>,
    verification: Verification,
    checksum: Option<Sha256Digest>,
    refs: Option<i64>,
    verified_at: Option<DateTime<Utc>>,
    verification_retry_count: i64,
    verification_failure: Option<String>,
    connectivity_at: Option<DateTime<Utc>>,
    maintained_at: Option<DateTime<Utc>>,
    used_at: Option<DateTime<Utc>>,
    evicted_at: Option<DateTime<Utc>>,
    bytes: Option<i64>,
    refused: Option<String>,
    created_at: DateTime<Utc>,
}

impl From<RepositorySyncColumns> for MirrorRow {
    fn from(row: RepositorySyncColumns) -> Self {
        let lease = row
            .lease_key
            .zip(row.lease_holder)
            .map(|(key, holder)| AttemptLease { key, holder });
        let (by, reason) = (row.asked_by, row.asked_reason);
        let failure = row
            .failure_kind
            .zip(row.failure)
            .map(|(kind, message)| SyncFailure { kind, message });
        let state = MirrorState {
            state: row.state,
            pending_at: row.pending_at,
            started_at: row.started_at,
            again_at: row.again_at,
            lease,
            synced_at: row.synced_at,
            succeeded_at: row.succeeded_at,
            updated_at: row.updated_at,
            asked: row
                .asked_at
                .zip(by)
                .map(|(at, by)| SyncRequest { at, by, reason }),
            retry_count: count(row.retry_count),
            retry_at: row.retry_at,
            failure,
            refresh_at: row.refresh_at,
            verification: row.verification,
            checksum: row.checksum,
            refs: row.refs.map(i64::cast_unsigned),
            verified_at: row.verified_at,
            verification_retry_count: count(row.verification_retry_count),
            verification_failure: row.verification_failure,
            connectivity_at: row.connectivity_at,
            maintained_at: row.maintained_at,
            used_at: row.used_at,
            evicted_at: row.evicted_at,
            bytes: row.bytes.map(i64::cast_unsigned),
            refused: row.refused,
        };
        let RepositorySyncColumns {
            replica: data_dir_id,
            repo,
            created_at,
            revision,
            ..
        } = row;
        Self {
            data_dir_id,
            repo,
            state,
            created_at,
            revision,
        }
    }
}

fn count(column: i64) -> u32 {
    u32::try_from(column).unwrap_or(u32::MAX)
}

/// Writes a changed row, unless it was changed since it was read. If `unless_leased_at` is given, the attempt must
/// also have no lease that lasts longer than that time. `false`: nothing was written.
pub(super) async fn write_in_tx(
    tx: &mut Tx,
    row: &MirrorRow,
    unless_leased_at: Option<DateTime<Utc>>,
) -> Result<bool> {
    let state = &row.state;
    let (lease, asked, failure) = (
        state.lease.as_ref(),
        state.asked.as_ref(),
        state.failure.as_ref(),
    );
    execute!(
        tx,
        CHANGE,
        &row.data_dir_id,
        &row.repo,
        row.revision,
        state.state,
        state.pending_at,
        state.started_at,
        state.again_at,
        lease.map(|lease| free_text(&lease.key)),
        lease.map(|lease| free_text(&lease.holder)),
        state.synced_at,
        state.succeeded_at,
        state.updated_at,
        asked.map(|asked| asked.at),
        asked.map(|asked| free_text(&asked.by)),
        asked
            .and_then(|asked| asked.reason.as_deref())
            .map(free_text),
        i64::from(state.retry_count),
        state.retry_at,
        failure.map(|failure| failure.kind),
        failure.map(|failure| free_text(&failure.message)),
        state.refresh_at,
        state.verification,
        &state.checksum,
        state.refs.map(u64::cast_signed),
        state.verified_at,
        i64::from(state.verification_retry_count),
        state.verification_failure.as_deref().map(free_text),
        state.connectivity_at,
        state.maintained_at,
        state.used_at,
        state.evicted_at,
        state.bytes.map(u64::cast_signed),
        state.refused.as_deref().map(free_text),
        unless_leased_at,
    )
    .map(|rows| rows == 1)
}
