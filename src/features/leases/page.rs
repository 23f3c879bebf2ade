//! Leases on the page of operations, and the form that releases one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Redirect;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::actions::{Release, release};
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::text::{Badge, FutureTime, PastTime, shown};
use crate::kit::web::{WebError, WebState};
use crate::store::{FreeLease, LeaseRow, ReplicaState};

/// A lease as text, with the unescaped key and holder for the form.
#[derive(Serialize)]
pub(crate) struct LeaseLine {
    key: String,
    raw_key: String,
    raw_holder: String,
    purpose: String,
    replica: String,
    badge: Badge,
    since: PastTime,
    until: FutureTime,
    is_revoked: bool,
}

impl LeaseLine {
    /// Formats the lease as of now.
    pub fn new(row: &LeaseRow, now: DateTime<Utc>) -> Self {
        let (lease, replica) = (&row.lease, &row.replica);
        let holder = replica.as_ref().map_or(&lease.holder, |(name, _)| name);
        let state = replica.as_ref().map(|(_, state)| *state);
        Self {
            key: shown(&lease.key),
            raw_key: lease.key.clone(),
            raw_holder: lease.holder.clone(),
            purpose: shown(&lease.purpose),
            replica: shown(holder),
            badge: match (lease.revoked_at, state) {
                (_, Some(ReplicaState::Gone | ReplicaState::Ended)) => {
                    Badge::new("bad", "its server is gone")
                }
                (Some(_), _) => Badge::new("warn", "asked to stop"),
                (None, Some(ReplicaState::Alive | ReplicaState::Stopping)) => {
                    Badge::new("busy", "held")
                }
                (None, None) => Badge::new("warn", "server unknown"),
            },
            since: PastTime::new(lease.taken_at, now),
            until: FutureTime::new(lease.until, now),
            is_revoked: lease.revoked_at.is_some(),
        }
    }
}

/// Message of the page after the form was sent.
pub(crate) fn notice(code: &str) -> Option<&'static str> {
    match code {
        "lease-free" => Some("The lease is released. Its server was gone."),
        "lease-stopping" => Some(
            "The server that holds the lease was asked to stop. The lease is free when it has stopped, after a minute at most.",
        ),
        "lease-gone" => Some(
            "That lease was already released, or another server holds it now. Nothing was changed.",
        ),
        _ => None,
    }
}

/// Lease to release, as the page showed it.
#[derive(Deserialize)]
pub(super) struct ShownLease {
    key: String,
    holder: String,
    #[serde(default)]
    reason: String,
}

/// `POST /operations/leases/release`
pub(super) async fn end(
    State(web): State<Arc<WebState>>,
    form: Confirmed<ShownLease>,
) -> Result<Redirect, WebError> {
    let ShownLease {
        key,
        holder,
        reason,
    } = &form.fields;
    let request = Release {
        key,
        holder: Some(holder),
        reason,
    };
    let notice = match release(&web, request, &form.who.at_page()).await? {
        FreeLease::Freed(_) => "lease-free",
        FreeLease::Told(_) | FreeLease::AlreadyTold(_) => "lease-stopping",
        FreeLease::NotHeld => "lease-gone",
    };
    Ok(Redirect::to(
        &web.link(&format!("/operations?notice={notice}#leases")),
    ))
}
