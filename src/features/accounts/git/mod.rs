//! Serves `All-Users` to git clients: `https://HOST/All-Users`, with user name and HTTP password.
//!
//! | File | Content |
//! |---|---|
//! | `access.rs` | what a client may fetch and push |
//! | `mirror.rs` | the reconciler that pushes all accounts to another server |
//! | `view.rs` | repositories with exactly that |
//! | `cache.rs` | the reconciler that compares these repositories with the database |
//! | `wire.rs` | the protocol of a push |
//! | `push.rs` | the verdict on a push |

mod access;
mod cache;
mod mirror;
mod push;
mod view;
mod wire;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::read::GzDecoder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{error, info, warn};

pub(super) use self::cache::{RECONCILER as CACHE_RECONCILER, cache_faults};
pub(super) use self::mirror::RECONCILER as MIRROR_RECONCILER;
use self::push::push;
pub(crate) use self::view::ACCOUNTS_DIR;
use self::view::{View, ViewError, Views};
pub use self::wire::{InvalidPush, PushCommand, PushRequest};
use self::wire::{RefOutcome, fetch_advertisement, push_advertisement, push_report};
use super::all_users::AccountsError;
use super::sign_in::{AccountCaller, AccountSignIn, RequestSlot, SignInRefusal};
use crate::git::{FetchAnswer, GitSettings, PackRefusal, PushedPack, ServeError, ServedPlaces};
use crate::kit::web::text::seconds_text;
use crate::kit::web::{RouteAccess, Routes, auth};

/// Maximum size of a request of a client that fetches, in bytes, unpacked: 50 for each id that it wants or has.
const MAX_FETCH: usize = 1024 * 1024;
/// The same for a client that may fetch everything, enough for a million accounts.
const MAX_FETCH_OF_ALL: usize = 64 * 1024 * 1024;
/// Maximum size of a push in bytes.
const MAX_PUSH: usize = 8 * 1024 * 1024;
/// Maximum size of a list of refs in bytes, enough for a million.
const MAX_LISTING: usize = 128 * 1024 * 1024;
/// Maximum number of requests that are answered at once.
const AT_ONCE: usize = 16;
/// Longest time for the body of a request.
const BODY_TIME: Duration = Duration::from_mins(1);
/// Header in which a client says that it knows a newer protocol.
const PROTOCOL: &str = "git-protocol";

/// The repository as git clients see it.
pub(crate) struct AccountsGit {
    sign_in: Arc<AccountSignIn>,
    views: Views,
    places: Arc<Semaphore>,
}

/// Places of a request: among those of its account, and among those of all.
struct RequestPlaces {
    _own: Option<RequestSlot>,
    _shared: OwnedSemaphorePermit,
}

#[derive(serde::Deserialize)]
struct ServiceQuery {
    #[serde(default)]
    service: String,
}

/// A request that gets no answer with content.
enum GitRefusal {
    Unauthorized,
    Inactive,
    Later(i64),
    TooSlow,
    NoService,
    WrongType,
    TooLarge,
    Unreadable(String),
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl From<ViewError> for GitRefusal {
    fn from(error: ViewError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<AccountsError> for GitRefusal {
    fn from(error: AccountsError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SignInRefusal> for GitRefusal {
    fn from(refusal: SignInRefusal) -> Self {
        match refusal {
            SignInRefusal::Unauthorized => Self::Unauthorized,
            SignInRefusal::Inactive => Self::Inactive,
            SignInRefusal::Later(seconds) => Self::Later(seconds),
            SignInRefusal::Failed(error) => error.into(),
        }
    }
}

impl From<ServeError> for GitRefusal {
    fn from(error: ServeError) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for GitRefusal {
    fn into_response(self) -> Response {
        // git prints the text of most of them.
        let text = |status: StatusCode, text: String| {
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            (status, [(header::CONTENT_TYPE, plain)], format!("{text}\n")).into_response()
        };
        match self {
            Self::Unauthorized => {
                let why = "Sign in with the user name and the HTTP password of an account (lockkeeper accounts password).";
                let mut response = text(StatusCode::UNAUTHORIZED, why.to_owned());
                let challenge =
                    HeaderValue::from_static("Basic realm=\"Lockkeeper\", charset=\"UTF-8\"");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge);
                response
            }
            Self::Inactive => text(
                StatusCode::FORBIDDEN,
                "The account is inactive. An administrator can activate it.".to_owned(),
            ),
            Self::Later(seconds) => {
                let why = format!(
                    "Too many requests, or wrong passwords; try again in {}.",
                    seconds_text(seconds)
                );
                let mut response = text(StatusCode::TOO_MANY_REQUESTS, why);
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                response
            }
            Self::NoService => text(
                StatusCode::FORBIDDEN,
                "This repository is served to git 1.6.6 and newer only.".to_owned(),
            ),
            Self::TooLarge => text(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("The request is larger than {MAX_PUSH} bytes."),
            ),
            Self::TooSlow => {
                let why = "The request did not arrive in time.";
                text(StatusCode::REQUEST_TIMEOUT, why.to_owned())
            }
            Self::WrongType => {
                let why = "Only git may send this request.";
                text(StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned())
            }
            Self::Unreadable(why) => text(StatusCode::BAD_REQUEST, why),
            Self::Failed(error) => {
                error!(
                    error = format!("{:#}", anyhow::anyhow!(error)),
                    "Could not serve All-Users"
                );
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "The accounts cannot be served now; the log of the server says why.".to_owned(),
                )
            }
        }
    }
}

/// Returns the routes, which sign in on their own.
pub(crate) fn routes() -> Routes<Arc<AccountsGit>> {
    let open = RouteAccess::Everybody;
    Routes::new()
        .with(Method::GET, "/All-Users/info/refs", open, get(advertise))
        .with(
            Method::POST,
            "/All-Users/git-upload-pack",
            open,
            post(fetch),
        )
        .with(
            Method::POST,
            "/All-Users/git-receive-pack",
            open,
            post(receive),
        )
}

impl AccountsGit {
    pub(crate) fn new(
        sign_in: Arc<AccountSignIn>,
        git: &GitSettings,
        places: &Arc<ServedPlaces>,
    ) -> Self {
        let views = Views::new(git, places);
        // Pushes that a crash has interrupted.
        std::fs::remove_dir_all(views.quarantine()).ok();
        Self {
            sign_in,
            views,
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Finds out who sends a request.
    async fn caller(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Result<AccountCaller, GitRefusal> {
        Ok(self.sign_in.caller(extensions, headers).await?)
    }

    /// Reads a request with a body, and waits for a place. The caller signs in again after that, because both take their
    /// time, and the account may have been locked out or have lost rights since.
    async fn request(
        &self,
        request: Request,
        content_type: &str,
        most: impl Fn(&AccountCaller) -> usize,
    ) -> Result<(AccountCaller, RequestPlaces, Parts, Vec<u8>), GitRefusal> {
        check_type(request.headers(), content_type)?;
        let caller = self.caller(request.extensions(), request.headers()).await?;
        let own = self.sign_in.enter(&caller)?;
        let (parts, body) = request.into_parts();
        let body = timeout(BODY_TIME, read(&parts.headers, body, most(&caller)));
        let body = body.await.map_err(|_| GitRefusal::TooSlow)??;
        let places = RequestPlaces {
            _own: own,
            _shared: self.place().await?,
        };
        let caller = self.caller(&parts.extensions, &parts.headers).await?;
        Ok((caller, places, parts, body))
    }

    /// Waits for one of the places of all callers.
    async fn place(&self) -> Result<OwnedSemaphorePermit, GitRefusal> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(|error| GitRefusal::Failed(error.into()))
    }

    /// Returns what a caller may read.
    async fn view(&self, caller: &AccountCaller) -> Result<View, GitRefusal> {
        Ok(self.views.of(&self.sign_in.users, caller).await?)
    }

    /// Makes the repository of a caller again, because git cannot use it. A crash of the machine can cut off its files.
    /// The caller must not use it any more.
    async fn new_view(&self, caller: &AccountCaller) -> Result<Option<View>, GitRefusal> {
        let view = self.views.anew(&self.sign_in.users, caller).await?;
        if view.is_some() {
            warn!("The copy of All-Users for a client was damaged, and is made again");
        }
        Ok(view)
    }

    /// Asks git for an answer, and once more after the repository was made again.
    async fn answer_with_git(
        &self,
        caller: &AccountCaller,
        protocol: Option<&str>,
        request: Option<&[u8]>,
    ) -> Result<(View, FetchAnswer), GitRefusal> {
        let mut view = self.view(caller).await?;
        loop {
            let answer = match request {
                None => view.repo.advertise(protocol).await,
                Some(request) => view.repo.fetch(protocol, request).await,
            };
            let error = match answer {
                Ok(answer) => return Ok((view, answer)),
                Err(error @ ServeError::Git { .. }) => error,
                Err(error) => return Err(error.into()),
            };
            drop(view);
            view = match self.new_view(caller).await? {
                Some(view) => view,
                None => return Err(error.into()),
            };
        }
    }
}

async fn advertise(
    State(git): State<Arc<AccountsGit>>,
    Query(query): Query<ServiceQuery>,
    request: Request,
) -> Result<Response, GitRefusal> {
    let (extensions, headers) = (request.extensions(), request.headers());
    let service @ ("git-upload-pack" | "git-receive-pack") = query.service.as_str() else {
        return Err(GitRefusal::NoService);
    };
    let caller = git.caller(extensions, headers).await?;
    let _busy = git.sign_in.enter(&caller)?;
    let _place = git.place().await?;
    let caller = git.caller(extensions, headers).await?;
    let body = if service == "git-upload-pack" {
        let (_view, mut listed) = git
            .answer_with_git(&caller, protocol(headers), None)
            .await?;
        let mut lines = Vec::new();
        while let Some(part) = listed.next().await? {
            lines.extend(part);
            if lines.len() > MAX_LISTING {
                return Err(GitRefusal::Failed("the list of refs is too long".into()));
            }
        }
        fetch_advertisement(&lines)
    } else {
        push_advertisement(&git.view(&caller).await?.refs)
    };
    let content_type = format!("application/x-{service}-advertisement");
    Ok(answer(&content_type, Body::from(body)))
}

async fn fetch(
    State(git): State<Arc<AccountsGit>>,
    request: Request,
) -> Result<Response, GitRefusal> {
    const TYPE: &str = "application/x-git-upload-pack-request";
    let most = |caller: &AccountCaller| {
        if caller.reads_everything() {
            MAX_FETCH_OF_ALL
        } else {
            MAX_FETCH
        }
    };
    let (caller, places, parts, body) = git.request(request, TYPE, most).await?;
    let protocol = protocol(&parts.headers);
    let (view, pack) = git.answer_with_git(&caller, protocol, Some(&body)).await?;
    // The repository and both places are held until the client has everything, or is gone.
    let held = (view, places);
    let parts = futures::stream::try_unfold((pack, held), async |(mut pack, held)| {
        let part = pack.next().await?;
        Ok::<_, ServeError>(part.map(|part| (part, (pack, held))))
    });
    let body = Body::from_stream(parts);
    Ok(answer("application/x-git-upload-pack-result", body))
}

async fn receive(
    State(git): State<Arc<AccountsGit>>,
    request: Request,
) -> Result<Response, GitRefusal> {
    const TYPE: &str = "application/x-git-receive-pack-result";
    let asked = "application/x-git-receive-pack-request";
    let (caller, _places, parts, body) = git.request(request, asked, |_| MAX_PUSH).await?;
    git.sign_in.count_change(&caller)?;
    let push_request = PushRequest::read(&body);
    let push_request = push_request.map_err(|error| GitRefusal::Unreadable(error.to_string()))?;
    if push_request.commands.is_empty() {
        return Ok(answer(TYPE, Body::empty()));
    }
    let view = git.view(&caller).await?;
    let (view, unpacked) = unpack(&git, &caller, view, push_request.pack).await?;
    let pack = match unpacked {
        Ok(pack) => pack,
        Err(why) => {
            let outcomes = push_request.commands.iter().map(|command| RefOutcome {
                name: command.name.clone(),
                refused: Some("unpacker error".to_owned()),
            });
            let lines = [format!("error: the pushed objects are not accepted: {why}")];
            let outcomes: Vec<RefOutcome> = outcomes.collect();
            let report = push_report(&push_request, "index-pack failed", &lines, &outcomes);
            return Ok(answer(TYPE, Body::from(report)));
        }
    };
    let remote = auth::client(&git.sign_in.web, &parts.extensions, &parts.headers);
    let from = (
        git.sign_in.host.as_str(),
        remote.map(|address| address.to_string()),
    );
    let pushed = push(
        &git.sign_in.users,
        &caller,
        &view,
        &push_request,
        pack.as_ref(),
        from,
    );
    let checked = pushed.await?;
    for outcome in &checked.outcomes {
        let (name, refused) = (&outcome.name, outcome.refused.as_deref());
        info!(name, refused, "A push to All-Users was checked");
    }
    if checked.is_copy_stale {
        drop(view);
        git.new_view(&caller).await?;
    }
    let report = push_report(&push_request, "ok", &checked.lines, &checked.outcomes);
    Ok(answer(TYPE, Body::from(report)))
}

/// Unpacks a push. If git does not accept it, and the repository turns out to be damaged, that is made again, and git is
/// asked once more. `Err` inside: the reason why the push is refused.
async fn unpack(
    git: &AccountsGit,
    caller: &AccountCaller,
    view: View,
    pack: &[u8],
) -> Result<(View, Result<Option<Arc<PushedPack>>, String>), GitRefusal> {
    if pack.is_empty() {
        return Ok((view, Ok(None)));
    }
    let quarantine = git.views.quarantine();
    let shared = |unpacked: Result<PushedPack, PackRefusal>| match unpacked {
        Ok(pack) => Ok(Some(Arc::new(pack))),
        Err(refusal) => Err(refusal.to_string()),
    };
    let unpacked = view.repo.receive(&quarantine, pack.to_vec(), MAX_PUSH);
    let unpacked = unpacked.await?;
    let is_by_git = matches!(unpacked, Err(PackRefusal::ByGit(_)));
    if !is_by_git || view.repo.is_whole().await? {
        return Ok((view, shared(unpacked)));
    }
    warn!("The copy of All-Users that git serves is damaged and is made again");
    drop(view);
    match git.new_view(caller).await? {
        None => Ok((git.view(caller).await?, shared(unpacked))),
        Some(view) => {
            let again = view.repo.receive(&quarantine, pack.to_vec(), MAX_PUSH);
            let again = again.await?;
            Ok((view, shared(again)))
        }
    }
}

/// Checks the type of a request. A page of another site can make a browser send its password here, but never with a type
/// of git.
fn check_type(headers: &HeaderMap, expected: &str) -> Result<(), GitRefusal> {
    match headers.get(header::CONTENT_TYPE) {
        Some(given) if given.as_bytes() == expected.as_bytes() => Ok(()),
        _ => Err(GitRefusal::WrongType),
    }
}

/// Returns the protocol that the client asks for, if it is one that git knows.
fn protocol(headers: &HeaderMap) -> Option<&str> {
    let asked = headers.get(PROTOCOL)?.to_str().ok()?;
    ["version=2", "version=1"]
        .into_iter()
        .find(|known| *known == asked)
}

/// Reads a body of at most `most` bytes, which the client may have compressed.
async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Vec<u8>, GitRefusal> {
    let bytes: Bytes = axum::body::to_bytes(body, most)
        .await
        .map_err(|_| GitRefusal::TooLarge)?;
    match headers
        .get(header::CONTENT_ENCODING)
        .map(HeaderValue::as_bytes)
    {
        None => Ok(bytes.to_vec()),
        Some(b"gzip" | b"x-gzip") => {
            let mut unpacked = Vec::new();
            GzDecoder::new(&bytes[..])
                .take(most as u64 + 1)
                .read_to_end(&mut unpacked)
                .map_err(|error| GitRefusal::Unreadable(error.to_string()))?;
            if unpacked.len() > most {
                return Err(GitRefusal::TooLarge);
            }
            Ok(unpacked)
        }
        Some(_) => Err(GitRefusal::Unreadable(
            "The encoding of the request is not known.".to_owned(),
        )),
    }
}

fn answer(content_type: &str, body: Body) -> Response {
    let content_type = HeaderValue::from_str(content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, max-age=0, must-revalidate"),
        ),
    ];
    (headers, body).into_response()
}
