//! Applications: repositories that their owners plan and apply without a pull request. Registering one claims its
//! repository; the rules are in [`crate::claims`], and its commands are in [`crate::handlers::applications`].
//!
//! | File | Content |
//! |---|---|
//! | `actions.rs` | registers, changes, plans and applies, if the user may |
//! | `page.rs` | `/apps/{id}` |
//! | `api.rs` | `/api/apps` |
//! | `cli.rs` | `lockkeeper apps` |

mod actions;
mod api;
mod cli;
mod page;

use std::sync::Arc;

pub(crate) use actions::{register, unclaimed};
pub(crate) use api::removed_or_why;

use super::Feature;
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::SUBCOMMAND],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/apps/{id}", Access::Account, page::show)
        .post("/apps/{id}/cancel", Access::Account, page::stop)
        .post("/apps/{id}/{deed}", Access::Account, page::act)
        .get("/api/apps", Access::Account, api::list)
        .post("/api/apps", Access::Account, api::add)
        .get("/api/apps/{id}", Access::Account, api::show)
        .post("/api/apps/{id}", Access::Account, api::change)
        .delete("/api/apps/{id}", Access::Account, api::remove)
        .post("/api/apps/{id}/cancel", Access::Account, api::stop)
        .post("/api/apps/{id}/{deed}", Access::Account, api::act)
}
