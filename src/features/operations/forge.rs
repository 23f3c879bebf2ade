//! Checks that every forge answers, accepts the credentials of the server, and grants the needed permissions. So a
//! wrong token is found when the server starts, and not by the first person who waits for a plan.

use std::time::Duration;

use anyhow::bail;

use crate::context::ServerCtx;
use crate::forges::ForgeFeatures;
use crate::kit::reconcile::{Reconciler, TickResult};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
        "forge",
        "Checks that the forge answers, accepts the credentials of the server, and grants the required permissions.",
        Duration::from_mins(5),
        |ctx| Box::pin(tick(ctx)),
    )
    .on_every_replica();

/// Returns true if teams own policy sets.
fn policies_have_teams(ctx: &ServerCtx) -> bool {
    let policies = ctx.settings.repo_rules.repos.policies();
    policies.sets.iter().any(|set| !set.owners.teams.is_empty())
}

/// Asks every forge. It has nothing to fix: each problem is the error of this tick.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let uses = ForgeFeatures {
        teams: !ctx.settings.permissions.teams.is_empty() || policies_have_teams(ctx),
        merging: ctx.settings.planning.automerge,
    };
    let (mut looked_at, mut problems) = (0, Vec::new());
    for forge in ctx.forges.all() {
        looked_at += 1;
        match forge.missing(uses).await {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => problems.push(format!(
                "the credentials of the server for {} lack {}. Commands that need it fail until it is granted \
                 (docs/install.md); each organization has to accept new permissions of a GitHub App",
                forge.host(),
                missing.join("; ")
            )),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if !problems.is_empty() {
        bail!(problems.join(". "));
    }
    Ok(TickResult {
        looked_at,
        repaired: 0,
    })
}
