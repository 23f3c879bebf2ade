//! Credentials as people see them: secrets that owners store for their repositories, and replacing the keys that encrypt
//! them. The rules are in [`crate::claims`].
//!
//! | File | Content |
//! |---|---|
//! | `api.rs` | `/api/credentials` |
//! | `cli.rs` | `lockkeeper credentials` |

mod api;
mod cli;

use std::sync::Arc;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::{RouteAccess, Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::CredentialsArgs>("credentials")],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/api/credentials", RouteAccess::Account, api::list)
        .post("/api/credentials", RouteAccess::Account, api::add)
        .get("/api/credentials/{id}", RouteAccess::Account, api::show)
        .post("/api/credentials/{id}", RouteAccess::Account, api::change)
        .delete("/api/credentials/{id}", RouteAccess::Account, api::remove)
}
