//! A relay in front of a foreign server. It forwards requests unchanged and records them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::server::within;

/// A request that went through, with the status of its answer.
#[derive(Clone)]
pub struct Passed {
    /// Method and path without the query: `GET /repos/acme/infra/pulls/1`.
    pub line: String,
    /// Status of the answer.
    pub status: u16,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Bytes,
}

/// A relay with its target and its record.
pub struct Relay {
    /// Origin of the relay.
    pub url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    client: reqwest::Client,
    target: Mutex<String>,
    passed: watch::Sender<Vec<Passed>>,
}

impl Relay {
    /// Starts on a free port, without a target.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let shared = Arc::new(Shared {
            client,
            target: Mutex::default(),
            passed: watch::Sender::default(),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, task }
    }

    /// Sets the target of requests from now on: an origin.
    pub fn lead_to(&self, origin: &str) {
        origin.clone_into(&mut self.shared.target.lock().unwrap());
    }

    /// Returns all requests that went through, oldest first.
    pub fn passed(&self) -> Vec<Passed> {
        self.shared.passed.borrow().clone()
    }

    /// Returns the requests that went through, one per line: `GET /app -> 200`.
    pub fn lines(&self) -> String {
        let line = |passed: Passed| format!("{} -> {}\n", passed.line, passed.status);
        self.passed().into_iter().map(line).collect()
    }

    /// Waits until this many requests with a line were answered.
    pub async fn saw(&self, line: &str, times: usize) -> Passed {
        self.saw_nth(&format!("{times} times `{line}`"), times, |passed| {
            passed.line == line
        })
        .await
    }

    /// Waits until the nth request of a kind was answered, and returns it. `what` names the kind in the failure.
    pub async fn saw_nth(&self, what: &str, nth: usize, is_it: impl Fn(&Passed) -> bool) -> Passed {
        let find = |passed: &[Passed]| {
            passed
                .iter()
                .filter(|passed| is_it(passed))
                .nth(nth - 1)
                .cloned()
        };
        let mut passed = self.shared.passed.subscribe();
        let seen = within(what, passed.wait_for(|passed| find(passed).is_some()))
            .await
            .unwrap();
        find(&seen).unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let url = format!("{}{}", shared.target.lock().unwrap(), parts.uri);
    let line = format!("{} {}", parts.method, parts.uri.path());
    let headers = end_to_end(&parts.headers);
    let request = shared
        .client
        .request(parts.method, url)
        .headers(headers.clone())
        .body(body.clone());
    let response = forward(request).await.unwrap_or_else(|_| bad_gateway());
    let status = response.status().as_u16();
    shared.passed.send_modify(|passed| {
        passed.push(Passed {
            line,
            status,
            headers,
            body,
        });
    });
    response
}

async fn forward(request: reqwest::RequestBuilder) -> reqwest::Result<Response<Body>> {
    let answer = request.send().await?;
    let mut response = Response::builder().status(answer.status());
    *response.headers_mut().unwrap() = end_to_end(answer.headers());
    Ok(response.body(answer.bytes().await?.into()).unwrap())
}

/// Answers when the server behind has ended. That happens at the end of a test while a webhook is still on its way.
fn bad_gateway() -> Response<Body> {
    Response::builder().status(502).body(Body::empty()).unwrap()
}

/// Removes the headers that concern one connection only.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}
