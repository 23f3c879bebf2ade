//! Lists the routes and who is answered on each.
//!
//! A route cannot be added without a decision on its access. The router, the guards and the tests are made from the
//! same rows. If the pages of a server require a password, all routes but [`RouteAccess::Everybody`] need it. The other
//! kinds of access matter on a server whose pages do not.
//!
//! Accounts that are limited to owners are refused, unless the row says [`RouteAccess::and_limited`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use axum::http::Method;
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

impl RouteAccess {
    /// Admits accounts that are limited to owners as well. The handler of such a route asks
    /// [`VisibleScope`](super::reach::VisibleScope) before it shows something and [`WebState::permit`] before it changes
    /// something, so it shows and changes only data of the account's owners, and what is public.
    pub const fn and_limited(self) -> RouteClients {
        RouteClients {
            access: self,
            limited: true,
        }
    }
}

/// Access to a route, with or without limited accounts.
#[derive(Clone, Copy, Debug)]
pub struct RouteClients {
    access: RouteAccess,
    limited: bool,
}

impl From<RouteAccess> for RouteClients {
    /// Refuses accounts that are limited to owners.
    fn from(access: RouteAccess) -> Self {
        Self {
            access,
            limited: false,
        }
    }
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
    /// True if accounts that are limited to owners are answered as well.
    pub limited: bool,
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
        clients: impl Into<RouteClients>,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::GET, path, clients, routing::get(handler))
    }

    /// Adds a route for a form or a script.
    pub fn post<T: 'static>(
        self,
        path: &'static str,
        clients: impl Into<RouteClients>,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::POST, path, clients, routing::post(handler))
    }

    /// Adds a route by which a script removes something.
    pub fn delete<T: 'static>(
        self,
        path: &'static str,
        clients: impl Into<RouteClients>,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(Method::DELETE, path, clients, routing::delete(handler))
    }

    /// Adds a route with its own layers. `route` answers only `method`.
    pub fn with(
        mut self,
        method: Method,
        path: &'static str,
        clients: impl Into<RouteClients>,
        route: MethodRouter<S>,
    ) -> Self {
        let RouteClients { access, limited } = clients.into();
        self.table.push(Route {
            method,
            path,
            access,
            limited,
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

/// State of the guards: the server, and the table of the routes that they guard.
#[derive(Clone)]
pub(crate) struct GuardedRoutes {
    pub web: Arc<WebState>,
    table: Arc<[Route]>,
}

impl GuardedRoutes {
    pub fn new(web: Arc<WebState>, table: &[Route]) -> Self {
        Self {
            web,
            table: table.into(),
        }
    }

    /// Returns the routes with the path of the request.
    fn with_path(&self, request: &Request) -> impl Iterator<Item = &Route> {
        let path = request.extensions().get::<MatchedPath>();
        self.table
            .iter()
            .filter(move |route| path.is_some_and(|path| route.path == path.as_str()))
    }

    fn route(&self, request: &Request) -> Option<&Route> {
        let method = if request.method() == Method::HEAD {
            &Method::GET
        } else {
            request.method()
        };
        self.with_path(request)
            .find(|route| route.method == *method)
    }

    /// Returns true if a limited account may send the request.
    pub fn admits_limited(&self, request: &Request) -> bool {
        if request.extensions().get::<MatchedPath>().is_none() {
            // A path without a route shows nothing but that fact.
            return true;
        }
        match self.route(request) {
            Some(route) => route.limited,
            // The answer is that the path has no such method, which an account that may use the path may see.
            None => self.with_path(request).any(|route| route.limited),
        }
    }

    /// Returns true if people who have not signed in may do nothing.
    fn lets_nobody_act(&self) -> bool {
        let nobody = Identity::Web(NOBODY.into());
        !Action::ALL
            .iter()
            .any(|action| self.web.authority.offers(&nobody, *action))
    }

    /// Refuses requests that need an account, on a server where nobody signs in.
    pub fn check_access(&self, request: &Request) -> Result<(), WebError> {
        if self.web.auth.is_some() {
            return Ok(());
        }
        match self.route(request).map(|route| route.access) {
            Some(RouteAccess::Account) => Err(WebError::account_wanted()),
            Some(RouteAccess::Change) if self.lets_nobody_act() => Err(WebError::read_only()),
            // A path without a route shows nothing but that fact.
            Some(RouteAccess::Everybody | RouteAccess::Facts | RouteAccess::Change) | None => {
                Ok(())
            }
        }
    }
}
