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
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::SUBCOMMAND],
    reconcilers: &[expiry::RECONCILER],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/", Access::Facts, dashboard::show)
        .get("/index.html", Access::Facts, dashboard::show)
        .get("/locks", Access::Facts, dashboard::show)
        // The classic name of a lock has slashes, and some proxies decode them.
        .get("/locks/{*id}", Access::Facts, page::show)
        .post("/locks/{*id}", Access::Change, page::change)
        .get("/lock", Access::Facts, page::by_query)
        .get("/api/locks", Access::Facts, atlantis::list)
        .get("/api/locks/{*asked}", Access::Facts, api::show)
        .post("/api/locks/{*asked}", Access::Account, api::change)
        .delete("/locks", Access::Account, atlantis::discard)
}
