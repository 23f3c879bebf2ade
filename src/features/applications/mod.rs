//! Applications: repositories that their owners plan and apply without a pull request. Registering one claims its
//! repository; the rules are in [`crate::claims`].
//!
//! | File | Content |
//! |---|---|
//! | `actions.rs` | registers, changes, plans and applies, if the user may |
//! | `requests.rs` | commands of applications, and the state of a branch in place of a pull request |
//! | `view.rs` | one application as page, API and command line show it, with its plan, its locks and its commands |
//! | `page.rs` | `/apps/{id}` |
//! | `api.rs` | `/api/apps` |
//! | `cli.rs` | `lockkeeper apps` |

mod actions;
mod api;
mod cli;
mod page;
mod requests;
mod view;

use std::sync::Arc;

pub(crate) use actions::{invalid_application, register, unclaimed};
pub(crate) use api::removed_or_why;
pub use requests::{
    ApplicationAction, apply_running, busy, default_branch, over, queued_or_reason, request_run,
    request_stop,
};
pub(crate) use requests::{UnknownState, pull_now, registered};
pub(crate) use view::ApplicationView;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::Account;
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::ApplicationsArgs>("apps")],
    reconcilers: &[],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/apps/{id}", Account.and_limited(), page::show)
        .post("/apps/{id}/cancel", Account.and_limited(), page::stop)
        .post("/apps/{id}/{action}", Account.and_limited(), page::act)
        .get("/api/apps", Account.and_limited(), api::list)
        .post("/api/apps", Account.and_limited(), api::add)
        .get("/api/apps/{id}", Account.and_limited(), api::show)
        .post("/api/apps/{id}", Account.and_limited(), api::change)
        .delete("/api/apps/{id}", Account.and_limited(), api::remove)
        .post("/api/apps/{id}/cancel", Account.and_limited(), api::stop)
        .post("/api/apps/{id}/{action}", Account.and_limited(), api::act)
}
