//! A GitHub that gives scripted answers and records its requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use chrono::{DateTime, Utc};
use lockkeeper::clock::ManualClock;
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts, TokenSource};
use lockkeeper::forges::{Permit, WritePermit};
use lockkeeper::model::{PullRef, Subject};
use lockkeeper::secret::Secret;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Action of the server for a request.
pub enum Reply {
    /// Sends an answer to the client.
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Begins an answer and drops the connection.
    Drop,
    /// Sends an answer with this many mebibytes.
    Mebibytes(usize),
}

impl Reply {
    /// Makes an answer with status 200.
    pub fn json(body: &Value) -> Self {
        Self::status(200, body)
    }

    /// Makes an answer with a status.
    pub fn status(status: u16, body: &Value) -> Self {
        Self::Answer {
            status,
            headers: Vec::new(),
            body: body.to_string(),
        }
    }

    /// Adds a header to an answer.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    fn send(self) -> Response<Body> {
        let builder = Response::builder();
        let built = match self {
            Self::Answer {
                status,
                headers,
                body,
            } => headers
                .into_iter()
                .fold(builder.status(status), |builder, (name, value)| {
                    builder.header(name, value)
                })
                .body(body.into()),
            Self::Drop => builder.body(Body::from_stream(futures::stream::iter([
                Ok(Bytes::from_static(b"{\"id\"")),
                Err(std::io::Error::other("dropped on purpose")),
            ]))),
            Self::Mebibytes(count) => {
                let chunk = Bytes::from(vec![b' '; 1 << 20]);
                let chunks = std::iter::repeat_n(chunk, count).map(Ok::<_, std::io::Error>);
                builder.body(Body::from_stream(futures::stream::iter(chunks)))
            }
        };
        built.unwrap()
    }
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path: `GET /repos/acme/infra/pulls/12`.
    pub line: String,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Value,
}

impl Asked {
    /// Returns a header as text, empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Default)]
struct Script {
    replies: HashMap<String, VecDeque<Reply>>,
    asked: Vec<Asked>,
    unexpected: Vec<String>,
}

/// A scripted GitHub. It fails at its end if a reply is unused, or if it got a request without a scripted reply.
pub struct ScriptedGitHub {
    /// Origin of the server.
    pub url: String,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

impl ScriptedGitHub {
    /// Starts on a free port.
    pub async fn start() -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&script));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, script, task }
    }

    /// Scripts the reply to the next request with this line.
    pub fn on(&self, line: &str, reply: Reply) {
        self.script
            .lock()
            .unwrap()
            .replies
            .entry(line.to_owned())
            .or_default()
            .push_back(reply);
    }

    /// Returns the requests since the last call, in order.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    /// Returns the first lines of [`Self::asked`].
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// Creates a client with a fixed token.
    pub fn client(&self) -> GitHub {
        self.client_of(token("ghp_test"), &Arc::new(ManualClock::new(start())))
    }

    /// Creates a client with credentials and a clock.
    pub fn client_of(&self, auth: GitHubAuth, clock: &Arc<ManualClock>) -> GitHub {
        let clock = Arc::clone(clock);
        GitHub::new(endpoints(&self.url), auth, clock, Timeouts::default()).unwrap()
    }
}

impl Drop for ScriptedGitHub {
    fn drop(&mut self) {
        self.task.abort();
        if std::thread::panicking() {
            return;
        }
        let script = self.script.lock().unwrap();
        assert!(
            script.unexpected.is_empty(),
            "nobody scripted {:?}",
            script.unexpected
        );
        let unused: Vec<&String> = script
            .replies
            .iter()
            .filter(|(_, left)| !left.is_empty())
            .map(|(l, _)| l)
            .collect();
        assert!(unused.is_empty(), "nobody asked for {unused:?}");
    }
}

async fn answer(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let line = format!("{} {}", parts.method, parts.uri);
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let asked = Asked {
        line: line.clone(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let reply = {
        let mut script = script.lock().unwrap();
        script.asked.push(asked);
        let reply = script.replies.get_mut(&line).and_then(VecDeque::pop_front);
        if reply.is_none() {
            script.unexpected.push(line);
        }
        reply
    };
    reply
        .unwrap_or_else(|| Reply::status(418, &Value::Null))
        .send()
}

/// Returns the addresses of the server, which represents github.com.
pub fn endpoints(url: &str) -> GitHubEndpoints {
    GitHubEndpoints::new("github.com", Some(url.parse().unwrap())).unwrap()
}

/// Returns credentials with a fixed token.
pub fn token(text: &str) -> GitHubAuth {
    GitHubAuth::Token {
        user: None,
        token: TokenSource::Fixed(Secret::new(text)),
    }
}

/// Returns a write permit that nobody takes over.
pub fn anybody() -> WritePermit {
    Arc::new(Anybody)
}

struct Anybody;

#[async_trait]
impl Permit for Anybody {
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

/// Returns the time when tests begin.
pub fn start() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Returns the pull request of the tests.
pub fn pull() -> PullRef {
    PullRef {
        repo: "github.com/acme/infra".parse().unwrap(),
        subject: Subject::pull(12),
    }
}
