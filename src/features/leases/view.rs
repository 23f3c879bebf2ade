//! Renders a lease as JSON for the API and the command line. Times are RFC 3339 in UTC; unknown values are `null`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::store::LeaseRow;

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Renders a lease as JSON.
pub(crate) fn view(LeaseRow { lease, replica }: &LeaseRow) -> Value {
    json!({
        "key": lease.key,
        "holder": lease.holder,
        "purpose": lease.purpose,
        "replica": replica.as_ref().map(|(name, _)| name),
        "replica_state": replica.as_ref().map(|(_, state)| state.as_str()),
        "since": time(lease.taken_at),
        "renewed_at": time(lease.renewed_at),
        "until": time(lease.until),
        "revoked_at": lease.revoked_at.map(time),
    })
}
