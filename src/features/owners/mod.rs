//! Owners and their claims: who is responsible for which repository. The rules are in [`crate::claims`].
//!
//! | File | Content |
//! |---|---|
//! | `view.rs` | one owner and one claim as page, API and command line show them |
//! | `page.rs`, `forms.rs` | `/owners` and `/claims` |
//! | `api.rs` | `/api/owners` |
//! | `claims_api.rs` | `/api/claims` |
//! | `cli.rs` | `lockkeeper owners` and `lockkeeper claims` |
//! | `errors.rs` | the answer to a request for a name that is taken |
//! | `claimed.rs` | does the server work for a repository (`--require-claims`) |
//! | `unused_claims.rs` | removes claims that nothing refers to |

mod api;
mod claimed;
mod claims_api;
mod cli;
mod errors;
mod forms;
mod page;
mod unused_claims;
mod view;

use std::sync::Arc;

pub(crate) use api::{cause, owner_name};
pub(crate) use claimed::{
    Service, UNCLAIMED, UnclaimedNotice, claim_address, is_claimed, notify_unclaimed, service,
    unclaimed_refusal,
};
pub(crate) use claims_api::repo_url;
pub(crate) use cli::{AdminFlags, AdminSession, LIST_PART, OwnerFlag, cli_cause, may_go_on};

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::Account;
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[
        Subcommand::of::<cli::OwnersArgs>("owners"),
        Subcommand::of::<cli::ClaimsArgs>("claims"),
    ],
    reconcilers: &[unused_claims::RECONCILER],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/owners", Account.and_limited(), page::list)
        .post("/owners", Account.and_limited(), forms::add)
        .get("/owners/{name}", Account.and_limited(), page::show)
        .post("/owners/{name}/remove", Account, forms::remove)
        .post("/owners/{name}/apps", Account.and_limited(), forms::add_app)
        .post(
            "/owners/{name}/{things}/{id}/remove",
            Account.and_limited(),
            forms::remove_thing,
        )
        .get("/claims", Account.and_limited(), page::claims)
        .get("/api/owners", Account.and_limited(), api::list)
        .post("/api/owners", Account.and_limited(), api::add)
        .delete("/api/owners/{name}", Account, api::remove)
        .get("/api/claims", Account.and_limited(), claims_api::list)
}
