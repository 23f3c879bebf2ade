//! Requests to one GitHub: sent through octocrab with time-outs and limits, read, classified, and told to the log.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, Request, StatusCode};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use octocrab::Octocrab;
use tracing::debug;

use super::call::{Answer, Call, Failure};
use super::classify::{Refusal, classify};
use super::{GitHubEndpoints, GitHubSetupError};
use crate::clock::Clock;
use crate::model::HostName;
use crate::secret::Secret;
use crate::telemetry::{Metric, Metrics, status_class};

/// Most bytes of an answer. The largest we ask for are a hundred comments of 65,536 characters, or a hundred files
/// with their patches.
const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Waits before the second and third attempt of a read: long enough to get past a restarted proxy, short enough that
/// the person who commented does not notice. Longer faults are the queue's to bridge.
const READ_WAITS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// How long to wait for GitHub.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For TCP and TLS: a host that does not answer by then is down or filtered.
    pub connect: Duration,
    /// Between two pieces of an answer; GitHub ends requests of its own after 10 seconds.
    pub read: Duration,
    /// For the whole request, against a server that sends one byte now and then.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), read: seconds(30), request: seconds(60) }
    }
}

/// The way to one GitHub.
pub(super) struct Wire {
    pub host: HostName,
    pub clock: Arc<dyn Clock>,
    base_path: String,
    octocrab: Octocrab,
    timeouts: Timeouts,
    pub metrics: Metrics,
}

/// An answer of any status.
struct Raw {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// Whether the body was longer than [`MAX_ANSWER`].
    cut: bool,
}

impl Wire {
    pub fn new(at: &GitHubEndpoints, clock: Arc<dyn Clock>, timeouts: Timeouts) -> Result<Self, GitHubSetupError> {
        let octocrab = Octocrab::builder()
            .base_uri(at.api_origin())
            .and_then(|builder| {
                builder
                    .set_connect_timeout(Some(timeouts.connect))
                    .set_read_timeout(Some(timeouts.read))
                    .set_write_timeout(Some(timeouts.read))
                    .build()
            })
            .map_err(|error| GitHubSetupError::Client(chain(&error)))?;
        Ok(Self {
            host: at.host().clone(),
            clock,
            base_path: at.api_path().to_owned(),
            octocrab,
            timeouts,
            metrics: Metrics::default(),
        })
    }

    /// Sends a request with a token; a passing fault is tried again where that cannot do harm.
    pub async fn send(&self, call: &Call, token: &Secret) -> Result<Answer, Failure> {
        let mut waits = if call.repeatable { READ_WAITS.as_slice() } else { &[] }.iter();
        loop {
            let failure = match self.send_once(call, token).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match waits.next() {
                Some(wait) if failure.is_passing() => self.clock.sleep(*wait).await,
                _ => return Err(failure),
            }
        }
    }

    async fn send_once(&self, call: &Call, token: &Secret) -> Result<Answer, Failure> {
        let started = self.clock.now();
        let deadline = self.timeouts.request;
        let outcome = match tokio::time::timeout(deadline, self.exchange(call, token)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no complete answer within {} ms", deadline.as_millis())),
        };
        self.log(call, started, &outcome);
        self.count(&outcome);
        let raw = outcome.map_err(|message| Failure::passing(&self.host, &call.what, &message))?;
        self.judge(call, raw)
    }

    /// The exchange itself; an error is the cause of a failed connection, without secrets.
    async fn exchange(&self, call: &Call, token: &Secret) -> Result<Raw, String> {
        // A path that begins with the base's own path is not prefixed again by octocrab, so we always give it in full.
        let request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base_path, call.path))
            .header("Accept", "application/vnd.github+json");
        let request = match &call.etag {
            Some(etag) => request.header(IF_NONE_MATCH, etag),
            None => request,
        };
        // The client of a token shares connections with all others, so one per request costs nothing.
        let octocrab = self.octocrab.user_access_token(token.expose()).map_err(|error| chain(&error))?;
        let request = octocrab.build_request(request, call.body.as_ref()).map_err(|error| chain(&error))?;
        let response = octocrab.execute(request).await.map_err(|error| chain(&error))?;
        let (parts, body) = response.into_parts();
        let (body, cut) = read_limited(Body::new(body)).await?;
        Ok(Raw { status: parts.status, headers: parts.headers, body, cut })
    }

    fn judge(&self, call: &Call, raw: Raw) -> Result<Answer, Failure> {
        let unchanged = raw.status == StatusCode::NOT_MODIFIED && call.etag.is_some();
        if unchanged {
            return Ok(Answer { unchanged, headers: raw.headers, body: Bytes::new() });
        }
        if !raw.status.is_success() {
            let refusal = Refusal { status: raw.status, headers: &raw.headers, body: &raw.body };
            return Err(classify(&refusal, &self.host, &call.what, self.clock.now()));
        }
        if raw.cut {
            let message = format!("the answer is larger than {} MiB, which nothing we ask for is", MAX_ANSWER >> 20);
            return Err(Failure::rejected(&self.host, &call.what, &message));
        }
        Ok(Answer { unchanged, headers: raw.headers, body: raw.body })
    }

    fn count(&self, outcome: &Result<Raw, String>) {
        let class = outcome.as_ref().map_or("none", |raw| status_class(raw.status.as_u16()));
        self.metrics.count(Metric::ForgeRequests, &[class]);
        let headers = outcome.as_ref().ok().map(|raw| &raw.headers);
        let remaining = headers.and_then(|headers| headers.get("x-ratelimit-remaining")?.to_str().ok()?.parse().ok());
        if let Some(remaining) = remaining {
            self.metrics.set(Metric::ForgeRateLimit, &[], remaining);
        }
    }

    fn log(&self, call: &Call, started: DateTime<Utc>, outcome: &Result<Raw, String>) {
        let duration_ms = (self.clock.now() - started).num_milliseconds();
        let (method, path) = (&call.method, &call.path);
        match outcome {
            Ok(raw) => {
                let status = raw.status.as_u16();
                let remaining = raw.headers.get("x-ratelimit-remaining").and_then(|value| value.to_str().ok());
                debug!(
                    host = %self.host, http.method = %method, http.path = %path, http.status = status, duration_ms,
                    rate_limit.remaining = remaining, "GitHub answered {method} {path} with {status}"
                );
            }
            Err(cause) => debug!(
                host = %self.host, http.method = %method, http.path = %path, duration_ms, cause = %cause,
                "GitHub gave no answer to {method} {path}"
            ),
        }
    }
}

/// Reads a body up to [`MAX_ANSWER`] and says whether there was more.
async fn read_limited(body: Body) -> Result<(Bytes, bool), String> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| chain(&error))?;
        if bytes.len() + chunk.len() > MAX_ANSWER {
            return Ok((bytes.into(), true));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes.into(), false))
}

/// An error with its causes; libraries tend to keep the telling one for last.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
