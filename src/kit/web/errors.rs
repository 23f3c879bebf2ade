//! Everything that can go wrong in front of people: what happened, and the way out (P10).

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use tracing::error;

use super::Web;
use super::text::shown;
use super::trace::Reference;
use crate::claims;
use crate::handlers::authz::{AuthzError, Denial};
use crate::handlers::locks::Explanation;
use crate::locks::WhyNot;
use crate::model::{ApplicationProblem, OwnerName, RepoUrl};

/// How changes and outputs are turned on where nobody signs in.
const SIGN_IN: &str = "Whoever operates the server can set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD, and restart it.";
/// Characters of a name that is not ours that are shown again.
const LONGEST_HOST_SHOWN: usize = 100;

/// An answer that is not what was asked for. [`render`] makes a page or JSON of it.
#[derive(Clone, Debug)]
pub struct Failure {
    status: StatusCode,
    title: &'static str,
    message: String,
    /// For programs, where there is more to tell than a sentence.
    details: Option<Box<Details>>,
}

/// What a program can go by.
#[derive(Clone, Debug, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    reason: &'static str,
    way_out: String,
    /// Whose it is, where that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// What is wrong field by field, for the page of a form.
    #[serde(skip)]
    problems: Vec<FieldProblem>,
}

/// What is wrong with a field, in words that stand beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldProblem {
    pub field: String,
    pub text: String,
}

impl Failure {
    /// An answer of this status; the title says what happened, the message what to do.
    pub(crate) fn new(status: StatusCode, title: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            title,
            message: message.into(),
            details: None,
        }
    }

    /// With what a program can go by; people read the way out behind the message.
    fn with_details(self, field: Option<String>, reason: &'static str, way_out: &str) -> Self {
        let details = Details {
            field,
            reason,
            way_out: way_out.to_owned(),
            owner: None,
            problems: Vec::new(),
        };
        Self {
            details: Some(Box::new(details)),
            ..self
        }
    }

    /// With what is wrong field by field, as texts that were not made harmless to read yet.
    fn with_problems<'a>(mut self, problems: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let problem = |(field, text): (&str, &str)| FieldProblem {
            field: shown(field),
            text: in_quotes(&shown(text)),
        };
        if let Some(details) = &mut self.details {
            details.problems = problems.map(problem).collect();
        }
        self
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong, and the way out.
    pub(crate) fn sentences(&self) -> String {
        let way_out = self
            .details
            .as_ref()
            .map(|details| format!(" {}", details.way_out))
            .unwrap_or_default();
        format!("{}{way_out}", self.message)
    }

    /// What is wrong with fields, of which there can be several.
    pub(crate) fn problems(&self) -> Vec<FieldProblem> {
        let Some(details) = &self.details else {
            return Vec::new();
        };
        if details.problems.is_empty() {
            let whole = |field: &String| FieldProblem {
                field: field.clone(),
                text: self.sentences(),
            };
            return details.field.iter().map(whole).collect();
        }
        details.problems.clone()
    }

    /// No route.
    pub(crate) fn no_such_page() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "Nothing is here",
            "There is no page at this address.",
        )
    }

    /// A route, but not for this verb.
    pub(crate) fn wrong_method() -> Self {
        let message = "This address does not answer to that kind of request.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Not this way", message)
    }

    /// A lock that nobody holds.
    pub(crate) fn no_such_lock(asked: &str) -> Self {
        let asked = shown(asked);
        let message = format!(
            "No lock is known as “{asked}”. Most likely it was given back already: that happens when its pull request is \
             merged or closed, with an unlock comment, when its plan fails, or when somebody releases it here."
        );
        Self::new(StatusCode::NOT_FOUND, "This lock is not held", message)
    }

    /// A classic name that more than one lock goes by.
    pub(crate) fn several_locks(asked: &str) -> Self {
        let asked = shown(asked);
        let message = format!(
            "More than one lock is known as “{asked}”, and none was touched. Put the host before the name, as in \
             github.com/owner/repo/path/workspace, or use the identifier that GET /api/locks shows as ID."
        );
        Self::new(
            StatusCode::CONFLICT,
            "This name means several locks",
            message,
        )
    }

    /// A run that never was or was pruned.
    pub(crate) fn no_such_run() -> Self {
        let message = "No run has this name. The address may be cut short, or the run is older than what this server \
                       keeps.";
        Self::new(StatusCode::NOT_FOUND, "This run is not known", message)
    }

    /// A run that is older than what is kept.
    pub(crate) fn run_removed(kept: Duration, asked_at: DateTime<Utc>) -> Self {
        let days = kept.as_secs() / 86_400;
        let message = format!(
            "Commands and their runs are removed after {days} days on this server (--keep-runs), and this one is of {}. What \
             it came to is still in the comment on its pull request.",
            asked_at.format("%Y-%m-%d")
        );
        Self::new(StatusCode::GONE, "This run was removed", message)
    }

    /// A lock is left to its pull.
    pub(crate) fn lock_is_kept(why: WhyNot, explained: &Explanation) -> Self {
        let (status, title) = match why {
            WhyNot::ReasonWanted => (StatusCode::UNPROCESSABLE_ENTITY, "A reason is missing"),
            WhyNot::ApplyRunning => (StatusCode::CONFLICT, "An apply is running"),
            WhyNot::PlanRunning | WhyNot::ApplyWaiting => {
                (StatusCode::CONFLICT, "The lock is in use")
            }
            WhyNot::Applied => (StatusCode::CONFLICT, "Something was applied"),
            WhyNot::NotInLine(_) => (StatusCode::CONFLICT, "Not in line"),
            WhyNot::Circle(_) => (StatusCode::CONFLICT, "A circle"),
        };
        let message = in_quotes(&format!("{} Nothing was changed.", explained.message));
        let field = explained.field.map(str::to_owned);
        Self::new(status, title, message).with_details(
            field,
            explained.code,
            &in_quotes(&explained.way_out),
        )
    }

    /// A field of a form or of a body that cannot be used.
    pub(crate) fn unusable_field(field: &str, problem: &str, way_out: &str) -> Self {
        let message = format!(
            "The field “{}” cannot be used: {}. Nothing was changed.",
            shown(field),
            shown(problem)
        );
        let failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not usable", message);
        failure
            .with_details(Some(shown(field)), "unusable", way_out)
            .with_problems([(field, problem)].into_iter())
    }

    /// A body that is no JSON.
    pub(crate) fn unreadable_json(problem: &str) -> Self {
        let problem = in_quotes(&shown(problem));
        let message = format!("The body cannot be read as JSON: {problem}. Nothing was changed.");
        let failure = Self::new(StatusCode::BAD_REQUEST, "Not readable", message);
        failure.with_details(
            None,
            "unreadable",
            "Send a JSON object, or nothing where every field can be left out.",
        )
    }

    /// An apply is only cut off by somebody who says so.
    pub(crate) fn apply_must_be_confirmed() -> Self {
        let message = "This apply is under way, so it was not interrupted: an apply that is cut off can leave the \
                       infrastructure half changed. Open the page of the run again and use the button that says so.";
        Self::new(StatusCode::CONFLICT, "An apply is running", message)
    }

    /// Too late to cancel.
    pub(crate) fn command_is_over() -> Self {
        let message = "The command had ended before it could be cancelled. Its page says how.";
        Self::new(StatusCode::CONFLICT, "Too late to cancel", message)
    }

    /// Something is wrong with an application.
    pub(crate) fn wrong_application(problems: &[ApplicationProblem]) -> Self {
        Self::wrong_fields(
            problems
                .iter()
                .map(|problem| (problem.field.as_str(), problem.text.as_str())),
        )
    }

    /// Something is in the way of what was asked for: sentences.
    pub(crate) fn in_the_way(title: &'static str, why: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            title,
            in_quotes(&format!("{} Nothing was changed.", shown(why))),
        )
    }

    /// What is to be added goes by a name that is taken: a sentence.
    pub(crate) fn name_taken(why: &str, way_out: &str) -> Self {
        Self::in_the_way("There before", why).with_details(
            Some("name".to_owned()),
            "name_taken",
            way_out,
        )
    }

    /// Something is in the way of what was asked for, with a word for programs and a way out.
    pub(crate) fn not_now(explained: &Explanation) -> Self {
        let message = in_quotes(&format!(
            "{} Nothing was changed.",
            shown(&explained.message)
        ));
        let failure = Self::new(StatusCode::CONFLICT, "Not now", message);
        let field = explained.field.map(str::to_owned);
        failure.with_details(
            field,
            explained.code,
            &in_quotes(&shown(&explained.way_out)),
        )
    }

    /// A repository that another owner has claimed.
    pub(crate) fn owned_by(url: &RepoUrl, owner: &OwnerName) -> Self {
        // Neither can hold anything but plain characters, and the end is not to be cut off.
        let message = in_quotes(&format!(
            "{} Nothing was changed.",
            claims::owned_by(url, owner)
        ));
        let failure = Self::new(StatusCode::CONFLICT, "Owned by another", message);
        let way_out = "Ask that owner, or have what they registered for the repository removed.";
        let mut failure = failure.with_details(Some("url".to_owned()), "owned_by_another", way_out);
        if let Some(details) = &mut failure.details {
            details.owner = Some(owner.to_string());
        }
        failure
    }

    /// An owner that nobody added.
    pub(crate) fn no_such_owner(asked: &str) -> Self {
        let message = format!(
            "There is no owner “{}”. GET /api/owners lists those there are.",
            shown(asked)
        );
        Self::new(StatusCode::NOT_FOUND, "No such owner", message)
    }

    /// A credential that is not kept here.
    pub(crate) fn no_such_credential() -> Self {
        let message = "There is no credential with this identifier. GET /api/credentials lists those there are.";
        Self::new(StatusCode::NOT_FOUND, "No such credential", message)
    }

    /// An application that nobody registered.
    pub(crate) fn no_such_app() -> Self {
        let message =
            "There is no application with this identifier. GET /api/apps lists those there are.";
        Self::new(StatusCode::NOT_FOUND, "No such application", message)
    }

    /// Something is wrong with fields, which are named with what to write instead.
    pub(crate) fn wrong_fields<'a>(
        problems: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Self {
        let lines = problems
            .clone()
            .map(|(field, text)| format!("`{field}`: {}", shown(text)));
        let message = in_quotes(&format!(
            "{} Nothing was changed.",
            lines.collect::<Vec<_>>().join(" ")
        ));
        let field = problems.clone().map(|(field, _)| field.to_owned()).next();
        let failure = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Not as it has to be",
            message,
        );
        let way_out = "Change what the sentences name, and send it again.";
        failure
            .with_details(field, "unusable", way_out)
            .with_problems(problems)
    }

    /// Another site, or a program without the marks of a browser, sent a form.
    pub(crate) fn from_another_site() -> Self {
        let message = "Changes are only taken from the pages of this server, and your browser did not say that this one \
                       is. Nothing was changed. Open the dashboard and try again there.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// The token does not fit.
    pub(crate) fn stale_form() -> Self {
        let message = "The page you sent this from is out of date, or its cookie was lost. Nothing was changed. Go back, \
                       reload the page and try again.";
        Self::new(StatusCode::FORBIDDEN, "Out of date", message)
    }

    /// A rule forbids it.
    pub(crate) fn not_allowed(denial: &Denial) -> Self {
        let text = format!(
            "{} {} Nothing was changed.",
            denial.message(),
            denial.who_can.join(" ")
        );
        Self::new(
            StatusCode::FORBIDDEN,
            "Not allowed",
            in_quotes(&shown(&text)),
        )
    }

    /// It is not of the owners that the account is limited to: sentences.
    pub(crate) fn outside(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", in_quotes(&shown(why)))
    }

    /// Whether it is allowed cannot be told.
    fn undecided() -> Self {
        let message = "Whether this is allowed could not be found out, so nothing was changed. The log of the server says \
                       more, under the reference below. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not decided", message)
    }

    /// A browser on a route for scripts.
    pub(crate) fn scripts_only() -> Self {
        let message = "This address is for scripts. In a browser, use the buttons of the dashboard. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// A script on a server without a password.
    pub(crate) fn scripts_need_a_password() -> Self {
        let message = "Scripts may change something only if they know the password of the web user, and this server has \
                       none: start it with web basic authentication. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// A change on a server on which nobody signs in.
    pub(crate) fn only_to_look() -> Self {
        let message =
            "Nobody signs in to the pages of this server, so they only show. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Only to look at", message).with_details(
            None,
            "no_sign_in",
            SIGN_IN,
        )
    }

    /// What only people see and do who have signed in, on a server on which nobody does.
    pub(crate) fn account_wanted() -> Self {
        let message = "What runs print, owners and their applications and credentials, the audit log, operations and all scripts \
                       that change something are for those who have signed in, and nobody signs in to this server. Nothing was \
                       changed.";
        Self::new(StatusCode::FORBIDDEN, "Only after signing in", message).with_details(
            None,
            "no_sign_in",
            SIGN_IN,
        )
    }

    /// A name that is not this server's.
    pub(crate) fn another_host(asked: &str) -> Self {
        let asked: String = asked.chars().take(LONGEST_HOST_SHOWN).collect();
        let message = format!(
            "This server is not known as “{}”. It answers to the host of --atlantis-url, to the addresses it listens on, and to \
             the names in --web-hosts, so that no page of somebody else can pass for it.",
            shown(&asked)
        );
        let way_out = "Use the address that people use, or have the operator of the server add this name to --web-hosts.";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Not this server", message).with_details(
            None,
            "unknown_host",
            way_out,
        )
    }

    /// Too many wrong passwords.
    pub(crate) fn too_many_guesses(seconds: i64) -> Self {
        let unit = if seconds == 1 { "second" } else { "seconds" };
        let message = format!(
            "Too many wrong passwords came from your address, or from everywhere, so this one was not looked at. Try again in \
             {seconds} {unit}."
        );
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many wrong passwords",
            message,
        )
    }

    /// A search that is too long to be one.
    pub(crate) fn search_too_long(most: usize) -> Self {
        let message = format!(
            "The text to search for is longer than {most} characters. Search for less of it."
        );
        Self::new(StatusCode::BAD_REQUEST, "Too long", message)
    }

    /// The query lacks what the route needs.
    pub(crate) fn query_wanted(name: &'static str) -> Self {
        let message = format!("The address needs `?{name}=…`.");
        Self::new(StatusCode::BAD_REQUEST, "Something is missing", message)
    }

    /// Too long, or not a form.
    pub(crate) fn unreadable_form(status: StatusCode) -> Self {
        let message =
            "The form could not be read: it is too long or lacks a field. Nothing was changed.";
        Self::new(status, "Not readable", message)
    }

    /// No password, or a wrong one.
    pub(crate) fn who_are_you() -> Self {
        let message = "This server asks for a user and a password.";
        Self::new(StatusCode::UNAUTHORIZED, "Sign in", message)
    }

    /// Too many people watch runs.
    pub(crate) fn too_many_viewers() -> Self {
        let message = "Too many browsers watch runs on this replica right now. Reload the page to see what is new.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Too many viewers", message)
    }

    /// The time for a request is over.
    pub(crate) fn too_slow() -> Self {
        let message = "The answer took too long and was given up. What you asked for may still happen: look before you \
                       try again.";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Too slow", message)
    }

    /// A bug.
    pub(crate) fn internal() -> Self {
        let message =
            "Something broke on the server. Its log says what, under the reference below.";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Something broke",
            message,
        )
    }

    fn database() -> Self {
        let message = "The database does not answer as it should. The log of the server says more, under the reference \
                       below. Try again in a moment.";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The database does not answer",
            message,
        )
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
pub(crate) fn after_panic(cause: &(dyn Any + Send)) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text");
    error!(panic = text, "A request panicked");
    Failure::internal().into_response()
}

/// Pages and JSON have no code in their sentences: `` `a` `` becomes “a”.
pub(crate) fn in_quotes(text: &str) -> String {
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

/// Problem details (RFC 9457). The member `type` is missing, which means `about:blank`, so the title is the one of the
/// status. `reason` distinguishes problems with the same status.
#[derive(Serialize)]
struct ProblemDetails<'a> {
    status: u16,
    title: &'static str,
    detail: &'a str,
    /// Same text as `detail`, for scripts for Atlantis.
    error: &'a str,
    #[serde(flatten)]
    details: Option<&'a Details>,
    reference: &'a str,
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Turns a [`Failure`] into a page for browsers and JSON for everything else, with the reference of the request.
pub(crate) async fn render(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let html = wants_html(request.uri().path(), request.headers());
    let reference = request.extensions().get::<Reference>().cloned();
    let mut response = next.run(request).await;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else {
        return response;
    };
    let reference = reference.map(|reference| reference.0).unwrap_or_default();
    let body = if html {
        failure.page(&web, &reference)
    } else {
        failure.json(&reference)
    };
    let (parts, body) = body.into_parts();
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(parts.headers);
    *response.body_mut() = body;
    response
}

/// The API always speaks JSON; elsewhere browsers ask for HTML by name.
fn wants_html(path: &str, headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    !path.starts_with("/api/") && accept.contains("text/html")
}

impl Failure {
    fn page(&self, web: &Web, reference: &str) -> Response {
        let message = self.sentences();
        let view = View {
            title: self.title,
            message: &message,
            status: self.status.as_u16(),
            reference,
        };
        match web.templates.render("error.html", &view) {
            Ok(page) => page.into_response(),
            Err(error) => {
                error!(%error, "The page about an error could not be rendered");
                Response::new(Body::from(self.message.clone()))
            }
        }
    }

    fn json(&self, reference: &str) -> Response {
        let problem = ProblemDetails {
            status: self.status.as_u16(),
            title: self.status.canonical_reason().unwrap_or_default(),
            detail: &self.message,
            error: &self.message,
            details: self.details.as_deref(),
            reference,
        };
        ([(header::CONTENT_TYPE, PROBLEM_JSON)], Json(problem)).into_response()
    }
}
