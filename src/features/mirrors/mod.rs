//! Mirrors as people see them: how each repository stands on every disk, and asking for a sync. How mirrors are kept in sync
//! is in [`crate::sync`].
//!
//! | File | What it does |
//! |---|---|
//! | `actions.rs` | finds mirrors that somebody may see, and asks for a sync for somebody who may |
//! | `view.rs` | one mirror as the API and the command line tell it to programs |
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
