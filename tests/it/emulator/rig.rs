//! An emulated GitHub with one repository, a client for its REST API, and a receiver for its webhooks.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use lockkeeper::clock::ManualClock;
use lockkeeper::emulator::{AppOptions, Change, Emulator, NewPull, Options};
use lockkeeper::model::PullNumber;
use lockkeeper::secret::Secret;
use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::openapi::OpenApi;

pub const REPO: &str = "acme/infra";
pub const TOKEN: &str = "ghp_emulated";
pub const WEBHOOK_SECRET: &str = "a webhook secret";
pub const APP_KEY: &str = include_str!("../support/app_key.pem");
const APP_PUBLIC_KEY: &str = include_str!("../support/app_key.pub.pem");

/// The emulated GitHub and its directory.
pub struct Rig {
    pub github: Emulator,
    pub clock: Arc<ManualClock>,
    pub directory: TempDir,
    client: reqwest::Client,
}

/// An answer of the REST API.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("headers are text"))
    }
}

impl Rig {
    /// Starts with `acme/infra`, which has `main.tf` on `main`. The bot is `lockbot`; App 7 is installed as 70.
    pub async fn start() -> Self {
        let directory = TempDir::new().expect("a directory for the world");
        let clock = Arc::new(ManualClock::new(
            "2025-01-15T10:00:00Z".parse().expect("a time"),
        ));
        let clock_of_world: Arc<dyn lockkeeper::clock::Clock> = clock.clone();
        let options = Options::new(
            directory.path(),
            clock_of_world,
            Secret::new(WEBHOOK_SECRET),
        )
        .with_token("lockbot", Secret::new(TOKEN))
        .with_app(AppOptions::new(7, "lockkeeper", 70, APP_PUBLIC_KEY));
        let github = Emulator::start(options).await.expect("it starts");
        github
            .create_repo(REPO, &[("main.tf", "# root\n"), ("net/main.tf", "# net\n")])
            .await
            .expect("it is new");
        let client = reqwest::Client::builder()
            .user_agent("test")
            .no_proxy()
            .build()
            .expect("a client");
        Self {
            github,
            clock,
            directory,
            client,
        }
    }

    /// Opens a pull request that changes `net/main.tf`.
    pub async fn open_pull(&self) -> PullNumber {
        let change = Change::write("net/main.tf", "# net\nresource {}\n");
        self.github
            .push(REPO, "feature", &[change])
            .await
            .expect("a push");
        let pull = NewPull::from_branch("feature")
            .titled("Add a net")
            .described("See net.");
        self.github.open_pull(REPO, pull).await.expect("a pull")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Some(&format!("Bearer {TOKEN}")), None)
            .await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(
            Method::POST,
            path,
            Some(&format!("token {TOKEN}")),
            Some(body),
        )
        .await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        self.try_send(method, path, authorization, body)
            .await
            .expect("an answer")
    }

    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
        body: Option<Value>,
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.github.api_url()));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// Checks that all requests and answers were as GitHub describes them.
    pub fn check(&self) {
        OpenApi::github().check_all(&self.github.requests());
    }
}

/// Headers and body of a received webhook.
pub type Received = (HeaderMap, Bytes);

/// A receiver of webhooks that keeps them.
#[derive(Clone, Default)]
pub struct Receiver(Arc<Mutex<Vec<Received>>>);

impl Receiver {
    /// Starts to listen, and sets the address in the emulator.
    pub async fn start(github: &Emulator) -> Self {
        let receiver = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = axum::Router::new()
            .route("/events", axum::routing::post(receive))
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        github.set_webhook_target(format!("http://{address}/events").parse().expect("a URL"));
        receiver
    }

    /// Returns the webhooks since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.0.lock().expect("no test panics here"))
    }

    /// Returns event and action of the webhooks since the last call.
    pub fn names(&self) -> Vec<String> {
        self.take().iter().map(name).collect()
    }
}

/// Returns the name of a webhook: `pull_request.opened`, `push`.
pub fn name((headers, body): &Received) -> String {
    let body: Value = serde_json::from_slice(body).expect("a payload is JSON");
    let event = headers["x-github-event"]
        .to_str()
        .expect("headers are text")
        .to_owned();
    body["action"]
        .as_str()
        .map_or(event.clone(), |action| format!("{event}.{action}"))
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    receiver
        .0
        .lock()
        .expect("no test panics here")
        .push((headers, body));
    StatusCode::ACCEPTED
}
