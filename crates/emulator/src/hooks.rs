//! Sends webhooks: numbered and in order. A test can hold, lose and repeat them. The wire builds and signs them.
//!
//! Deliveries wait in one queue. In mode [`Delivering::Immediately`] a task that adds deliveries also sends them. The
//! lock `sending` allows one sender at a time, so deliveries arrive in the order in which the world changed, no
//! matter which task sends them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::EmulatorError;

/// Mode of sending webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivering {
    /// Webhooks are sent before the action that caused them returns.
    #[default]
    Immediately,
    /// Webhooks are sent when the test requests it.
    Held,
}

/// A webhook request as a file, which `lockkeeper replay` reads. The signed and sent bytes are the compact JSON of
/// `body` with its keys sorted, as `serde_json` writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDelivery {
    /// Headers, with names as the forge writes them.
    pub headers: BTreeMap<String, String>,
    /// Payload of the webhook.
    pub body: serde_json::Value,
}

impl RecordedDelivery {
    /// Returns the bytes that are sent.
    pub fn body_bytes(&self) -> Vec<u8> {
        self.body.to_string().into_bytes()
    }
}

/// Result of one attempt to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendAttempt {
    /// The receiver answered with this status.
    Answered(u16),
    /// The receiver did not answer, for this reason.
    Failed(String),
    /// No target is set, so nothing was sent.
    NoTarget,
}

/// A webhook, sent or not.
#[derive(Clone, Debug)]
pub struct EmulatedDelivery {
    /// Id of the delivery (GitHub: header `X-GitHub-Delivery`).
    pub id: Uuid,
    /// Name of the event (GitHub: header `X-GitHub-Event`).
    pub event: String,
    /// Value of `action` in the payload, if any.
    pub action: Option<String>,
    /// Headers and body of the request.
    pub recorded: RecordedDelivery,
    /// Result of every attempt, oldest first.
    pub attempts: Vec<SendAttempt>,
}

impl EmulatedDelivery {
    /// Returns the result of the newest attempt.
    pub fn outcome(&self) -> Option<&SendAttempt> {
        self.attempts.last()
    }
}

/// Sends webhooks and remembers them.
pub(super) struct Hooks {
    client: reqwest::Client,
    state: Mutex<HookState>,
    sending: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct HookState {
    target: Option<Url>,
    mode: Delivering,
    count: u64,
    log: VecDeque<EmulatedDelivery>,
    waiting: VecDeque<Uuid>,
}

/// Time that a forge gives a receiver (GitHub webhooks: best practices).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of finished deliveries that are kept. Waiting deliveries are always kept.
const KEPT: usize = 4096;

impl Hooks {
    pub(super) fn new(target: Option<Url>) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        Self {
            client: client
                .build()
                .expect("a client without certificates of its own can be built"),
            state: Mutex::new(HookState {
                target,
                ..HookState::default()
            }),
            sending: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn set_target(&self, target: Url) {
        self.lock().target = Some(target);
    }

    pub(super) fn set_mode(&self, mode: Delivering) {
        self.lock().mode = mode;
    }

    /// Adds a delivery to the queue, without sending it. `build` creates it with an id.
    pub(super) fn enqueue(&self, build: impl FnOnce(Uuid) -> EmulatedDelivery) {
        let mut state = self.lock();
        state.count += 1;
        let id = Uuid::from_u64_pair(0x11ee_4000, 0x8000_0000_0000_0000 | state.count);
        if state.log.len() >= KEPT + state.waiting.len() {
            state.log.pop_front();
        }
        state.log.push_back(build(id));
        state.waiting.push_back(id);
    }

    /// Sends all waiting deliveries, unless they are held.
    pub(super) async fn pump(&self) {
        let _sending = self.sending.lock().await;
        loop {
            let next = {
                let mut state = self.lock();
                if state.mode == Delivering::Held {
                    None
                } else {
                    state.waiting.pop_front()
                }
            };
            let Some(id) = next else { return };
            self.send(id).await;
        }
    }

    /// Sends the next waiting delivery.
    pub(super) async fn deliver_next(&self) -> Option<EmulatedDelivery> {
        let _sending = self.sending.lock().await;
        let id = self.lock().waiting.pop_front()?;
        self.send(id).await
    }

    /// Drops the next waiting delivery, as if the network had lost it. It can still be redelivered.
    pub(super) fn lose_next(&self) -> Option<EmulatedDelivery> {
        let mut state = self.lock();
        let id = state.waiting.pop_front()?;
        state.log.iter().find(|delivery| delivery.id == id).cloned()
    }

    /// Sends a delivery again, with the same id.
    pub(super) async fn redeliver(&self, id: Uuid) -> Result<EmulatedDelivery, EmulatorError> {
        let _sending = self.sending.lock().await;
        self.send(id).await.ok_or(EmulatorError::NoDelivery(id))
    }

    pub(super) fn all(&self) -> Vec<EmulatedDelivery> {
        self.lock().log.iter().cloned().collect()
    }

    pub(super) fn waiting(&self) -> Vec<EmulatedDelivery> {
        let state = self.lock();
        state
            .log
            .iter()
            .filter(|delivery| state.waiting.contains(&delivery.id))
            .cloned()
            .collect()
    }

    async fn send(&self, id: Uuid) -> Option<EmulatedDelivery> {
        let (target, recorded) = {
            let state = self.lock();
            let delivery = state.log.iter().find(|delivery| delivery.id == id)?;
            (state.target.clone(), delivery.recorded.clone())
        };
        let attempt = match target {
            None => SendAttempt::NoTarget,
            Some(target) => self.post(target, &recorded).await,
        };
        let mut state = self.lock();
        let delivery = state.log.iter_mut().find(|delivery| delivery.id == id)?;
        delivery.attempts.push(attempt);
        Some(delivery.clone())
    }

    async fn post(&self, target: Url, recorded: &RecordedDelivery) -> SendAttempt {
        let headers = recorded.headers.iter();
        let request = headers.fold(self.client.post(target), |request, (name, value)| {
            request.header(name, value)
        });
        match request.body(recorded.body_bytes()).send().await {
            Ok(answer) => SendAttempt::Answered(answer.status().as_u16()),
            Err(error) => SendAttempt::Failed(error.without_url().to_string()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HookState> {
        self.state
            .lock()
            .expect("no code panics while it holds the deliveries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lost_delivery_can_be_sent_again() {
        let hooks = Hooks::new(None);
        hooks.set_mode(Delivering::Held);
        hooks.enqueue(|id| EmulatedDelivery {
            id,
            event: "push".to_owned(),
            action: None,
            recorded: RecordedDelivery {
                headers: BTreeMap::new(),
                body: serde_json::json!({}),
            },
            attempts: Vec::new(),
        });
        let lost = hooks.lose_next().unwrap();
        assert!(hooks.deliver_next().await.is_none());
        assert_eq!(
            hooks.redeliver(lost.id).await.unwrap().attempts,
            [SendAttempt::NoTarget]
        );
    }
}
