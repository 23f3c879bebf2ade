//! Refuses requests for host names that do not belong to this server.
//!
//! The owner of another page can point its name at this server after the browser has loaded it (DNS rebinding). The
//! browser then treats both as one origin, and sends `Host` with the name of that page: the only difference between
//! them.

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::header;

use super::{WebError, WebState};

/// Local address of a connection, stored as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub SocketAddr);

/// Refuses a request that does not name this server.
pub(super) fn check(web: &WebState, request: &Request) -> Result<(), WebError> {
    let Some(asked) = foreign(web, request) else {
        return Ok(());
    };
    tracing::warn!(
        host = asked,
        "A request named a host that is not this server (--web-hosts)"
    );
    Err(WebError::another_host(&asked))
}

/// Returns true if a request names a host that is not this server.
pub(crate) fn is_foreign(web: &WebState, request: &Request) -> bool {
    foreign(web, request).is_some()
}

/// Returns the first name that does not belong to this server. HTTP/2 and proxies put the name into the address,
/// HTTP/1.1 into `Host`. If both are present, both count.
fn foreign(web: &WebState, request: &Request) -> Option<String> {
    let local = request
        .extensions()
        .get::<LocalAddress>()
        .map(|LocalAddress(address)| address.ip());
    let authority = request.uri().authority();
    let authority = authority.map(|authority| Cow::Borrowed(authority.as_str()));
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| String::from_utf8_lossy(host.as_bytes()));
    let mut named = authority.into_iter().chain(hosts).peekable();
    if named.peek().is_none() {
        return Some(String::new());
    }
    let foreign = named.find(|name| !web.hosts.knows(name, local));
    foreign.map(Cow::into_owned)
}
