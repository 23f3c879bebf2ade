//! A lease as the API and the command line tell it to programs. Times are RFC 3339 in UTC; what is not known is `null`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::store::LeaseRow;

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// A lease.
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
