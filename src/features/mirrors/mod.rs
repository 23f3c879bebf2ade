//! Mirrors as people see them: the state of each repository on every disk, and requests for a sync. How mirrors are kept
//! in sync is in [`crate::sync`].
//!
//! | File | What it does |
//! |---|---|
//! | `actions.rs` | finds the mirrors that a user may see, and requests a sync if the user may |
//! | `view.rs` | one mirror as JSON, for the API and the command line |
//! | `page.rs` | `/repos` |
//! | `api.rs` | `/api/repos` |
//! | `cli.rs` | `lockkeeper repos` |
//! | `syncing.rs` | lets the workers of this server sync what is due |

mod actions;
mod api;
mod cli;
mod page;
mod syncing;
mod view;

use std::sync::Arc;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::{RouteAccess, Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::MirrorsArgs>("repos")],
    reconcilers: &[syncing::RECONCILER],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/repos", RouteAccess::Facts, page::list)
        .get("/repos/{*repo}", RouteAccess::Facts, page::show)
        .post("/repos/{*repo}", RouteAccess::Change, page::sync)
        .get("/api/repos", RouteAccess::Facts, api::list)
        .get("/api/repos/{*asked}", RouteAccess::Facts, api::show)
        .post("/api/repos/{*asked}", RouteAccess::Account, api::sync)
}
