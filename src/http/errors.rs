//! Everything that can go wrong in front of people: what happened, and the way out (P10).

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use tracing::error;

use super::Web;
use super::trace::Reference;
use crate::handlers::authz::{AuthzError, Denial};

/// An answer that is not what was asked for. [`render`] makes a page or JSON of it.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    #[serde(skip)]
    status: StatusCode,
    title: &'static str,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, title: &'static str, message: impl Into<String>) -> Self {
        Self { status, title, message: message.into() }
    }

    /// No route.
    pub(super) fn no_such_page() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Nothing is here", "There is no page at this address.")
    }

    /// A route, but not for this verb.
    pub(super) fn wrong_method() -> Self {
        let message = "This address does not answer to that kind of request.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Not this way", message)
    }

    /// A lock that nobody holds.
    pub(super) fn no_such_lock(asked: &str) -> Self {
        let asked = super::pages::shown(asked);
        let message = format!(
            "No lock is known as “{asked}”. Most likely it was given back already: that happens when its pull request is \
             merged or closed, with an unlock comment, when its plan fails, or when somebody discards it here."
        );
        Self::new(StatusCode::NOT_FOUND, "This lock is not held", message)
    }

    /// A classic name that more than one lock goes by.
    pub(super) fn several_locks(asked: &str) -> Self {
        let asked = super::pages::shown(asked);
        let message = format!(
            "More than one lock is known as “{asked}”, and none was touched. Put the host before the name, as in \
             github.com/owner/repo/path/workspace, or use the identifier that GET /api/locks shows as ID."
        );
        Self::new(StatusCode::CONFLICT, "This name means several locks", message)
    }

    /// A run that never was or was pruned.
    pub(super) fn no_such_run() -> Self {
        let message = "No run has this name. The address may be cut short, or the run is older than what this server \
                       keeps.";
        Self::new(StatusCode::NOT_FOUND, "This run is not known", message)
    }

    /// A run that is older than what is kept.
    pub(super) fn run_removed(kept: Duration, asked_at: DateTime<Utc>) -> Self {
        let days = kept.as_secs() / 86_400;
        let message = format!(
            "Commands and their runs are removed after {days} days on this server (--keep-runs), and this one is of {}. What \
             it came to is still in the comment on its pull request.",
            asked_at.format("%Y-%m-%d")
        );
        Self::new(StatusCode::GONE, "This run was removed", message)
    }

    /// The lock cannot be taken away right now.
    pub(super) fn apply_is_running() -> Self {
        let message = "An apply is running under this lock, so it was not discarded: taking the lock away now would let \
                       another pull request change the same infrastructure at the same time. Wait for the apply to \
                       end, then discard the lock.";
        Self::new(StatusCode::CONFLICT, "An apply is running", message)
    }

    /// An apply is only cut off by somebody who says so.
    pub(super) fn apply_must_be_confirmed() -> Self {
        let message = "This apply is under way, so it was not interrupted: an apply that is cut off can leave the \
                       infrastructure half changed. Open the page of the run again and use the button that says so.";
        Self::new(StatusCode::CONFLICT, "An apply is running", message)
    }

    /// Too late to cancel.
    pub(super) fn command_is_over() -> Self {
        let message = "The command had ended before it could be cancelled. Its page says how.";
        Self::new(StatusCode::CONFLICT, "Too late to cancel", message)
    }

    /// Nobody will know tomorrow why applies were stopped.
    pub(super) fn reason_wanted() -> Self {
        let message = "Say in a few words why all applies are to stop, so that whoever finds them stopped knows what to \
                       wait for. Nothing was changed.";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "A reason is missing", message)
    }

    /// Another site, or a program without the marks of a browser, sent a form.
    pub(super) fn from_another_site() -> Self {
        let message = "Changes are only taken from the pages of this server, and your browser did not say that this one \
                       is. Nothing was changed. Open the dashboard and try again there.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// The token does not fit.
    pub(super) fn stale_form() -> Self {
        let message = "The page you sent this from is out of date, or its cookie was lost. Nothing was changed. Go back, \
                       reload the page and try again.";
        Self::new(StatusCode::FORBIDDEN, "Out of date", message)
    }

    /// A rule forbids it.
    pub(super) fn not_allowed(denial: &Denial) -> Self {
        let text = format!("{} {} Nothing was changed.", denial.message(), denial.who_can.join(" "));
        Self::new(StatusCode::FORBIDDEN, "Not allowed", in_quotes(&super::pages::shown(&text)))
    }

    /// Whether it is allowed cannot be told.
    fn undecided() -> Self {
        let message = "Whether this is allowed could not be found out, so nothing was changed. The log of the server says \
                       more, under the reference below. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not decided", message)
    }

    /// A browser on a route for scripts.
    pub(super) fn scripts_only() -> Self {
        let message =
            "This address is for scripts. In a browser, use the buttons of the dashboard. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// A script on a server without a password.
    pub(super) fn scripts_need_a_password() -> Self {
        let message = "Scripts may change something only if they know the password of the web user, and this server has \
                       none: start it with web basic authentication. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// The query lacks what the route needs.
    pub(super) fn query_wanted(name: &'static str) -> Self {
        let message = format!("The address needs `?{name}=…`.");
        Self::new(StatusCode::BAD_REQUEST, "Something is missing", message)
    }

    /// Too long, or not a form.
    pub(super) fn unreadable_form(status: StatusCode) -> Self {
        let message = "The form could not be read: it is too long or lacks a field. Nothing was changed.";
        Self::new(status, "Not readable", message)
    }

    /// No password, or a wrong one.
    pub(super) fn who_are_you() -> Self {
        let message = "This server asks for a user and a password.";
        Self::new(StatusCode::UNAUTHORIZED, "Sign in", message)
    }

    /// Too many people watch runs.
    pub(super) fn too_many_viewers() -> Self {
        let message = "Too many browsers watch runs on this replica right now. Reload the page to see what is new.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Too many viewers", message)
    }

    /// The time for a request is over.
    pub(super) fn too_slow() -> Self {
        let message = "The answer took too long and was given up. What you asked for may still happen: look before you \
                       try again.";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Too slow", message)
    }

    /// A bug.
    pub(super) fn internal() -> Self {
        let message = "Something broke on the server. Its log says what, under the reference below.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Something broke", message)
    }

    fn database() -> Self {
        let message = "The database does not answer as it should. The log of the server says more, under the reference \
                       below. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The database does not answer", message)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        error!(%error, "The database failed a request");
        Self::database()
    }
}

impl From<AuthzError> for Failure {
    fn from(error: AuthzError) -> Self {
        error!(%error, "Whether somebody may do something could not be found out");
        Self::undecided()
    }
}

impl From<minijinja::Error> for Failure {
    fn from(error: minijinja::Error) -> Self {
        error!(%error, "A page could not be rendered");
        Self::internal()
    }
}

impl IntoResponse for Failure {
    /// Only the status and a note for [`render`].
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer after a panic.
pub(super) fn after_panic(cause: &(dyn Any + Send)) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text");
    error!(panic = text, "A request panicked");
    Failure::internal().into_response()
}

/// Pages and JSON have no code in their sentences: `` `a` `` becomes “a”.
fn in_quotes(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let marked = parts.map(|(at, part)| match at {
        0 => part.to_owned(),
        at if at % 2 == 1 => format!("“{part}"),
        _ => format!("”{part}"),
    });
    marked.collect()
}

#[derive(Serialize)]
struct View<'a> {
    title: &'a str,
    message: &'a str,
    status: u16,
    reference: &'a str,
}

#[derive(Serialize)]
struct JsonError<'a> {
    error: &'a str,
    reference: &'a str,
}

/// Turns a [`Failure`] into a page for browsers and JSON for everything else, with the reference of the request.
pub(super) async fn render(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let html = wants_html(request.uri().path(), request.headers());
    let reference = request.extensions().get::<Reference>().cloned();
    let mut response = next.run(request).await;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else {
        return response;
    };
    let reference = reference.map(|reference| reference.0).unwrap_or_default();
    let body = if html { failure.page(&web, &reference) } else { failure.json(&reference) };
    let (parts, body) = body.into_parts();
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(parts.headers);
    *response.body_mut() = body;
    response
}

/// The API always speaks JSON; elsewhere browsers ask for HTML by name.
fn wants_html(path: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !path.starts_with("/api/") && accept.contains("text/html")
}

impl Failure {
    fn page(&self, web: &Web, reference: &str) -> Response {
        let view = View { title: self.title, message: &self.message, status: self.status.as_u16(), reference };
        match web.templates.render("error.html", &view) {
            Ok(page) => page.into_response(),
            Err(error) => {
                error!(%error, "The page about an error could not be rendered");
                Response::new(Body::from(self.message.clone()))
            }
        }
    }

    fn json(&self, reference: &str) -> Response {
        Json(JsonError { error: &self.message, reference }).into_response()
    }
}
