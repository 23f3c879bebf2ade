//! Comments, reactions, statuses and annotations of pull requests. Handlers return a [`Reply`], and this feature
//! turns it into jobs that post it. The texts are made by [`crate::render`] (`crates/rules/src/render/`,
//! `templates/comments/`).
//!
//! | File | Content |
//! |---|---|
//! | `reply.rs` | the result of a command, and its comments |
//! | `statuses.rs` | statuses of a command and its projects |
//! | `queued.rs` | statuses of plans that wait for a lock |
//! | `jobs/` | the jobs that talk to the forge |
//! | `pending.rs` | ends statuses that were left pending |

mod jobs;
mod pending;
mod queued;
mod reply;
mod statuses;

pub(crate) use jobs::posted_at;
pub use jobs::{
    AddReaction, AnnotateFindings, PostComment, RemoveDuplicates, RepeatStatus, SetStatus,
};
pub(crate) use queued::{
    left_queue_statuses, queue_place, set_left_queue_statuses, set_queued_statuses,
};
pub(crate) use reply::{
    CommandEnd, Reply, comment_jobs, last_status_job, notice, posts, status_job,
};
pub(crate) use statuses::{
    NewestRuns, ProjectStatuses, broken_status, discarded_statuses, pending_status,
    policies_status, project_status, status_kind, superseded_status, unasked_status,
};

use super::Feature;
use crate::kit::jobs::JobKind;
use crate::kit::web::Routes;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[],
    reconcilers: &[pending::RECONCILER],
    jobs: &[
        JobKind::of::<PostComment, _>(),
        JobKind::of::<RemoveDuplicates, _>(),
        JobKind::of::<SetStatus, _>(),
        JobKind::of::<RepeatStatus, _>(),
        JobKind::of::<AddReaction, _>(),
        JobKind::of::<AnnotateFindings, _>(),
    ],
};
