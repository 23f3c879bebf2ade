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
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::OWNERS, cli::CLAIMS],
    reconcilers: &[unused_claims::RECONCILER],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/owners", Access::Account, page::list)
        .post("/owners", Access::Account, forms::add)
        .get("/owners/{name}", Access::Account, page::show)
        .post("/owners/{name}/remove", Access::Account, forms::remove)
        .post("/owners/{name}/apps", Access::Account, forms::add_app)
        .post(
            "/owners/{name}/{things}/{id}/remove",
            Access::Account,
            forms::remove_thing,
        )
        .get("/claims", Access::Account, page::claims)
        .get("/api/owners", Access::Account, api::list)
        .post("/api/owners", Access::Account, api::add)
        .delete("/api/owners/{name}", Access::Account, api::remove)
        .get("/api/claims", Access::Account, claims_api::list)
}
