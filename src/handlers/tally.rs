//! Counts what ended, for monitors.

use crate::context::Ctx;
use crate::locks::{TakeAll, Took};
use crate::model::{CommandKind, ProjectOutcome, RunId};
use crate::store::FinishedCommand;
use crate::telemetry::Metric;

/// A command ended.
pub(super) fn command(ctx: &Ctx, kind: CommandKind, end: &FinishedCommand) {
    ctx.metrics
        .count(Metric::Commands, &[kind.as_str(), end.outcome.as_str()]);
}

/// A run ended. How long it took is read from its row; if that cannot be read, nothing else is kept from its end.
pub(super) async fn run(ctx: &Ctx, id: RunId, outcome: ProjectOutcome) {
    let Ok(Some(run)) = ctx.store.run_get(id).await else {
        return;
    };
    ctx.metrics
        .count(Metric::Runs, &[run.kind.as_str(), outcome.as_str()]);
    let took = run
        .started_at
        .zip(run.finished_at)
        .and_then(|(start, end)| (end - start).to_std().ok());
    if let Some(took) = took {
        ctx.metrics
            .observe(Metric::RunDuration, &[run.kind.as_str()], took);
    }
}

/// Locks were asked for.
pub(super) fn locks(ctx: &Ctx, all: &TakeAll) {
    for took in all.took.values() {
        let outcome = match took {
            Took::Held(_) => "held",
            Took::InLine { .. } => "in_line",
            Took::Refused { .. } => "refused",
            Took::PullClosed => "closed",
        };
        ctx.metrics.count(Metric::LockTakes, &[outcome]);
    }
}
