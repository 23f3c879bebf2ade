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
use crate::kit::term::Subcommand;
use crate::kit::web::{RouteAccess, Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::ApplicationsArgs>("apps")],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/apps/{id}", RouteAccess::Account, page::show)
        .post("/apps/{id}/cancel", RouteAccess::Account, page::stop)
        .post("/apps/{id}/{deed}", RouteAccess::Account, page::act)
        .get("/api/apps", RouteAccess::Account, api::list)
        .post("/api/apps", RouteAccess::Account, api::add)
        .get("/api/apps/{id}", RouteAccess::Account, api::show)
        .post("/api/apps/{id}", RouteAccess::Account, api::change)
        .delete("/api/apps/{id}", RouteAccess::Account, api::remove)
        .post("/api/apps/{id}/cancel", RouteAccess::Account, api::stop)
        .post("/api/apps/{id}/{deed}", RouteAccess::Account, api::act)
}
