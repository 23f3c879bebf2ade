//! Deployments that exchange versions, each with its own database, name, key and listener.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use lockkeeper::config::server::MissLimits;
use lockkeeper::features::registry::{
    CheckedPackage, JoinRequest, NamePatterns, NewInvitation, Peer, PeerExchange, PeerState,
    PeerTerms, PeerUrl, Published, PullReport, PushReport, RegistryVersion, VersionOrigin,
    Visibility,
};
use lockkeeper::secret::Secret;
use lockkeeper::store::Store;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::states::BaseLocation;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

use super::stores::objects;
use super::world::{RegistryAdmin, Replica, by_ops};
use crate::support::db::{Backend, TestDb};

/// Time after which a test fails that waits for another deployment.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A change of answers on their way. It gets the path of the request.
pub type Tamper = Box<dyn Fn(&str, Answered) -> Answered + Send + Sync>;

/// Status and body of an answer.
pub struct Answered {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Connection between a deployment and the others.
#[derive(Default)]
struct Wire {
    router: Option<Router>,
    tamper: Option<Tamper>,
    gate: Option<Arc<Gate>>,
    /// Address to which all requests are redirected.
    leads_to: Option<String>,
}

/// Holds back answers to requests for paths with a text, until it is opened.
pub struct Gate {
    part: &'static str,
    waiting: watch::Sender<usize>,
    is_open: watch::Sender<bool>,
}

impl Gate {
    async fn pass(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let mut open = self.is_open.subscribe();
        let open = timeout(PATIENCE, open.wait_for(|is_open| *is_open)).await;
        drop(open.expect("nobody has opened the gate").unwrap());
    }

    /// Waits until so many requests have come.
    pub async fn arrived(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        let arrived = timeout(PATIENCE, waiting.wait_for(|waiting| *waiting >= count)).await;
        drop(arrived.expect("too few requests have come").unwrap());
    }

    /// Returns the number of requests that have come.
    pub fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }
}

/// A deployment of a test.
pub struct Deployment {
    pub db: TestDb,
    pub admin: RegistryAdmin,
    pub server: Replica,
    pub peers: Arc<PeerExchange>,
    pub url: PeerUrl,
    pub token: String,
    wire: Arc<Mutex<Wire>>,
    _task: AbortOnDropHandle<()>,
}

/// Parses patterns of names, a line each.
fn patterns(text: &str) -> NamePatterns {
    text.parse().unwrap()
}

pub fn name(text: &str) -> DeploymentName {
    text.parse().unwrap()
}

impl Deployment {
    pub async fn open(backend: Backend, name: &str, flags: &[(&str, &str)]) -> Self {
        let db = TestDb::new(backend).await;
        let mut admin = RegistryAdmin::named(&db, name).await;
        admin.has_local_peers = true;
        let (_, token) = admin.token(&["read:*"]).await;
        // Without other flags, a miss asks nobody: tests pull on their own.
        let own = [("registry-name", name), ("registry-on-miss", "*=never")];
        let flags = [&own, flags].concat();
        let patient = |limits: &mut MissLimits| limits.wait = Duration::from_mins(1);
        let server = admin.server_within(&db, 1, (&flags, &[]), patient).await;
        Self::listening(db, admin, token, server).await
    }

    /// Opens a deployment whose packages are in an object store, with the variables that its server needs.
    pub async fn open_in_store(
        backend: Backend,
        name: &str,
        url: &str,
        variables: &[(&'static str, String)],
    ) -> Self {
        let db = TestDb::new(backend).await;
        let admin = RegistryAdmin::named_in_store(&db, name, objects(url, variables)).await;
        let (_, token) = admin.token(&["read:*"]).await;
        let data = db.dir.path().join("disk");
        std::fs::create_dir(&data).unwrap();
        let flags = [
            ("registry-name", name),
            ("registry-on-miss", "*=never"),
            ("registry-store", url),
        ];
        let variables = variables.iter();
        let variables: Vec<(&str, &str)> = variables
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let server = admin.server_in(&db, 1, &data, &flags, &variables).await;
        Self::listening(db, admin, token, server).await
    }

    /// Lets a server listen for other deployments.
    async fn listening(db: TestDb, admin: RegistryAdmin, token: String, server: Replica) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let wire = Arc::new(Mutex::new(Wire {
            router: Some(server.router.clone()),
            ..Wire::default()
        }));
        let of_task = Arc::clone(&wire);
        let app =
            Router::new().fallback(move |request: Request| carry(Arc::clone(&of_task), request));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            peers: Arc::new(server.peers().await),
            db,
            admin,
            server,
            url: url.parse().unwrap(),
            token,
            wire,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub fn store(&self) -> &Store {
        self.db.store()
    }

    fn wire(&self) -> std::sync::MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the deployment off, or connects it again.
    pub fn reachable(&self, is_reachable: bool) {
        self.wire().router = is_reachable.then(|| self.server.router.clone());
    }

    /// Holds back answers of this deployment to requests for paths with a text.
    pub fn hold(&self, part: &'static str) -> Arc<Gate> {
        let gate = Arc::new(Gate {
            part,
            waiting: watch::Sender::new(0),
            is_open: watch::Sender::new(false),
        });
        self.wire().gate = Some(Arc::clone(&gate));
        gate
    }

    /// Changes all answers of this deployment on their way.
    pub fn tamper(&self, tamper: impl Fn(&str, Answered) -> Answered + Send + Sync + 'static) {
        self.wire().tamper = Some(Box::new(tamper));
    }

    /// Redirects all requests to another address.
    pub fn redirect(&self, to: String) {
        self.wire().leads_to = Some(to);
    }

    /// Sends all answers unchanged again.
    pub fn honest(&self) {
        let mut wire = self.wire();
        wire.tamper = None;
        wire.leads_to = None;
    }

    /// Invites another deployment. Returns the word.
    pub async fn invite(&self, other: &Self, shares: &str, accepts: &str) -> Secret {
        let new = NewInvitation {
            url: other.url.clone(),
            shares: patterns(shares),
            accepts: patterns(accepts),
            visibility: Visibility::Public,
            expires: Duration::from_hours(1),
        };
        let word = self.peers.invite(new, &by_ops()).await.unwrap();
        word.unwrap()
    }

    /// Describes a join of another deployment.
    pub fn request(other: &Self, word: &Secret, shares: &str, accepts: &str) -> JoinRequest {
        JoinRequest {
            url: other.url.clone(),
            word: word.clone(),
            shares: patterns(shares),
            accepts: patterns(accepts),
            visibility: Visibility::Public,
        }
    }

    /// Joins with another deployment. Each side reads and accepts these names of the other.
    pub async fn join(&self, other: &Self, ours: &str, theirs: &str) {
        let word = other.invite(self, theirs, ours).await;
        let request = Self::request(other, &word, ours, theirs);
        let joined = self.peers.join(request, &by_ops()).await.unwrap();
        joined.unwrap();
    }

    pub async fn peer(&self, of: &str) -> Peer {
        self.store()
            .registry_peer(&name(of))
            .await
            .unwrap()
            .unwrap()
    }

    /// Returns the token that this deployment presents to another one.
    pub async fn token_for(&self, other: &Self) -> String {
        let peer = self.peer(other.admin.registry.name().as_str()).await;
        self.peers.token_of(&peer).unwrap().expose().to_owned()
    }

    pub async fn state(&self, of: &str) -> PeerState {
        self.peer(of).await.state
    }

    /// Changes the state of a peer. Returns false if it was in another one.
    pub async fn turn(&self, of: &str, from: PeerState, to: PeerState) -> bool {
        let (of, cause) = (name(of), by_ops());
        let turned = self
            .store()
            .registry_peer_turn(&of, &[from], to, &cause)
            .await;
        turned.unwrap().is_some()
    }

    pub async fn change(&self, of: &str, terms: PeerTerms) {
        let (of, cause) = (name(of), by_ops());
        let changed = self.store().registry_peer_change(&of, &terms, &cause).await;
        assert!(changed.unwrap().is_some());
    }

    /// Shares these names with a peer.
    pub async fn shares(&self, of: &str, shares: &str) {
        let terms = PeerTerms {
            shares: Some(patterns(shares)),
            ..PeerTerms::default()
        };
        self.change(of, terms).await;
    }

    /// Accepts records of a peer for these names.
    pub async fn accepts(&self, of: &str, accepts: &str) {
        let terms = PeerTerms {
            accepts: Some(patterns(accepts)),
            ..PeerTerms::default()
        };
        self.change(of, terms).await;
    }

    pub async fn error(&self, of: &str) -> String {
        self.peer(of)
            .await
            .error
            .map_or(String::new(), |(why, _)| why)
    }

    /// Reads the logs of all peers once. Returns the number of records that were added.
    pub async fn pull(&self) -> u64 {
        let PullReport { records, .. } = self.peers.pull_all().await.unwrap();
        records
    }

    /// Tells all peers of what is due. Returns the number of records that they have decided about.
    pub async fn push(&self) -> u64 {
        let PushReport { records, .. } = self.peers.push_due(PATIENCE).await.unwrap();
        records
    }

    /// Publishes a version as one that was fetched from a repository.
    pub async fn fetch(&self, key: &str, files: &[(&str, &[u8])]) {
        let package = CheckedPackage {
            committed_at: Some("2025-01-02T03:04:05Z".parse().unwrap()),
            ..self.admin.package(&key.parse().unwrap(), files).await
        };
        let (registry, by) = (&self.admin.registry, by_ops());
        let published = registry.publish(package, VersionOrigin::VersionControl, &by);
        assert!(matches!(published.await, Ok(Published::New(_))));
    }

    pub async fn version(&self, key: &str) -> Option<RegistryVersion> {
        let key = key.parse().unwrap();
        self.store().registry_version(&key).await.unwrap()
    }

    /// Returns true if the packages of a version are here.
    pub async fn is_here(&self, key: &str) -> bool {
        let version = self.version(key).await;
        let located = version.as_ref().and_then(|version| version.known.content());
        located.is_some_and(|located| located.base == BaseLocation::Here)
    }

    /// Recomputes everything, and returns what is wrong.
    pub async fn fault(&self) -> Option<String> {
        let verified = self.admin.registry.verify(true).await.unwrap();
        verified.err().map(|fault| fault.to_string())
    }
}

async fn carry(wire: Arc<Mutex<Wire>>, request: Request) -> Response {
    let router = wire
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .router
        .clone();
    let Some(router) = router else {
        // A client sees a connection that ends.
        let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
        let mut response = Response::new(Body::from_stream(broken));
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, 9.into());
        return response;
    };
    let path = request.uri().path().to_owned();
    let leads_to = wire
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .leads_to
        .clone();
    if let Some(to) = leads_to {
        let to = [(header::LOCATION, format!("{to}{path}"))];
        return (StatusCode::TEMPORARY_REDIRECT, to).into_response();
    }
    let response = router.oneshot(request).await.unwrap();
    let gate = wire
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .gate
        .clone();
    if let Some(gate) = gate.filter(|gate| path.contains(gate.part)) {
        gate.pass().await;
    }
    let is_tampered = wire
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .tamper
        .is_some();
    if !is_tampered {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let answered = Answered {
        status: parts.status,
        body,
    };
    let wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = match &wire.tamper {
        Some(tamper) => tamper(&path, answered),
        None => answered,
    };
    let mut response = Response::new(Body::from(answered.body));
    *response.status_mut() = answered.status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
