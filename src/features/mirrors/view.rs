//! Renders a mirror as JSON for the API and the command line. Times are RFC 3339 in UTC; unknown values are `null`.

use serde_json::{Value, json};

use crate::kit::web::text::rfc3339;
use crate::store::MirrorRow;

/// Renders a mirror as JSON.
pub(super) fn view(row: &MirrorRow) -> Value {
    let state = &row.state;
    json!({
        "repo": row.repo,
        "disk": row.data_dir_id,
        "state": state.state,
        "known_since": rfc3339(row.created_at),
        "pending_at": rfc3339(state.pending_at),
        "started_at": state.started_at.map(rfc3339),
        "lease": state.lease.as_ref().map(|lease| json!({ "key": lease.key, "holder": lease.holder })),
        "synced_at": state.synced_at.map(rfc3339),
        "succeeded_at": state.succeeded_at.map(rfc3339),
        "updated_at": state.updated_at.map(rfc3339),
        "refresh_at": state.refresh_at.map(rfc3339),
        "asked": state.asked.as_ref().map(|asked| json!({
            "at": rfc3339(asked.at), "by": asked.by, "reason": asked.reason,
        })),
        "retry": { "count": state.retry_count, "at": state.retry_at.map(rfc3339) },
        "failure": state.failure.as_ref().map(|failure| json!({
            "kind": failure.kind, "message": failure.message, "fix": failure.kind.fix(),
        })),
        "verification": {
            "state": state.verification, "checksum": state.checksum, "refs": state.refs,
            "at": state.verified_at.map(rfc3339), "retry_count": state.verification_retry_count,
            "refused": state.refused.iter().flat_map(|lines| lines.lines()).collect::<Vec<_>>(),
            "failure": state.verification_failure, "connectivity_at": state.connectivity_at.map(rfc3339),
        },
        "maintained_at": state.maintained_at.map(rfc3339),
        "used_at": state.used_at.map(rfc3339),
        "evicted_at": state.evicted_at.map(rfc3339),
        "bytes": state.bytes,
    })
}
