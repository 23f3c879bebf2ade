//! Leases as people see them: work that only one server at a time may do, and releasing it manually. How leases are held
//! and renewed is in [`crate::leases`].
//!
//! | File | What it does |
//! |---|---|
//! | `actions.rs` | finds the leases that a user may see, and releases one if the user may |
//! | `view.rs` | one lease as JSON, for the API and the command line |
//! | `page.rs` | the table and the form on `/operations` |
//! | `api.rs` | `/api/leases` |
//! | `cli.rs` | `lockkeeper leases` |

mod actions;
mod api;
mod cli;
mod page;
mod view;

use std::sync::Arc;

pub(crate) use page::{LeaseLine, notice};
pub(crate) use view::view;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::Account;
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::LeasesArgs>("leases")],
    reconcilers: &[],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .post("/operations/leases/release", Account, page::end)
        .get("/api/leases", Account.and_limited(), api::list)
        // The name of a repository in the key has slashes.
        .delete("/api/leases/{*key}", Account.and_limited(), api::end)
}
