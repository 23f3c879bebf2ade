//! A minimal git server of a forge: bare repositories behind `git http-backend` with basic authentication.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use futures::{StreamExt as _, stream};
use memchr::memmem;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use super::installed::on_path;

/// Behaviour of the server, and its record of requests.
#[derive(Default)]
pub struct Log {
    /// `Authorization` header of every request, if any.
    pub authorization: Vec<Option<String>>,
    /// Refs that were requested with version 2 of the protocol.
    pub asked_for_refs: Vec<String>,
    /// Path of each of these requests.
    pub paths_of_refs: Vec<String>,
    /// LFS contents, by id.
    pub lfs: HashMap<String, String>,
    /// Number of bytes after which the next packs stop, if set.
    pub stall_after: Option<usize>,
}

/// A running server, which ends with the test's runtime.
#[derive(Clone)]
pub struct GitServer {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// Record of the requests.
    pub log: Arc<Mutex<Log>>,
    /// Notified when a pack was not sent to its end, see [`Log::stall_after`].
    pub stalled: Arc<Notify>,
    /// Beginnings of paths for which requests for refs are not answered yet.
    pub held: Arc<watch::Sender<BTreeSet<String>>>,
}

#[derive(Clone)]
struct Site {
    root: PathBuf,
    expected: Option<String>,
    redirect: Option<String>,
    log: Arc<Mutex<Log>>,
    stalled: Arc<Notify>,
    held: Arc<watch::Sender<BTreeSet<String>>>,
}

impl GitServer {
    /// Serves the repositories below `root`. `credentials` are `user:password`, required from clients if given.
    pub async fn start(root: &Path, credentials: Option<&str>) -> Self {
        let basic = |text| {
            format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD.encode(text)
            )
        };
        Self::serve(root, credentials.map(basic), None).await
    }

    /// Redirects everything to another server.
    pub async fn redirecting_to(other: &Self) -> Self {
        Self::serve(Path::new("/"), None, Some(other.url.clone())).await
    }

    async fn serve(root: &Path, expected: Option<String>, redirect: Option<String>) -> Self {
        let (log, stalled) = (Arc::<Mutex<Log>>::default(), Arc::<Notify>::default());
        let held = Arc::<watch::Sender<BTreeSet<String>>>::default();
        let (kept, told) = (Arc::clone(&log), Arc::clone(&stalled));
        let site = Site {
            root: root.to_owned(),
            expected,
            redirect,
            log: kept,
            stalled: told,
            held: Arc::clone(&held),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(site);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url,
            log,
            stalled,
            held,
        }
    }
}

async fn answer(State(site): State<Site>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let text = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let authorization = text(header::AUTHORIZATION);
    site.log
        .lock()
        .unwrap()
        .authorization
        .push(authorization.clone());
    if let Some(other) = &site.redirect {
        return (
            StatusCode::FOUND,
            [(header::LOCATION, format!("{other}{}", parts.uri))],
        )
            .into_response();
    }
    if site.expected.is_some() && site.expected != authorization {
        return (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")],
        )
            .into_response();
    }
    let stall_after = site.log.lock().unwrap().stall_after;
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let variables = [
        ("GIT_PROJECT_ROOT", site.root.display().to_string()),
        ("GIT_HTTP_EXPORT_ALL", "1".to_owned()),
        (
            "GIT_PROTOCOL",
            text(header::HeaderName::from_static("git-protocol")).unwrap_or_default(),
        ),
        ("REQUEST_METHOD", parts.method.to_string()),
        ("PATH_INFO", parts.uri.path().to_owned()),
        (
            "QUERY_STRING",
            parts.uri.query().unwrap_or_default().to_owned(),
        ),
        (
            "CONTENT_TYPE",
            text(header::CONTENT_TYPE).unwrap_or_default(),
        ),
        (
            "HTTP_CONTENT_ENCODING",
            text(header::CONTENT_ENCODING).unwrap_or_default(),
        ),
        ("CONTENT_LENGTH", body.len().to_string()),
        ("PATH", "/usr/bin:/bin".to_owned()),
        ("HOME", "/dev/null".to_owned()),
    ];
    let path = parts.uri.path();
    if path.ends_with("/info/lfs/objects/batch") {
        return lfs_batch(&site, &body, authorization.as_deref(), &parts.headers);
    }
    if let Some(id) = path.strip_prefix("/lfs/") {
        return site
            .log
            .lock()
            .unwrap()
            .lfs
            .get(id)
            .cloned()
            .unwrap_or_default()
            .into_response();
    }
    if memmem::find(&body, b"command=ls-refs").is_some() {
        {
            let mut log = site.log.lock().unwrap();
            let refs = String::from_utf8_lossy(&body).into_owned();
            log.asked_for_refs.push(refs);
            log.paths_of_refs.push(path.to_owned());
        }
        let mut held = site.held.subscribe();
        let is_answered =
            |held: &BTreeSet<String>| !held.iter().any(|begin| path.starts_with(begin.as_str()));
        // The sender belongs to the site.
        held.wait_for(is_answered).await.unwrap();
    }
    let is_pack = memmem::find(&body, b"command=fetch").is_some();
    let response = from_cgi(&run(&variables, body).await);
    match stall_after.filter(|_| is_pack) {
        Some(bytes) => stall(response, bytes, site.stalled).await,
        None => response,
    }
}

/// Answers a request for the addresses of contents (Git LFS: batch API).
fn lfs_batch(
    site: &Site,
    body: &[u8],
    authorization: Option<&str>,
    headers: &HeaderMap,
) -> Response {
    let asked: serde_json::Value = serde_json::from_slice(body).unwrap();
    let (log, host) = (
        site.log.lock().unwrap(),
        headers[header::HOST].to_str().unwrap(),
    );
    let told = asked["objects"].as_array().unwrap().iter().map(|object| {
        let (id, bytes) = (object["oid"].as_str().unwrap(), &object["size"]);
        if !log.lfs.contains_key(id) {
            return json!({"oid": id, "size": bytes, "error": {"code": 404, "message": "Object does not exist"}});
        }
        let action = json!({"href": format!("http://{host}/lfs/{id}"), "header": {"Authorization": authorization}});
        json!({"oid": id, "size": bytes, "authenticated": true, "actions": {"download": action}})
    });
    let told = json!({"transfer": "basic", "objects": told.collect::<Vec<_>>()}).to_string();
    (
        [(header::CONTENT_TYPE, "application/vnd.git-lfs+json")],
        told,
    )
        .into_response()
}

/// Sends the beginning of an answer that never ends.
async fn stall(response: Response, bytes: usize, stalled: Arc<Notify>) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    assert!(body.len() > bytes, "the pack has {} bytes only", body.len());
    let begin = stream::once(async move { Ok::<_, std::io::Error>(body.slice(..bytes)) });
    let end = stream::once(async move {
        stalled.notify_one();
        std::future::pending().await
    });
    Response::from_parts(parts, Body::from_stream(begin.chain(end)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a CGI program reads standard input, which `Cmd` does not offer"
)]
async fn run(variables: &[(&str, String)], body: Bytes) -> Vec<u8> {
    let mut command = tokio::process::Command::new(on_path("git"));
    command
        .arg("http-backend")
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program may end without reading everything.
    let write = async move { stdin.write_all(&body).await.ok() };
    let (_, output) = tokio::join!(write, child.wait_with_output());
    output.unwrap().stdout
}

fn from_cgi(output: &[u8]) -> Response {
    let end = memmem::find(output, b"\r\n\r\n").expect("headers of a CGI answer");
    let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
    for line in std::str::from_utf8(&output[..end]).unwrap().split("\r\n") {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            status = value[..3].parse().unwrap();
        } else {
            headers.insert(
                header::HeaderName::try_from(name).unwrap(),
                value.parse().unwrap(),
            );
        }
    }
    (status, headers, Body::from(output[end + 4..].to_vec())).into_response()
}
