//! Leases as people see them: exclusive work, and taking it away from a holder by hand. How leases are held and renewed is in
//! [`crate::leases`].
//!
//! | File | What it does |
//! |---|---|
//! | `actions.rs` | finds leases that somebody may see, and takes one away for somebody who may |
//! | `view.rs` | one lease as the API and the command line tell it to programs |
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
use crate::kit::web::{Access, Routes, Web};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[cli::SUBCOMMAND],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .post("/operations/leases/release", Access::Account, page::end)
        .get("/api/leases", Access::Account, api::list)
        // The name of a repository in the key has slashes.
        .delete("/api/leases/{*key}", Access::Account, api::end)
}
