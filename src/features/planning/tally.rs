//! Counts finished work in the metrics.

use crate::context::Ctx;
use crate::locks::{TakeAll, TakeOutcome};
use crate::model::{CommandKind, ProjectOutcome, RunId};
use crate::store::FinishedCommand;
use crate::telemetry::Metric;

/// Counts a command that ended.
pub(crate) fn command(ctx: &Ctx, kind: CommandKind, end: &FinishedCommand) {
    ctx.metrics
        .count(Metric::Commands, &[kind.as_str(), end.outcome.as_str()]);
}

/// Counts a run that ended. Its duration is read from its row. If the row cannot be read, the run simply is not
/// counted, so that its end is not disturbed.
pub(crate) async fn run(ctx: &Ctx, id: RunId, outcome: ProjectOutcome) {
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

/// Counts the results of requests for locks.
pub(crate) fn locks(ctx: &Ctx, all: &TakeAll) {
    for took in all.took.values() {
        let outcome = match took {
            TakeOutcome::Held(_) => "held",
            TakeOutcome::Queued { .. } => "in_line",
            TakeOutcome::Refused { .. } => "refused",
            TakeOutcome::PullClosed => "closed",
        };
        ctx.metrics.count(Metric::LockTakes, &[outcome]);
    }
}
