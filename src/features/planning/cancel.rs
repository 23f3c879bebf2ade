//! Runs `cancel`: queued commands will not run, running ones are interrupted. An apply, an import or a `state rm` is
//! interrupted only with `--force`.
//!
//! It asks the forge for nothing but permissions. It has a lane of its own, so that it never waits for the commands
//! that it has to stop. One transaction ends the commands, posts their replies, and posts its own reply.

use anyhow::Context;
use tracing::info;

use super::{CommandSpec, permission, tally};
use crate::command::Command;
use crate::context::Ctx;
use crate::features::replies::Reply;
use crate::model::{Actor, CommandId, CommandKind, Origin, code_span};
use crate::queue::JobError;
use crate::render::{Body, CancelEffect, CancelLine, UserText};
use crate::store::{
    CancelTarget, Cancelled, CommandRow, CommandState, FinishedCommand, StopRequest,
};

/// Carries out a `cancel` that somebody commented.
pub(super) async fn run(ctx: &Ctx, row: &CommandRow) -> Result<(), JobError> {
    let spec = CommandSpec::from_json(&row.spec)
        .context("the stored command cannot be read")
        .map_err(JobError::Fail)?;
    let CommandSpec::Command(Command::Cancel(command)) = &spec else {
        return Err(JobError::Fail(anyhow::anyhow!(
            "the stored command does not match its row"
        )));
    };
    if let Some(refusal) = permission::check_unseen(ctx, row, &spec).await? {
        let end = refusal.into_end(ctx, row);
        if ctx.store.command_finish(&end).await? {
            tally::command(ctx, row.kind, &end);
        }
        return Ok(());
    }
    let ends = |cancelled: &Cancelled| {
        let mut ends = dropped(ctx, cancelled, &row.actor);
        ends.push(Reply::new(Body::Cancelled(lines(cancelled))).into_end(ctx, row));
        ends
    };
    cancel(
        ctx,
        CancelTarget::OfPull(&row.pull),
        &row.actor,
        command.force,
        ends,
    )
    .await?;
    Ok(())
}

/// Cancels one command for a person at the dashboard or a script. The reply of the command itself appears on the pull
/// request.
pub async fn one(
    ctx: &Ctx,
    id: CommandId,
    who: &Actor,
    force: bool,
) -> Result<Cancelled, sqlx::Error> {
    cancel(ctx, CancelTarget::One(id), who, force, |cancelled| {
        dropped(ctx, cancelled, who)
    })
    .await
}

async fn cancel(
    ctx: &Ctx,
    target: CancelTarget<'_>,
    who: &Actor,
    force: bool,
    ends: impl FnOnce(&Cancelled) -> Vec<FinishedCommand>,
) -> Result<Cancelled, sqlx::Error> {
    let mut ended = Vec::new();
    let ends = |cancelled: &Cancelled| {
        ended = ends(cancelled);
        ended.clone()
    };
    let cancelled = ctx
        .store
        .command_cancel(target, &why(who), force, ends)
        .await?;
    for end in &ended {
        let dropped = cancelled.dropped.iter().find(|row| row.id == end.id);
        tally::command(
            ctx,
            dropped.map_or(CommandKind::Cancel, |row| row.kind),
            end,
        );
    }
    let running: Vec<_> = cancelled.interrupted.iter().map(|row| row.id).collect();
    ctx.stops.stop(&running);
    ctx.wake_up.send();
    let (dropped, spared) = (cancelled.dropped.len(), cancelled.spared.len());
    info!(
        who = who.login,
        dropped,
        interrupted = running.len(),
        spared,
        force,
        "Commands were cancelled"
    );
    Ok(cancelled)
}

/// Says who cancelled a command, as a clause.
pub(crate) fn why(who: &Actor) -> String {
    let login = code_span(&who.login);
    match who.origin {
        Origin::Page | Origin::Api | Origin::Git | Origin::Cli => {
            format!("{login} cancelled it {}", who.origin.way())
        }
        Origin::Comment | Origin::Pull | Origin::Reconciler | Origin::Queue => {
            format!("{login} cancelled it")
        }
    }
}

/// Builds the ends of commands that were queued. The author of a comment gets a reply. Nobody waits for a plan that a
/// push led to, unless it replaced a plan that a comment requested.
fn dropped(ctx: &Ctx, cancelled: &Cancelled, who: &Actor) -> Vec<FinishedCommand> {
    let end = |row: &CommandRow| {
        let reply = match row.kind {
            CommandKind::Autoplan if !cancelled.awaited.contains(&row.id) => {
                Reply::given_over(REASON)
            }
            CommandKind::Autoplan
            | CommandKind::Plan
            | CommandKind::Apply
            | CommandKind::Unlock
            | CommandKind::Cancel
            | CommandKind::Explain
            | CommandKind::Version
            | CommandKind::Import
            | CommandKind::StateRm
            | CommandKind::ApprovePolicies
            | CommandKind::Help => told(format!(
                "{} before its turn came. Nothing was run.",
                why(who)
            )),
        };
        reply.into_end(ctx, row)
    };
    cancelled.dropped.iter().map(end).collect()
}

const REASON: &str = "cancelled";

fn told(message: String) -> Reply {
    Reply::new(Body::Dropped(UserText::new(message, [])))
}

/// Builds the reply of a command that was cancelled between two attempts, or before the first.
pub(super) fn before(row: &CommandRow, stop: &StopRequest) -> Reply {
    told(match row.state {
        CommandState::Queued => format!("{} before its turn came. Nothing was run.", stop.why),
        CommandState::Running | CommandState::Finished => {
            format!("{} before it was started again.", stop.why)
        }
    })
}

fn lines(cancelled: &Cancelled) -> Vec<CancelLine> {
    let line = |fate: CancelEffect| {
        move |row: &CommandRow| CancelLine {
            what: what(row),
            who: row.actor.login.clone(),
            fate,
        }
    };
    let dropped = cancelled.dropped.iter().map(line(CancelEffect::Dropped));
    let interrupted = cancelled
        .interrupted
        .iter()
        .map(line(CancelEffect::Interrupted));
    let spared = cancelled.spared.iter().map(line(CancelEffect::Spared));
    interrupted.chain(dropped).chain(spared).collect()
}

/// Returns the command as it was typed; `None` for a plan that a push led to.
fn what(row: &CommandRow) -> Option<String> {
    match CommandSpec::from_json(&row.spec) {
        Ok(CommandSpec::Command(command)) => Some(command.to_string()),
        Ok(CommandSpec::Autoplan) => None,
        // The named person requested a plan and was queued for it.
        Ok(CommandSpec::Turn(_)) => Some(CommandKind::Plan.to_string()),
        Ok(CommandSpec::Mistake(_) | CommandSpec::NotServed | CommandSpec::Unclaimed) | Err(_) => {
            Some(row.kind.to_string())
        }
    }
}
