//! Publishes, deprecates and takes down versions by tokens, for pipelines:
//!
//! | Request | Name in the address |
//! |--|--|
//! | `PUT /api/registry/module/acme/vpc/aws/1.2.3` | namespace, name and system of a Terraform module |
//! | `PUT /api/registry/go/example.com/m/v2/@v/v2.0.1` | path and version of a Go module, with `!` for capitals as `go` writes them |
//! | `POST …/deprecate`, `POST …/takedown` | the same, with `reason`, `replacement` and `kind` as JSON |
//!
//! `?dir=modules/vpc` names the directory of a Terraform module in a package that has others beside it. `lists.rs` has the
//! requests that only read.
//!
//! An upload names the SHA-256 of its body (`Content-Digest`, RFC 9530). The status of the answer says what the registry
//! has:
//!
//! | Status | Meaning |
//! |--|--|
//! | 201 | published |
//! | 200 | published before with the same files |
//! | 400 | no digest, or the request cannot be read |
//! | 401, 403 | no valid token; no scope for this name, or the name belongs to nobody here |
//! | 409 | published before with other files, or under a name that differs in case |
//! | 410 | taken down: the number is never used again |
//! | 413, 422 | too large; the digest is another one, or the package breaks a rule |
//! | 503 | too many uploads, or the store of packages does not answer |
//! | 507 | the disk has too little free space |
//!
//! Everything that needs no body is checked before it is read. The body goes to a file that nothing refers to and is
//! hashed on the way, so memory does not grow with it, and a refused one leaves nothing.
//!
//! Few are read and checked at once ([`AT_ONCE`]), because each can take as much room on the disk as its limit, and one
//! token has half of these places. A body that arrives slower than [`SLOWEST`] is refused. So neither a slow client nor
//! one that leaves early keeps others from publishing.
//!
//! Only bearer tokens count here. A browser sends a password that it knows with every request, also with one that a page
//! of somebody else makes.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::BodyDataStream;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use lockkeeper_registry::limits::ExceededLimit;
use lockkeeper_registry::names::{
    InvalidEscape, NameKind, RegistryName, unescape_path, unescape_version,
};
use lockkeeper_registry::records::{PackageFileName, RecordNotice, TakedownKind, VersionContent};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::{error, info};

use super::blobs::{BlobError, LowSpace, StagedBlob};
use super::input::{read_replacement, shown_key};
use super::lists;
use super::packaging::{CheckedPackage, PackagingError, limits};
use super::places::{ClientPlaces, take_all};
use super::serve::{ReadScope, RegistryServer, ServeRefusal, bearer_token};
use super::service::{Deprecated, Published, Registry, RegistryError, TakenDown};
use super::store::{RegistryVersion, VersionNotice, VersionOrigin};
use super::tokens::{Token, TokenAction, TokenId};
use super::view::{PublishedView, VersionView, checksums_of, notice_sentence};
use crate::errors::describe_error;
use crate::kit::web::extract::JsonBody;
use crate::kit::web::{RouteAccess, Routes, WebError, WebState, auth};
use crate::model::{Actor, Cause, Origin, Reason, RepoPath, Sha256Digest};
use crate::render::escape::push_visible;

/// Maximum number of bodies that are read and checked at once.
const AT_ONCE: usize = 4;
/// Maximum number of them for one token.
const AT_ONCE_OF_TOKEN: usize = 2;
/// Longest wait for one of these places.
const PLACE_TIME: Duration = Duration::from_secs(30);
/// Longest time for a body.
const BODY_TIME: Duration = Duration::from_mins(15);
/// Longest time between two parts of a body.
const STALL_TIME: Duration = Duration::from_secs(30);
/// Lowest number of bytes in a second, on average, after [`STALL_TIME`].
const SLOWEST: u64 = 64 * 1024;
/// Number of bytes of a refused body that are read. Many clients read no answer before they have sent everything.
const DRAINED: usize = 1 << 20;
/// Longest time for that.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Maximum size of a body that is a form.
const FORM_BYTES: usize = 16 * 1024;
/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 4_000;
/// Maximum number of lists that are made at once, and the longest wait for a place.
const LISTS_AT_ONCE: usize = 4;
const LIST_TIME: Duration = Duration::from_secs(10);
/// Header with the digest of a body.
const CONTENT_DIGEST: &str = "content-digest";
/// Maximum number of digests in that header.
const MAX_DIGESTS: usize = 8;

/// Takes uploads and changes by tokens.
pub(crate) struct RegistryUploads {
    web: Arc<WebState>,
    registry: Arc<Registry>,
    /// Knows who may read which names.
    server: Arc<RegistryServer>,
    places: ClientPlaces,
    lists: Arc<Semaphore>,
}

/// Sender of a request for a list, with a place for its answer, or for one version, which needs none.
pub(super) struct ListReader {
    pub scope: ReadScope,
    _place: Option<OwnedSemaphorePermit>,
}

/// Permission to read and check a body. It lives until the check has ended, also if the client leaves before.
struct UploadPlace {
    _places: Vec<OwnedSemaphorePermit>,
}

impl RegistryUploads {
    pub(crate) fn new(registry: Arc<Registry>, server: Arc<RegistryServer>) -> Self {
        Self {
            web: Arc::clone(server.web()),
            registry,
            server,
            places: ClientPlaces::new(AT_ONCE, AT_ONCE_OF_TOKEN),
            lists: Arc::new(Semaphore::new(LISTS_AT_ONCE)),
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Finds out what the sender of a request may read, and takes a place for the answer.
    pub(super) async fn list_reader(&self, headers: &HeaderMap) -> Result<ListReader, ApiRefusal> {
        let scope = self.server.read_scope(headers).await?;
        let place = Arc::clone(&self.lists).acquire_owned();
        match timeout(LIST_TIME, place).await {
            Ok(Ok(place)) => Ok(ListReader {
                scope,
                _place: Some(place),
            }),
            Ok(Err(_)) | Err(_) => Err(ApiRefusal::ListsBusy),
        }
    }

    /// Finds out what the sender of a request for one version may read.
    pub(super) async fn version_reader(
        &self,
        headers: &HeaderMap,
    ) -> Result<ListReader, ApiRefusal> {
        let scope = self.server.read_scope(headers).await?;
        Ok(ListReader {
            scope,
            _place: None,
        })
    }
}

/// Returns the routes, which sign in with tokens on their own.
pub(crate) fn routes() -> Routes<Arc<RegistryUploads>> {
    let open = RouteAccess::Everybody;
    let module = "/api/registry/module/{namespace}/{name}/{system}/{version}";
    let module_change = "/api/registry/module/{namespace}/{name}/{system}/{version}/{change}";
    let go = "/api/registry/go/{*path}";
    let form = || DefaultBodyLimit::max(FORM_BYTES);
    Routes::new()
        .with(Method::GET, "/api/registry/names", open, get(lists::names))
        .with(Method::GET, "/api/registry/log", open, get(lists::log))
        .with(
            Method::GET,
            "/api/registry/module/{namespace}/{name}/{system}",
            open,
            get(lists::module),
        )
        .with(Method::GET, module, open, get(lists::module_version))
        .with(Method::GET, go, open, get(lists::go))
        .with(Method::PUT, module, open, put(put_module))
        .with(
            Method::POST,
            module_change,
            open,
            post(change_module).layer(form()),
        )
        .with(Method::PUT, go, open, put(put_go))
        .with(Method::POST, go, open, post(change_go).layer(form()))
}

/// Reason why a request changes nothing, or lists nothing.
pub(super) enum ApiRefusal {
    /// The request has no valid token.
    Unauthorized,
    /// The token has no scope for this.
    NoScope {
        token: Box<Token>,
        action: TokenAction,
        name: RegistryName,
    },
    /// Nobody owns the name.
    NoNamespace(RegistryName),
    /// Nothing is at this address.
    NoAddress,
    /// The name or the version is not valid.
    Name(String),
    /// A capital letter is not written as `go` does.
    Escape(InvalidEscape),
    /// The digest of the body is missing or malformed.
    NoDigest(&'static str),
    /// The body has another digest.
    WrongDigest {
        claimed: Sha256Digest,
        found: Sha256Digest,
    },
    /// The body is compressed on the way.
    Encoded,
    /// The body has more bytes than allowed.
    TooLarge(u64),
    /// The body did not arrive in time.
    TooSlow,
    /// The body ended early.
    CutOff,
    /// Too many bodies are being read.
    Busy,
    /// Too many lists are being made.
    ListsBusy,
    /// The disk has no space for the package, or less than packages leave free.
    Full(Option<LowSpace>),
    /// The store of packages cannot be used at this moment.
    StoreAway(BlobError),
    /// The package was removed while it was published.
    PackageGone,
    /// The package breaks a rule.
    Package(PackagingError),
    /// The version has other files.
    Conflict {
        key: VersionKey,
        here: Box<VersionContent>,
        sent: Box<VersionContent>,
    },
    /// The name differs only in case from another one.
    CaseConflict(RegistryName),
    /// The version was taken down.
    TakenDown(VersionNotice),
    /// The version is not in the registry, or the reader may not read it.
    NotFound(VersionKey),
    /// The name is not in the registry, or the reader may not read it.
    NameNotFound(RegistryName),
    /// The place at which a list is to go on is not valid.
    After,
    /// A field cannot be used.
    Field {
        field: &'static str,
        problem: String,
        way_out: &'static str,
    },
    /// The registry refuses the change.
    Refused(String),
    /// The failure is already one of the web.
    Web(WebError),
    /// The registry failed, and not the request.
    Failed(RegistryError),
}

impl From<RegistryError> for ApiRefusal {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Refused(why) => Self::Refused(why),
            RegistryError::Blobs(error) => error.into(),
            RegistryError::PackageGone(_) => Self::PackageGone,
            RegistryError::Database(_) | RegistryError::Settings(_) | RegistryError::Damaged(_) => {
                Self::Failed(error)
            }
        }
    }
}

impl From<BlobError> for ApiRefusal {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::TooLarge(most) => Self::TooLarge(most),
            BlobError::LowSpace(low) => Self::Full(Some(low)),
            error @ (BlobError::File { .. }
            | BlobError::Store(_)
            | BlobError::Remote(_)
            | BlobError::NoStore(_)
            | BlobError::OtherStore(..)
            | BlobError::TwoStores(..)) => {
                if error.is_full() {
                    Self::Full(None)
                } else if error.is_unusable() {
                    Self::StoreAway(error)
                } else {
                    Self::Failed(error.into())
                }
            }
        }
    }
}

impl From<sqlx::Error> for ApiRefusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<ServeRefusal> for ApiRefusal {
    fn from(refusal: ServeRefusal) -> Self {
        match refusal {
            ServeRefusal::Failed(error) => error.into(),
            ServeRefusal::Busy => Self::Busy,
            // Finding out who sends a request ends with one of the first three.
            ServeRefusal::SignIn
            | ServeRefusal::WrongToken
            | ServeRefusal::RunEnded
            | ServeRefusal::NotFound(_)
            | ServeRefusal::TakenDown { .. }
            | ServeRefusal::Rule { .. }
            | ServeRefusal::BadRequest(_)
            | ServeRefusal::BadLink
            | ServeRefusal::NoSuchRange(_)
            | ServeRefusal::Elsewhere(_) => Self::Unauthorized,
        }
    }
}

impl From<PackagingError> for ApiRefusal {
    fn from(error: PackagingError) -> Self {
        match error {
            PackagingError::Blobs(error) => error.into(),
            error @ (PackagingError::Archive(_)
            | PackagingError::Zip(_)
            | PackagingError::Empty
            | PackagingError::Module(_)
            | PackagingError::GoMod(_)
            | PackagingError::Directory(_)
            | PackagingError::Token(_)) => Self::Package(error),
        }
    }
}

/// Body of a request that deprecates a version or takes it down.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ChangeBody {
    reason: String,
    replacement: Option<String>,
    kind: Option<String>,
}

/// Change that a request without a package asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VersionChange {
    Deprecate,
    TakeDown,
}

impl VersionChange {
    fn read(word: &str) -> Option<Self> {
        match word {
            "deprecate" => Some(Self::Deprecate),
            "takedown" => Some(Self::TakeDown),
            _ => None,
        }
    }

    fn action(self) -> TokenAction {
        match self {
            Self::Deprecate => TokenAction::Deprecate,
            Self::TakeDown => TokenAction::Takedown,
        }
    }
}

async fn put_module(
    State(uploads): State<Arc<RegistryUploads>>,
    Path((namespace, name, system, version)): Path<(String, String, String, String)>,
    request: Request,
) -> Response {
    let key = || module_key([&namespace, &name, &system], &version);
    uploads.answer_upload(key, request).await
}

async fn put_go(
    State(uploads): State<Arc<RegistryUploads>>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    uploads.answer_upload(|| go_key(&path), request).await
}

async fn change_module(
    State(uploads): State<Arc<RegistryUploads>>,
    Path((namespace, name, system, version, change)): Path<(
        String,
        String,
        String,
        String,
        String,
    )>,
    request: Request,
) -> Response {
    let key = || module_key([&namespace, &name, &system], &version);
    let changed = uploads.change(key, &change, request).await;
    changed.unwrap_or_else(ApiRefusal::into_response)
}

async fn change_go(
    State(uploads): State<Arc<RegistryUploads>>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    let (path, change) = path.rsplit_once('/').unwrap_or((&path, ""));
    let changed = uploads.change(|| go_key(path), change, request).await;
    changed.unwrap_or_else(ApiRefusal::into_response)
}

pub(super) fn module_name(name: [&str; 3]) -> Result<RegistryName, ApiRefusal> {
    let name = name.join("/").parse().map(RegistryName::Module);
    name.map_err(|error| ApiRefusal::Name(error.to_string()))
}

pub(super) fn module_key(name: [&str; 3], version: &str) -> Result<VersionKey, ApiRefusal> {
    let key = VersionKey::new(module_name(name)?, version);
    key.map_err(|error| ApiRefusal::Name(error.to_string()))
}

/// Reads a path as `go` writes it.
pub(super) fn go_path(path: &str) -> Result<RegistryName, ApiRefusal> {
    let path = unescape_path(path).map_err(escape_refusal)?;
    Ok(RegistryName::Go(path))
}

/// Reads path and version as `go` writes them, such as `example.com/m/@v/v1.2.3`.
pub(super) fn go_key(path: &str) -> Result<VersionKey, ApiRefusal> {
    let (path, version) = path.split_once("/@v/").ok_or(ApiRefusal::NoAddress)?;
    let path = go_path(path)?;
    let version = unescape_version(version).map_err(escape_refusal)?;
    let key = VersionKey::new(path, &version);
    key.map_err(|error| ApiRefusal::Name(error.to_string()))
}

impl RegistryUploads {
    async fn answer_upload(
        &self,
        key: impl FnOnce() -> Result<VersionKey, ApiRefusal>,
        request: Request,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let mut body = body.into_data_stream();
        match self.upload(key, &parts, &mut body).await {
            Ok(response) => response,
            Err(refusal) => {
                drain(&mut body).await;
                refusal.into_response()
            }
        }
    }

    async fn upload(
        &self,
        key: impl FnOnce() -> Result<VersionKey, ApiRefusal>,
        parts: &Parts,
        body: &mut BodyDataStream,
    ) -> Result<Response, ApiRefusal> {
        let token = self.token(&parts.headers).await?;
        let key = key()?;
        check_scope(&token, TokenAction::Publish, &key)?;
        let name = key.name();
        let namespace = self.registry.store().registry_namespace_of(&name).await?;
        if namespace.is_none() {
            return Err(ApiRefusal::NoNamespace(name));
        }
        let claimed = content_digest(&parts.headers).map_err(ApiRefusal::NoDigest)?;
        check_encoding(&parts.headers)?;
        let module_dir = module_dir(key.kind(), parts.uri.query())?;
        let limit = limits(key.kind()).packed;
        if content_length(&parts.headers).is_some_and(|length| length > limit) {
            return Err(ApiRefusal::TooLarge(limit));
        }
        if let Some(known) = self.registry.version(&key).await?
            && known.known.state() == VersionState::Deleted
            && let Some(notice) = known.notice
        {
            return Err(ApiRefusal::TakenDown(notice));
        }
        let place = self.place(token.id).await?;
        let received = timeout(BODY_TIME, self.receive(body, limit)).await;
        let staged = received.map_err(|_| ApiRefusal::TooSlow)??;
        if staged.digest != claimed {
            let found = staged.digest.clone();
            return Err(ApiRefusal::WrongDigest { claimed, found });
        }
        let package = CheckedPackage::of_upload(key.clone(), staged, module_dir, place);
        let (package, place) = package.await?;
        package.check_token()?;
        // Somebody may have revoked the token while the body arrived.
        let token = self.token(&parts.headers).await?;
        check_scope(&token, TokenAction::Publish, &key)?;
        let sent = package.content.clone();
        let cause = self.cause(&token, parts, "");
        let published = self
            .registry
            .publish(package, VersionOrigin::Upload, &cause);
        let (status, id) = match published.await? {
            Published::New(id) => (StatusCode::CREATED, Some(id.get())),
            Published::Same => (StatusCode::OK, None),
            Published::Conflict(here) => {
                let (here, sent) = (Box::new(here), Box::new(sent));
                return Err(ApiRefusal::Conflict { key, here, sent });
            }
            Published::Tombstoned(notice) => return Err(ApiRefusal::TakenDown(notice)),
            Published::NoNamespace => return Err(ApiRefusal::NoNamespace(key.name())),
            Published::Owned => return Err(RegistryError::owned(&key).into()),
            Published::CaseConflict(name) => return Err(ApiRefusal::CaseConflict(name)),
        };
        drop(place);
        info!(version = %key, id, token = %token.id, "A version was uploaded");
        let version = self.version(&key).await?;
        // Who has published it just now is the token itself.
        let view = if id.is_some() {
            VersionView::from(&version)
        } else {
            VersionView::of_client(&version)
        };
        let view = PublishedView { id, version: view };
        Ok((status, Json(view)).into_response())
    }

    async fn receive(
        &self,
        body: &mut BodyDataStream,
        limit: u64,
    ) -> Result<StagedBlob, ApiRefusal> {
        let mut writer = self.registry.blobs().stage(limit).await?;
        let started = Instant::now();
        loop {
            let time = started.elapsed();
            if time > STALL_TIME && writer.size() / time.as_secs() < SLOWEST {
                return Err(ApiRefusal::TooSlow);
            }
            match timeout(STALL_TIME, body.next()).await {
                Err(_) => return Err(ApiRefusal::TooSlow),
                Ok(Some(Err(_))) => return Err(ApiRefusal::CutOff),
                Ok(Some(Ok(bytes))) => writer.write(&bytes).await?,
                Ok(None) => return Ok(writer.finish().await?),
            }
        }
    }

    async fn change(
        &self,
        key: impl FnOnce() -> Result<VersionKey, ApiRefusal>,
        change: &str,
        request: Request,
    ) -> Result<Response, ApiRefusal> {
        let (parts, body) = request.into_parts();
        let token = self.token(&parts.headers).await?;
        let change = VersionChange::read(change).ok_or(ApiRefusal::NoAddress)?;
        let key = key()?;
        check_scope(&token, change.action(), &key)?;
        let request = Request::from_parts(parts.clone(), body);
        let read = timeout(
            STALL_TIME,
            JsonBody::<ChangeBody>::from_request(request, &()),
        );
        let JsonBody(body) = read
            .await
            .map_err(|_| ApiRefusal::TooSlow)?
            .map_err(ApiRefusal::Web)?;
        let notice = body.notice(&key)?;
        // The record has the reason.
        let cause = self.cause(&token, &parts, "");
        match change {
            VersionChange::Deprecate => {
                if body.kind.is_some() {
                    return Err(ApiRefusal::Field {
                        field: "kind",
                        problem: "only a takedown has a kind".to_owned(),
                        way_out: "Leave it out.",
                    });
                }
                match self.registry.deprecate(&key, notice, &cause).await? {
                    Deprecated::New(_) | Deprecated::Before(_) => {}
                    Deprecated::Tombstoned(notice) => return Err(ApiRefusal::TakenDown(notice)),
                    Deprecated::NotFound => return Err(ApiRefusal::NotFound(key)),
                }
            }
            VersionChange::TakeDown => {
                let kind = body.takedown_kind()?;
                match self.registry.take_down(&key, kind, notice, &cause).await? {
                    TakenDown::New(_) | TakenDown::Before(_) | TakenDown::Confirmed(_) => {}
                    TakenDown::NotFound => return Err(ApiRefusal::NotFound(key)),
                }
            }
        }
        let version = self.version(&key).await?;
        Ok(Json(VersionView::of_client(&version)).into_response())
    }

    /// Returns the version as it is after a change.
    async fn version(&self, key: &VersionKey) -> Result<RegistryVersion, ApiRefusal> {
        let version = self.registry.version(key).await?;
        version.ok_or_else(|| ApiRefusal::NotFound(key.clone()))
    }

    /// Returns the token of a request, which is valid now.
    async fn token(&self, headers: &HeaderMap) -> Result<Token, ApiRefusal> {
        let text = bearer_token(headers).ok_or(ApiRefusal::Unauthorized)?;
        let token = self.registry.store().registry_token_by_text(&text).await?;
        token.ok_or(ApiRefusal::Unauthorized)
    }

    async fn place(&self, token: TokenId) -> Result<UploadPlace, ApiRefusal> {
        match timeout(PLACE_TIME, take_all(self.places.of(Some(token)))).await {
            Ok(Ok(places)) => Ok(UploadPlace { _places: places }),
            Ok(Err(_)) | Err(_) => Err(ApiRefusal::Busy),
        }
    }

    fn cause(&self, token: &Token, parts: &Parts, reason: &str) -> Cause {
        let address = auth::client(&self.web, &parts.extensions, &parts.headers);
        // Labels are for people, and two tokens can have the same one.
        let login = format!("token {} ({})", token.label, token.id);
        let actor = Actor::new(login, Origin::Api);
        Cause::new(actor, reason).from_address(address.map(|address| address.to_string()))
    }
}

impl ChangeBody {
    fn notice(&self, key: &VersionKey) -> Result<RecordNotice, ApiRefusal> {
        let field = |field, problem: String, way_out| ApiRefusal::Field {
            field,
            problem,
            way_out,
        };
        let reason = Reason::read(&self.reason);
        let reason = reason.map_err(|error| field("reason", error.to_string(), "Shorten it."))?;
        let reason = reason.ok_or_else(|| {
            let way_out = "Give a short reason for the people who use the version.";
            field("reason", "it is empty".to_owned(), way_out)
        })?;
        let replacement = self.replacement.as_deref();
        let replacement = replacement
            .map(|text| read_replacement(key, text))
            .transpose();
        let replacement = replacement.map_err(|problem| {
            let way_out = "Name another version, as in `1.2.4` or `acme/network/aws@1.0.0`.";
            field("replacement", problem, way_out)
        })?;
        Ok(RecordNotice {
            reason,
            replacement,
        })
    }

    fn takedown_kind(&self) -> Result<TakedownKind, ApiRefusal> {
        let kind = self.kind.as_deref().unwrap_or_default();
        kind.parse().map_err(|_| ApiRefusal::Field {
            field: "kind",
            problem: format!("`{kind}` is no kind of takedown"),
            way_out: "Give `legal`, `security` or `mistake`.",
        })
    }
}

/// Reads the directory of the module in the package, which is the top unless `?dir=modules/vpc` says otherwise.
fn module_dir(kind: NameKind, query: Option<&str>) -> Result<RepoPath, ApiRefusal> {
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let Some((_, text)) = pairs.find(|(name, _)| name == "dir") else {
        return Ok(RepoPath::root());
    };
    let refused = |problem: &str, way_out| ApiRefusal::Field {
        field: "dir",
        problem: problem.to_owned(),
        way_out,
    };
    if kind == NameKind::Go {
        let way_out = "Leave it out.";
        return Err(refused(
            "only modules of Terraform have a directory",
            way_out,
        ));
    }
    let dir = RepoPath::new(&text).ok();
    let dir =
        dir.filter(|dir| dir.as_str() == text && PackageFileName::of_module_in(dir).is_some());
    dir.ok_or_else(|| {
        refused(
            "it is no directory of a package, or has other characters than letters, digits and `-._/`, or more than 114 \
             bytes",
            "Give the directory of the module in the package, such as `modules/vpc`.",
        )
    })
}

fn check_scope(token: &Token, action: TokenAction, key: &VersionKey) -> Result<(), ApiRefusal> {
    let name = key.name();
    if token.allows(action, &name) {
        return Ok(());
    }
    Err(ApiRefusal::NoScope {
        token: Box::new(token.clone()),
        action,
        name,
    })
}

/// Returns the SHA-256 that the sender names: `Content-Digest: sha-256=:…:`. Digests by other algorithms are passed over.
fn content_digest(headers: &HeaderMap) -> Result<Sha256Digest, &'static str> {
    let mut digest = None;
    let values = headers.get_all(CONTENT_DIGEST).iter();
    let values = values.map(|value| value.to_str().map_err(|_| "it is not text"));
    for (number, member) in values
        .flat_map(|value| match value {
            Ok(value) => value.split(',').map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
        .enumerate()
    {
        if number >= MAX_DIGESTS {
            return Err("it has too many digests");
        }
        let (algorithm, value) = member?.trim().split_once('=').ok_or("it is malformed")?;
        if algorithm != "sha-256" {
            continue;
        }
        let value = value
            .strip_prefix(':')
            .and_then(|value| value.strip_suffix(':'));
        let bytes = value.and_then(|value| STANDARD.decode(value).ok());
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        let bytes =
            bytes.ok_or("the digest by `sha-256` is not the Base64 of 32 bytes between colons")?;
        if digest.replace(bytes).is_some() {
            return Err("it has two digests by `sha-256`");
        }
    }
    let digest = digest.ok_or("it is missing, or has no digest by `sha-256`")?;
    Ok(hex::encode(digest).parse().expect("32 bytes are a digest"))
}

/// Refuses bodies that are compressed on the way. The digest is that of the bytes which are sent, and a package is
/// compressed already.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiRefusal> {
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut others = encodings.filter(|value| value.as_bytes() != b"identity");
    match others.next() {
        None => Ok(()),
        Some(_) => Err(ApiRefusal::Encoded),
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Reads the rest of a small body that was refused. Many clients read the answer only after they have sent it.
async fn drain(body: &mut BodyDataStream) {
    let read = async {
        let mut left = DRAINED;
        while let Some(Ok(bytes)) = body.next().await {
            left = match left.checked_sub(bytes.len()) {
                Some(left) => left,
                None => break,
            };
        }
    };
    timeout(DRAIN_TIME, read).await.ok();
}

fn escape_refusal(error: InvalidEscape) -> ApiRefusal {
    match error {
        InvalidEscape::Path(_) | InvalidEscape::Version => ApiRefusal::Name(error.to_string()),
        InvalidEscape::UpperCase | InvalidEscape::Bang | InvalidEscape::NotAscii(_) => {
            ApiRefusal::Escape(error)
        }
    }
}

/// Returns a message that can have names of files, on which nothing is hidden.
fn shown_message(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(MAX_MESSAGE) {
        push_visible(&mut shown, c);
    }
    if text.chars().nth(MAX_MESSAGE).is_some() {
        shown.push('…');
    }
    shown
}

impl ApiRefusal {
    fn error(self) -> WebError {
        let refused = |status, title, reason, message: &str, way_out: &str| {
            WebError::nothing_changed(
                (status, title),
                None,
                reason,
                &shown_message(message),
                way_out,
            )
        };
        let not_read = |status, title, reason, message: &str, way_out: &str| {
            WebError::not_read((status, title), reason, &shown_message(message), way_out)
        };
        match self {
            Self::Unauthorized => refused(
                StatusCode::UNAUTHORIZED,
                "Sign in",
                "no_token",
                "The request has no token of the registry, or one that has expired or was revoked.",
                "Send a valid token as `Authorization: Bearer lkr_…`. An administrator creates one with \
                 `lockkeeper registry tokens create`.",
            ),
            Self::NoScope {
                token,
                action,
                name,
            } => refused(
                StatusCode::FORBIDDEN,
                "Not allowed",
                "no_scope",
                &format!(
                    "The token `{}` has no scope `{action}` for `{name}`.",
                    token.label
                ),
                &format!(
                    "Use a token that was created with `--scope '{action}:{name}'`, or a wider scope."
                ),
            ),
            Self::NoNamespace(name) => refused(
                StatusCode::FORBIDDEN,
                "No such namespace",
                "no_namespace",
                &format!(
                    "The name `{name}` belongs to no owner of this server, so nobody can publish it."
                ),
                "An administrator adds the namespace with `lockkeeper registry namespaces add`.",
            ),
            Self::NoAddress => WebError::no_such_page(),
            Self::Name(problem) => refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid name or version",
                "invalid_name",
                &format!("The name or the version in the address is not valid: {problem}."),
                "Correct the address.",
            ),
            Self::Escape(error) => refused(
                StatusCode::BAD_REQUEST,
                "Invalid address",
                "invalid_escape",
                &format!("The address is not written as `go` does: {error}."),
                "Write `!` and the small letter for each capital letter.",
            ),
            Self::NoDigest(problem) => refused(
                StatusCode::BAD_REQUEST,
                "No digest",
                "no_digest",
                &format!("The header `Content-Digest` cannot be used: {problem}."),
                "Send the SHA-256 of the body as `Content-Digest: sha-256=:…:`, with Base64 between the colons.",
            ),
            Self::WrongDigest { claimed, found } => refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Wrong digest",
                "wrong_digest",
                &format!(
                    "The body has the SHA-256 `{found}`, and the header `Content-Digest` says `{claimed}`."
                ),
                "Compute the digest of the bytes that are sent, and send the package again.",
            ),
            Self::Encoded => refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Compressed body",
                "content_encoding",
                "The body has a `Content-Encoding`, and packages are compressed already.",
                "Send the package as it is, without the header.",
            ),
            Self::TooLarge(most) => refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "Package too large",
                "too_large",
                &format!("The package has more than {most} bytes."),
                "Leave out files that the users of the module do not need.",
            ),
            Self::TooSlow => refused(
                StatusCode::REQUEST_TIMEOUT,
                "Upload too slow",
                "too_slow",
                "The body did not arrive in time.",
                "Send it again.",
            ),
            Self::CutOff => refused(
                StatusCode::BAD_REQUEST,
                "Upload cut off",
                "cut_off",
                "The body ended early.",
                "Send it again.",
            ),
            Self::Busy => refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many uploads",
                "busy",
                "The server reads as many uploads as it can.",
                "Try again in a minute.",
            ),
            Self::ListsBusy => refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many lists",
                "busy",
                "The server makes as many lists as it can.",
                "Try again in a few seconds.",
            ),
            Self::Full(low) => {
                let why = low.map_or_else(
                    || "the disk of the packages is full".to_owned(),
                    |low| low.to_string(),
                );
                error!(
                    why,
                    "An upload was refused because the disk is low on space"
                );
                refused(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "No space left",
                    "no_space",
                    &format!("The server stores no packages at this moment, because {why}."),
                    "Ask an administrator to free space on the server, then upload the package again.",
                )
            }
            Self::StoreAway(error) => {
                error!(
                    error = describe_error(&error),
                    "A package could not be stored"
                );
                refused(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Store away",
                    "store_away",
                    "The store of packages cannot be used at this moment.",
                    "Try again in a minute. If that does not help, ask an administrator: the log of the server says why.",
                )
            }
            Self::PackageGone => refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "Package removed",
                "package_gone",
                "The same package was just removed, and the store of packages may still be busy with that.",
                "Send it again in some minutes.",
            ),
            Self::Package(error) if error.is_internal() => {
                let error = anyhow::Error::new(error);
                error!(error = format!("{error:#}"), "Cannot check an upload");
                WebError::internal()
            }
            Self::Package(error) => {
                let is_size = matches!(
                    error.exceeded(),
                    Some(
                        ExceededLimit::Packed(_)
                            | ExceededLimit::Unpacked(_)
                            | ExceededLimit::Entries(_)
                    )
                );
                let (status, reason) = if is_size {
                    (StatusCode::PAYLOAD_TOO_LARGE, "too_large")
                } else {
                    (StatusCode::UNPROCESSABLE_ENTITY, "bad_package")
                };
                refused(
                    status,
                    "Package refused",
                    reason,
                    &format!("{error}."),
                    "Correct the package and publish it again.",
                )
            }
            Self::Conflict { key, here, sent } => refused(
                StatusCode::CONFLICT,
                "Version has other files",
                "other_content",
                &format!(
                    "The version `{}` is published with other files: `{}`, and the package has `{}`.",
                    shown_key(&key),
                    checksums_of(&here),
                    checksums_of(&sent)
                ),
                "A published version never changes. Publish the files under a new version.",
            ),
            Self::CaseConflict(name) => refused(
                StatusCode::CONFLICT,
                "Name differs only in case",
                "other_case",
                &format!("The name `{name}` exists, and this one differs from it only in case."),
                "Use the name that exists, or another one.",
            ),
            Self::TakenDown(notice) => refused(
                StatusCode::GONE,
                "Version was taken down",
                "taken_down",
                &format!(
                    "This version cannot be used again. {}",
                    notice_sentence(&notice)
                ),
                "Use a new version.",
            ),
            Self::NotFound(key) => not_read(
                StatusCode::NOT_FOUND,
                "Version not found",
                "no_version",
                &format!("There is no version `{}`.", shown_key(&key)),
                "`lockkeeper registry show` lists the versions of a name.",
            ),
            Self::NameNotFound(name) => not_read(
                StatusCode::NOT_FOUND,
                "Name not found",
                "no_name",
                &format!("There is no module `{}`.", name.as_str()),
                "`GET /api/registry/names` lists the names that this token reads.",
            ),
            Self::After => not_read(
                StatusCode::BAD_REQUEST,
                "Invalid place in a list",
                "invalid_after",
                "The value of `after` is not a number from a list.",
                "Send the value of `next` from the answer before, or leave it out.",
            ),
            Self::Field {
                field,
                problem,
                way_out,
            } => WebError::unusable_field(field, &problem, way_out),
            Self::Refused(why) => refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Change refused",
                "refused",
                &format!("{why}."),
                "Correct the request.",
            ),
            Self::Web(error) => error,
            Self::Failed(RegistryError::Database(error)) => error.into(),
            Self::Failed(error) => {
                let error = anyhow::Error::new(error);
                error!(
                    error = format!("{error:#}"),
                    "The registry failed a request"
                );
                WebError::internal()
            }
        }
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let is_sign_in = matches!(self, Self::Unauthorized);
        let is_busy = matches!(self, Self::Busy | Self::PackageGone | Self::ListsBusy);
        let seconds = if matches!(self, Self::ListsBusy) {
            "5"
        } else {
            "60"
        };
        let mut response = self.error().into_response();
        if is_sign_in {
            let challenge = HeaderValue::from_static("Bearer realm=\"Lockkeeper registry\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        if is_busy {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_registry::names::{escape_path, escape_version};
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    fn digest(values: &[&str]) -> Result<String, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_DIGEST, value.parse().unwrap());
        }
        content_digest(&headers).map(|digest| digest.to_string())
    }

    #[test]
    fn the_digest_of_a_body_is_that_by_sha_256() {
        let empty = Sha256Digest::of(b"").to_string();
        let text = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
        assert_eq!(digest(&[text]), Ok(empty.clone()));
        assert_eq!(digest(&["sha-512=:AAAA:", text]), Ok(empty.clone()));
        assert_eq!(digest(&[&format!("md5=:AAAA: , {text}")]), Ok(empty));
        for values in [
            &[][..],
            &[""],
            &["sha-256"],
            &["sha-512=:AAAA:"],
            &["sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="],
            &["sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU:"],
            &["sha-256=:AAAA:"],
            &["SHA-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"],
            &[text, text],
        ] {
            assert!(digest(values).is_err(), "{values:?}");
        }
        assert_eq!(digest(&["a=b"; 9]), Err("it has too many digests"));
    }

    #[test]
    fn an_upload_that_would_fill_the_disk_is_refused_with_the_numbers() {
        let low = LowSpace {
            free: 900 << 20,
            kept: 1 << 30,
        };
        let refusals = [
            ApiRefusal::from(BlobError::from(low)),
            ApiRefusal::from(RegistryError::from(BlobError::from(low))),
            ApiRefusal::from(PackagingError::from(BlobError::from(low))),
        ];
        for refusal in refusals {
            let error = refusal.error();
            assert_eq!(error.status(), StatusCode::INSUFFICIENT_STORAGE);
            let text = error.sentences();
            assert!(
                text.contains(
                    "the disk where packages arrive has only 900 MiB free, and 1 GiB are reserved"
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_name_versions_and_nothing_else() {
        let key = |path: &str| match go_key(path) {
            Ok(key) => key.to_string(),
            Err(refusal) => refusal.error().status().as_u16().to_string(),
        };
        assert_eq!(key("example.com/m/@v/v1.2.3"), "go example.com/m v1.2.3");
        assert_eq!(
            key("example.com/!net/v2/@v/v2.0.0-!r!c.1"),
            "go example.com/Net/v2 v2.0.0-RC.1"
        );
        for (path, status) in [
            ("example.com/m/v1.2.3", "404"),
            ("example.com/Net/@v/v1.2.3", "400"),
            ("example.com/m/@v/v1.2.3-RC", "400"),
            ("example.com/m/@v/v1.2", "422"),
            ("example.com/m/@v/latest", "422"),
            ("example.com/m/@v/v2.0.0", "422"),
            ("example/m/@v/v1.2.3", "422"),
            ("example.com/m/@v/v1.2.3/deprecate", "422"),
        ] {
            assert_eq!(key(path), status, "{path}");
        }
        let key = module_key(["acme", "vpc", "aws"], "1.2.3").map_err(|_| ());
        assert_eq!(key.unwrap().to_string(), "module acme/vpc/aws 1.2.3");
        for (name, version) in [
            (["acme", "vpc", "AWS"], "1.2.3"),
            (["acme", "vpc", "aws"], "v1.2.3"),
        ] {
            assert!(module_key(name, version).is_err());
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn a_digest_is_read_as_it_was_written(content in any::<[u8; 8]>(), other in "([a-z0-9-]{1,8}=:[A-Za-z0-9+/]{0,8}:, ?){0,3}") {
            let expected = Sha256Digest::of(&content);
            let bytes = hex::decode(expected.as_str()).unwrap();
            let value = format!("{other}sha-256=:{}:", STANDARD.encode(bytes));
            prop_assert_eq!(digest(&[&value]), Ok(expected.to_string()), "{}", value);
        }

        #[test]
        fn no_header_or_address_makes_its_reader_panic(
            values in proptest::collection::vec("(sha-256=:?)?[ -~]{0,60}", 0..12),
            path in "[a-z.!/@%A-Z]{0,12}/@v/[v0-9.!+-]{0,12}|.{0,40}",
        ) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if let Ok(digest) = digest(&values) {
                prop_assert_eq!(digest.len(), 64);
            }
            if let Ok(key) = go_key(&path) {
                let (module, version) = key.as_go().unwrap();
                let version = escape_version(&version.to_string()).unwrap();
                let written = format!("{}/@v/{version}", escape_path(module));
                prop_assert_eq!(written, path);
            }
        }
    }
}
