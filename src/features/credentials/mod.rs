//! Credentials as people see them: secrets that owners store for their repositories, and replacing the keys that encrypt
//! them. The rules are in [`crate::claims`].
//!
//! | File | Content |
//! |---|---|
//! | `view.rs` | one credential as page, API and command line show it |
//! | `api.rs` | `/api/credentials` |
//! | `cli.rs` | `lockkeeper credentials` |

mod api;
mod cli;
mod view;

use std::sync::Arc;

pub(crate) use view::CredentialView;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::Account;
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::CredentialsArgs>("credentials")],
    reconcilers: &[],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/api/credentials", Account.and_limited(), api::list)
        .post("/api/credentials", Account.and_limited(), api::add)
        .get("/api/credentials/{id}", Account.and_limited(), api::show)
        .post("/api/credentials/{id}", Account.and_limited(), api::change)
        .delete("/api/credentials/{id}", Account.and_limited(), api::remove)
}
