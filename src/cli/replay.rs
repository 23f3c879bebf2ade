//! `lockkeeper replay FILE…`: sends recorded webhooks to a server again, with a new signature.
//!
//! A recording is `{"headers": {…}, "body": {…}}`, or an array of such objects. Its signature is always replaced: it
//! belongs to another secret, and to other bytes once a parser has read the body.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use crate::clock::{Ids, RandomIds};
use crate::config::server::{RawSettings, SETTINGS};
use crate::forges::github::webhook::{DELIVERY_ID, EVENT, SIGNATURE, sign};
use crate::kit::term::{ExitResult, ExitStatus, SubcommandArgs, Terminal, block_on, environment};
use crate::secret::Secret;

/// Maximum size of a recording in bytes; GitHub sends 25 MB at most.
const LARGEST_FILE: u64 = 64 << 20;

const DEADLINE: Duration = Duration::from_secs(30);

/// Headers of the recorded connection, and its signature.
const NOT_REPLAYED: [&str; 8] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "x-hub-signature",
    SIGNATURE,
    "expect",
];

/// Send recorded webhooks to a server again
#[derive(clap::Parser)]
pub(super) struct ReplayArgs {
    /// Recording: {"headers": {...}, "body": {...}} or an array of these
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// URL that receives them
    #[arg(long, default_value = "http://127.0.0.1:4141/events")]
    url: String,
    /// Webhook secret to sign with [default: first line of `LOCKKEEPER_GH_WEBHOOK_SECRET`]
    #[arg(long)]
    secret: Option<String>,
    /// Give each delivery a new id; without a new id, the server ignores a repeated delivery
    #[arg(long)]
    new_delivery_ids: bool,
}

impl SubcommandArgs for ReplayArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let mut deliveries = Vec::new();
        for file in &self.files {
            let read = read_file(file);
            deliveries.extend(read.with_context(|| format!("cannot replay {}", file.display()))?);
        }
        if self.new_delivery_ids {
            for delivery in &mut deliveries {
                delivery.renew_id(&RandomIds);
            }
        }
        let sender = Sender {
            client: Client::builder()
                .timeout(DEADLINE)
                .no_proxy()
                .build()
                .context("cannot create an HTTP client")?,
            url: self.url,
            secret: secret(self.secret, &environment::read()?),
        };
        block_on(sender.send_all(&deliveries, terminal))?
    }
}

/// Returns the flag, or else the first secret of the variable.
fn secret(flag: Option<String>, raw: &RawSettings) -> Option<Secret> {
    let setting = SETTINGS
        .iter()
        .find(|setting| setting.flag == "gh-webhook-secret");
    let variable = || {
        setting
            .and_then(|setting| raw.given(setting))
            .map(|given| given.text.to_owned())
    };
    let text = flag.or_else(variable)?;
    text.lines()
        .map(Secret::new)
        .find(|secret| !secret.is_empty())
}

/// A recorded webhook with its headers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayedDelivery {
    headers: BTreeMap<String, String>,
    body: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Recording {
    Many(Vec<ReplayedDelivery>),
    One(ReplayedDelivery),
}

fn read_file(path: &Path) -> anyhow::Result<Vec<ReplayedDelivery>> {
    let mut text = String::new();
    let file = File::open(path).context("cannot open the file")?;
    file.take(LARGEST_FILE + 1)
        .read_to_string(&mut text)
        .context("cannot read the file")?;
    ensure!(
        text.len() as u64 <= LARGEST_FILE,
        "the file is larger than {} MiB",
        LARGEST_FILE >> 20
    );
    parse_recording(&text)
}

fn parse_recording(text: &str) -> anyhow::Result<Vec<ReplayedDelivery>> {
    let value: Value = serde_json::from_str(text).context("the file is not valid JSON")?;
    let recording = Recording::deserialize(value);
    match recording
        .ok()
        .context("the file is neither {\"headers\": {…}, \"body\": {…}} nor an array of these")?
    {
        Recording::Many(deliveries) => Ok(deliveries),
        Recording::One(delivery) => Ok(vec![delivery]),
    }
}

impl ReplayedDelivery {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn renew_id(&mut self, ids: &dyn Ids) {
        self.headers
            .retain(|name, _| !name.eq_ignore_ascii_case(DELIVERY_ID));
        self.headers
            .insert(DELIVERY_ID.to_owned(), ids.next().to_string());
    }

    /// Returns the title of a delivery, such as `issue_comment 7f3a…`.
    fn title(&self) -> String {
        let part = |name| self.header(name).unwrap_or("?");
        format!("{} {}", part(EVENT), part(DELIVERY_ID))
    }

    /// Returns the bytes to send; a body that was recorded as text is not changed.
    fn bytes(&self) -> Vec<u8> {
        let text = self.body.as_str().map(str::to_owned);
        text.unwrap_or_else(|| self.body.to_string()).into_bytes()
    }

    fn header_map(&self, secret: Option<&Secret>, body: &[u8]) -> anyhow::Result<HeaderMap> {
        let mut headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let is_replayed = |name: &&String| {
            !NOT_REPLAYED
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other))
        };
        for name in self.headers.keys().filter(is_replayed) {
            let key: HeaderName = name
                .parse()
                .with_context(|| format!("`{name}` is not a valid name of a header"))?;
            let value = HeaderValue::from_str(&self.headers[name]);
            headers.insert(
                key,
                value
                    .with_context(|| format!("the header {name} has more than one line of text"))?,
            );
        }
        if let Some(secret) = secret {
            headers.insert(
                SIGNATURE,
                sign(secret, body)
                    .parse()
                    .expect("a signature is hexadecimal"),
            );
        }
        Ok(headers)
    }
}

/// HTTP client for the deliveries, with their target and secret.
struct Sender {
    client: Client,
    url: String,
    secret: Option<Secret>,
}

impl Sender {
    /// Sends all deliveries, also after a refusal, and prints a line for each.
    async fn send_all(
        &self,
        deliveries: &[ReplayedDelivery],
        terminal: &mut Terminal<'_>,
    ) -> ExitResult {
        let mut exit = ExitStatus::Success;
        for delivery in deliveries {
            let title = delivery.title();
            match self.send(delivery).await {
                Ok(status) => terminal.line(format_args!("{title}: {status}"))?,
                Err(error) => {
                    exit = ExitStatus::Failure;
                    terminal.line(format_args!("{title}: not accepted: {error:#}"))?;
                }
            }
        }
        Ok(exit)
    }

    async fn send(&self, delivery: &ReplayedDelivery) -> anyhow::Result<String> {
        let body = delivery.bytes();
        let headers = delivery.header_map(self.secret.as_ref(), &body)?;
        let request = self.client.post(&self.url).headers(headers).body(body);
        let answer = request
            .send()
            .await
            .with_context(|| format!("cannot reach {}", self.url))?;
        let status = answer.status();
        ensure!(
            status.is_success(),
            "{status}: {}",
            first_line(&answer.text().await.unwrap_or_default())
        );
        Ok(status.to_string())
    }
}

/// Returns the beginning of the server's answer, for a line of output.
fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;

    use super::*;
    use crate::clock::CountingIds;

    #[test]
    fn recordings_are_one_or_many() {
        let one = r#"{"headers": {"X-GitHub-Event": "ping"}, "body": {"zen": "x"}}"#;
        assert_eq!(parse_recording(one).unwrap()[0].title(), "ping ?");
        assert_eq!(
            parse_recording(&format!("[{one}, {one}]")).unwrap().len(),
            2
        );
        for text in ["", "{}", "[1]", r#"{"headers": {}, "body": {}, "more": 1}"#] {
            assert!(parse_recording(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_recorded_signature_and_connection_are_not_replayed() {
        let text = r#"{"headers": {"Host": "x", "X-Hub-Signature-256": "sha256=00", "X-GitHub-Delivery": "old",
                       "Content-Type": "application/json"}, "body": "{ }"}"#;
        let mut delivery = parse_recording(text).unwrap().remove(0);
        delivery.renew_id(&CountingIds::default());
        assert_eq!(delivery.bytes(), b"{ }");
        let headers = delivery.header_map(None, b"{ }").unwrap();
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "x-github-delivery"]);
        assert_eq!(headers[DELIVERY_ID], "00000000-0000-7000-8000-000000000001");
    }

    /// Accepts deliveries that are signed with `right`.
    async fn server() -> String {
        let accept = |headers: HeaderMap, body: String| async move {
            let expected = sign(&Secret::new("right"), body.as_bytes());
            let is_good = headers
                .get(SIGNATURE)
                .is_some_and(|value| value.as_bytes() == expected.as_bytes());
            if is_good {
                (StatusCode::OK, "ok")
            } else {
                (StatusCode::UNAUTHORIZED, "bad signature\nsecond line")
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        tokio::spawn(async move {
            axum::serve(listener, Router::new().route("/events", post(accept))).await
        });
        url
    }

    #[tokio::test]
    async fn every_delivery_gets_a_line_and_a_refusal_fails_the_whole() {
        let text = r#"[{"headers": {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "1"}, "body": {"zen": "x"}}]"#;
        let deliveries = parse_recording(text).unwrap();
        let url = server().await;
        for (secret, exit, line) in [
            ("right", ExitStatus::Success, "ping 1: 200 OK\n"),
            (
                "wrong",
                ExitStatus::Failure,
                "ping 1: not accepted: 401 Unauthorized: bad signature\n",
            ),
        ] {
            let sender = Sender {
                client: Client::new(),
                url: url.clone(),
                secret: Some(Secret::new(secret)),
            };
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let outcome = sender
                .send_all(&deliveries, &mut Terminal::new(&mut out, &mut err))
                .await;
            assert_eq!(
                (outcome.unwrap(), String::from_utf8(out).unwrap().as_str()),
                (exit, line)
            );
        }
    }
}
