//! Renders JSON that the API and the command line share. Times are RFC 3339 in UTC; unknown values are `null`.

use serde_json::{Value, json};

use crate::kit::web::text::rfc3339;
use crate::model::{Concern, LockEvent};

/// Renders an event of the audit log.
pub(crate) fn view(kept: &LockEvent) -> Value {
    let (event, cause) = (&kept.event, &kept.event.cause);
    json!({
        "seq": kept.seq(),
        "at": rfc3339(kept.at),
        "kind": event.kind,
        "repo": event.about_repo(),
        "owner": event.concern.as_ref().and_then(Concern::owner),
        "lock": event.key.as_ref().map(ToString::to_string),
        "applies": event.scope.as_ref().map(ToString::to_string),
        "pull": event.pull.as_ref().map(|pull| pull.subject.stored()),
        "actor": cause.actor.login,
        "account": kept.account,
        "origin": cause.actor.origin,
        "remote": cause.remote,
        "reason": cause.reason,
        "hash": kept.link.as_ref().map(|link| &link.hash),
    })
}
