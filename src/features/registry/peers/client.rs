//! Requests to peers: only to the address that an administrator gave, without redirects, and with limits on every size
//! and time.
//!
//! The reason of a failure is stored and shown. It has the status of an answer, and its text only if a deployment has written
//! it: another service may answer at an address.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::{RequestBuilder, Response, StatusCode, redirect};
use serde::Serialize;
use tracing::debug;

use super::model::PeerUrl;
use super::page::MAX_PAGE_BYTES;
use super::push::PushBody;
use super::server::is_refusal;
use crate::errors::describe_error;
use crate::model::Sha256Digest;
use crate::secret::Secret;

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Longest time between two parts of an answer.
const STALL_TIME: Duration = Duration::from_secs(20);
/// Longest time for an answer that is no package.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Longest time for the answer to a push.
const PUSH_TIME: Duration = Duration::from_secs(10);
/// Lowest number of bytes of a package in a second, on average.
const SLOWEST: u64 = 64 * 1024;
/// Maximum number of bytes of an answer that is neither a page nor a package.
const MAX_ANSWER: usize = 256 << 10;
/// Maximum number of characters of a refusal that are shown.
pub(super) const MAX_REFUSAL: usize = 200;

/// Sends requests to peers.
pub(super) struct PeerClient(reqwest::Client);

/// A request to a peer that brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientFault {
    /// No answer, or one that ended early.
    #[error("it does not answer: {0}")]
    Away(String),
    /// An answer with another status, and its text, which is not shown unless a deployment has written it.
    #[error("it answers with {0}{said}", said = refusal_text(.1))]
    Status(StatusCode, String),
    /// An answer that cannot be that of a peer.
    #[error("{0}")]
    Wrong(String),
}

impl From<reqwest::Error> for ClientFault {
    fn from(error: reqwest::Error) -> Self {
        // The address is known, and it has no secrets.
        Self::Away(describe_error(&error.without_url()))
    }
}

/// Formats the text of an answer for people, if it is the refusal of a deployment.
fn refusal_text(text: &str) -> String {
    if is_refusal(text) {
        format!(": {text}")
    } else {
        String::new()
    }
}

/// Formats the place at which JSON of a peer cannot be read. The error itself can quote the JSON.
pub(super) fn json_place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

impl PeerClient {
    pub(super) fn new() -> anyhow::Result<Self> {
        // A redirect would take the token to another server.
        let client = reqwest::Client::builder()
            .http1_only()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .read_timeout(STALL_TIME)
            .build();
        client.map(Self).context("cannot create an HTTP client")
    }

    /// Requests the records after one. If `met` is larger: with the proof that they begin a tree of that size.
    pub(super) async fn diff(
        &self,
        url: &PeerUrl,
        token: &Secret,
        (after, limit): (u64, u64),
        met: u64,
        accepts: &str,
    ) -> Result<Vec<u8>, ClientFault> {
        let mut url = url.join("registry/peer/v1/diff");
        url.query_pairs_mut()
            .append_pair("after", &after.to_string())
            .append_pair("limit", &limit.to_string())
            .append_pair("met", &met.to_string())
            .append_pair("accepts", accepts);
        let request = self.0.get(url).bearer_auth(token.expose());
        read(send(request.timeout(ANSWER_TIME)).await?, MAX_PAGE_BYTES).await
    }

    /// Requests the members that a peer knows.
    pub(super) async fn members(
        &self,
        url: &PeerUrl,
        token: &Secret,
    ) -> Result<Vec<u8>, ClientFault> {
        let request = self.0.get(url.join("registry/peer/v1/members"));
        let request = request.bearer_auth(token.expose()).timeout(ANSWER_TIME);
        read(send(request).await?, MAX_ANSWER).await
    }

    /// Sends the word of an invitation, and returns the answer with the key and the token.
    pub(super) async fn join(
        &self,
        url: &PeerUrl,
        body: &impl Serialize,
    ) -> Result<Vec<u8>, ClientFault> {
        let request = self.0.post(url.join("registry/peer/v1/join")).json(body);
        read(send(request.timeout(ANSWER_TIME)).await?, MAX_ANSWER).await
    }

    /// Tells a peer about a record. Returns the status of the answer if the peer has decided about the record, so that
    /// nobody has to tell it again.
    pub(super) async fn push(
        &self,
        url: &PeerUrl,
        token: &Secret,
        body: &PushBody,
    ) -> Result<StatusCode, ClientFault> {
        let request = self.0.post(url.join("registry/peer/v1/versions"));
        let request = request.bearer_auth(token.expose()).json(body);
        let answer = request.timeout(PUSH_TIME).send().await?;
        let status = answer.status();
        match status {
            StatusCode::OK
            | StatusCode::ACCEPTED
            | StatusCode::CONFLICT
            | StatusCode::GONE
            | StatusCode::FORBIDDEN
            | StatusCode::UNPROCESSABLE_ENTITY => {
                // An answer that ended early may be one of somebody in between.
                read(answer, MAX_ANSWER).await?;
                Ok(status)
            }
            _ => Err(refusal(answer).await),
        }
    }

    /// Requests a package. The pieces are neither counted nor verified.
    pub(super) async fn package(
        &self,
        url: &PeerUrl,
        token: &Secret,
        (digest, size): (&Sha256Digest, u64),
    ) -> Result<BoxStream<'static, Result<Bytes, ClientFault>>, ClientFault> {
        let path = format!("registry/peer/v1/packages/{digest}");
        let request = self.0.get(url.join(&path)).bearer_auth(token.expose());
        let answer = send(request.timeout(package_time(size))).await?;
        Ok(answer.bytes_stream().map_err(ClientFault::from).boxed())
    }
}

/// Returns the longest time for a package with this size in bytes.
pub(super) fn package_time(size: u64) -> Duration {
    ANSWER_TIME + Duration::from_secs(size / SLOWEST)
}

async fn send(request: RequestBuilder) -> Result<Response, ClientFault> {
    let answer = request.send().await?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    Err(refusal(answer).await)
}

/// Describes an answer that brings nothing.
async fn refusal(answer: Response) -> ClientFault {
    let status = answer.status();
    let text = read(answer, MAX_ANSWER).await.unwrap_or_default();
    let text: String = String::from_utf8_lossy(&text)
        .chars()
        .take(MAX_REFUSAL)
        .collect();
    let text = text.trim();
    if !text.is_empty() && !is_refusal(text) {
        debug!(%status, text, "The answer to a request to a peer is no known refusal of a deployment");
    }
    ClientFault::Status(status, text.to_owned())
}

async fn read(mut answer: Response, most: usize) -> Result<Vec<u8>, ClientFault> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > most {
            return Err(ClientFault::Wrong(format!(
                "its answer is refused: it is longer than {most} bytes"
            )));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
