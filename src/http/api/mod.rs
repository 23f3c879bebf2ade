//! JSON for programs: what Atlantis has too in the shapes that its clients know (reference 11.4), the rest under `/api/`
//! in ours. Whatever changes something asks for the password ([`Script`](super::csrf::Script)).
//!
//! Two differences, on purpose: when the pages need a password, `GET /api/locks` needs it as well, because a list of
//! locks tells an outsider what a company builds and where; and no locks are `[]`, never `null`. What Atlantis has not
//! ([`lock`]) has names of our own making, in lower case.

mod apply_locks;
mod apps;
mod audit;
mod claims;
mod credentials;
mod leases;
mod legacy;
mod lock;
mod locks;
mod owners;
mod repos;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;

use super::{Web, operations};

pub(super) use apps::removed_or_why;
pub(super) use owners::{created_or_why, deleted_or_why};

/// `/api/…` and the routes that Atlantis' own page uses.
pub(super) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/api/locks", get(locks::list))
        .route("/api/apply-locks", get(apply_locks::list).post(apply_locks::set))
        .route("/api/apply-locks/{id}", delete(apply_locks::end))
        // The classic name of a lock has slashes, and some proxies decode them.
        .route("/api/locks/{*asked}", get(lock::show).post(lock::change))
        .route("/api/leases", get(leases::list))
        // The name of a repository in the key has slashes.
        .route("/api/leases/{*key}", delete(leases::end))
        .route("/api/repos", get(repos::list))
        .route("/api/repos/{*asked}", get(repos::show).post(repos::sync))
        .route("/api/operations", get(operations::answer))
        .route("/api/owners", get(owners::list).post(owners::add))
        .route("/api/owners/{name}", delete(owners::remove))
        .route("/api/claims", get(claims::list))
        .route("/api/audit", get(audit::list))
        .route("/api/apps", get(apps::list).post(apps::add))
        .route("/api/apps/{id}", get(apps::show).post(apps::change).delete(apps::remove))
        .route("/api/apps/{id}/cancel", post(apps::stop))
        .route("/api/apps/{id}/{deed}", post(apps::act))
        .route("/api/credentials", get(credentials::list).post(credentials::add))
        .route("/api/credentials/{id}", get(credentials::show).post(credentials::change).delete(credentials::remove))
        .route("/apply/lock", post(legacy::stop_applies))
        .route("/apply/unlock", delete(legacy::allow_applies))
        .route("/locks", delete(legacy::discard))
}

/// `?owner=…`: only what concerns this owner.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfOwner {
    owner: Option<String>,
}

/// A time as answers show it.
fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
