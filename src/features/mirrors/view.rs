//! Renders a mirror as JSON for the API and the command line. Times are RFC 3339 in UTC; unknown values are `null`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::store::MirrorRow;

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Renders a mirror as JSON.
pub(super) fn view(row: &MirrorRow) -> Value {
    let state = &row.state;
    json!({
        "repo": row.repo,
        "disk": row.home,
        "state": state.state,
        "known_since": time(row.created_at),
        "pending_at": time(state.pending_at),
        "started_at": state.started_at.map(time),
        "lease": state.lease.as_ref().map(|lease| json!({ "key": lease.key, "holder": lease.holder })),
        "synced_at": state.synced_at.map(time),
        "succeeded_at": state.succeeded_at.map(time),
        "updated_at": state.updated_at.map(time),
        "refresh_at": state.refresh_at.map(time),
        "asked": state.asked.as_ref().map(|asked| json!({
            "at": time(asked.at), "by": asked.by, "reason": asked.reason,
        })),
        "retry": { "count": state.retry_count, "at": state.retry_at.map(time) },
        "failure": state.failure.as_ref().map(|failure| json!({
            "kind": failure.kind, "message": failure.message, "fix": failure.kind.fix(),
        })),
        "verification": {
            "state": state.verification, "checksum": state.checksum, "refs": state.refs,
            "at": state.verified_at.map(time), "retry_count": state.verification_retry_count,
            "refused": state.refused.iter().flat_map(|lines| lines.lines()).collect::<Vec<_>>(),
            "failure": state.verification_failure, "connectivity_at": state.connectivity_at.map(time),
        },
        "maintained_at": state.maintained_at.map(time),
        "used_at": state.used_at.map(time),
        "evicted_at": state.evicted_at.map(time),
        "bytes": state.bytes,
    })
}
