//! Apply locks stop applies: everywhere, in one repository, or in one directory of it and everything below it. A running
//! apply continues to its end, and plans are not affected.
//!
//! The nouns are [`ApplyLock`](crate::model::ApplyLock) and [`ApplyScope`](crate::model::ApplyScope), because the audit log
//! and permissions speak of scopes too. Everything else is here:
//!
//! | File | What it does |
//! |---|---|
//! | `input.rs`| reads a request from a page, the API or the command line |
//! | `store.rs` | stores apply locks, and checks in the transaction of an apply if one is in conflict with it |
//! | `actions.rs` | sets and ends apply locks, if the user may |
//! | `view.rs` | one apply lock as page, API and command line show it |
//! | `page.rs`, `switch.rs` | `/apply-locks`, and the switch of the dashboard |
//! | `api.rs` | `/api/apply-locks`, and the routes that scripts of Atlantis call |
//! | `cli.rs` | `lockkeeper apply-lock` |
//! | `comment.rs` | the comment on a pull request whose applies are stopped |
//! | `expiry.rs` | removes expired apply locks |

mod actions;
mod api;
mod cli;
mod comment;
mod expiry;
mod input;
mod page;
mod store;
mod switch;
mod view;

use std::sync::Arc;

pub(crate) use actions::seen;
pub(crate) use comment::{apply_locks_line, apply_refusal};
pub use store::SetApplyLock;
pub(crate) use switch::{notice, of_dashboard};
pub(crate) use view::ApplyLockEntry;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::{Account, Change, Facts};
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::ApplyLockArgs>("apply-lock")],
    reconcilers: &[expiry::RECONCILER],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/apply-locks", Facts.and_limited(), page::show)
        .post("/apply-locks", Change.and_limited(), page::set)
        .post("/apply-locks/{id}/end", Change.and_limited(), page::end)
        .post("/apply-lock/stop", Change, switch::stop)
        .post("/apply-lock/allow", Change, switch::allow)
        .get("/api/apply-locks", Facts.and_limited(), api::list)
        .post("/api/apply-locks", Account.and_limited(), api::set)
        .delete("/api/apply-locks/{id}", Account.and_limited(), api::end)
        .post("/apply/lock", Account, api::stop_applies)
        .delete("/apply/unlock", Account, api::allow_applies)
}
