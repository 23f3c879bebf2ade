//! Common parts of all pages and API routes: authentication, permissions, forms, queries, errors and templates.
//!
//! Rules, by name:
//! - *guarded unless open*: every route, known or not, requires the web user when there is one; only the health of
//!   the process and the webhook endpoint are open, and they are separate routers, so no spelling of a path slips
//!   past the guard;
//! - *read-only unless signed in*: where there is no web user, [`routes`] says of each route whether it shows facts,
//!   and everything else is refused;
//! - *by name*: all of these answer only to names of this server ([`hosts`]);
//! - *limited unless whole*: an account that is limited to owners reaches only the routes that admit it ([`reach`]);
//! - *no change without intent*: every change goes through [`csrf`];
//! - *one voice for errors*: a handler returns a [`WebError`]; the layer of [`answer`] turns it into a page or JSON with a reference
//!   that the log knows, and nothing else of the cause leaves the process;
//! - *nothing from elsewhere*: the policy of [`headers`] lets a page load nothing but our own files, and no inline
//!   script or style.

pub(crate) mod answer;
pub(crate) mod auth;
pub(crate) mod count;
pub(crate) mod csrf;
pub(crate) mod cursor;
pub(crate) mod errors;
pub(crate) mod extract;
pub(crate) mod forms;
pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod hosts;
pub(crate) mod reach;
pub(crate) mod routes;
mod sign_in_limiter;
mod state;
pub(crate) mod templates;
pub(crate) mod text;
mod trace;
pub(crate) mod visitor;

pub use auth::{WebAuth, WebUser};
pub use errors::WebError;
pub use hosts::LocalAddress;
pub(crate) use routes::Routes;
pub use routes::{Route, RouteAccess};
pub use sign_in_limiter::{FAILURE_BURST, FAILURE_REFILL, FREE_FAILURES, LONGEST_WAIT};
pub use state::{
    AccountPasswords, Authority, Cancel, Cancelling, HandOverLocks, PasswordMark, PasswordVerdict,
    WebParts, WebState,
};
pub(crate) use text::shown;
