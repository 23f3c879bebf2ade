//! Turns a delivery into the commands and changes that it requests.
//!
//! A second run is harmless: a delivery leads to one command at most, and closing a pull again finds nothing left to
//! close. The marker of the comment about it prevents a second one.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Ctx;
use crate::features::events;
use crate::features::owners::{self, Service};
use crate::features::renames;
use crate::kit::jobs::{ATTEMPTS_WHILE_AWAY, patient};
use crate::model::{DeliveryId, Event, ForgeRepo};
use crate::queue::{Job, JobError, RunningJob};
use crate::store::DeliveryState;
use crate::telemetry::Metric;

/// A delivery to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadDelivery {
    /// Row of the delivery.
    pub delivery: DeliveryId,
    /// Event that the forge's adapter read from the payload.
    pub event: Event,
    /// Repository, if the payload named it by its identifier.
    #[serde(default)]
    pub told: Option<ForgeRepo>,
}

impl ReadDelivery {
    /// Returns the event under the current name of the repository. A repository may have been renamed without an
    /// event, and a delivery may be late.
    async fn settled(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<Event, JobError> {
        let Some(told) = &self.told else {
            return Ok(self.event.clone());
        };
        if renames::unsettled(ctx, vec![told.clone()])
            .await?
            .is_empty()
        {
            return Ok(self.event.clone());
        }
        let name = renames::settle(ctx, told, Some(attempt.lease.id)).await?;
        let event = self.event.clone().in_repo(&name);
        for news in event.repository_changes() {
            if owners::service(ctx, &news.repo).await? == Service::Served {
                ctx.store.repository_event_append(&news).await?;
            }
        }
        Ok(event)
    }
}

#[async_trait]
impl Job<Ctx> for ReadDelivery {
    const KIND: &'static str = "read_delivery";
    const PRIORITY: i64 = 40;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        match &self.event {
            Event::Pull(event) => format!("events:{}", event.pull),
            Event::Comment(event) => format!("events:{}", event.pull),
            Event::Repositories { .. } | Event::Ignored { .. } => {
                format!("events:{}", self.delivery)
            }
        }
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        let event = self
            .settled(ctx, attempt)
            .await
            .map_err(|error| patient(error, attempt))?;
        let end = events::handle(ctx, self.delivery, &event)
            .await
            .map_err(|error| patient(error, attempt))?;
        ctx.store
            .last_of_job()
            .delivery_finish(self.delivery, end.state, end.note.as_deref())
            .await?;
        ctx.metrics.count(Metric::Deliveries, &[end.state.as_str()]);
        Ok(())
    }

    async fn report_failure(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        let note = format!("given up: {}", error.message());
        ctx.store
            .delivery_finish(self.delivery, DeliveryState::Refused, Some(&note))
            .await?;
        ctx.metrics
            .count(Metric::Deliveries, &[DeliveryState::Refused.as_str()]);
        Ok(())
    }
}
