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
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::SUBCOMMAND],
    reconcilers: &[syncing::RECONCILER],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/repos", Access::Facts, page::list)
        .get("/repos/{*repo}", Access::Facts, page::show)
        .post("/repos/{*repo}", Access::Change, page::sync)
        .get("/api/repos", Access::Facts, api::list)
        .get("/api/repos/{*asked}", Access::Facts, api::show)
        .post("/api/repos/{*asked}", Access::Account, api::sync)
}
