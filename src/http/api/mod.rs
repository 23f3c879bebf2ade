//! JSON for programs: what Atlantis has too in the shapes that its clients know (reference 11.4), the rest under `/api/`
//! in ours. Whatever changes something asks for the password ([`Script`](crate::kit::web::csrf::Script)).
//!
//! Two differences, on purpose: when the pages need a password, `GET /api/locks` needs it as well, because a list of
//! locks tells an outsider what a company builds and where; and no locks are `[]`, never `null`. What Atlantis has not
//! ([`lock`]) has names of our own making, in lower case.

mod apps;
mod audit;
mod claims;
mod credentials;
mod legacy;
mod lock;
mod locks;
mod owners;

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};

use super::operations;
use crate::kit::web::Web;
use crate::kit::web::routes::{Access, Routes};

pub(super) use apps::removed_or_why;
pub(super) use owners::{created_or_why, deleted_or_why};

/// `/api/…` and the routes that Atlantis' own page uses.
pub(super) fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/api/locks", Access::Facts, locks::list)
        // The classic name of a lock has slashes, and some proxies decode them.
        .get("/api/locks/{*asked}", Access::Facts, lock::show)
        .post("/api/locks/{*asked}", Access::Account, lock::change)
        .get("/api/operations", Access::Account, operations::answer)
        .get("/api/owners", Access::Account, owners::list)
        .post("/api/owners", Access::Account, owners::add)
        .delete("/api/owners/{name}", Access::Account, owners::remove)
        .get("/api/claims", Access::Account, claims::list)
        .get("/api/audit", Access::Account, audit::list)
        .get("/api/apps", Access::Account, apps::list)
        .post("/api/apps", Access::Account, apps::add)
        .get("/api/apps/{id}", Access::Account, apps::show)
        .post("/api/apps/{id}", Access::Account, apps::change)
        .delete("/api/apps/{id}", Access::Account, apps::remove)
        .post("/api/apps/{id}/cancel", Access::Account, apps::stop)
        .post("/api/apps/{id}/{deed}", Access::Account, apps::act)
        .get("/api/credentials", Access::Account, credentials::list)
        .post("/api/credentials", Access::Account, credentials::add)
        .get("/api/credentials/{id}", Access::Account, credentials::show)
        .post(
            "/api/credentials/{id}",
            Access::Account,
            credentials::change,
        )
        .delete(
            "/api/credentials/{id}",
            Access::Account,
            credentials::remove,
        )
        .delete("/locks", Access::Account, legacy::discard)
}

/// A time as answers show it.
fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
