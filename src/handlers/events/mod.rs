//! What is done about events: a file each.

mod closed;
mod comment;
mod pull;

pub(super) use closed::close_pull;
pub(super) use pull::found;

use crate::context::Ctx;
use crate::model::{DeliveryId, Event, PullAction};
use crate::queue::JobError;
use crate::store::DeliveryState;

/// What became of a delivery.
pub struct DeliveryEnd {
    /// Handled, ignored or refused.
    pub state: DeliveryState,
    /// Why.
    pub note: Option<String>,
}

impl DeliveryEnd {
    fn handled() -> Self {
        Self { state: DeliveryState::Handled, note: None }
    }

    fn ignored(note: impl Into<String>) -> Self {
        Self { state: DeliveryState::Ignored, note: Some(note.into()) }
    }

    fn refused(note: impl Into<String>) -> Self {
        Self { state: DeliveryState::Refused, note: Some(note.into()) }
    }

    fn not_served() -> Self {
        Self::refused("403: the repository is not on the allow-list (--repo-allowlist)")
    }
}

/// Does what an event asks for.
pub async fn handle(ctx: &Ctx, delivery: DeliveryId, event: &Event) -> Result<DeliveryEnd, JobError> {
    match event {
        Event::Ignored { reason } => Ok(DeliveryEnd::ignored(reason.clone())),
        Event::Comment(event) => comment::handle(ctx, delivery, event).await,
        Event::Pull(event) if !ctx.settings.allowlist.allows(&event.pull.repo) => Ok(DeliveryEnd::not_served()),
        Event::Pull(event) => match event.action {
            PullAction::Closed => closed::handle(ctx, event).await,
            PullAction::Opened
            | PullAction::Reopened
            | PullAction::ReadyForReview
            | PullAction::Updated
            | PullAction::BaseChanged => pull::handle(ctx, delivery, event).await,
        },
    }
}
