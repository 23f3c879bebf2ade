//! Exclusive work on the page of operations, and the form that takes a lease away.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Redirect;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::actions::{Release, release};
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::text::{Badge, Stamp, Until, shown};
use crate::kit::web::{Failure, Web};
use crate::store::{FreeLease, LeaseRow, ReplicaState};

/// A lease in words. The key and the holder stand in the form as they are, too.
#[derive(Serialize)]
pub(crate) struct LeaseLine {
    key: String,
    raw_key: String,
    raw_holder: String,
    purpose: String,
    replica: String,
    badge: Badge,
    since: Stamp,
    until: Until,
    is_revoked: bool,
}

impl LeaseLine {
    /// As seen now.
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
                (Some(_), _) => Badge::new("warn", "told to stop"),
                (None, Some(ReplicaState::Alive | ReplicaState::Stopping)) => {
                    Badge::new("busy", "held")
                }
                (None, None) => Badge::new("warn", "server not known"),
            },
            since: Stamp::new(lease.taken_at, now),
            until: Until::new(lease.until, now),
            is_revoked: lease.revoked_at.is_some(),
        }
    }
}

/// What the page says after the form was sent.
pub(crate) fn notice(code: &str) -> Option<&'static str> {
    match code {
        "lease-free" => Some("The lease is given back: its server was gone."),
        "lease-stopping" => Some(
            "The server that holds the lease is told to stop. The lease is free when it has, within a minute at the latest.",
        ),
        "lease-gone" => Some(
            "That lease was given back already, or somebody else has it by now. Nothing was changed.",
        ),
        _ => None,
    }
}

/// Which lease, as the page showed it.
#[derive(Deserialize)]
pub(super) struct Chosen {
    key: String,
    holder: String,
    #[serde(default)]
    reason: String,
}

/// `POST /operations/leases/release`
pub(super) async fn end(
    State(web): State<Arc<Web>>,
    form: Confirmed<Chosen>,
) -> Result<Redirect, Failure> {
    let Chosen {
        key,
        holder,
        reason,
    } = &form.fields;
    let wish = Release {
        key,
        holder: Some(holder),
        reason,
    };
    let notice = match release(&web, wish, &form.who.at_page()).await? {
        FreeLease::Freed(_) => "lease-free",
        FreeLease::Told(_) | FreeLease::AlreadyTold(_) => "lease-stopping",
        FreeLease::NotHeld => "lease-gone",
    };
    Ok(Redirect::to(
        &web.link(&format!("/operations?notice={notice}#leases")),
    ))
}
