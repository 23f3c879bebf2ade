//! Sends webhooks: signed, numbered and in order. A test can hold, lose and repeat them.
//!
//! Deliveries wait in one queue. In mode [`Delivering::Immediately`] a task that adds deliveries also sends them. The
//! lock `sending` allows one sender at a time, so deliveries arrive in the order in which the world changed, no
//! matter which task sends them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use url::Url;
use uuid::Uuid;

use crate::secret::Secret;

use super::EmulatorError;
use super::world::WorldEvent;

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
    /// Headers, with names as GitHub writes them.
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
    /// Value of the header `X-GitHub-Delivery`.
    pub id: Uuid,
    /// Value of the header `X-GitHub-Event`.
    pub event: String,
    /// Value of `action` in the payload.
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
    base_url: String,
    secret: Secret,
    app: Option<u64>,
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

/// Time that GitHub gives a receiver (GitHub webhooks: best practices).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of finished deliveries that are kept. Waiting deliveries are always kept.
const KEPT: usize = 4096;

/// Value of the header `X-GitHub-Hook-ID`.
const HOOK_ID: u64 = 1;

impl Hooks {
    pub(super) fn new(
        base_url: &str,
        secret: Secret,
        app: Option<u64>,
        target: Option<Url>,
    ) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        Self {
            base_url: base_url.to_owned(),
            secret,
            app,
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

    /// Adds events to the queue, without sending them.
    pub(super) fn enqueue(&self, events: Vec<WorldEvent>) {
        for event in events {
            let mut state = self.lock();
            state.count += 1;
            let id = Uuid::from_u64_pair(0x11ee_4000, 0x8000_0000_0000_0000 | state.count);
            let action = event
                .body
                .get("action")
                .and_then(|action| action.as_str())
                .map(str::to_owned);
            let (name, recorded) = (event.name.to_owned(), self.record(id, event));
            if state.log.len() >= KEPT + state.waiting.len() {
                state.log.pop_front();
            }
            state.log.push_back(EmulatedDelivery {
                id,
                event: name,
                action,
                recorded,
                attempts: Vec::new(),
            });
            state.waiting.push_back(id);
        }
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

    fn record(&self, id: Uuid, event: WorldEvent) -> RecordedDelivery {
        let body = event.body.to_string();
        let (target, kind) = self
            .app
            .map_or((event.repo, "repository"), |app| (app, "integration"));
        let host = self.base_url.split_once("://").map_or("", |(_, host)| host);
        let headers = [
            ("Accept", "*/*".to_owned()),
            ("Content-Type", "application/json".to_owned()),
            ("User-Agent", "GitHub-Hookshot/0000001".to_owned()),
            ("X-GitHub-Delivery", id.to_string()),
            ("X-GitHub-Enterprise-Host", host.to_owned()),
            (
                "X-GitHub-Enterprise-Version",
                super::github::ENTERPRISE_VERSION.to_owned(),
            ),
            ("X-GitHub-Event", event.name.to_owned()),
            ("X-GitHub-Hook-ID", HOOK_ID.to_string()),
            ("X-GitHub-Hook-Installation-Target-ID", target.to_string()),
            ("X-GitHub-Hook-Installation-Target-Type", kind.to_owned()),
            (
                "X-Hub-Signature-256",
                signature(&self.secret, body.as_bytes()),
            ),
        ];
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        RecordedDelivery {
            headers,
            body: event.body,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HookState> {
        self.state
            .lock()
            .expect("no code panics while it holds the deliveries")
    }
}

/// Computes the signature `sha256=…` of the body (GitHub webhooks: validating deliveries).
fn signature(secret: &Secret, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_githubs_own_example() {
        let secret = Secret::new("It's a Secret to Everybody");
        assert_eq!(
            signature(&secret, b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }

    #[test]
    fn a_recorded_delivery_keeps_its_signature_through_a_file() {
        let hooks = Hooks::new("http://127.0.0.1:1", Secret::new("s"), None, None);
        let event = WorldEvent {
            name: "push",
            repo: 1,
            body: serde_json::json!({ "z": 1, "a": { "ü": null } }),
        };
        let recorded = hooks.record(Uuid::nil(), event);
        let file = serde_json::to_string_pretty(&recorded).unwrap();
        let read: RecordedDelivery = serde_json::from_str(&file).unwrap();
        assert_eq!(read, recorded);
        assert_eq!(
            read.headers["X-Hub-Signature-256"],
            signature(&Secret::new("s"), &read.body_bytes())
        );
    }

    #[tokio::test]
    async fn a_lost_delivery_can_be_sent_again() {
        let hooks = Hooks::new("http://127.0.0.1:1", Secret::new("s"), None, None);
        hooks.set_mode(Delivering::Held);
        hooks.enqueue(vec![WorldEvent {
            name: "push",
            repo: 1,
            body: serde_json::json!({}),
        }]);
        let lost = hooks.lose_next().unwrap();
        assert!(hooks.deliver_next().await.is_none());
        assert_eq!(
            hooks.redeliver(lost.id).await.unwrap().attempts,
            [SendAttempt::NoTarget]
        );
    }
}
