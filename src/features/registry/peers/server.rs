//! Answers to peers, below `/registry/peer/v1`:
//!
//! | Request | Answer |
//! |--|--|
//! | `POST join` | a one-time word becomes a peer: keys and tokens are exchanged |
//! | `GET members` | deployments that this one exchanges with |
//! | `GET diff?after=ID&limit=N&met=SIZE` | records after one, those that are not shared as hashes alone |
//! | `GET packages/{sha256}` | a package of a version that is shared |
//! | `POST versions` | a record that the peer has made, before it is read in its log (`push.rs`) |
//!
//! A peer presents the token that was made for it when it joined; tokens of clients do not count here, and that token
//! counts nowhere else. A peer reads the names that an administrator shares with it. Names that are not for everyone have to
//! be named: by a pattern that has no names outside of their namespace.
//!
//! A peer has [`AT_ONCE`] requests at a time, and pushes [`PUSHES_IN_MINUTE`] records at most.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::TryStreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper_registry::names::{NamePattern, RegistryName};
use lockkeeper_registry::records::{DeploymentName, LogAction, LogId, MAX_RECORD_BYTES, Record};
use lockkeeper_registry::tlog::{self, TreeHead};
use serde::Deserialize;
use sha2::Sha256;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::{error, info};

use super::super::namespaces::{RegistryNamespace, Visibility};
use super::super::serve::bearer_token;
use super::super::service::{Registry, RegistryError};
use super::PeerExchange;
use super::join::{JoinBody, JoinFault};
use super::merge::PushOutcome;
use super::model::{NamePatterns, Peer, PeerState, is_token, secret_hash};
use super::page::{
    DiffBody, DiffItem, MAX_ITEMS, PAGE_BYTES, WithheldItem, end_text, read_end_text,
};
use super::pull::{MemberBody, MembersBody};
use super::push::NO_PUSH;
use crate::errors::describe_error;
use crate::kit::web::{RouteAccess, Routes};
use crate::model::Sha256Digest;

/// Maximum number of requests of a peer at a time.
const AT_ONCE: usize = 8;

/// Number of records that are read at a time, so that a page takes little more memory than it has bytes.
const READ_AT_ONCE: i64 = 100;

/// Maximum size of the body of a join.
const JOIN_BYTES: usize = 16 << 10;

/// Maximum size of a push. A record has [`MAX_RECORD_BYTES`] at most, and JSON writes some characters longer.
const PUSH_BYTES: usize = 4 * MAX_RECORD_BYTES;

/// Maximum number of pushes of a peer in a minute on this server. More records come with pages of the log.
const PUSHES_IN_MINUTE: u32 = 600;

const WRONG_TOKEN: &str =
    "The token is not valid here. A deployment that was removed has to join again.";
const STOPPED: &str = "An administrator of this deployment has stopped the exchange.";
const NOT_FOUND: &str = "There is no such package, or it is not shared.";
const DATABASE_AWAY: &str = "The database does not answer. Try again in a moment.";
const STORE_AWAY: &str = "The store of packages does not answer. Try again in a moment.";
const FAILED: &str = "The registry has failed. The log of the server says why.";
const NO_JOIN: &str = "Send the JSON of a join, with the header Content-Type: application/json.";
const NO_RANGE: &str = "Write after=ID, limit=N from 1, and accepts=PATTERNS.";

fn busy_text() -> String {
    format!("A deployment has {AT_ONCE} requests at a time. Try again.")
}

fn pushes_text() -> String {
    format!(
        "A deployment pushes {PUSHES_IN_MINUTE} records in a minute at most. The others are read in its log."
    )
}

/// Returns true if a deployment refuses requests of a peer with this text. At an address that somebody has named, another
/// service may answer, and its text is not for everyone who sees the peers.
pub(super) fn is_refusal(text: &str) -> bool {
    let fixed = [
        WRONG_TOKEN,
        STOPPED,
        NOT_FOUND,
        DATABASE_AWAY,
        STORE_AWAY,
        FAILED,
        NO_JOIN,
        NO_RANGE,
    ];
    fixed.contains(&text)
        || text == busy_text()
        || text == pushes_text()
        || read_end_text(text).is_some()
        || JoinFault::is_refusal(text)
}

/// Registry for the requests of peers, and the places of each.
pub(crate) struct PeerServer {
    peers: Arc<PeerExchange>,
    places: Mutex<HashMap<DeploymentName, Arc<Semaphore>>>,
    pushes: Mutex<HashMap<DeploymentName, CountedPushes>>,
}

/// Pushes of a peer since the beginning of a minute.
struct CountedPushes {
    since: Instant,
    count: u32,
}

/// Returns the routes, which sign in on their own.
pub(crate) fn routes() -> Routes<Arc<PeerServer>> {
    let open = RouteAccess::Everybody;
    Routes::new()
        .with(
            Method::POST,
            "/registry/peer/v1/join",
            open,
            post(join).layer(DefaultBodyLimit::max(JOIN_BYTES)),
        )
        .with(Method::GET, "/registry/peer/v1/members", open, get(members))
        .with(Method::GET, "/registry/peer/v1/diff", open, get(diff))
        .with(
            Method::GET,
            "/registry/peer/v1/packages/{digest}",
            open,
            get(package),
        )
        .with(
            Method::POST,
            "/registry/peer/v1/versions",
            open,
            post(versions),
        )
}

/// Reason why a peer gets no content.
#[derive(Debug)]
enum ExchangeRefusal {
    /// The request has no token of a peer.
    WrongToken,
    /// The exchange was stopped here.
    Stopped,
    /// The peer has too many requests.
    Busy,
    /// The peer pushes too many records.
    TooManyPushes,
    /// A push counts for nothing, for this reason.
    NotAccepted(String),
    /// A push cannot be one of this peer, for this reason.
    BadPush(String),
    /// The pushed version has other content here.
    OtherContent,
    /// The pushed version was taken down.
    TakenDown,
    BadRequest(&'static str),
    /// The log has fewer records.
    AfterEnd(u64),
    NotFound,
    Join(JoinFault),
    Failed(RegistryError),
}

impl From<RegistryError> for ExchangeRefusal {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for ExchangeRefusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<tlog::TlogError> for ExchangeRefusal {
    fn from(error: tlog::TlogError) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for ExchangeRefusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::WrongToken => (StatusCode::UNAUTHORIZED, WRONG_TOKEN.to_owned()),
            Self::Stopped => (StatusCode::FORBIDDEN, STOPPED.to_owned()),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, busy_text()),
            Self::TooManyPushes => (StatusCode::TOO_MANY_REQUESTS, pushes_text()),
            Self::NotAccepted(why) => (StatusCode::FORBIDDEN, why),
            Self::BadPush(why) => (StatusCode::UNPROCESSABLE_ENTITY, why),
            Self::OtherContent => (
                StatusCode::CONFLICT,
                "The version has other content here, which stays. Take the version down on either side, and publish a \
                 new one."
                    .to_owned(),
            ),
            Self::TakenDown => (
                StatusCode::GONE,
                "The version was taken down here, and its number is never used again.".to_owned(),
            ),
            Self::BadRequest(why) => (StatusCode::BAD_REQUEST, why.to_owned()),
            Self::AfterEnd(size) => (StatusCode::CONFLICT, end_text(size)),
            Self::NotFound => (StatusCode::NOT_FOUND, NOT_FOUND.to_owned()),
            Self::Join(JoinFault::Database(error))
            | Self::Failed(RegistryError::Database(error)) => {
                error!(error = describe_error(&error), "A request of a peer failed");
                (StatusCode::SERVICE_UNAVAILABLE, DATABASE_AWAY.to_owned())
            }
            Self::Join(fault) => {
                let status = match fault {
                    JoinFault::OtherKey
                    | JoinFault::TooMany
                    | JoinFault::Same
                    | JoinFault::OneSided(_) => StatusCode::CONFLICT,
                    JoinFault::Key => StatusCode::BAD_REQUEST,
                    JoinFault::Word
                    | JoinFault::NoInvitation
                    | JoinFault::Refused(_)
                    | JoinFault::Remote(_)
                    | JoinFault::Database(_) => StatusCode::FORBIDDEN,
                };
                (status, fault.to_string())
            }
            Self::Failed(error) if error.is_store_away() => {
                error!(error = describe_error(&error), "A request of a peer failed");
                (StatusCode::SERVICE_UNAVAILABLE, STORE_AWAY.to_owned())
            }
            Self::Failed(error) => {
                error!(error = describe_error(&error), "A request of a peer failed");
                (StatusCode::INTERNAL_SERVER_ERROR, FAILED.to_owned())
            }
        };
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        (status, [(header::CONTENT_TYPE, plain)], format!("{text}\n")).into_response()
    }
}

/// Names that a peer reads.
pub(super) struct SharedNames {
    peer: DeploymentName,
    shares: NamePatterns,
    /// Names that the peer wants.
    accepts: NamePatterns,
    /// Namespaces of owners here.
    namespaces: Vec<RegistryNamespace>,
    /// Names of other peers that are not for everyone, also those for which they are not accepted any more.
    closed_peers: Vec<NamePatterns>,
    /// Names of other peers that are for everyone.
    open_peers: Vec<NamePatterns>,
}

impl SharedNames {
    pub(super) fn new(
        peer: &Peer,
        accepts: NamePatterns,
        namespaces: Vec<RegistryNamespace>,
        peers: &[Peer],
    ) -> Self {
        // Versions of a peer that was stopped or removed stay, and so do their readers.
        let accepted = |visibility: Visibility| -> Vec<NamePatterns> {
            let peers = peers.iter().filter(|peer| peer.visibility == visibility);
            peers.map(|peer| peer.accepts.clone()).collect()
        };
        let mut closed_peers = accepted(Visibility::Owner);
        closed_peers.extend(peers.iter().map(|peer| peer.closed.clone()));
        Self {
            peer: peer.name.clone(),
            shares: peer.shares.clone(),
            accepts,
            namespaces,
            closed_peers,
            open_peers: accepted(Visibility::Public),
        }
    }

    /// Returns true if versions of the name are shared that came from a repository. Perhaps only people inside the network
    /// reach it, so a pattern for all names does not mean them.
    pub(super) fn has_fetched(&self, name: &RegistryName) -> bool {
        self.shares.single_out(name) && self.is_shared(name)
    }

    /// Returns true if versions of the name are shared that somebody has published.
    pub(super) fn has(&self, name: &RegistryName) -> bool {
        self.is_shared(name) && self.has_readers(name)
    }

    /// Returns true if a namespace has the name, or if a peer is accepted for it in any state. Nobody knows the readers of
    /// other names: the peer that published them may have been private. Clients do not get them either.
    fn has_readers(&self, name: &RegistryName) -> bool {
        let mut accepted = self.closed_peers.iter().chain(&self.open_peers);
        let mut namespaces = self.namespaces.iter();
        accepted.any(|patterns| patterns.matches(name))
            || namespaces.any(|namespace| namespace.prefix.covers(name))
    }

    fn is_shared(&self, name: &RegistryName) -> bool {
        if !self.accepts.matches(name) {
            return false;
        }
        let mut namespaces = self.namespaces.iter();
        // Sets of names that are not for everyone and that have this one. It is shared if all of them are named.
        let closed: Vec<NamePattern> =
            match namespaces.find(|namespace| namespace.prefix.covers(name)) {
                Some(namespace) if namespace.visibility == Visibility::Owner => {
                    vec![NamePattern::from(namespace.prefix.clone())]
                }
                Some(_) => Vec::new(),
                None => {
                    let accepted = self.closed_peers.iter().flatten();
                    let of_name = accepted.filter(|pattern| pattern.matches(name));
                    of_name.cloned().collect()
                }
            };
        if closed.is_empty() {
            self.shares.matches(name)
        } else {
            closed.iter().all(|set| self.shares.name_it(name, set))
        }
    }

    /// Returns a digest that changes when other names are shared. It depends on names that the peer may not know, so it has
    /// a key, and the peer cannot try out names.
    ///
    /// # Panics
    ///
    /// Never, because HMAC takes keys of any length.
    fn digest(&self, key: &[u8; 32]) -> String {
        let closed = self
            .namespaces
            .iter()
            .filter(|namespace| namespace.visibility == Visibility::Owner)
            .map(|namespace| NamePattern::from(namespace.prefix.clone()).to_string());
        let closed_peers = self.closed_peers.iter().flatten().map(ToString::to_string);
        let open = self.open_peers.iter().flatten().map(ToString::to_string);
        // Other peers with the same names, or without any, are no reason to read everything again.
        let closed: BTreeSet<String> = closed.chain(closed_peers).collect();
        let open: BTreeSet<String> = open.collect();
        let closed: Vec<String> = closed.into_iter().collect();
        let open: Vec<String> = open.into_iter().collect();
        let text = format!(
            "{}\n\n{}\n\n{}\n\n{}\n\n{}",
            self.peer,
            self.shares,
            self.accepts,
            closed.join("\n"),
            open.join("\n")
        );
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key).expect("a key of HMAC can have any length");
        mac.update(text.as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

impl PeerServer {
    pub(crate) fn new(peers: Arc<PeerExchange>) -> Self {
        Self {
            peers,
            places: Mutex::default(),
            pushes: Mutex::default(),
        }
    }

    /// Counts a push of a peer. Returns false if it is one too many.
    fn count_push(&self, peer: &DeploymentName) -> bool {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = pushes.entry(peer.clone()).or_insert(CountedPushes {
            since: Instant::now(),
            count: 0,
        });
        if counted.since.elapsed() >= Duration::from_mins(1) {
            (counted.since, counted.count) = (Instant::now(), 0);
        }
        counted.count = counted.count.saturating_add(1);
        counted.count <= PUSHES_IN_MINUTE
    }

    /// Finds out which peer sends a request, and takes one of its places.
    async fn enter(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Peer, OwnedSemaphorePermit), ExchangeRefusal> {
        let token = bearer_token(headers).filter(|token| is_token(token));
        let token = token.ok_or(ExchangeRefusal::WrongToken)?;
        let store = self.peers.registry.store();
        let peer = store.registry_peer_by_token(&secret_hash(&token)).await?;
        let peer = peer.ok_or(ExchangeRefusal::WrongToken)?;
        if !peer.state.may_read() {
            return Err(ExchangeRefusal::Stopped);
        }
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let places = places.entry(peer.name.clone());
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        let place = place
            .try_acquire_owned()
            .map_err(|_| ExchangeRefusal::Busy)?;
        Ok((peer, place))
    }
}

async fn join(
    State(server): State<Arc<PeerServer>>,
    body: Result<Json<JoinBody>, JsonRejection>,
) -> Result<Json<JoinBody>, ExchangeRefusal> {
    let Ok(Json(body)) = body else {
        return Err(ExchangeRefusal::BadRequest(NO_JOIN));
    };
    let answer = server.peers.accept(&body).await;
    let answer = answer.map_err(ExchangeRefusal::Join)?;
    info!("A deployment has joined with an invitation");
    Ok(Json(answer))
}

async fn members(
    State(server): State<Arc<PeerServer>>,
    headers: HeaderMap,
) -> Result<Json<MembersBody>, ExchangeRefusal> {
    let (asking, _place) = server.enter(&headers).await?;
    let peers = server.peers.registry.store().registry_peers().await?;
    let peers = peers.iter();
    let known = peers.filter(|peer| peer.state == PeerState::Joined && peer.name != asking.name);
    let members = known.map(|peer| MemberBody {
        url: peer.url.to_string(),
        key: peer.verifier.to_string(),
    });
    Ok(Json(MembersBody {
        members: members.collect(),
    }))
}

/// `?after=…&limit=…&met=…&accepts=…`
#[derive(Deserialize)]
struct DiffQuery {
    after: u64,
    limit: u64,
    /// Size of the longest tree that the peer has read.
    #[serde(default)]
    met: u64,
    /// Patterns of names that the peer wants, a line each.
    accepts: String,
}

async fn diff(
    State(server): State<Arc<PeerServer>>,
    headers: HeaderMap,
    query: Result<Query<DiffQuery>, QueryRejection>,
) -> Result<Json<DiffBody>, ExchangeRefusal> {
    let (peer, _place) = server.enter(&headers).await?;
    let bad = ExchangeRefusal::BadRequest(NO_RANGE);
    let Ok(Query(query)) = query else {
        return Err(bad);
    };
    let (Ok(accepts), 1..) = (query.accepts.parse::<NamePatterns>(), query.limit) else {
        return Err(bad);
    };
    let registry = &server.peers.registry;
    let namespaces = registry.store().registry_namespaces().await?;
    let peers = registry.store().registry_peers().await?;
    let shared = SharedNames::new(&peer, accepts, namespaces, &peers);
    let limit = usize::try_from(query.limit.min(MAX_ITEMS)).unwrap_or(1);
    let first = query
        .after
        .checked_add(1)
        .and_then(|id| i64::try_from(id).ok());
    let first = first
        .and_then(|id| LogId::new(id).ok())
        .ok_or(ExchangeRefusal::AfterEnd(0))?;
    let records = records(registry, first, limit).await?;
    // The head is read after the records, so it covers them.
    let head = registry.head().await?;
    let size = head.parse::<TreeHead>()?.size;
    if query.after.max(query.met) > size {
        return Err(ExchangeRefusal::AfterEnd(size));
    }
    let mut body = DiffBody {
        after: query.after,
        id: query.after,
        size,
        head: head.to_string(),
        sharing: shared.digest(&registry.sharing_key()),
        ..DiffBody::default()
    };
    let fetched = match (records.first(), records.last()) {
        (Some((first, _)), Some((last, _))) => {
            registry.store().registry_fetched(*first, *last).await?
        }
        _ => BTreeSet::new(),
    };
    for (id, text) in records {
        add(&mut body, id, text, (&shared, &fetched, registry.name()))?;
    }
    if query.after > peer.pushes.last_id {
        // It has merged these records, so nobody has to tell it of them.
        let read = registry
            .store()
            .registry_peer_has_read(&peer.name, query.after);
        read.await?;
    }
    body.proof = proof(registry, size, body.id).await?;
    body.met_proof = proof(registry, query.met, body.id).await?;
    Ok(Json(body))
}

/// Reads the records of a page, in steps until it has enough bytes.
async fn records(
    registry: &Registry,
    first: LogId,
    limit: usize,
) -> Result<Vec<(LogId, String)>, ExchangeRefusal> {
    let mut records: Vec<(LogId, String)> = Vec::new();
    let (mut from, mut bytes) = (first, 0);
    while records.len() < limit && bytes <= PAGE_BYTES {
        let read = registry.store().registry_records(from, READ_AT_ONCE);
        let read = read.await?;
        let Some((last, _)) = read.last() else { break };
        let Ok(after) = LogId::new(last.get() + 1) else {
            break;
        };
        from = after;
        for (id, text) in read {
            if records.len() < limit && bytes <= PAGE_BYTES {
                bytes += text.len();
                records.push((id, text));
            }
        }
    }
    Ok(records)
}

/// Returns the proof that a tree of the log begins with an older one, if that is shorter and not empty.
async fn proof(registry: &Registry, size: u64, old: u64) -> Result<Vec<String>, ExchangeRefusal> {
    if old == 0 || old >= size {
        return Ok(Vec::new());
    }
    let query = tlog::prove_tree(size, old)?;
    let hashes = registry.store().registry_log_hashes(query.indexes());
    let hashes = hashes.await?;
    let proof = query.compute(&hashes)?;
    Ok(proof.iter().map(ToString::to_string).collect())
}

/// Adds a record to one of the lists of a page.
fn add(
    body: &mut DiffBody,
    id: LogId,
    text: String,
    (shared, fetched, own): (&SharedNames, &BTreeSet<LogId>, &DeploymentName),
) -> Result<(), ExchangeRefusal> {
    let damaged = || RegistryError::Damaged(format!("record {id} cannot be read"));
    let record = Record::parse(text.as_bytes()).map_err(|_| damaged())?;
    let number = u64::try_from(id.get()).map_err(|_| damaged())?;
    body.id = number;
    // R6: the name of a version that was fetched may belong to an owner at the peer, who has not published it. So its
    // record says that it was fetched, except one that an earlier release has made here. The record of another maker is
    // about a version that it has published, even if the same one was fetched here.
    let is_unclear = record.maker().deployment == *own && fetched.contains(&id);
    let is_shared = match record.fetched() {
        Some(_) => shared.has_fetched(&record.key().name()),
        None => !is_unclear && shared.has(&record.key().name()),
    };
    if !is_shared {
        let hash = tlog::record_hash(text.as_bytes()).to_string();
        body.withheld.push(WithheldItem { id: number, hash });
        return Ok(());
    }
    let list = match record.change().action() {
        LogAction::Add => &mut body.added,
        LogAction::Deprecate => &mut body.deprecated,
        LogAction::Delete => &mut body.deleted,
    };
    list.push(DiffItem {
        id: number,
        record: text,
    });
    Ok(())
}

async fn package(
    State(server): State<Arc<PeerServer>>,
    headers: HeaderMap,
    Path(digest): Path<String>,
) -> Result<Response, ExchangeRefusal> {
    let (peer, place) = server.enter(&headers).await?;
    let digest: Sha256Digest = digest.parse().map_err(|_| ExchangeRefusal::NotFound)?;
    let registry = &server.peers.registry;
    let namespaces = registry.store().registry_namespaces().await?;
    // What the peer accepts is its own affair, because it has the record.
    let all = NamePatterns::everything();
    let peers = registry.store().registry_peers().await?;
    let shared = SharedNames::new(&peer, all, namespaces, &peers);
    let mut last: Option<RegistryName> = None;
    loop {
        let names = registry.store();
        let names = names.registry_names_of_package(&digest, last.as_ref());
        let names = names.await?;
        let is_shared = names.iter().any(|(name, is_fetched)| {
            if *is_fetched {
                shared.has_fetched(name)
            } else {
                shared.has(name)
            }
        });
        if is_shared {
            break;
        }
        let (name, _) = names.last().ok_or(ExchangeRefusal::NotFound)?;
        last = Some(name.clone());
    }
    let package = registry
        .package(&digest)
        .await?
        .ok_or(ExchangeRefusal::NotFound)?;
    let pieces = package.read(0..package.size);
    // The place is taken until the last piece was sent.
    let pieces = pieces.inspect_ok(move |_| {
        let _taken = &place;
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(package.size));
    let content_type = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

async fn versions(
    State(server): State<Arc<PeerServer>>,
    request: Request,
) -> Result<Response, ExchangeRefusal> {
    let (parts, body) = request.into_parts();
    // Nothing of the body is read for strangers.
    let (peer, _place) = server.enter(&parts.headers).await?;
    if !server.count_push(&peer.name) {
        return Err(ExchangeRefusal::TooManyPushes);
    }
    let body = axum::body::to_bytes(body, PUSH_BYTES).await;
    let push = body.map_err(|_| ExchangeRefusal::BadPush(NO_PUSH.to_owned()))?;
    let (status, text) = match Box::pin(server.peers.receive(&peer, &push)).await? {
        PushOutcome::Merged => (StatusCode::ACCEPTED, "The record was received.\n"),
        PushOutcome::Known => (StatusCode::OK, "The record says nothing new.\n"),
        PushOutcome::Conflict => return Err(ExchangeRefusal::OtherContent),
        PushOutcome::Tombstoned => return Err(ExchangeRefusal::TakenDown),
        PushOutcome::NotAccepted(why) => return Err(ExchangeRefusal::NotAccepted(why)),
        PushOutcome::Bad(why) => return Err(ExchangeRefusal::BadPush(why)),
        PushOutcome::Stopped => return Err(ExchangeRefusal::Stopped),
    };
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok((status, [(header::CONTENT_TYPE, plain)], text).into_response())
}
