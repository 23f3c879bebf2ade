//! Begins or passes on the turn of a pull request that waited for locks.

use std::collections::BTreeSet;

use super::{CommandSpec, HandedLocks, RunCommand};
use crate::context::Ctx;
use crate::features::replies;
use crate::locks::{QueuedPlan, read_queued_plans};
use crate::model::{Actor, Cause, CommandKind, Lock, Origin, ProjectKey, PullRef};
use crate::queue::{Job, JobError};
use crate::store::{CommandRow, NewCommand};

/// Makes one plan of everything that the pull request was handed.
pub(crate) async fn begin_turn(ctx: &Ctx, pull: &PullRef) -> Result<(), JobError> {
    let job = |command| {
        RunCommand {
            command,
            pull: pull.clone(),
            kind: CommandKind::Autoplan,
        }
        .to_new()
    };
    let mut handed = Vec::new();
    let take = |turns: Vec<(Lock, String)>| {
        handed = turns.iter().map(|(lock, _)| lock.key.clone()).collect();
        command(pull, &turns)
    };
    ctx.store.command_create_for_turn(pull, take, job).await?;
    ctx.wake_up.send();
    // Pull requests behind it in the queue wait for this one now.
    for key in handed {
        replies::set_queued_statuses(ctx, &key).await?;
    }
    Ok(())
}

fn command(pull: &PullRef, turns: &[(Lock, String)]) -> Option<NewCommand> {
    let (first, _) = turns.first()?;
    let asks: Vec<QueuedPlan> = turns
        .iter()
        .filter_map(|(_, asks)| read_queued_plans(asks).ok())
        .flatten()
        .collect();
    let reasons: BTreeSet<String> = turns.iter().map(|(lock, _)| lock.reason.clone()).collect();
    let spec = CommandSpec::Turn(HandedLocks {
        asks,
        reasons: reasons.into_iter().collect(),
    });
    Some(NewCommand {
        kind: CommandKind::Autoplan,
        pull: pull.clone(),
        comment: None,
        delivery: None,
        actor: first.holder.actor(Origin::Queue),
        spec: spec.to_json(),
    })
}

/// Gives up the turn, because the plan cannot be made: the locks go to the next pull requests in their queues.
pub(crate) async fn give_up_turn(ctx: &Ctx, pull: &PullRef, error: &str) -> anyhow::Result<()> {
    let cause = Cause::new(
        Actor::lockkeeper(Origin::Queue),
        format!("its turn could not begin: {error}"),
    );
    let mut asks = Vec::new();
    let take = |turns: Vec<(Lock, String)>| {
        asks = turns
            .iter()
            .filter_map(|(_, asks)| read_queued_plans(asks).ok())
            .flatten()
            .collect();
        None
    };
    let job = |command| {
        RunCommand {
            command,
            pull: pull.clone(),
            kind: CommandKind::Autoplan,
        }
        .to_new()
    };
    ctx.store.command_create_for_turn(pull, take, job).await?;
    for ask in &asks {
        ctx.store.plan_drop(pull, &ask.project, &cause).await?;
    }
    let projects: Vec<ProjectKey> = asks.into_iter().map(|ask| ask.project).collect();
    Ok(replies::set_left_queue_statuses(ctx, pull, &projects).await?)
}

/// Lists the projects of a command whose locks were handed over to the pull request. That happened in this turn, or
/// in a turn that a push replaced.
pub(super) async fn projects_of(
    ctx: &Ctx,
    row: &CommandRow,
    spec: &CommandSpec,
) -> Result<Vec<ProjectKey>, JobError> {
    match spec {
        CommandSpec::Turn(turn) => Ok(turn.projects()),
        CommandSpec::Autoplan => {
            let specs = ctx.store.command_list_turns_of(row.id).await?;
            let turns = specs
                .iter()
                .filter_map(|spec| match CommandSpec::from_json(spec) {
                    Ok(CommandSpec::Turn(turn)) => Some(turn.projects()),
                    Ok(
                        CommandSpec::Autoplan
                        | CommandSpec::Command(_)
                        | CommandSpec::Mistake(_)
                        | CommandSpec::NotServed
                        | CommandSpec::Unclaimed,
                    )
                    | Err(_) => None,
                });
            Ok(turns.flatten().collect())
        }
        CommandSpec::Command(_)
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => Ok(Vec::new()),
    }
}

/// Passes on the turn: locks that were handed over without a plan go to the next pull requests in their queues.
pub(super) async fn pass_on(
    ctx: &Ctx,
    row: &CommandRow,
    projects: Vec<ProjectKey>,
) -> Result<(), JobError> {
    let cause = Cause::new(row.actor.clone(), "there is nothing left to plan");
    for project in &projects {
        ctx.store.plan_drop(&row.pull, project, &cause).await?;
    }
    Ok(replies::set_left_queue_statuses(ctx, &row.pull, &projects).await?)
}
