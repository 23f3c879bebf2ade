//! Stores webhook requests as they were received (P1, P2).

use chrono::{DateTime, Utc};

use super::one_statement::{Effects, change_sql, execute_change};
use super::{NewJob, Result, Store, Tx, execute, free_text, kept_time};
use crate::model::{DeliveryId, HostName, RepositoryChange, text_enum};

text_enum! {
    /// State of a delivery.
    pub enum DeliveryState {
        /// Stored, but not handled yet.
        Received = "received",
        /// Handled; it led to something.
        Handled = "handled",
        /// Ignored because it has no meaning for Lockkeeper; the note gives the reason.
        Ignored = "ignored",
        /// Refused by a rule; the note names the rule.
        Refused = "refused",
    }
}

/// A webhook request that was verified.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// Forge that sent the request.
    pub host: HostName,
    /// Identifier that the forge gave to the delivery.
    pub forge_delivery: String,
    /// Name that the forge gives to the event.
    pub event: String,
    /// Content type of the body.
    pub content_type: String,
    /// Body as it was received.
    pub body: Vec<u8>,
}

/// Outcome of storing a delivery.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The delivery is new, and its job is queued.
    New(DeliveryId),
    /// The delivery was received before; nothing was done.
    Duplicate,
}

const FINISH: [&str; 3] =
    change_sql!("UPDATE deliveries SET state = $1, note = $2, finished_at = $3 WHERE id = $4");

impl Store {
    /// Stores a delivery, its job and its news of repositories in one transaction. `job` receives the delivery's
    /// identifier.
    pub async fn delivery_accept(
        &self,
        new: &NewDelivery,
        news: &[RepositoryChange],
        job: impl FnOnce(DeliveryId) -> NewJob,
    ) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin_shared().await?;
        let rows =
            insert_in_tx(&mut tx, id, new, DeliveryState::Received, None, self.now()).await?;
        if rows == 0 {
            return tx.roll_back().await.map(|()| Accepted::Duplicate);
        }
        self.job_push_in_tx(&mut tx, &job(id)).await?;
        self.repository_events_in_tx(&mut tx, news).await?;
        tx.commit().await.map(|()| Accepted::New(id))
    }

    /// Stores a delivery that has only news of repositories, with the news and the jobs that check these
    /// repositories. All of it is one transaction, and the delivery counts as handled.
    pub async fn delivery_note(
        &self,
        new: &NewDelivery,
        news: &[RepositoryChange],
        jobs: &[NewJob],
    ) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin_shared().await?;
        let rows = insert_in_tx(&mut tx, id, new, DeliveryState::Handled, None, self.now()).await?;
        if rows == 0 {
            return tx.roll_back().await.map(|()| Accepted::Duplicate);
        }
        self.outbox_in_tx(&mut tx, jobs).await?;
        self.repository_events_in_tx(&mut tx, news).await?;
        tx.commit().await.map(|()| Accepted::New(id))
    }

    /// Stores a delivery that has no meaning for Lockkeeper, with the reason.
    pub async fn delivery_ignore(&self, new: &NewDelivery, note: &str) -> Result<Accepted> {
        let id = DeliveryId::next(&*self.ids);
        let mut tx = self.begin_shared().await?;
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

    /// Sets the final state of a delivery.
    pub async fn delivery_finish(
        &self,
        id: DeliveryId,
        state: DeliveryState,
        note: Option<&str>,
    ) -> Result<()> {
        execute_change!(
            self,
            FINISH,
            Effects::default(),
            state,
            note.map(free_text),
            self.now(),
            id,
        )
        .map(drop)
    }

    /// Deletes finished deliveries that were received before the given time, at most `limit` of them.
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
        note.map(free_text),
        now,
    )
}
