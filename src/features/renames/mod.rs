//! Renamed and recreated repositories: finds them by the identifier that the forge gave them, and moves their data.
//!
//! | File | Content |
//! |---|---|
//! | `identity.rs` | which repository a name means now |
//! | `settle_repository.rs` | the job that finds the repository of a delivery |

mod identity;
mod settle_repository;

pub(crate) use identity::{follow_redirect, is_settled, settle, unsettled};
pub(crate) use settle_repository::SettleRepository;

use super::Feature;
use crate::kit::jobs::JobKind;
use crate::kit::web::Routes;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[],
    reconcilers: &[],
    jobs: &[JobKind::of::<SettleRepository, _>()],
};
