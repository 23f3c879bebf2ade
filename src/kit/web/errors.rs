//! Failures of the pages and the API: what happened, and the way out (P10).

use std::any::Any;

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::error;

use super::WebState;
use super::text::{seconds_text, shown};
use crate::authz::{AuthzError, Denial};
use crate::model::AccountId;

/// Way out on a server without sign-in, for everything that needs an account.
const SIGN_IN: &str = "An administrator can set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD, and restart the server.";
/// Last sentence of a failure that changed nothing.
const UNCHANGED: &str = " Nothing was changed.";
/// Maximum number of shown characters of a foreign name.
const LONGEST_HOST_SHOWN: usize = 100;

/// A failure instead of the requested answer. [`render`] turns it into a page or JSON.
#[derive(Clone, Debug)]
pub struct WebError {
    status: StatusCode,
    title: &'static str,
    message: String,
    /// True if the answer to a request that may change something ends with [`UNCHANGED`].
    is_unchanged: bool,
    /// Details for programs, if there are more than a sentence.
    details: Option<Box<Details>>,
}

/// Details of a failure that a program can use.
#[derive(Clone, Debug, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    reason: &'static str,
    way_out: String,
    /// Owner that has claimed the repository, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Problems of single fields, for the page of a form.
    #[serde(skip)]
    problems: Vec<FieldProblem>,
}

/// Problem with a field, as text that is shown beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldProblem {
    pub field: String,
    pub text: String,
}

impl WebError {
    /// Creates a failure with this status. The title says what happened, the message what to do.
    pub(crate) fn new(status: StatusCode, title: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            title,
            message: message.into(),
            is_unchanged: false,
            details: None,
        }
    }

    /// Says in the answer that nothing was changed, unless the request only reads.
    pub(crate) fn unchanged(self) -> Self {
        Self {
            is_unchanged: true,
            ..self
        }
    }

    /// Adds details for programs. People read the way out after the message.
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

    /// Adds problems of single fields, whose texts are not escaped yet.
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

    /// Returns the status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the problem and the way out.
    pub(crate) fn sentences(&self) -> String {
        let way_out = self
            .details
            .as_ref()
            .map(|details| format!(" {}", details.way_out))
            .unwrap_or_default();
        format!("{}{way_out}", self.message)
    }

    /// Returns the problems of single fields.
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

    /// Failure for a path without a route.
    pub(crate) fn no_such_page() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "Page not found",
            "There is no page at this address.",
        )
    }

    /// Failure for a route that does not take this method.
    pub(crate) fn wrong_method() -> Self {
        let message = "This address does not support that request method.";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "Method not allowed",
            message,
        )
    }

    /// Failure that changed nothing, with a field, a word for programs and a way out. Pairs of backticks in the texts
    /// mark code.
    pub(crate) fn nothing_changed(
        (status, title): (StatusCode, &'static str),
        field: Option<&str>,
        reason: &'static str,
        message: &str,
        way_out: &str,
    ) -> Self {
        let message = in_quotes(&format!("{message} Nothing was changed."));
        Self::new(status, title, message).with_details(
            field.map(str::to_owned),
            reason,
            &in_quotes(way_out),
        )
    }

    /// Failure of a request that only reads, with a word for programs and a way out. Pairs of backticks in the texts mark
    /// code.
    pub(crate) fn not_read(
        (status, title): (StatusCode, &'static str),
        reason: &'static str,
        message: &str,
        way_out: &str,
    ) -> Self {
        let failure = Self::new(status, title, in_quotes(message));
        failure.with_details(None, reason, &in_quotes(way_out))
    }

    /// Failure for a field of a form or of a body that cannot be used.
    pub(crate) fn unusable_field(field: &str, problem: &str, way_out: &str) -> Self {
        let message = format!(
            "The field “{}” cannot be used: {}. Nothing was changed.",
            shown(field),
            shown(problem)
        );
        let failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", message);
        failure
            .with_details(Some(shown(field)), "unusable", way_out)
            .with_problems([(field, problem)].into_iter())
    }

    /// Failure for a body that is not JSON.
    pub(crate) fn unreadable_json(problem: &str) -> Self {
        let problem = in_quotes(&shown(problem));
        let message = format!("The body cannot be read as JSON: {problem}. Nothing was changed.");
        let failure = Self::new(StatusCode::BAD_REQUEST, "Invalid JSON", message);
        failure.with_details(
            None,
            "unreadable",
            "Send a JSON object. If all fields are optional, the body can be empty.",
        )
    }

    /// Failure for a conflict, explained in sentences.
    pub(crate) fn conflict(title: &'static str, why: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            title,
            in_quotes(&format!("{} Nothing was changed.", shown(why))),
        )
    }

    /// Failure for a repository that another owner has claimed, explained in sentences of plain characters.
    pub(crate) fn owned_by(why: &str, owner: &str) -> Self {
        // The address may be long, and the end must not be cut off.
        let message = in_quotes(&format!("{why} Nothing was changed."));
        let failure = Self::new(StatusCode::CONFLICT, "Owned by another owner", message);
        let way_out =
            "Ask that owner to remove its applications and credentials for the repository.";
        let mut failure = failure.with_details(Some("url".to_owned()), "owned_by_another", way_out);
        if let Some(details) = &mut failure.details {
            details.owner = Some(owner.to_owned());
        }
        failure
    }

    /// Failure for an unknown owner.
    pub(crate) fn no_such_owner(asked: &str) -> Self {
        let message = format!(
            "There is no owner “{}”. GET /api/owners lists all owners.",
            shown(asked)
        );
        Self::new(StatusCode::NOT_FOUND, "Owner not found", message)
    }

    /// Failure for an unknown credential.
    pub(crate) fn no_such_credential() -> Self {
        let message = "There is no credential with this identifier. GET /api/credentials lists all credentials.";
        Self::new(StatusCode::NOT_FOUND, "Credential not found", message)
    }

    /// Failure for an unknown application.
    pub(crate) fn no_such_app() -> Self {
        let message =
            "There is no application with this identifier. GET /api/apps lists all applications.";
        Self::new(StatusCode::NOT_FOUND, "Application not found", message)
    }

    /// Failure for invalid fields, each with what to write instead.
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
        let failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", message);
        let way_out = "Correct the listed fields and resubmit.";
        failure
            .with_details(field, "unusable", way_out)
            .with_problems(problems)
    }

    /// Failure for a form that another site or a program sent.
    pub(crate) fn from_another_site() -> Self {
        let message = "This server only takes changes from its own pages, and your browser did not say that this page is one. \
                       Nothing was changed. Open the dashboard and try again there.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// Failure for a form with a wrong token.
    pub(crate) fn stale_form() -> Self {
        let message = "The page with this form is out of date, or its cookie was lost. Nothing was changed. Go back, reload \
                       the page and try again.";
        Self::new(StatusCode::FORBIDDEN, "Page out of date", message)
    }

    /// Failure for an action that a rule forbids.
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

    /// Failure for data outside of the owners that the account is limited to, explained in sentences.
    pub(crate) fn outside(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", in_quotes(&shown(why)))
    }

    /// Failure if permissions cannot be determined.
    fn undecided() -> Self {
        let message = "It could not be determined if this is allowed, so nothing was changed. Try again in a moment. The log \
                       of the server has the details, under the reference below.";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Permission unknown",
            message,
        )
    }

    /// Failure for a browser on a route for scripts.
    pub(crate) fn scripts_only() -> Self {
        let message = "This address is for scripts. In a browser, use the buttons of the dashboard. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// Failure for a script on a server without a password.
    pub(crate) fn scripts_need_a_password() -> Self {
        let message = "Scripts need the password of the web user to change something, and this server has none. Nothing was \
                       changed. Start the server with web basic authentication.";
        Self::new(StatusCode::FORBIDDEN, "Refused", message)
    }

    /// Failure for a change on a server without sign-in.
    pub(crate) fn read_only() -> Self {
        let message = "Nobody signs in to the pages of this server, so they are read-only. Nothing was changed.";
        Self::new(StatusCode::FORBIDDEN, "Read-only pages", message).with_details(
            None,
            "no_sign_in",
            SIGN_IN,
        )
    }

    /// Failure for data and actions that need an account, on a server without sign-in.
    pub(crate) fn account_wanted() -> Self {
        let message = "The output of runs, owners with their applications and credentials, the audit log, operations and all \
                       scripts that change something require an account, and nobody signs in to this server. Nothing was \
                       changed.";
        Self::new(StatusCode::FORBIDDEN, "Sign-in required", message).with_details(
            None,
            "no_sign_in",
            SIGN_IN,
        )
    }

    /// Failure for a host name that does not belong to this server.
    pub(crate) fn another_host(asked: &str) -> Self {
        let asked: String = asked.chars().take(LONGEST_HOST_SHOWN).collect();
        let message = format!(
            "This server does not have the name “{}”. Its names are the host of --atlantis-url, the addresses it listens on, \
             and the names in --web-hosts, so that another site cannot use its pages.",
            shown(&asked)
        );
        let way_out = "Use the usual address of the server, or ask an administrator to add this name to --web-hosts.";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Wrong host name", message).with_details(
            None,
            "unknown_host",
            way_out,
        )
    }

    /// Failure for too many wrong passwords.
    pub(crate) fn too_many_wrong_passwords(seconds: i64) -> Self {
        let message = format!(
            "There were too many wrong passwords from your address or in total, so this one was not checked. Try again in {}.",
            seconds_text(seconds)
        );
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many wrong passwords",
            message,
        )
    }

    /// Failure for a search text over the limit.
    pub(crate) fn search_too_long(most: usize) -> Self {
        let message =
            format!("The search text is longer than {most} characters. Use a shorter text.");
        Self::new(StatusCode::BAD_REQUEST, "Search text too long", message)
    }

    /// Failure for a query without a required parameter.
    pub(crate) fn query_wanted(name: &'static str) -> Self {
        let message = format!("The address needs the parameter `?{name}=…`.");
        Self::new(StatusCode::BAD_REQUEST, "Missing parameter", message)
    }

    /// Failure for a form that is too long or unreadable.
    pub(crate) fn unreadable_form(status: StatusCode) -> Self {
        let message =
            "The form could not be read: it is too long or lacks a field. Nothing was changed.";
        Self::new(status, "Invalid form", message)
    }

    /// Failure for a missing or wrong password.
    pub(crate) fn unauthorized() -> Self {
        let message = "This server requires a user name and a password.";
        Self::new(StatusCode::UNAUTHORIZED, "Sign in", message)
    }

    /// Failure for a user whose account in Git is locked out.
    pub(crate) fn inactive_account(account: AccountId) -> Self {
        let message = format!(
            "Your account is inactive. It has the number {account}. An administrator can activate it with `lockkeeper accounts \
             activate {account}`."
        );
        Self::new(
            StatusCode::FORBIDDEN,
            "Inactive account",
            in_quotes(&message),
        )
    }

    /// Failure for a request that takes too long.
    pub(crate) fn too_slow() -> Self {
        let message = "The server took too long to answer, so the request was stopped. The change may still happen. Check \
                       before you try again.";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Request timed out", message)
    }

    /// Failure for an error in Lockkeeper itself.
    pub(crate) fn internal() -> Self {
        let message =
            "The server had an internal error. Its log has the details, under the reference below.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", message)
    }

    pub(crate) fn database() -> Self {
        let message = "The database does not work as expected. Try again in a moment. The log of the server has the details, \
                       under the reference below.";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The database does not answer",
            message,
        )
    }
}

impl From<sqlx::Error> for WebError {
    fn from(error: sqlx::Error) -> Self {
        error!(%error, "The database failed a request");
        Self::database()
    }
}

impl From<AuthzError> for WebError {
    fn from(error: AuthzError) -> Self {
        error!(%error, "Cannot determine a permission");
        Self::undecided()
    }
}

impl From<minijinja::Error> for WebError {
    fn from(error: minijinja::Error) -> Self {
        error!(%error, "Cannot render a page");
        Self::internal()
    }
}

impl IntoResponse for WebError {
    /// Returns only the status and the failure, for [`render`].
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the answer after a panic.
pub(crate) fn after_panic(cause: &(dyn Any + Send)) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text");
    error!(panic = text, "A request panicked");
    WebError::internal().into_response()
}

/// Replaces the code in sentences, because pages and JSON have none: `` `a` `` becomes “a”.
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
struct ErrorPage<'a> {
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

/// Form of a failure that the client of a request can read.
#[derive(Clone, Copy, Debug)]
pub(super) enum FailureForm {
    Page,
    Json,
}

impl FailureForm {
    /// Chooses a page for browsers, and JSON for all other clients. The API always answers with JSON; elsewhere browsers
    /// request HTML by name.
    pub(super) fn of(request: &Request) -> Self {
        let accept = request.headers().get(header::ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        let wants_html = accept.is_some_and(|accept| accept.contains("text/html"));
        if wants_html && !request.uri().path().starts_with("/api/") {
            Self::Page
        } else {
            Self::Json
        }
    }
}

/// Turns a [`WebError`] into a page or JSON, with the reference of the request. `is_read` is true if the request only reads.
/// Other answers stay as they are.
pub(super) fn render(
    web: &WebState,
    (form, is_read): (FailureForm, bool),
    reference: &str,
    response: &mut Response,
) {
    let Some(mut failure) = response.extensions_mut().remove::<WebError>() else {
        return;
    };
    if failure.is_unchanged && !is_read {
        failure.message.push_str(UNCHANGED);
    }
    let rendered = match form {
        FailureForm::Page => failure.page(web, reference),
        FailureForm::Json => failure.json(reference),
    };
    let (parts, body) = rendered.into_parts();
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(parts.headers);
    *response.body_mut() = body;
}

impl WebError {
    fn page(&self, web: &WebState, reference: &str) -> Response {
        let message = self.sentences();
        let view = ErrorPage {
            title: self.title,
            message: &message,
            status: self.status.as_u16(),
            reference,
        };
        match web.parts.templates.render("error.html", &view) {
            Ok(page) => page.into_response(),
            Err(error) => {
                error!(%error, "Cannot render an error page");
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
