//! Events of forges: webhooks that arrive, and changes whose webhook never arrived.
//!
//! | File | Content |
//! |---|---|
//! | `accept.rs` | what is stored with a delivery |
//! | `jobs/` | the jobs: read a delivery, clean up after a closed pull request |
//! | `comment.rs`, `pull.rs`, `closed.rs` | what follows from each kind of event |
//! | `missed.rs`, `listing.rs` | lists open pull requests, and handles changes without an event |
//! | `watched.rs` | repositories whose open pull requests are listed, and the pages of these lists |
//! | `closed_pulls.rs`, `gone.rs` | releases the locks of pull requests that are closed or gone |

mod accept;
mod closed;
mod closed_pulls;
mod comment;
mod gone;
mod jobs;
mod listing;
mod missed;
mod pull;
mod watched;

pub use accept::{DeliveryReceipt, accept};
pub(crate) use closed::close_pull;
pub(crate) use pull::found;
pub use watched::{ForgePage, WatchedRepo};

pub(crate) use jobs::{CleanPull, ReadDelivery};

use super::Feature;
use crate::context::Ctx;
use crate::features::accounts;
use crate::features::owners::{self, Service, UnclaimedNotice};
use crate::kit::jobs::JobKind;
use crate::kit::web::Routes;
use crate::locks;
use crate::model::{Actor, Cause, DeliveryId, Event, PullAction, PullEvent, PullRef};
use crate::queue::JobError;
use crate::store::DeliveryState;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[],
    reconcilers: &[closed_pulls::RECONCILER, missed::RECONCILER],
    jobs: &[
        JobKind::of::<ReadDelivery, _>(),
        JobKind::of::<CleanPull, _>(),
    ],
};

/// Result of handling a delivery.
pub struct DeliveryEnd {
    pub state: DeliveryState,
    /// Reason of the state, if there is one.
    pub note: Option<String>,
}

impl DeliveryEnd {
    fn handled() -> Self {
        Self {
            state: DeliveryState::Handled,
            note: None,
        }
    }

    fn ignored(note: impl Into<String>) -> Self {
        Self {
            state: DeliveryState::Ignored,
            note: Some(note.into()),
        }
    }

    fn refused(note: impl Into<String>) -> Self {
        Self {
            state: DeliveryState::Refused,
            note: Some(note.into()),
        }
    }

    fn not_served() -> Self {
        Self::refused("403: the repository is not on the allowlist (--repo-allowlist)")
    }

    fn unclaimed() -> Self {
        Self::refused(owners::UNCLAIMED)
    }
}

/// Carries out an event.
pub async fn handle(
    ctx: &Ctx,
    delivery: DeliveryId,
    event: &Event,
) -> Result<DeliveryEnd, JobError> {
    match event {
        Event::Ignored { reason } => Ok(DeliveryEnd::ignored(reason.clone())),
        // `accept` has stored it for every server, or noted that it concerns no served repository.
        Event::Repositories { .. } => Ok(DeliveryEnd::handled()),
        Event::Comment(event) => comment::handle(ctx, delivery, event).await,
        Event::Pull(event) => pull_event(ctx, delivery, event).await,
    }
}

async fn pull_event(
    ctx: &Ctx,
    delivery: DeliveryId,
    event: &PullEvent,
) -> Result<DeliveryEnd, JobError> {
    let service = owners::service(ctx, &event.pull.repo).await?;
    let account = accounts::of_forge_user(ctx, event.pull.repo.host(), event.sender_id).await?;
    let actor = Actor::of_pull(&event.sender).with_account(account.map(|row| row.number));
    match (service, event.action) {
        (Service::NotAllowlisted, _) => Ok(DeliveryEnd::not_served()),
        // Locks from before the end of the claim are still released (P7).
        (Service::Served | Service::Unclaimed, PullAction::Closed) => {
            closed::handle(ctx, event, &actor).await
        }
        (Service::Unclaimed, _) => {
            let pull = &event.pull;
            owners::notify_unclaimed(
                ctx,
                UnclaimedNotice {
                    delivery,
                    pull,
                    comment: None,
                    actor,
                },
            )
            .await?;
            Ok(DeliveryEnd::unclaimed())
        }
        (
            Service::Served,
            PullAction::Opened
            | PullAction::Reopened
            | PullAction::ReadyForReview
            | PullAction::Updated
            | PullAction::BaseChanged,
        ) => {
            renew_locks(ctx, &event.pull, &actor, "the pull request was changed").await?;
            pull::handle(ctx, delivery, event, actor).await
        }
    }
}

/// Restarts the time limits of a pull request's locks, because it is in use.
pub(crate) async fn renew_locks(
    ctx: &Ctx,
    pull: &PullRef,
    by: &Actor,
    reason: &str,
) -> Result<(), JobError> {
    let renew_interval = locks::renew_interval(ctx.settings.lock_ttl(&pull.repo));
    ctx.store
        .lock_renew(pull, renew_interval, &Cause::new(by.clone(), reason))
        .await?;
    Ok(())
}
