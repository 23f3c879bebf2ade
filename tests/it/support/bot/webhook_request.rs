//! Deliveries that a story makes itself, signed as GitHub signs them.

use hmac::{Hmac, KeyInit, Mac};
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Bot, REPO, SECRET};
use crate::support::db::Backend;
use crate::support::rows::{self, DeliveryRow};

/// A webhook request that a story makes.
#[derive(Clone)]
pub struct WebhookRequest {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl WebhookRequest {
    /// Makes a delivery with a JSON body, signed with the usual secret.
    pub fn new(id: &str, event: &str, body: &Value) -> Self {
        Self::raw(id, event, "application/json", body.to_string().into_bytes())
    }

    /// Makes a delivery with any body, signed with the usual secret.
    pub fn raw(id: &str, event: &str, content_type: &str, body: Vec<u8>) -> Self {
        let pairs = [
            ("content-type", content_type),
            ("x-github-delivery", id),
            ("x-github-event", event),
        ];
        let headers = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        Self { headers, body }.signed_with(SECRET)
    }

    /// Puts the JSON into the field `payload` of a form.
    pub fn into_form(self) -> Self {
        let json = String::from_utf8(self.body.clone()).expect("the body is JSON");
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("payload", &json)
            .finish();
        let form = Self {
            body: form.into_bytes(),
            ..self
        };
        form.with("content-type", "application/x-www-form-urlencoded")
            .signed_with(SECRET)
    }

    /// Signs the delivery with another secret.
    pub fn signed_with(self, secret: &str) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(&self.body);
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        self.with("x-hub-signature-256", &signature)
    }

    /// Removes the signature of the delivery.
    pub fn unsigned(self) -> Self {
        self.without("x-hub-signature-256")
    }

    /// Removes a header of the delivery.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    /// Turns the delivery into a request for the router, without a network in between.
    pub fn into_request(self) -> axum::extract::Request {
        let request = axum::http::Request::post("/events");
        let request = self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        request
            .body(self.body.into())
            .expect("the headers are valid")
    }

    /// Replaces the value of a header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Returns the payload of a new comment on a pull request, with only the necessary fields.
pub fn comment_payload(pull: PullNumber, id: u64, author: &str, body: &str) -> Value {
    json!({
        "action": "created",
        "issue": {"number": pull.0, "pull_request": {}},
        "comment": {"id": id, "body": body, "user": {"login": author, "type": "User"}},
        "repository": {"full_name": REPO},
    })
}

impl Bot {
    /// Starts a bot that plans nothing automatically, and opens a pull request for comments.
    pub async fn talking(backend: Backend, flags: &[(&str, &str)]) -> (Self, PullNumber) {
        let flags: Vec<_> = [("disable-autoplan", "true")]
            .iter()
            .chain(flags)
            .copied()
            .collect();
        let mut bot = Self::with(backend, &[("README.md", "Networks.\n")], &flags).await;
        let pull = bot
            .open_pull("talk", &[("README.md", "Networks of Acme.\n")])
            .await;
        (bot, pull)
    }

    /// Comments as `alice`, and returns the only answer.
    pub async fn ask(&mut self, pull: PullNumber, text: &str) -> String {
        self.say(pull, text).await;
        self.answer(pull)
    }

    /// Posts a delivery to the webhook endpoint and returns the answer.
    pub async fn post(&self, delivery: &WebhookRequest) -> (u16, String) {
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client can be built");
        let request = client.post(self.events.clone()).body(delivery.body.clone());
        let request = delivery
            .headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(name, value)
            });
        let answer = request.send().await.expect("the server answers");
        (
            answer.status().as_u16(),
            answer.text().await.expect("the answer is text"),
        )
    }

    /// Returns the result of every delivery, oldest first: `ping ignored: GitHub only asks …`.
    pub async fn deliveries(&self) -> Vec<String> {
        let mut rows = rows::deliveries(&self.db.url).await;
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        let line = |row: &DeliveryRow| {
            let note = row
                .note
                .as_deref()
                .map(|note| format!(": {note}"))
                .unwrap_or_default();
            format!("{} {}{note}", row.event, row.state)
        };
        rows.iter().map(line).collect()
    }
}
