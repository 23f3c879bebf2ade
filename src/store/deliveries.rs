//! Webhook requests as received (P1, P2).

use chrono::{DateTime, Utc};

use super::{NewJob, Result, Store, Tx, execute, free_text, kept_time};
use crate::model::{DeliveryId, HostName, RepositoryNews, text_enum};

text_enum! {
    /// What became of a delivery.
    pub enum DeliveryState {
        /// Committed, not looked at yet.
        Received = "received",
        /// Led to something.
        Handled = "handled",
        /// Meant nothing to us; the note says why.
        Ignored = "ignored",
        /// A rule forbade it; the note says which.
        Refused = "refused",
    }
}

/// A webhook request that passed the door.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// The forge it came from.
    pub host: HostName,
    /// The forge's own id of it.
    pub forge_delivery: String,
    /// The forge's name of the event.
    pub event: String,
    /// Type of the body.
    pub content_type: String,
    /// The body as it came.
    pub body: Vec<u8>,
}

/// Whether a delivery is new.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is, and its job is in the queue.
    New(DeliveryId),
    /// It came before; nothing was done.
    Duplicate,
}

impl Store {
    /// Keeps a delivery, its job and what it tells of repositories, in one transaction; `job` is told the delivery's id.
    pub async fn delivery_accept(
        &self,
        new: &NewDelivery,
        news: &[RepositoryNews],
        job: impl FnOnce(DeliveryId) -> NewJob,
    ) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin().await?;
        let rows =
            insert_in_tx(&mut tx, id, new, DeliveryState::Received, None, self.now()).await?;
        if rows == 0 {
            return Ok(Accepted::Duplicate);
        }
        self.job_push_in_tx(&mut tx, &job(id)).await?;
        self.repository_events_in_tx(&mut tx, news).await?;
        tx.commit().await.map(|()| Accepted::New(id))
    }

    /// Keeps a delivery that only tells of repositories, what it tells, and jobs that look at these repositories, in one
    /// transaction: nothing else is to be done.
    pub async fn delivery_note(
        &self,
        new: &NewDelivery,
        news: &[RepositoryNews],
        jobs: &[NewJob],
    ) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin().await?;
        let rows = insert_in_tx(&mut tx, id, new, DeliveryState::Handled, None, self.now()).await?;
        if rows == 0 {
            return Ok(Accepted::Duplicate);
        }
        self.outbox_in_tx(&mut tx, jobs).await?;
        self.repository_events_in_tx(&mut tx, news).await?;
        tx.commit().await.map(|()| Accepted::New(id))
    }

    /// Keeps a delivery that means nothing to us, with the reason.
    pub async fn delivery_ignore(&self, new: &NewDelivery, note: &str) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin().await?;
        let rows = insert_in_tx(
            &mut tx,
            id,
            new,
            DeliveryState::Ignored,
            Some(note),
            self.now(),
        )
        .await?;
        tx.commit().await?;
        Ok(if rows == 0 {
            Accepted::Duplicate
        } else {
            Accepted::New(id)
        })
    }

    /// Notes what became of a delivery.
    pub async fn delivery_finish(
        &self,
        id: DeliveryId,
        state: DeliveryState,
        note: Option<&str>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE deliveries SET state = $1, note = $2, finished_at = $3 WHERE id = $4",
            state,
            note.map(free_text),
            self.now(),
            id,
        )?;
        tx.commit().await
    }

    /// Forgets deliveries that were received before the given time and are finished, so many at most.
    pub async fn delivery_prune(&self, before: DateTime<Utc>, limit: i64) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE state <> 'received' \
             AND received_at < $1 ORDER BY received_at LIMIT $2)",
            kept_time(before),
            limit,
        )?;
        tx.commit().await.map(|()| rows)
    }
}

async fn insert_in_tx(
    tx: &mut Tx,
    id: DeliveryId,
    new: &NewDelivery,
    state: DeliveryState,
    note: Option<&str>,
    now: DateTime<Utc>,
) -> Result<u64> {
    execute!(
        tx,
        "INSERT INTO deliveries (id, host, forge_delivery, event, content_type, body, state, note, received_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (host, forge_delivery) DO NOTHING",
        id,
        &new.host,
        free_text(&new.forge_delivery),
        free_text(&new.event),
        free_text(&new.content_type),
        &new.body,
        state,
        note,
        now,
    )
}
