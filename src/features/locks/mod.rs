//! Locks as people see them: the dashboard, the page of a lock, releasing one and handing it over, and time limits. Locks
//! are taken, queued for and released by the rules of [`crate::locks`].
//!
//! | File | Content |
//! |---|---|
//! | `actions.rs` | finds the requested lock, and releases it or hands it over if the user may |
//! | `view.rs` | everything about one lock, as API and command line show it |
//! | `dashboard.rs` | `/` and `/locks` |
//! | `page.rs` | `/locks/{id}` |
//! | `api.rs` | `/api/locks/{id}` |
//! | `atlantis.rs` | `/api/locks` and `DELETE /locks`, which scripts of Atlantis call |
//! | `cli.rs` | `lockkeeper locks` |
//! | `errors.rs` | answers to requests for locks that are not there |
//! | `expiry.rs` | warns about unused locks, and releases them when they expire |

mod actions;
mod api;
mod atlantis;
mod cli;
mod dashboard;
mod errors;
mod expiry;
mod hand_over;
mod notify_loss;
mod on_server;
mod page;
mod view;

use std::sync::Arc;

pub use hand_over::{KeptLockReason, hand_over};
pub(crate) use hand_over::{action, code, explain};
pub use notify_loss::NotifyLockLoss;
pub use on_server::hand_over_on_server;
pub(crate) use on_server::loss;
pub(crate) use view::LockJson;

use super::Feature;
use crate::kit::jobs::JobKind;
use crate::kit::term::Subcommand;
use crate::kit::web::RouteAccess::{Account, Change, Facts};
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[Subcommand::of::<cli::LocksArgs>("locks")],
    reconcilers: &[expiry::RECONCILER],
    jobs: &[JobKind::of::<NotifyLockLoss, _>()],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/", Facts.and_limited(), dashboard::show)
        .get("/index.html", Facts.and_limited(), dashboard::show)
        .get("/locks", Facts.and_limited(), dashboard::show)
        // The classic name of a lock has slashes, and some proxies decode them.
        .get("/locks/{*id}", Facts.and_limited(), page::show)
        .post("/locks/{*id}", Change.and_limited(), page::change)
        .get("/lock", Facts.and_limited(), page::by_query)
        .get("/api/locks", Facts.and_limited(), atlantis::list)
        .get("/api/locks/{*asked}", Facts.and_limited(), api::show)
        .post("/api/locks/{*asked}", Account.and_limited(), api::change)
        .delete("/locks", Account.and_limited(), atlantis::discard)
}
