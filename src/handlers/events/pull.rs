//! A pull was opened or changed: its projects are planned.

use super::DeliveryEnd;
use crate::context::Ctx;
use crate::handlers::Spec;
use crate::jobs::RunCommand;
use crate::model::{Actor, CommandKind, DeliveryId, PullEvent};
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
    let job = |command| RunCommand { command, pull: event.pull.clone() }.to_new();
    match ctx.store.command_create(&new, job).await? {
        CreateCommand::Created(_) | CreateCommand::Known => Ok(DeliveryEnd::handled()),
    }
}
