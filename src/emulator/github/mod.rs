//! Implements GitHub's protocols: REST below `/api/v3`, git and Git LFS over HTTP, and a page per pull request.

mod app;
mod auth;
mod branches;
mod comments;
mod contents;
mod errors;
mod etags;
mod lfs;
mod limits;
mod lines;
mod observe;
mod pages;
mod paging;
mod pulls;
mod repos;
mod reviews;
mod smart_http;
mod statuses;
mod teams;
pub(super) mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, patch, post, put};
use chrono::{DateTime, Utc};
use tokio::net::TcpListener;

use super::EmulatorState;

use errors::ApiError;
use lines::{ConnectionHandle, CuttableListener};

pub(super) use limits::RateLimit;

/// Emulated version of GitHub Enterprise Server. Paths (`/api/v3`) and headers follow it.
pub(super) const ENTERPRISE_VERSION: &str = "3.19.0";

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
        .route(
            "/issues/comments/{id}",
            patch(comments::edit)
                .get(comments::get)
                .delete(comments::delete),
        )
        .route("/issues/comments/{id}/reactions", post(comments::react))
        .route("/statuses/{sha}", post(statuses::create))
        .route("/commits/{*rest}", get(statuses::of_commit))
        .route("/contents", get(contents::root))
        .route("/contents/", get(contents::root))
        .route("/contents/{*path}", get(contents::get))
}

/// Formats a time as GitHub does.
fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
