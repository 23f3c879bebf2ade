//! An object store that can fail and lie, and that speaks as much of the protocol of S3 as the server uses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use lockkeeper::model::Sha256Digest;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// Address of the packages in the store.
pub const STORE_URL: &str = "s3://packages/mods";
/// Beginning of the keys of packages.
const PACKAGES: &str = "mods/sha256/";

/// Behaviour of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreFault {
    #[default]
    None,
    /// Requests are answered with status 503.
    Away,
    /// Requests are answered when the fault has ended.
    Silent,
    /// Packages have another first byte.
    Lies,
    /// Packages end in the middle.
    CutsOff,
    /// Requests are refused, with a text that repeats a secret of them.
    Refuses,
    /// Requests are sent to another address.
    Redirects,
    /// Conditions of requests are not known.
    NoConditions,
    /// Packages are written, and the answer is lost. The next attempt to end an upload in parts finds no upload.
    LosesAnswer,
    /// Packages that were written are not there.
    LosesPackages,
    /// Removals are held until the test lets them go on.
    Holds,
}

/// Answer that repeats the request, as S3 does.
const REFUSAL: &str = "<Error><Code>SignatureDoesNotMatch</Code><CanonicalRequest>\
    x-amz-security-token:secret-of-the-store</CanonicalRequest></Error>";

/// The store, with everything that it has.
#[derive(Default)]
pub struct FakeStore {
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    pub parts: Mutex<BTreeMap<String, Vec<u8>>>,
    fault: watch::Sender<StoreFault>,
    /// Number of requests in which the fault made a difference.
    failures: AtomicUsize,
    /// Packages whose writing was confirmed and that are not there.
    lost: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Methods and keys of the requests for packages.
    pub requests: Mutex<Vec<(Method, String)>>,
    /// Key of an object that nobody may remove.
    pub retained: Mutex<Option<String>>,
    /// A removal has arrived, and may go on.
    pub held: Notify,
    pub released: Notify,
}

impl FakeStore {
    /// Starts the store. Returns it with the variables that a server needs.
    pub async fn start() -> (Arc<Self>, Vec<(&'static str, String)>) {
        let store = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(store.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (store, variables_of_s3(url))
    }

    /// Behaves like this from now on.
    pub fn set(&self, fault: StoreFault) {
        self.fault.send_replace(fault);
    }

    fn fault(&self) -> StoreFault {
        *self.fault.borrow()
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Returns the number of requests with this method for a package.
    pub fn count(&self, method: &Method, digest: &Sha256Digest) -> usize {
        let key = key_of(digest);
        let requests = self.requests.lock().unwrap();
        let of_package = requests
            .iter()
            .filter(|(sent, of)| sent == method && *of == key);
        of_package.count()
    }

    /// Returns the number of requests so far in which a fault made a difference.
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::SeqCst)
    }

    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the packages that the store has lost, with their bytes.
    pub fn lost(&self) -> Vec<(Sha256Digest, Vec<u8>)> {
        let lost = self.lost.lock().unwrap();
        let lost = lost.iter().map(|(key, content)| {
            let digest = key.strip_prefix(PACKAGES).unwrap().replace('/', "");
            (digest.parse().unwrap(), content.clone())
        });
        lost.collect()
    }

    /// Returns true if the store has lost this package.
    pub fn has_lost(&self, digest: &Sha256Digest) -> bool {
        self.lost.lock().unwrap().contains_key(&key_of(digest))
    }

    /// Puts a package back as from a backup, if it is lost.
    pub fn restore(&self, digest: &Sha256Digest) {
        let key = key_of(digest);
        let mut lost = self.lost.lock().unwrap();
        if let Some(content) = lost.remove(&key) {
            self.objects.lock().unwrap().insert(key, content);
        }
    }

    /// Stores an object, unless it is a package and the store loses those.
    fn write(&self, fault: StoreFault, key: String, content: Vec<u8>) {
        let mut lost = self.lost.lock().unwrap();
        if fault == StoreFault::LosesPackages && key.starts_with(PACKAGES) {
            self.failed();
            // What was there before stays.
            if !self.objects.lock().unwrap().contains_key(&key) {
                lost.insert(key, content);
            }
        } else {
            lost.remove(&key);
            self.objects.lock().unwrap().insert(key, content);
        }
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Response {
        let fault = self.fault();
        if fault == StoreFault::Away {
            self.failed();
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let key = path
            .trim_start_matches("/packages")
            .trim_start_matches('/')
            .to_owned();
        let is_package = key.contains("sha256/");
        if is_package {
            let mut requests = self.requests.lock().unwrap();
            requests.push((method.clone(), key.clone()));
        }
        if fault == StoreFault::Refuses {
            self.failed();
            return (StatusCode::FORBIDDEN, REFUSAL).into_response();
        }
        if fault == StoreFault::Redirects {
            self.failed();
            return Redirect::temporary("/packages/sha256/elsewhere").into_response();
        }
        let tag = [(header::ETAG, "\"tag\"")];
        match (method.as_str(), query) {
            ("GET", list) if list.contains("list-type=2") => {
                let objects = self.objects.lock().unwrap();
                list_of(objects.keys().filter(|key| key.contains("/sha256/")))
            }
            ("GET" | "HEAD", _) => {
                let Some(mut content) = self.objects.lock().unwrap().get(&key).cloned() else {
                    return StatusCode::NOT_FOUND.into_response();
                };
                let is_other = is_package && fault == StoreFault::Lies;
                let is_cut_off = is_package && fault == StoreFault::CutsOff;
                if is_other {
                    content[0] ^= 1;
                }
                if method == Method::GET && (is_other || is_cut_off) {
                    self.failed();
                }
                object(method, headers, content, is_cut_off)
            }
            ("PUT", part) if part.contains("partNumber") => {
                let mut parts = self.parts.lock().unwrap();
                parts.entry(key).or_default().extend_from_slice(&body);
                tag.into_response()
            }
            ("PUT", _) => {
                let is_conditional = headers.contains_key(header::IF_NONE_MATCH);
                if is_conditional && fault == StoreFault::NoConditions {
                    self.failed();
                    return StatusCode::NOT_IMPLEMENTED.into_response();
                }
                if is_conditional && self.objects.lock().unwrap().contains_key(&key) {
                    return StatusCode::PRECONDITION_FAILED.into_response();
                }
                self.write(fault, key, body);
                if is_package && fault == StoreFault::LosesAnswer {
                    self.failed();
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                tag.into_response()
            }
            ("POST", "uploads" | "uploads=") => xml(
                "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>",
            ),
            ("POST", _) => {
                let content = self.parts.lock().unwrap().remove(&key).unwrap();
                self.write(fault, key, content);
                if fault == StoreFault::LosesAnswer {
                    self.failed();
                    return StatusCode::NOT_FOUND.into_response();
                }
                xml(
                    "<CompleteMultipartUploadResult><ETag>tag</ETag></CompleteMultipartUploadResult>",
                )
            }
            ("DELETE", upload) if upload.contains("uploadId") => {
                self.parts.lock().unwrap().remove(&key);
                StatusCode::NO_CONTENT.into_response()
            }
            ("DELETE", _) => {
                if self.retained.lock().unwrap().as_ref() == Some(&key) {
                    return StatusCode::FORBIDDEN.into_response();
                }
                self.objects.lock().unwrap().remove(&key);
                StatusCode::NO_CONTENT.into_response()
            }
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    }
}

async fn answer(State(store): State<Arc<FakeStore>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    let query = parts.uri.query().unwrap_or_default();
    if store.fault() == StoreFault::Holds && parts.method == Method::DELETE {
        store.held.notify_one();
        store.released.notified().await;
    }
    if store.fault() == StoreFault::Silent {
        store.failed();
        let mut faults = store.fault.subscribe();
        let ended = faults.wait_for(|fault| *fault != StoreFault::Silent).await;
        ended.map(drop).expect("the store has the sender");
    }
    store.answer(&parts.method, parts.uri.path(), query, &parts.headers, body)
}

fn xml(text: &str) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], text.to_owned()).into_response()
}

fn list_of<'a>(keys: impl Iterator<Item = &'a String>) -> Response {
    let found = keys.map(|key| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-03-02T09:00:00.000Z</LastModified>\
             <ETag>tag</ETag><Size>1</Size></Contents>"
        )
    });
    let found: Vec<String> = found.collect();
    xml(&format!(
        "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>",
        found.concat()
    ))
}

/// Answers with an object or a part of it, which can be cut off.
fn object(method: &Method, headers: &HeaderMap, content: Vec<u8>, is_cut_off: bool) -> Response {
    let size = content.len();
    let range = headers.get(header::RANGE).and_then(|range| {
        let range = range.to_str().ok()?.strip_prefix("bytes=")?;
        let (start, end) = range.split_once('-')?;
        let (start, end): (usize, usize) = (start.parse().ok()?, end.parse().ok()?);
        Some((start, end.min(size.saturating_sub(1))))
    });
    if range.is_some_and(|(start, _)| start >= size) {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let tag = format!("\"{}\"", Sha256Digest::of(&content));
    let mut response = Response::builder()
        .header(header::ETAG, tag)
        .header(header::LAST_MODIFIED, "Mon, 02 Mar 2026 09:00:00 GMT");
    let part = match range {
        None => content,
        Some((start, end)) => {
            let range = format!("bytes {start}-{end}/{size}");
            response = response
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, range);
            content[start..=end].to_vec()
        }
    };
    let sent = if is_cut_off {
        part.len() / 2
    } else {
        part.len()
    };
    let body = if method == Method::HEAD {
        response = response.header(header::CONTENT_LENGTH, part.len());
        Body::empty()
    } else {
        Body::from(part[..sent].to_vec())
    };
    response.body(body).unwrap()
}

/// Returns the variables of a server with a store of S3 at this address.
pub fn variables_of_s3(url: String) -> Vec<(&'static str, String)> {
    vec![
        ("LOCKKEEPER_STORE_AWS_ENDPOINT_URL", url),
        ("LOCKKEEPER_STORE_AWS_ALLOW_HTTP", "true".to_owned()),
        ("LOCKKEEPER_STORE_AWS_REGION", "us-east-1".to_owned()),
        ("LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID", "AKIATEST".to_owned()),
        (
            "LOCKKEEPER_STORE_AWS_SECRET_ACCESS_KEY",
            "secret-of-the-store".to_owned(),
        ),
    ]
}

/// Returns the key of a package in the store.
pub fn key_of(digest: &Sha256Digest) -> String {
    let (start, rest) = digest.as_str().split_at(2);
    format!("{PACKAGES}{start}/{rest}")
}
