//! Renders a lease as JSON for the API and the command line. Times are RFC 3339 in UTC; unknown values are `null`.

use serde_json::{Value, json};

use crate::kit::web::text::rfc3339;
use crate::store::LeaseRow;

/// Renders a lease as JSON.
pub(crate) fn view(LeaseRow { lease, replica }: &LeaseRow) -> Value {
    json!({
        "key": lease.key,
        "holder": lease.holder,
        "purpose": lease.purpose,
        "replica": replica.as_ref().map(|(name, _)| name),
        "replica_state": replica.as_ref().map(|(_, state)| state.as_str()),
        "since": rfc3339(lease.taken_at),
        "renewed_at": rfc3339(lease.renewed_at),
        "until": rfc3339(lease.until),
        "revoked_at": lease.revoked_at.map(rfc3339),
    })
}
