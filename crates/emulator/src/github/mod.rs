//! Implements GitHub's wire: REST below `/api/v3` (as GitHub Enterprise Server), git and Git LFS over HTTP, a page per
//! pull request, and signed webhooks.
//!
//! The wire turns the records, refusals and events of the world into GitHub's JSON, texts and webhooks. State that
//! only GitHub has is kept here: the App with its installation and tokens, the rate limit, and the reads that do not
//! know the mergeability of a pull request yet.

mod app;
mod auth;
mod branches;
mod check_runs;
mod comments;
mod contents;
mod errors;
mod etags;
mod lfs;
mod limits;
mod observe;
mod pages;
mod paging;
mod pulls;
mod repos;
mod reviews;
mod smart_http;
mod statuses;
mod teams;
mod views;
mod webhooks;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, patch, post, put};
use chrono::{DateTime, Utc};
use jsonwebtoken::DecodingKey;
use tokio::net::TcpListener;

use crate::model::PullNumber;
use crate::secret::Secret;

use super::faults::{Fault, Faults};
use super::lines::{ConnectionHandle, CuttableListener};
use super::options::{AppOptions, Options};
use super::world::{Conventions, EmulatedPull};
use super::{EmulatorError, EmulatorState};

use errors::ApiError;
use limits::RateLimit;

/// Emulated version of GitHub Enterprise Server. Paths (`/api/v3`) and headers follow it.
const ENTERPRISE_VERSION: &str = "3.19.0";

/// Values of GitHub for the world.
pub(super) const CONVENTIONS: Conventions = Conventions {
    pull_refs: "refs/pull",
    email: views::email,
    max_comment_chars: 65_536,
    max_statuses_of_context: 1000,
};

/// State that only GitHub's wire has.
pub(super) struct GitHubWire {
    /// Origin of pages and git: `http://127.0.0.1:PORT`.
    pub(super) base_url: String,
    /// Accounts with their personal access tokens.
    accounts: Vec<(String, Secret)>,
    app: Option<AppOptions>,
    /// Key that verifies the App's JSON web tokens.
    app_key: Option<DecodingKey>,
    /// Tokens of the App's installation, by their text.
    installation_tokens: Mutex<HashMap<String, InstallationToken>>,
    webhook_secret: Secret,
    pub(super) limits: RateLimit,
    /// Number of answers, for their ids.
    answers: AtomicU64,
    /// Number of reads of each new pull request that are answered 404.
    hidden_reads: AtomicU32,
    /// Number of reads that still answer that the mergeability is not known yet, by id of the pull request.
    unsettled: Mutex<HashMap<u64, u32>>,
}

/// Token of the App's installation.
#[derive(Clone, Debug)]
struct InstallationToken {
    expires_at: DateTime<Utc>,
    /// Keys of the repositories that the token is limited to.
    repositories: Option<Vec<String>>,
}

impl GitHubWire {
    pub(super) fn new(options: &Options, base_url: String) -> Result<Self, EmulatorError> {
        let key = |app: &AppOptions| {
            DecodingKey::from_rsa_pem(app.public_key_pem.as_bytes())
                .map_err(|error| EmulatorError::AppKey(error.to_string()))
        };
        Ok(Self {
            base_url,
            accounts: options.accounts.clone(),
            app: options.app.clone(),
            app_key: options.app.as_ref().map(key).transpose()?,
            installation_tokens: Mutex::default(),
            webhook_secret: options.webhook_secret.clone(),
            limits: RateLimit::default(),
            answers: AtomicU64::default(),
            hidden_reads: AtomicU32::default(),
            unsettled: Mutex::default(),
        })
    }

    /// Returns the URL of a REST resource.
    pub(super) fn api(&self, path: &str) -> String {
        format!("{}/api/v3{path}", self.base_url)
    }

    /// Returns the URL of a page.
    pub(super) fn html(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// Answers 404 to the first `reads` reads of every pull request opened from now on.
    pub(super) fn hide_new_pulls(&self, reads: u32) {
        self.hidden_reads.store(reads, Ordering::Relaxed);
    }

    /// Hides a new pull request from as many reads as were ordered.
    pub(super) fn hide_pull(&self, faults: &Faults, repo: &str, number: PullNumber) {
        let reads = self.hidden_reads.load(Ordering::Relaxed);
        if reads > 0 {
            let route = format!("GET /repos/{repo}/pulls/{number}");
            faults.add(&route, reads, Fault::NotFound);
        }
    }

    /// Lets the next `reads` reads of a pull request answer that its mergeability is not known yet.
    pub(super) fn unsettle(&self, pull: &EmulatedPull, reads: u32) {
        self.unsettled().insert(pull.id, reads);
    }

    /// Counts a read of a pull request whose mergeability may not be known yet.
    fn count_read(&self, pull: u64) {
        if let Some(left) = self.unsettled().get_mut(&pull) {
            *left = left.saturating_sub(1);
        }
    }

    /// Returns true if GitHub knows the mergeability of a pull request. It never knows that of a closed one.
    fn knows_mergeability(&self, pull: &EmulatedPull) -> bool {
        pull.is_open() && self.unsettled().get(&pull.id).is_none_or(|left| *left == 0)
    }

    fn unsettled(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.unsettled
            .lock()
            .expect("no code panics while it holds the reads")
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, InstallationToken>> {
        self.installation_tokens
            .lock()
            .expect("no code panics while it holds the tokens")
    }
}

/// Context that all handlers share.
type Cx = Arc<EmulatorState>;

/// Result type of all handlers.
type WireResponse = Result<Response, ApiError>;

/// Serves requests until the future is dropped.
pub(super) async fn serve(listener: TcpListener, cx: Cx) {
    let service = router(&cx).into_make_service_with_connect_info::<ConnectionHandle>();
    // The call never returns, because the listener's `accept` does not fail.
    let _never = axum::serve(CuttableListener(listener), service).await;
}

fn router(cx: &Cx) -> Router {
    let git_and_pages = Router::new()
        .route("/{owner}/{repo}/info/refs", get(smart_http::advertise))
        .route(
            "/{owner}/{repo}/git-upload-pack",
            post(smart_http::upload_pack),
        )
        .route(
            "/{owner}/{repo}/git-receive-pack",
            post(smart_http::receive_pack),
        )
        .route("/{owner}/{repo}/info/lfs/objects/batch", post(lfs::batch))
        .route("/{owner}/{repo}/info/lfs/objects/{oid}", get(lfs::download))
        .route("/{owner}/{repo}/pull/{number}", get(pages::pull));
    Router::new()
        .nest("/api/v3", api(cx))
        .merge(git_and_pages)
        .fallback(errors::not_found)
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(cx), observe::observe))
        .with_state(Arc::clone(cx))
}

fn api(cx: &Cx) -> Router<Cx> {
    Router::new()
        .route("/user", get(app::user))
        .route("/app", get(app::app))
        .route("/app/installations", get(app::installations))
        .route(
            "/app/installations/{id}/access_tokens",
            post(app::access_token),
        )
        .route("/orgs/{org}/teams", get(teams::list))
        .route(
            "/orgs/{org}/teams/{slug}/memberships/{login}",
            get(teams::get_membership),
        )
        .nest("/repos/{owner}/{repo}", repo_api())
        .route("/repositories/{*rest}", get(repos::by_id))
        .fallback(errors::not_found)
        .method_not_allowed_fallback(errors::not_found)
        .layer(from_fn_with_state(Arc::clone(cx), auth::admit))
        .layer(from_fn(errors::require_user_agent))
}

/// Builds the routes below a repository.
fn of_repos(cx: &Cx) -> Router {
    Router::new()
        .nest("/repos/{owner}/{repo}", repo_api())
        .fallback(errors::not_found)
        .with_state(Arc::clone(cx))
}

fn repo_api() -> Router<Cx> {
    Router::new()
        .route("/", get(repos::get))
        .route("/installation", get(app::repo_installation))
        .route("/pulls", get(pulls::list))
        .route("/pulls/{number}", get(pulls::get))
        .route("/pulls/{number}/files", get(pulls::files))
        .route("/pulls/{number}/merge", put(pulls::merge))
        .route("/pulls/{number}/reviews", get(reviews::list))
        .route(
            "/collaborators/{login}/permission",
            get(reviews::get_permission),
        )
        .route("/branches/{branch}", get(branches::get))
        .route(
            "/branches/{branch}/protection",
            get(branches::get_protection),
        )
        .route("/rules/branches/{branch}", get(branches::rules))
        .route(
            "/issues/{number}/comments",
            get(comments::list).post(comments::create),
        )
        .route("/issues/{number}/events", get(pulls::events))
        .route(
            "/issues/comments/{id}",
            patch(comments::edit)
                .get(comments::get)
                .delete(comments::delete),
        )
        .route("/issues/comments/{id}/reactions", post(comments::react))
        .route("/statuses/{sha}", post(statuses::create))
        .route("/check-runs", post(check_runs::create))
        .route("/check-runs/{id}", patch(check_runs::change))
        .route("/commits/{*rest}", get(statuses::of_commit))
        .route("/contents", get(contents::root))
        .route("/contents/", get(contents::root))
        .route("/contents/{*path}", get(contents::get))
}

/// Formats a time as GitHub does.
fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
