//! `/api/leases`: exclusive work.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::http::csrf::Script;
use crate::http::extract::{Asked, Segment};
use crate::http::leases::{LeaseJson, Release, release};
use crate::http::{Failure, Web};
use crate::store::{FreeLease, LeaseRow};

/// All of them, by key.
#[derive(Serialize)]
pub(super) struct Leases {
    leases: Vec<LeaseJson>,
}

/// `GET /api/leases`
pub(super) async fn list(State(web): State<Arc<Web>>) -> Result<Json<Leases>, Failure> {
    let leases = web.store.lease_list().await?;
    Ok(Json(Leases { leases: leases.iter().map(LeaseJson::from).collect() }))
}

/// `?reason=…&holder=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wish {
    reason: String,
    holder: Option<String>,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct Released {
    /// `free`, or `stopping` while the holder ends what it does.
    state: &'static str,
    #[serde(flatten)]
    lease: LeaseJson,
}

/// `DELETE /api/leases/{key}?reason=…`: 200 when it is free, 202 when its holder was told to stop.
pub(super) async fn end(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    Segment(key): Segment,
    Asked(wish): Asked<Wish>,
) -> Result<(StatusCode, Json<Released>), Failure> {
    let wish = Release { key: &key, holder: wish.holder.as_deref(), reason: &wish.reason };
    let (status, state, lease) = match release(&web, wish, &who.by_script()).await? {
        FreeLease::Freed(lease) => (StatusCode::OK, "free", lease),
        FreeLease::Told(lease) | FreeLease::AlreadyTold(lease) => (StatusCode::ACCEPTED, "stopping", lease),
        FreeLease::NotHeld => return Err(Failure::no_such_lease()),
    };
    let lease = LeaseJson::from(&LeaseRow { lease, replica: None });
    Ok((status, Json(Released { state, lease })))
}
