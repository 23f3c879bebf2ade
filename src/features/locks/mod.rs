//! Locks as people see them: the dashboard, the page of a lock, releasing one and handing it over, and time limits. Locks
//! are taken, queued for and released by the rules of [`crate::locks`].
//!
//! | File | Content |
//! |---|---|
//! | `actions.rs` | finds the requested lock, and releases it or hands it over if the user may |
//! | `view.rs` | everything about one lock, as API and command line show it |
//! | `dashboard.rs` | `/` and `/locks` |
//! | `page.rs` | `/locks/{id}` |
//! | `api.rs` | `/api/locks/{id}` |
//! | `atlantis.rs` | `/api/locks` and `DELETE /locks`, which scripts of Atlantis call |
//! | `cli.rs` | `lockkeeper locks` |
//! | `expiry.rs` | warns about unused locks, and releases them when they expire |

mod actions;
mod api;
mod atlantis;
mod cli;
mod dashboard;
mod expiry;
mod page;
mod view;

use std::sync::Arc;

pub(crate) use view::LockJson;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::{RouteAccess, Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::LocksArgs>("locks")],
    reconcilers: &[expiry::RECONCILER],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/", RouteAccess::Facts, dashboard::show)
        .get("/index.html", RouteAccess::Facts, dashboard::show)
        .get("/locks", RouteAccess::Facts, dashboard::show)
        // The classic name of a lock has slashes, and some proxies decode them.
        .get("/locks/{*id}", RouteAccess::Facts, page::show)
        .post("/locks/{*id}", RouteAccess::Change, page::change)
        .get("/lock", RouteAccess::Facts, page::by_query)
        .get("/api/locks", RouteAccess::Facts, atlantis::list)
        .get("/api/locks/{*asked}", RouteAccess::Facts, api::show)
        .post("/api/locks/{*asked}", RouteAccess::Account, api::change)
        .delete("/locks", RouteAccess::Account, atlantis::discard)
}
