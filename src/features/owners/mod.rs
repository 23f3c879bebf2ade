//! Owners and their claims: who is responsible for which repository. The rules are in [`crate::claims`].
//!
//! | File | Content |
//! |---|---|
//! | `page.rs`, `forms.rs` | `/owners` and `/claims` |
//! | `api.rs` | `/api/owners` |
//! | `claims_api.rs` | `/api/claims` |
//! | `cli.rs` | `lockkeeper owners` and `lockkeeper claims` |
//! | `unused_claims.rs` | removes claims that nothing refers to |

mod api;
mod claims_api;
pub(crate) mod cli;
mod forms;
mod page;
mod unused_claims;

use std::sync::Arc;

pub(crate) use api::{cause, owner_name};
pub(crate) use claims_api::repo_url;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::{RouteAccess, Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[
        Subcommand::of::<cli::OwnersArgs>("owners"),
        Subcommand::of::<cli::ClaimsArgs>("claims"),
    ],
    reconcilers: &[unused_claims::RECONCILER],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/owners", RouteAccess::Account, page::list)
        .post("/owners", RouteAccess::Account, forms::add)
        .get("/owners/{name}", RouteAccess::Account, page::show)
        .post("/owners/{name}/remove", RouteAccess::Account, forms::remove)
        .post("/owners/{name}/apps", RouteAccess::Account, forms::add_app)
        .post(
            "/owners/{name}/{things}/{id}/remove",
            RouteAccess::Account,
            forms::remove_thing,
        )
        .get("/claims", RouteAccess::Account, page::claims)
        .get("/api/owners", RouteAccess::Account, api::list)
        .post("/api/owners", RouteAccess::Account, api::add)
        .delete("/api/owners/{name}", RouteAccess::Account, api::remove)
        .get("/api/claims", RouteAccess::Account, claims_api::list)
}
