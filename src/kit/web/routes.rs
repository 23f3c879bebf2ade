//! Lists the routes and who is answered on each.
//!
//! A route cannot be added without a decision on its access. The router, the guard and the tests are made from the
//! same rows. If the pages of a server require a password, all routes but [`RouteAccess::Everybody`] need it. The other
//! kinds of access matter on a server whose pages do not.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};

use super::{WebError, WebState};
use crate::config::access::NOBODY;
use crate::config::access::{Action, Identity};

/// Clients that are answered on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Everybody, even if the pages require a password.
    Everybody,
    /// Everybody who may look at pages: facts of locks, pull requests and runs, but no output of runs.
    Facts,
    /// People and scripts that have signed in.
    Account,
    /// Changes: open to people who have signed in, and to others as far as `--allow-anonymous-web` allows. The
    /// handler checks.
    Change,
}

/// A route of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Method of the route. `HEAD` is answered where `GET` is.
    pub method: Method,
    /// Path with its variables, such as `/jobs/{id}`.
    pub path: &'static str,
    /// Clients that are answered.
    pub access: RouteAccess,
}

/// A router, and the table of its routes.
pub(crate) struct Routes<S> {
    pub router: Router<S>,
    pub table: Vec<Route>,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            table: Vec::new(),
        }
    }

    /// Adds a route that only reads.
    pub fn get<T: 'static>(
        self,
        path: &'static str,
        access: RouteAccess,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::GET, path, access, routing::get(handler))
    }

    /// Adds a route for a form or a script.
    pub fn post<T: 'static>(
        self,
        path: &'static str,
        access: RouteAccess,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::POST, path, access, routing::post(handler))
    }

    /// Adds a route by which a script removes something.
    pub fn delete<T: 'static>(
        self,
        path: &'static str,
        access: RouteAccess,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::DELETE, path, access, routing::delete(handler))
    }

    /// Adds a route with its own layers. `route` answers only `method`.
    pub fn with(
        mut self,
        method: Method,
        path: &'static str,
        access: RouteAccess,
        route: MethodRouter<S>,
    ) -> Self {
        self.table.push(Route {
            method,
            path,
            access,
        });
        Self {
            router: self.router.route(path, route),
            table: self.table,
        }
    }

    /// Adds the routes of another part.
    pub fn merge(mut self, other: Self) -> Self {
        self.table.extend(other.table);
        Self {
            router: self.router.merge(other.router),
            table: self.table,
        }
    }
}

/// State of the guard of a server without a password.
#[derive(Clone)]
pub(crate) struct OpenServerGuard {
    web: Arc<WebState>,
    table: Arc<[Route]>,
}

impl OpenServerGuard {
    pub fn new(web: Arc<WebState>, table: &[Route]) -> Self {
        Self {
            web,
            table: table.into(),
        }
    }

    fn access(&self, request: &Request) -> Option<RouteAccess> {
        let path = request.extensions().get::<MatchedPath>()?;
        let method = if request.method() == Method::HEAD {
            &Method::GET
        } else {
            request.method()
        };
        let is_meant = |route: &&Route| route.method == *method && route.path == path.as_str();
        self.table.iter().find(is_meant).map(|route| route.access)
    }

    /// Returns true if people who have not signed in may do nothing.
    fn lets_nobody_act(&self) -> bool {
        let nobody = Identity::Web(NOBODY.to_owned());
        !Action::ALL
            .iter()
            .any(|action| self.web.authority.offers(&nobody, *action))
    }
}

/// Refuses requests that need an account, on a server where nobody signs in.
pub(crate) async fn guard(
    State(open): State<OpenServerGuard>,
    request: Request,
    next: Next,
) -> Response {
    if open.web.auth.is_some() {
        return next.run(request).await;
    }
    match open.access(&request) {
        Some(RouteAccess::Account) => WebError::account_wanted().into_response(),
        Some(RouteAccess::Change) if open.lets_nobody_act() => {
            WebError::only_to_look().into_response()
        }
        // A path without a route shows nothing but that fact.
        Some(RouteAccess::Everybody | RouteAccess::Facts | RouteAccess::Change) | None => {
            next.run(request).await
        }
    }
}
