//! Runs as people see them: what a run prints, live, and the commands that were requested lately.
//!
//! | File | Content |
//! |---|---|
//! | `page.rs` | `/jobs/{id}`: one run, cancelling its command, and its output as plain text |
//! | `api.rs` | `/api/runs/{id}/policies`: the same for programs |
//! | `policies.rs` | what policy sets found in the plan of a run |
//! | `stream.rs` | `/jobs/{id}/events`: the output of a run while it is printed |
//! | `ansi.rs` | the colours of terminals as HTML |
//! | `commands.rs` | the newest commands, with their runs, for other pages |
//! | `errors.rs` | answers to requests for runs that are not there or cannot be cancelled |

mod ansi;
mod api;
mod commands;
mod errors;
mod page;
mod policies;
mod stream;

use std::sync::Arc;

pub(crate) use commands::{CommandLine, RunLink, recent_commands, run_links};

use super::Feature;
use crate::kit::web::RouteAccess::{Account, Change, Facts};
use crate::kit::web::{Routes, WebState};
use crate::model::PlanState;

pub(super) const FEATURE: Feature = Feature {
    routes,
    subcommands: &[],
    reconcilers: &[],
    jobs: &[],
};

fn routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/jobs/{id}", Facts.and_limited(), page::show)
        .post("/jobs/{id}/cancel", Change.and_limited(), page::cancel)
        .get("/jobs/{id}/output.txt", Account.and_limited(), page::plain)
        .get("/jobs/{id}/events", Account.and_limited(), stream::events)
        .get(
            "/api/runs/{id}/policies",
            Account.and_limited(),
            api::policies,
        )
}

/// Returns the state of a plan in words.
pub(crate) const fn plan_words(state: PlanState) -> &'static str {
    match state {
        PlanState::Planned => "waiting to be applied",
        PlanState::NoChanges => "nothing to apply",
        PlanState::Applying => "being applied",
        PlanState::Applied => "applied",
        PlanState::ApplyFailed => "apply failed",
        PlanState::Discarded => "discarded",
    }
}
