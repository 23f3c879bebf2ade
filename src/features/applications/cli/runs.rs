//! `lockkeeper apps (show | plan | apply | cancel | discard)`: runs of registered projects. These commands only queue a
//! run or ask it to stop; a running server does the rest.

use anyhow::Context as _;
use serde_json::json;

use super::{ApplicationArg, as_text};
use crate::features::applications::view::{
    ApplicationDetails, ApplicationDetailsView, DiscardedView,
};
use crate::features::applications::{self, ApplicationAction, busy, queued_or_reason};
use crate::features::locks::KeptLockReason;
use crate::features::owners::{AdminSession, cli_cause};
use crate::kit::term::{ExitResult, ExitStatus, Terminal, safe, time};
use crate::model::{ApplicationId, Cause};
use crate::store::DiscardOutcome;

/// Queues a run of the application.
pub(super) async fn request_run(
    session: &AdminSession,
    action: ApplicationAction,
    app: &ApplicationArg,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let id = app.id;
    let asked = applications::request_run(&session.store, id, action, &cli_cause().actor).await;
    match queued_or_reason(asked.context("the run could not be queued")?) {
        Ok(command) => {
            let json = || json!({ "id": command });
            let text = || {
                format!(
                    "The run is queued as {command}. `lockkeeper apps show {id}` shows its result."
                )
            };
            app.format.print(terminal, json, text)?;
            Ok(ExitStatus::Success)
        }
        Err(why) => Ok(refused(id, why.as_ref(), terminal)),
    }
}

/// Asks the current run to stop.
pub(super) async fn cancel(
    session: &AdminSession,
    app: &ApplicationArg,
    force: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let id = app.id;
    let asked = applications::request_stop(&session.store, id, &cli_cause().actor, force).await;
    match asked.context("the run could not be cancelled")? {
        Ok(command) => {
            let json = || json!({ "id": command.id });
            let text = || {
                safe(&format!(
                    "{} {} by {} was asked to stop. A running server ends it. `lockkeeper apps show {id}` shows its result.",
                    command.kind,
                    command.id,
                    command.asker()
                ))
            };
            app.format.print(terminal, json, text)?;
            Ok(ExitStatus::Success)
        }
        Err(why) => Ok(refused(id, why.as_ref(), terminal)),
    }
}

/// Discards the plan and releases the lock.
pub(super) async fn discard(
    session: &AdminSession,
    app: &ApplicationArg,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (id, by) = (app.id, cli_cause());
    let cause = Cause::new(by.actor, "the plan of the application is discarded");
    let discarded = session.store.application_discard(id, &cause).await;
    match discarded.context("the plan could not be discarded")? {
        DiscardOutcome::Done(locks) => {
            let keys: Vec<String> = locks.iter().map(|lock| lock.key.to_string()).collect();
            let released = if keys.is_empty() {
                "none".to_owned()
            } else {
                keys.join(", ")
            };
            let text = || {
                safe(&format!(
                    "The application has no plan to apply now. Released locks: {released}."
                ))
            };
            let json = || json!(DiscardedView::new(&locks));
            app.format.print(terminal, json, text)?;
            Ok(ExitStatus::Success)
        }
        DiscardOutcome::NotFound => Ok(refused(id, None, terminal)),
        DiscardOutcome::Busy(app, command) => {
            Ok(refused(id, Some(&busy(&app, &command)), terminal))
        }
    }
}

fn refused(
    id: ApplicationId,
    why: Option<&KeptLockReason>,
    terminal: &mut Terminal<'_>,
) -> ExitStatus {
    let why = why.map_or_else(
        || {
            format!(
                "There is no application {id}. `lockkeeper apps list` lists all applications with their ids."
            )
        },
        |why| format!("{} {}", why.message, why.way_out),
    );
    terminal.note(safe(&format!("error: nothing was changed. {why}")));
    ExitStatus::Failure
}

/// Shows an application with its runs.
pub(super) async fn show(
    session: &AdminSession,
    app: &ApplicationArg,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (id, format) = (app.id, app.format);
    let app = session
        .store
        .application_get(id)
        .await
        .context("the application could not be read")?;
    let Some(app) = app else {
        return Ok(refused(id, None, terminal));
    };
    let details = ApplicationDetails::read(&session.store, app)
        .await
        .context("its runs could not be read")?;
    if format.is_json() {
        terminal.line(json!(ApplicationDetailsView::from(&details)))?;
        return Ok(ExitStatus::Success);
    }
    terminal.line(as_text(&details.app))?;
    for line in lines(&details) {
        terminal.line(safe(&line))?;
    }
    let last = details.commands.first();
    if let Some(result) = last.and_then(|last| last.result.as_ref()) {
        for line in result.lines() {
            terminal.line(safe(&format!("    {line}")))?;
        }
    }
    Ok(ExitStatus::Success)
}

fn lines(details: &ApplicationDetails) -> Vec<String> {
    let plan = details.plan.as_ref().map_or_else(
        || "  no plan yet".to_owned(),
        |plan| {
            format!(
                "  plan {} at {}: {} {}",
                plan.state,
                plan.head.short(),
                plan.counts,
                time(plan.created_at)
            )
        },
    );
    let locks = details.locks.iter().map(|lock| {
        format!(
            "  holds the lock of {} since {}",
            lock.key,
            time(lock.taken_at)
        )
    });
    let commands = details.commands.iter().map(|details| &details.command);
    let commands = commands.map(|command| {
        let state = || match &command.stop {
            Some(stop) => format!("{}, stopping: {}", command.state, stop.why.replace('`', "")),
            None => command.state.to_string(),
        };
        let outcome = command
            .outcome
            .map_or_else(state, |outcome| outcome.to_string());
        format!(
            "  {} {} by {} at {}: {outcome}",
            command.id,
            command.kind,
            command.asker(),
            time(command.created_at)
        )
    });
    std::iter::once(plan).chain(locks).chain(commands).collect()
}
