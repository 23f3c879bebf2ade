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
use crate::kit::web::RouteAccess::{Account, Change, Facts};
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::MirrorsArgs>("repos")],
    reconcilers: &[syncing::RECONCILER],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/repos", Facts.and_limited(), page::list)
        .get("/repos/{*repo}", Facts.and_limited(), page::show)
        .post("/repos/{*repo}", Change.and_limited(), page::sync)
        .get("/api/repos", Facts.and_limited(), api::list)
        .get("/api/repos/{*asked}", Facts.and_limited(), api::show)
        .post("/api/repos/{*asked}", Account.and_limited(), api::sync)
}
