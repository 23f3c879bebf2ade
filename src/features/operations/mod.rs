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

mod health;
mod metrics;
mod overview;
mod page;
mod repairs;
mod view;

use std::sync::Arc;

pub(crate) use health::health_routes;

use super::Feature;
use crate::kit::web::RouteAccess::{Account, Facts};
use crate::kit::web::{Routes, WebState};

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[],
    reconcilers: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/operations", Account, page::show)
        .get("/api/operations", Account, overview::answer)
        .get("/metrics", Facts, metrics::show)
}
