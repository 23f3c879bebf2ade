//! Accepts a delivery: decides what is stored with it, and stores all of it in one transaction (P1, P2).

use super::ReadDelivery;
use crate::context::Ctx;
use crate::features::owners::{self, Service};
use crate::features::renames::{self, SettleRepository};
use crate::forges::ParsedDelivery;
use crate::model::{DeliveryId, Event, RepositoryChange};
use crate::queue::Job;
use crate::store::{Accepted, DeliveryState, NewDelivery};
use crate::telemetry::Metric;

/// Note of a delivery about repositories that are not served.
const NOT_SERVED: &str = "the repository is not on the allow-list (--repo-allowlist)";

/// Outcome of accepting a delivery.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct DeliveryReceipt {
    /// Outcome in the database.
    pub stored: Accepted,
    /// True if the delivery concerns no repository, or at least one on the allow-list.
    pub is_allowed: bool,
}

/// Stores a delivery, so that every server finds it, and wakes the workers.
pub async fn accept(
    ctx: &Ctx,
    new: &NewDelivery,
    parsed: ParsedDelivery,
) -> Result<DeliveryReceipt, sqlx::Error> {
    let is_allowed = is_allowed(ctx, &parsed.event);
    let stored = store(ctx, new, parsed).await?;
    if let Accepted::New(_) = stored {
        ctx.wake_up.send();
        ctx.mirror_wake_up.send();
    }
    Ok(DeliveryReceipt { stored, is_allowed })
}

/// Compares an event with the allow-list. An app may see repositories that this server does not serve.
fn is_allowed(ctx: &Ctx, event: &Event) -> bool {
    let allowlist = &ctx.settings.repos.allowlist;
    let news = event.repository_changes();
    if news.is_empty() {
        event.repo().is_none_or(|repo| allowlist.allows(repo))
    } else {
        news.iter().any(|news| allowlist.allows(&news.repo))
    }
}

/// Stores a delivery with its job and its news of repositories. News about repositories that are not served is dropped.
/// News about a repository that seems to have been renamed waits until the rename is settled.
async fn store(
    ctx: &Ctx,
    new: &NewDelivery,
    parsed: ParsedDelivery,
) -> Result<Accepted, sqlx::Error> {
    let ParsedDelivery {
        event,
        repositories,
    } = parsed;
    let of_pull = repositories.first().cloned();
    let unsettled = renames::unsettled(ctx, repositories).await?;
    let is_settled = |news: &RepositoryChange| unsettled.iter().all(|told| told.repo != news.repo);
    let (news, unserved) = served(
        ctx,
        event
            .repository_changes()
            .into_iter()
            .filter(is_settled)
            .collect(),
    )
    .await?;
    match event {
        Event::Repositories { .. } if news.is_empty() && unsettled.is_empty() => {
            ctx.store.delivery_ignore(new, unserved).await
        }
        Event::Repositories { .. } => {
            let jobs = unsettled
                .into_iter()
                .map(|told| SettleRepository { told }.to_new());
            ctx.store
                .delivery_note(new, &news, &jobs.collect::<Vec<_>>())
                .await
        }
        Event::Ignored { reason } => {
            let accepted = ctx.store.delivery_ignore(new, &reason).await;
            if let Ok(Accepted::New(_)) = accepted {
                ctx.metrics
                    .count(Metric::Deliveries, &[DeliveryState::Ignored.as_str()]);
            }
            accepted
        }
        event @ (Event::Pull(_) | Event::Comment(_)) => {
            let job = |delivery: DeliveryId| {
                ReadDelivery {
                    delivery,
                    event,
                    told: of_pull,
                }
                .to_new()
            };
            ctx.store.delivery_accept(new, &news, job).await
        }
    }
}

/// Returns the news about served repositories. If there is none, also returns the reason.
async fn served(
    ctx: &Ctx,
    news: Vec<RepositoryChange>,
) -> Result<(Vec<RepositoryChange>, &'static str), sqlx::Error> {
    let (mut kept, mut unserved) = (Vec::new(), NOT_SERVED);
    for news in news {
        match owners::service(ctx, &news.repo).await? {
            Service::Served => kept.push(news),
            Service::Unclaimed => unserved = owners::UNCLAIMED,
            Service::NotAllowlisted => {}
        }
    }
    Ok((kept, unserved))
}
