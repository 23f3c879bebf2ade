//! Serves `All-Users` to git clients: `https://HOST/All-Users`, with user name and HTTP password.
//!
//! | File | Content |
//! |---|---|
//! | `access.rs` | who a client is, and what they may read |
//! | `view.rs` | repositories with exactly that |
//! | `wire.rs` | the protocol of a push |
//! | `push.rs` | the verdict on a push |

mod access;
mod push;
mod view;
mod wire;

use std::io::Read as _;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::read::GzDecoder;
use tokio::sync::{Mutex, Semaphore};
use tracing::{error, info, warn};

use self::access::{GitCaller, SignIn};
use self::push::push;
pub(crate) use self::view::ACCOUNTS_DIR;
pub(super) use self::view::copy_to;
use self::view::{View, ViewError, Views};
use self::wire::{PushRequest, RefOutcome, fetch_advertisement, push_advertisement, push_report};
use super::all_users::{AccountsError, AllUsers};
use crate::git::{GitSettings, ServeError};
use crate::kit::web::{RouteAccess, Routes, WebState, auth};
use crate::store::Store;

/// Maximum size of a request of a client that fetches, in bytes, unpacked: ids that it wants and has.
const MAX_FETCH: usize = 8 * 1024 * 1024;
/// Maximum size of a push in bytes.
const MAX_PUSH: usize = 8 * 1024 * 1024;
/// Maximum number of requests that are served at once, because each is held in memory.
const AT_ONCE: usize = 8;
/// Header in which a client says that it knows a newer protocol.
const PROTOCOL: &str = "git-protocol";

/// The repository as git clients see it.
pub(crate) struct AccountsGit {
    web: Arc<WebState>,
    users: AllUsers,
    views: Views,
    /// Name of this server in addresses.
    host: String,
    /// Passwords are checked one after the other, so that of several guesses sent at once, each counts before the next
    /// is checked.
    checking: Mutex<()>,
    places: Semaphore,
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
                let why = format!("Too many wrong passwords; try again in {seconds} seconds.");
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
    pub(crate) fn new(web: Arc<WebState>, store: Store, git: &GitSettings) -> Self {
        let host = web.public_url.host_str().unwrap_or("localhost").to_owned();
        Self {
            users: AllUsers::new(store, &host),
            views: Views::new(git),
            host,
            web,
            checking: Mutex::new(()),
            places: Semaphore::new(AT_ONCE),
        }
    }

    pub(crate) fn web(&self) -> &Arc<WebState> {
        &self.web
    }

    /// Finds out who sends a request.
    async fn caller(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Result<GitCaller, GitRefusal> {
        let (user, password) = auth::credentials(headers).ok_or(GitRefusal::Unauthorized)?;
        let address = auth::client(&self.web, extensions, headers);
        let _turn = self.checking.lock().await;
        let now = self.web.clock.now();
        if let Some(wait) = self.web.guesses.wait(address, now) {
            return Err(GitRefusal::Later(wait.num_seconds() + 1));
        }
        let known = if auth::is_web_user(&self.web, &user, &password) {
            SignIn::Known(GitCaller::Administrator(user.clone()))
        } else {
            self.users.sign_in(&user, &password).await?
        };
        match known {
            SignIn::Known(caller) => {
                self.web.guesses.right(address, now);
                Ok(caller)
            }
            SignIn::Inactive => Err(GitRefusal::Inactive),
            SignIn::Unknown => {
                let given = format!("{user}:{password}");
                if let Some(wrong) = self.web.guesses.wrong(address, &given, now) {
                    let remote = address.map(tracing::field::display);
                    warn!(remote, wrong, "Wrong user name or password for All-Users");
                }
                Err(GitRefusal::Unauthorized)
            }
        }
    }

    /// Makes the repository of a caller again, because git cannot use it. A crash of the machine can cut off its files.
    async fn new_view(&self, caller: &GitCaller) -> Result<View, GitRefusal> {
        warn!("The copy of All-Users for a client was damaged, and is made again");
        Ok(self.views.anew(&self.users, caller).await?)
    }

    /// Returns what a caller may read.
    async fn view(&self, caller: &GitCaller) -> Result<View, GitRefusal> {
        Ok(self.views.of(&self.users, caller).await?)
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
    let _place = git.places.acquire().await;
    let view = git.view(&caller).await?;
    let body = if service == "git-upload-pack" {
        let listed = match view.repo.advertise(protocol(headers)).await {
            Err(ServeError::Git { .. }) => {
                let view = git.new_view(&caller).await?;
                view.repo.advertise(protocol(headers)).await?
            }
            listed => listed?,
        };
        fetch_advertisement(&listed)
    } else {
        push_advertisement(&view.refs)
    };
    Ok(answer(
        &format!("application/x-{service}-advertisement"),
        body,
    ))
}

async fn fetch(
    State(git): State<Arc<AccountsGit>>,
    request: Request,
) -> Result<Response, GitRefusal> {
    check_type(request.headers(), "application/x-git-upload-pack-request")?;
    let caller = git.caller(request.extensions(), request.headers()).await?;
    let _place = git.places.acquire().await;
    let (parts, body) = request.into_parts();
    let body = read(&parts.headers, body, MAX_FETCH).await?;
    let view = git.view(&caller).await?;
    let protocol = protocol(&parts.headers);
    let pack = match view.repo.fetch(protocol, body.clone()).await {
        Err(ServeError::Git { .. }) => {
            let view = git.new_view(&caller).await?;
            view.repo.fetch(protocol, body).await?
        }
        pack => pack?,
    };
    Ok(answer("application/x-git-upload-pack-result", pack))
}

async fn receive(
    State(git): State<Arc<AccountsGit>>,
    request: Request,
) -> Result<Response, GitRefusal> {
    const TYPE: &str = "application/x-git-receive-pack-result";
    check_type(request.headers(), "application/x-git-receive-pack-request")?;
    let caller = git.caller(request.extensions(), request.headers()).await?;
    let _place = git.places.acquire().await;
    let (parts, body) = request.into_parts();
    let body = read(&parts.headers, body, MAX_PUSH).await?;
    let push_request = PushRequest::read(&body);
    let push_request = push_request.map_err(|error| GitRefusal::Unreadable(error.to_string()))?;
    if push_request.commands.is_empty() {
        return Ok(answer(TYPE, Vec::new()));
    }
    let view = git.view(&caller).await?;
    let quarantine = git.views.quarantine();
    let pack = if push_request.pack.is_empty() {
        None
    } else {
        let pack = push_request.pack.to_vec();
        match view.repo.receive(&quarantine, pack, MAX_PUSH).await? {
            Ok(pack) => Some(pack),
            Err(why) => {
                let outcomes = push_request.commands.iter().map(|command| RefOutcome {
                    name: command.name.clone(),
                    refused: Some("unpacker error".to_owned()),
                });
                let lines = [format!("error: the pushed objects are not accepted: {why}")];
                let outcomes: Vec<RefOutcome> = outcomes.collect();
                return Ok(answer(TYPE, push_report(&push_request, &lines, &outcomes)));
            }
        }
    };
    let remote = auth::client(&git.web, &parts.extensions, &parts.headers);
    let remote = remote.map(|address| address.to_string());
    let place = (git.host.as_str(), remote);
    let judged = push(
        &git.users,
        &caller,
        &view,
        &push_request,
        pack.as_ref(),
        place,
    )
    .await?;
    for outcome in &judged.outcomes {
        let refused = outcome.refused.as_deref();
        info!(
            name = outcome.name,
            refused, "A push to All-Users was judged"
        );
    }
    let report = push_report(&push_request, &judged.lines, &judged.outcomes);
    Ok(answer(TYPE, report))
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

fn answer(content_type: &str, body: Vec<u8>) -> Response {
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
