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
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::SUBCOMMAND],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/api/credentials", Access::Account, api::list)
        .post("/api/credentials", Access::Account, api::add)
        .get("/api/credentials/{id}", Access::Account, api::show)
        .post("/api/credentials/{id}", Access::Account, api::change)
        .delete("/api/credentials/{id}", Access::Account, api::remove)
}
