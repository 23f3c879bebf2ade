//! Serves git over HTTP: `git clone`, `git fetch` and `git push` with a token as password.

use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::git::{CgiAnswer, CgiRequest, EmulatedGitError};
use crate::world::RepoHandle;

use super::Cx;
use super::auth::{Caller, by_basic};

/// Request of an authenticated git client.
pub(super) struct Client<'a> {
    headers: &'a HeaderMap,
    pub(super) repo: RepoHandle,
    login: String,
}

impl Client<'_> {
    fn header<'a>(&'a self, name: &HeaderName) -> &'a str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        service: &'a str,
        query: &'a str,
        body: &'a [u8],
    ) -> CgiRequest<'a> {
        CgiRequest {
            method,
            service,
            query,
            content_type: self.header(&CONTENT_TYPE),
            content_encoding: self.header(&CONTENT_ENCODING),
            protocol: self.header(&HeaderName::from_static("git-protocol")),
            user: &self.login,
            body,
        }
    }
}

pub(super) async fn advertise(
    State(cx): State<Cx>,
    Path(name): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let client = match admit(&cx, &name, &headers) {
        Ok(client) => client,
        Err(refusal) => return *refusal,
    };
    let query = query.unwrap_or_default();
    answer(
        client
            .repo
            .git
            .serve(&client.request("GET", "info/refs", &query, &[]))
            .await,
    )
}

pub(super) async fn upload_pack(
    State(cx): State<Cx>,
    Path(name): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match admit(&cx, &name, &headers) {
        Ok(client) => answer(
            client
                .repo
                .git
                .serve(&client.request("POST", "git-upload-pack", "", &body))
                .await,
        ),
        Err(refusal) => *refusal,
    }
}

/// Receives a push of a client, with the same consequences as a push by the world.
pub(super) async fn receive_pack(
    State(cx): State<Cx>,
    Path(name): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let client = match admit(&cx, &name, &headers) {
        Ok(client) => client,
        Err(refusal) => return *refusal,
    };
    let request = client.request("POST", "git-receive-pack", "", &body);
    let received = cx
        .world
        .receive(&client.repo, &client.login, async |git| {
            git.serve(&request).await
        })
        .await;
    match received {
        Ok((served, events)) => {
            cx.publish_later(&events);
            answer(served)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Authenticates a git client and finds the repository. A client without credentials gets 401, as for a private
/// repository.
pub(super) fn admit<'a>(
    cx: &Cx,
    (owner, name): &(String, String),
    headers: &'a HeaderMap,
) -> Result<Client<'a>, Box<Response>> {
    let basic = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let Some(caller) = basic.map_or(Some(Caller::Anonymous), |value| by_basic(cx, value)) else {
        return Err(Box::new(unauthorized(
            "remote: Invalid username or token.\n",
        )));
    };
    let Some(author) = caller.author() else {
        return Err(Box::new(unauthorized("No anonymous read access.\n")));
    };
    let name = name.strip_suffix(".git").unwrap_or(name);
    let missing = || Box::new((StatusCode::NOT_FOUND, "Repository not found.\n").into_response());
    let key = caller
        .repo(&cx.world.state(), owner, name)
        .map(|repo| repo.name.key())
        .map_err(|_| missing())?;
    let repo = cx.world.repo_handle(&key).map_err(|_| missing())?;
    Ok(Client {
        headers,
        repo,
        login: author.login,
    })
}

fn unauthorized(text: &'static str) -> Response {
    (
        StatusCode::UNAUTHORIZED,
        [(WWW_AUTHENTICATE, "Basic realm=\"GitHub\"")],
        text,
    )
        .into_response()
}

fn answer(served: Result<CgiAnswer, EmulatedGitError>) -> Response {
    match served {
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Ok(cgi) => {
            let mut response = cgi.body.into_response();
            *response.status_mut() =
                StatusCode::from_u16(cgi.status).unwrap_or(StatusCode::BAD_GATEWAY);
            let headers = response.headers_mut();
            for (name, value) in cgi.headers {
                if let (Ok(name), Ok(value)) =
                    (name.parse::<HeaderName>(), HeaderValue::from_str(&value))
                {
                    headers.insert(name, value);
                }
            }
            headers
                .entry(CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-cache"));
            response
        }
    }
}
