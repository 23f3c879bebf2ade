//! Health of Lockkeeper itself, for administrators, load balancers and monitors.
//!
//! | File | Content |
//! |---|---|
//! | `overview.rs` | gathers the state of servers, queue, reconcilers, audit log and deliveries |
//! | `repairs.rs` | the state of each reconciler |
//! | `page.rs` | `/operations` |
//! | `view.rs` | `/api/operations` |
//! | `health.rs` | `/healthz`, `/readyz` and `/status` |
//! | `metrics.rs` | `/metrics` |
//! | `orphans.rs` | recovers the work of servers that died |
//! | `forge.rs` | checks that forges answer and grant the needed permissions |
//! | `panics.rs` | reports panics of this server |
//! | `disk/` | removes files that nothing uses |
//! | `retention.rs`, `old_commands.rs` | removes old rows, and commands with their runs and output |
//! | `store.rs` | counts and short lists |

mod disk;
mod forge;
mod health;
mod metrics;
mod old_commands;
mod orphans;
mod overview;
mod page;
mod panics;
mod repairs;
mod retention;
mod store;
mod view;

use std::sync::Arc;

pub(crate) use health::health_routes;
pub use store::{FailedJob, JobStage, LaneRow, QueueLine, StoredCounts};

use super::Feature;
use crate::kit::web::RouteAccess::{Account, Facts};
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[],
    reconcilers: &[
        orphans::RECONCILER,
        forge::RECONCILER,
        panics::RECONCILER,
        disk::RECONCILER,
        retention::RECONCILER,
    ],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/operations", Account, page::show)
        .get("/api/operations", Account, overview::answer)
        .get("/metrics", Facts, metrics::show)
}
