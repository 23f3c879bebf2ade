//! A pull was opened or changed: its projects are planned. That plan takes the place of every older one that waits or
//! runs, because nobody may apply those any more; an apply is left alone.

use super::DeliveryEnd;
use crate::context::Ctx;
use crate::handlers::Spec;
use crate::jobs::RunCommand;
use crate::model::{Actor, CommandKind, DeliveryId, PullAction, PullEvent};
use crate::queue::{Job, JobError};
use crate::store::{CreateCommand, NewCommand};

pub(super) async fn handle(ctx: &Ctx, delivery: DeliveryId, event: &PullEvent) -> Result<DeliveryEnd, JobError> {
    if !ctx.settings.autoplan {
        return Ok(DeliveryEnd::ignored("planning by itself is switched off (--disable-autoplan)"));
    }
    if event.draft && !ctx.settings.allow_drafts {
        return Ok(DeliveryEnd::ignored("the pull request is a draft (--allow-draft-prs is not set)"));
    }
    let new = NewCommand {
        kind: CommandKind::Autoplan,
        pull: event.pull.clone(),
        comment: None,
        delivery: Some(delivery),
        actor: Actor::of_pull(&event.sender),
        installation: event.installation,
        spec: Spec::Autoplan.to_json(),
    };
    let job = |command| vec![RunCommand { command, pull: event.pull.clone(), kind: new.kind }.to_new()];
    let (outcome, replaced) = ctx.store.command_create_instead(&new, job, what_came(event.action)).await?;
    ctx.stops.stop(&replaced);
    match outcome {
        CreateCommand::Created(_) | CreateCommand::Known => Ok(DeliveryEnd::handled()),
    }
}

/// Why older plans are of no use any more, a clause.
fn what_came(action: PullAction) -> &'static str {
    match action {
        PullAction::Opened | PullAction::Updated => "a newer commit came",
        PullAction::Reopened | PullAction::Closed => "the pull request was opened again",
        PullAction::ReadyForReview => "the pull request was marked as ready for review",
        PullAction::BaseChanged => "the base branch was changed",
    }
}
