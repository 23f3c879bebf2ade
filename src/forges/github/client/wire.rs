//! Sends requests to one GitHub through octocrab, with time-outs and limits, and reads, classifies and logs the
//! answers.
//!
//! Each request passes the gate of its credentials first. GitHub counts all requests with the same credentials
//! together. It asks integrators to stop all of them on its demand, to send few requests at once, and to pause
//! between writes (GitHub REST: "Best practices for using the REST API", "Rate limits").

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{IF_NONE_MATCH, LOCATION};
use axum::http::{HeaderMap, Request, StatusCode};
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use octocrab::Octocrab;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};
use url::Url;

use super::call::{Call, RequestFailure, SuccessResponse, is_move};
use super::classify::{ErrorResponse, classify};
use super::{GitHubEndpoints, GitHubSetupError};
use crate::clock::Clock;
use crate::forges::{ForgeError, GateError, LocalGates, RateGates};
use crate::model::{HostName, RateScope, Sha256Digest, Traffic};
use crate::secret::Secret;
use crate::telemetry::{Metric, Metrics, status_class};

/// Maximum size of an answer in bytes. The largest requested answers are a hundred comments of 65,536 characters, or
/// a hundred files with their patches.
const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Waits before the second and third attempt of a read. They are long enough for the restart of a proxy, and short
/// enough that the author of a comment does not notice. For longer failures, the queue retries.
const READ_WAITS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Pause between two writes with the same credentials, as GitHub asks.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// Maximum number of concurrent requests of this server with the same credentials. GitHub allows a hundred for all
/// users of the credentials, and advises to send one after the other. With a few more, one slow answer does not hold
/// up all others.
const READS_AT_ONCE: usize = 10;
const WRITES_AT_ONCE: usize = 4;
/// Maximum number of credentials whose requests are counted; beyond it the count begins again.
const MOST_COUNTED: usize = 10_000;
/// Maximum time that a gate stays closed before one request asks again. GitHub's windows last an hour, and a wrong
/// header must not stop everything for a day.
const LONGEST_CLOSED: TimeDelta = TimeDelta::hours(1);

/// Time limits for requests to GitHub.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Limit for TCP and TLS: a host that does not answer by then is down or filtered.
    pub connect: Duration,
    /// Limit between two pieces of an answer; GitHub ends requests of its own after 10 seconds.
    pub read: Duration,
    /// Limit for the whole request, against a server that sends one byte now and then.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            read: seconds(30),
            request: seconds(60),
        }
    }
}

/// HTTP connection to one GitHub.
pub(super) struct Wire {
    pub host: HostName,
    pub clock: Arc<dyn Clock>,
    base_path: String,
    octocrab: Octocrab,
    timeouts: Timeouts,
    pub metrics: Metrics,
    pub gates: Arc<dyn RateGates>,
    /// Pause between two writes.
    pub between_writes: Duration,
    places: Mutex<HashMap<(String, Traffic), Arc<Semaphore>>>,
}

/// Credentials of a request.
pub(super) struct Pass {
    pub token: Secret,
    /// Name of the credentials under which GitHub counts the request.
    pub credential: String,
}

impl Pass {
    /// Creates a pass whose credentials are named by a part of the token's digest.
    pub fn of_token(token: Secret) -> Self {
        let digest = Sha256Digest::of(token.expose().as_bytes());
        Self {
            credential: format!("token {}", &digest.as_str()[..16]),
            token,
        }
    }
}

/// Answer with any status.
struct RawResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// True if the body was longer than [`MAX_ANSWER`].
    cut: bool,
}

impl Wire {
    pub fn new(
        at: &GitHubEndpoints,
        clock: Arc<dyn Clock>,
        timeouts: Timeouts,
    ) -> Result<Self, GitHubSetupError> {
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
            gates: Arc::new(LocalGates::new(Arc::clone(&clock))),
            between_writes: if has_limits(at.host()) {
                BETWEEN_WRITES
            } else {
                Duration::ZERO
            },
            places: Mutex::default(),
            clock,
            base_path: at.api_path().to_owned(),
            octocrab,
            timeouts,
            metrics: Metrics::default(),
        })
    }

    /// Sends a request with its credentials. Retries after a temporary failure if the request is repeatable.
    pub async fn send(&self, call: &Call, pass: &Pass) -> Result<SuccessResponse, RequestFailure> {
        let scope = RateScope {
            host: self.host.clone(),
            credential: pass.credential.clone(),
        };
        let _place = self.place(&pass.credential, call.traffic).await;
        let mut waits = if call.repeatable {
            READ_WAITS.as_slice()
        } else {
            &[]
        }
        .iter();
        loop {
            self.admit(call, &scope).await?;
            let failure = match self.send_once(call, &pass.token).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            self.heed(&failure, call, &scope).await;
            match waits.next() {
                Some(wait) if failure.is_passing() => self.clock.sleep(*wait).await,
                _ => return Err(failure),
            }
        }
    }

    /// Waits for a slot among the concurrent requests of the credentials.
    async fn place(&self, credential: &str, traffic: Traffic) -> OwnedSemaphorePermit {
        let semaphore = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.len() >= MOST_COUNTED {
                places.clear();
            }
            let count = match traffic {
                Traffic::Read => READS_AT_ONCE,
                Traffic::Write => WRITES_AT_ONCE,
            };
            let new = || Arc::new(Semaphore::new(count));
            Arc::clone(
                places
                    .entry((credential.to_owned(), traffic))
                    .or_insert_with(new),
            )
        };
        semaphore
            .acquire_owned()
            .await
            .expect("nobody closes the semaphore")
    }

    /// Waits until a request may leave, and finally checks its permit.
    async fn admit(&self, call: &Call, scope: &RateScope) -> Result<(), RequestFailure> {
        let unknown =
            |error: GateError| RequestFailure::passing(&self.host, &call.what, &chain(&error));
        let closed = async || match self
            .gates
            .closed(scope, call.traffic)
            .await
            .map_err(unknown)?
        {
            Some(until) => {
                self.metrics.count(Metric::ForgeRequests, &["held"]);
                Err(RequestFailure::held_back(&self.host, &call.what, until))
            }
            None => Ok(()),
        };
        closed().await?;
        if call.traffic == Traffic::Write && !self.between_writes.is_zero() {
            let turn = self
                .gates
                .turn(scope, self.between_writes)
                .await
                .map_err(unknown)?;
            let wait = (turn - self.clock.now()).to_std().unwrap_or_default();
            if !wait.is_zero() {
                self.clock.sleep(wait).await;
                // GitHub may have asked another request to wait meanwhile.
                closed().await?;
            }
        }
        let Some(permit) = &call.permit else {
            return Ok(());
        };
        permit.check().await.map_err(|error| {
            let message = format!("the request was not sent: {}", chain(&*error));
            RequestFailure::passing(&self.host, &call.what, &message)
        })
    }

    /// Closes the gates of the credentials when GitHub asks to wait. A limit of writes alone (on content created per
    /// minute) does not affect reads. A limit of reads stops everything.
    async fn heed(&self, failure: &RequestFailure, call: &Call, scope: &RateScope) {
        let ForgeError::RateLimited { until, .. } = failure.error else {
            return;
        };
        let until = until.min(self.clock.now() + LONGEST_CLOSED);
        let only_writes = call.traffic == Traffic::Write && !failure.exhausted;
        let closed = if only_writes {
            &[Traffic::Write][..]
        } else {
            Traffic::ALL
        };
        warn!(
            host = %scope.host, credential = scope.credential, until = %until, only_writes,
            "GitHub asks to wait: no more requests are sent with these credentials until then"
        );
        for traffic in closed {
            if let Err(error) = self.gates.close(scope, *traffic, until).await {
                warn!(
                    error = chain(&error),
                    "Could not notify the other servers that GitHub asks to wait"
                );
            }
        }
    }

    async fn send_once(
        &self,
        call: &Call,
        token: &Secret,
    ) -> Result<SuccessResponse, RequestFailure> {
        let started = self.clock.now();
        let deadline = self.timeouts.request;
        let outcome = match tokio::time::timeout(deadline, self.exchange(call, token)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!(
                "no complete answer within {} ms",
                deadline.as_millis()
            )),
        };
        self.log(call, started, &outcome);
        self.count(&outcome);
        let raw =
            outcome.map_err(|message| RequestFailure::passing(&self.host, &call.what, &message))?;
        match moved_to(call, &raw) {
            Some(path) => {
                Box::pin(self.send_once(
                    &Call {
                        path,
                        follow: false,
                        ..call.clone()
                    },
                    token,
                ))
                .await
            }
            None => self.check_status(call, raw),
        }
    }

    /// Exchanges a request and its answer. The error is the cause of a failed connection, without secrets.
    async fn exchange(&self, call: &Call, token: &Secret) -> Result<RawResponse, String> {
        // octocrab does not add the base path to a path that begins with it, so the path is always given in full.
        let request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base_path, call.path))
            .header("Accept", "application/vnd.github+json");
        let request = match &call.etag {
            Some(etag) => request.header(IF_NONE_MATCH, etag),
            None => request,
        };
        // The client of a token shares connections with all others, so one per request costs nothing.
        let octocrab = self
            .octocrab
            .user_access_token(token.expose())
            .map_err(|error| chain(&error))?;
        let request = octocrab
            .build_request(request, call.body.as_ref())
            .map_err(|error| chain(&error))?;
        let response = octocrab
            .execute(request)
            .await
            .map_err(|error| chain(&error))?;
        let (parts, body) = response.into_parts();
        let (body, cut) = read_limited(Body::new(body)).await?;
        Ok(RawResponse {
            status: parts.status,
            headers: parts.headers,
            body,
            cut,
        })
    }

    fn check_status(
        &self,
        call: &Call,
        raw: RawResponse,
    ) -> Result<SuccessResponse, RequestFailure> {
        let unchanged = raw.status == StatusCode::NOT_MODIFIED && call.etag.is_some();
        if unchanged {
            return Ok(SuccessResponse {
                unchanged,
                headers: raw.headers,
                body: Bytes::new(),
            });
        }
        if !raw.status.is_success() {
            let refusal = ErrorResponse {
                status: raw.status,
                headers: &raw.headers,
                body: &raw.body,
            };
            return Err(classify(&refusal, &self.host, &call.what, self.clock.now()));
        }
        if raw.cut {
            let message = format!(
                "the answer is larger than {} MiB, the limit for every request",
                MAX_ANSWER >> 20
            );
            return Err(RequestFailure::rejected(&self.host, &call.what, &message));
        }
        Ok(SuccessResponse {
            unchanged,
            headers: raw.headers,
            body: raw.body,
        })
    }

    fn count(&self, outcome: &Result<RawResponse, String>) {
        let class = outcome
            .as_ref()
            .map_or("none", |raw| status_class(raw.status.as_u16()));
        self.metrics.count(Metric::ForgeRequests, &[class]);
        let headers = outcome.as_ref().ok().map(|raw| &raw.headers);
        let remaining = headers.and_then(|headers| {
            headers
                .get("x-ratelimit-remaining")?
                .to_str()
                .ok()?
                .parse()
                .ok()
        });
        if let Some(remaining) = remaining {
            self.metrics.set(Metric::ForgeRateLimit, &[], remaining);
        }
    }

    fn log(&self, call: &Call, started: DateTime<Utc>, outcome: &Result<RawResponse, String>) {
        let duration_ms = (self.clock.now() - started).num_milliseconds();
        let (method, path) = (&call.method, &call.path);
        match outcome {
            Ok(raw) => {
                let status = raw.status.as_u16();
                let remaining = raw
                    .headers
                    .get("x-ratelimit-remaining")
                    .and_then(|value| value.to_str().ok());
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

/// Returns the path to which GitHub redirects a request with the old name of a repository. Only paths of a repository
/// by its identifier are accepted, and the same server is asked: no answer sends a token anywhere else. Behind a
/// proxy, the server may call itself by another name than the configured one, so only the path counts.
fn moved_to(call: &Call, raw: &RawResponse) -> Option<String> {
    if !call.follow || !is_move(raw.status) {
        return None;
    }
    let url = Url::parse(raw.headers.get(LOCATION)?.to_str().ok()?).ok()?;
    let (_, path) = url.path().split_once("/repositories/")?;
    let id = path.split('/').next()?;
    (id.parse::<u64>().is_ok() && !path.contains("..")).then(|| format!("/repositories/{path}"))
}

/// Returns true if a host limits requests by default. GitHub's own clouds do. An Enterprise Server does so only if
/// somebody has switched that on; its answers then report a reached limit.
fn has_limits(host: &HostName) -> bool {
    host.as_str() == "github.com" || host.as_str().ends_with(".ghe.com")
}

/// Reads a body up to [`MAX_ANSWER`] and returns true if there was more.
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

/// Formats an error with its causes; libraries often put the informative one last.
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn only_so_much_is_asked_at_once_with_the_same_credentials() {
        let at = GitHubEndpoints::new("github.com", None).unwrap();
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let wire = Wire::new(&at, clock, Timeouts::default()).unwrap();
        let place = |credential, traffic| wire.place(credential, traffic).now_or_never();
        let mut reads: Vec<_> = (0..READS_AT_ONCE)
            .map(|_| place("installation 7", Traffic::Read).unwrap())
            .collect();
        assert!(place("installation 7", Traffic::Read).is_none());
        let _writes: Vec<_> = (0..WRITES_AT_ONCE)
            .map(|_| place("installation 7", Traffic::Write).unwrap())
            .collect();
        assert!(place("installation 7", Traffic::Write).is_none());
        assert!(place("installation 8", Traffic::Read).is_some());
        reads.pop();
        assert!(place("installation 7", Traffic::Read).is_some());
    }
}
