//! The web server: the webhook endpoint, the dashboard, the JSON API and the health checks.
//!
//! Their common parts and rules are in [`crate::kit::web`].

mod events;
mod intake;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::post;
use futures::stream;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

pub use intake::DeliveryLimits;

use crate::context::Ctx;
use crate::features::accounts::{self, AccountSignIn, AccountsGit};
use crate::features::registry::{
    self, PeerServer, RegistryServer, RegistryUploads, RunModuleServer,
};
use crate::features::{self, operations};
use crate::kit::web::answer::{self, AnswerRules, REQUEST_TIME, with_answers};
use crate::kit::web::routes::GuardedRoutes;
use crate::kit::web::{Route, RouteAccess, Routes, WebError, WebState, count, guard};

/// Answers that are due at once: pages, the API, the registry.
const WITHIN_LIMIT: AnswerRules = AnswerRules {
    limit: Some(REQUEST_TIME),
    for_all_hosts: false,
};
/// Answers whose handlers have time limits of their own.
const WITHOUT_LIMIT: AnswerRules = AnswerRules {
    limit: None,
    for_all_hosts: false,
};
/// Answers to git, which take as long as the content is large.
const GIT: AnswerRules = AnswerRules {
    limit: Some(Duration::from_mins(5)),
    for_all_hosts: false,
};
/// Answers to load balancers, which know a server by its address and give the host a name of their own.
const HEALTH: AnswerRules = AnswerRules {
    limit: Some(REQUEST_TIME),
    for_all_hosts: true,
};
/// Maximum size of a body, because all are short forms.
const BODY_BYTES: usize = 16 * 1024;

/// Returns the router of the webhook endpoint, which is guarded by signatures, not by the web user.
pub fn webhook_router(ctx: Ctx) -> Router {
    webhook_router_with(ctx, DeliveryLimits::default())
}

/// Returns the same router with other limits.
pub fn webhook_router_with(ctx: Ctx, limits: DeliveryLimits) -> Router {
    let metrics = ctx.metrics.clone();
    let input = Arc::new(events::WebhookInput::new(ctx, limits));
    webhook_routes()
        .router
        .layer(middleware::from_fn_with_state(metrics, count::count))
        .with_state(input)
}

fn webhook_routes() -> Routes<Arc<events::WebhookInput>> {
    Routes::new().with(
        Method::POST,
        "/events",
        RouteAccess::Everybody,
        post(events::receive),
    )
}

fn guarded_routes() -> Routes<Arc<WebState>> {
    features::routes().get(
        "/static/{hash}/{name}",
        RouteAccess::Facts.and_limited(),
        crate::kit::web::templates::file,
    )
}

/// Returns the router of accounts: their API, and their repository for git, which sends and receives more than forms.
/// Both sign in with the passwords of accounts.
pub(crate) fn accounts_router(sign_in: Arc<AccountSignIn>, git: AccountsGit) -> Router {
    let web = Arc::clone(sign_in.web());
    let api = accounts::api_routes()
        .router
        .method_not_allowed_fallback(|| async { WebError::wrong_method() })
        .with_state(sign_in);
    let git = accounts::git_routes().router.with_state(Arc::new(git));
    with_answers(api, Arc::clone(&web), WITHIN_LIMIT).merge(with_answers(git, web, GIT))
}

/// Returns the table of the API of accounts, which asks for the password of an account.
pub fn account_routes() -> Vec<Route> {
    accounts::api_routes().table
}

/// Returns the router of the registry of modules, which signs in with its tokens. Packages are longer than pages, so the
/// time limit ends with their first byte, and uploads have time limits of their own.
pub(crate) fn registry_router(
    server: &Arc<RegistryServer>,
    uploads: Arc<RegistryUploads>,
    peers: Arc<PeerServer>,
) -> Router {
    let web = server.web();
    let uploads = registry::upload_routes()
        .router
        .method_not_allowed_fallback(|| async { WebError::wrong_method() })
        .with_state(uploads);
    let serve = registry::serve_routes()
        .router
        .method_not_allowed_fallback(|| async { WebError::wrong_method() })
        .with_state(Arc::clone(server))
        .merge(
            registry::peer_routes()
                .router
                .method_not_allowed_fallback(|| async { WebError::wrong_method() })
                .with_state(peers),
        );
    with_answers(serve, Arc::clone(web), WITHIN_LIMIT).merge(with_answers(
        uploads,
        Arc::clone(web),
        WITHOUT_LIMIT,
    ))
}

/// Lets a router lead `go` from import paths on this host to the registry.
///
/// Only requests of `go` pass through the layer, because a layer costs a short answer more than this choice.
pub(crate) fn with_go_imports(router: Router, server: Arc<RegistryServer>) -> Router {
    let of_go = router
        .clone()
        .layer(middleware::from_fn_with_state(server, registry::lead_go));
    Router::new().fallback(move |request: Request| {
        let is_head = *request.method() == Method::HEAD;
        let is_go_get = registry::is_go_get(request.uri());
        let chosen = if is_go_get { &of_go } else { &router };
        let answer = TowerToHyperService::new(chosen.clone()).call(request);
        async move {
            let mut response = answer.await?;
            // The length of an empty body would pass for that of the answer to a GET request, which can be a stream.
            if is_head && !response.headers().contains_key(header::CONTENT_LENGTH) {
                *response.body_mut() = Body::from_stream(stream::empty::<io::Result<Bytes>>());
            }
            Ok::<Response, Infallible>(response)
        }
    })
}

/// Returns the router that serves modules to runs. Paths have tokens of runs, so nothing here logs them.
pub(crate) fn run_registry_router(server: RunModuleServer) -> Router {
    registry::run_router(server).layer(middleware::from_fn(answer::unlogged_answer))
}

/// Returns the table of the routes of the registry, which ask for its tokens.
pub fn registry_routes() -> Vec<Route> {
    [
        registry::serve_routes().table,
        registry::upload_routes().table,
        registry::peer_routes().table,
    ]
    .concat()
}

/// Returns the table of all routes but those of [`accounts_router`].
pub fn routes() -> Vec<Route> {
    [
        webhook_routes().table,
        guarded_routes().table,
        operations::health_routes().table,
    ]
    .concat()
}

/// Returns the router of everything but the webhook endpoint. A proxy that serves the public address below a path strips
/// that path, so the routes are at the root and only links carry it (reference 11).
pub fn router(web: Arc<WebState>) -> Router {
    let Routes { router, table } = guarded_routes();
    let routes = GuardedRoutes::new(Arc::clone(&web), &table);
    let guarded = router
        .fallback(|| async { WebError::no_such_page() })
        .method_not_allowed_fallback(|| async { WebError::wrong_method() })
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(routes, guard::guard));
    let health = operations::health_routes().router;
    with_answers(guarded, Arc::clone(&web), WITHIN_LIMIT)
        .merge(with_answers(health, Arc::clone(&web), HEALTH))
        .with_state(web)
}
