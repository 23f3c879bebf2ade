//! Builds GitHub's answers to refused requests.

use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::EmulatorError;
use crate::model::MergeMethod;
use crate::world::{CommentError, MergeError, MergeRefusal, StatusError};

pub(super) const DOCUMENTATION: &str = "https://docs.github.com/enterprise-server@3.19/rest";

/// Reason that a request is refused.
#[derive(Debug)]
pub(super) enum ApiError {
    /// The resource does not exist, or the caller may not know that it does.
    NotFound,
    /// The token is not known.
    BadCredentials,
    /// The request needs a token and has none.
    AuthenticationRequired,
    /// The JSON web token is invalid. The text is GitHub's.
    BadJwt(&'static str),
    /// The kind of caller may not make this request.
    NotForIntegrations,
    /// Only an App may make this request.
    OnlyForApps,
    /// The body is not JSON.
    NotJson,
    /// The body has another shape than documented.
    WrongShape(String),
    /// A field of the body is invalid.
    Invalid {
        /// Resource that could not be created.
        resource: &'static str,
        /// Error code, such as `custom` or `unprocessable`.
        code: &'static str,
        /// Field with the invalid value.
        field: &'static str,
        /// Description of the problem.
        message: String,
    },
    /// The request is well-formed, but cannot be processed.
    Unprocessable(String),
    /// The secondary rate limit, as an injected fault.
    SecondaryLimit(StatusCode),
    /// The action is not possible now (405). The text is GitHub's.
    NotNow(String),
    /// The state changed meanwhile (409). The text is GitHub's.
    Changed(&'static str),
    /// A bad gateway, as an injected fault.
    BadGateway,
    /// The request has no user agent.
    NoUserAgent,
    /// The emulator itself failed.
    Broken(String),
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::BadCredentials | Self::AuthenticationRequired | Self::BadJwt(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::NotForIntegrations | Self::OnlyForApps | Self::NoUserAgent => {
                StatusCode::FORBIDDEN
            }
            Self::NotJson => StatusCode::BAD_REQUEST,
            Self::WrongShape(_) | Self::Invalid { .. } | Self::Unprocessable(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::NotNow(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Changed(_) => StatusCode::CONFLICT,
            Self::SecondaryLimit(status) => *status,
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::NotFound => "Not Found",
            Self::BadCredentials => "Bad credentials",
            Self::AuthenticationRequired => "Requires authentication",
            Self::NotForIntegrations => "Resource not accessible by integration",
            Self::OnlyForApps => "You must authenticate via a GitHub App.",
            Self::NotJson => "Problems parsing JSON",
            Self::Invalid { .. } => "Validation Failed",
            Self::SecondaryLimit(_) => {
                "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            }
            Self::BadGateway => "Server Error",
            Self::NoUserAgent => {
                "Request forbidden by administrative rules. Please make sure your request has a User-Agent header."
            }
            Self::BadJwt(text) | Self::Changed(text) => text,
            Self::WrongShape(text) => return format!("Invalid request.\n\n{text}"),
            Self::Unprocessable(text) | Self::NotNow(text) => text,
            Self::Broken(text) => return format!("the emulated GitHub failed: {text}"),
        }
        .to_owned()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut body = json!({
            "message": self.message(),
            "documentation_url": DOCUMENTATION,
            "status": status.as_u16().to_string(),
        });
        if let Self::Invalid {
            resource,
            code,
            field,
            message,
        } = self
        {
            body["errors"] =
                json!([{ "resource": resource, "code": code, "field": field, "message": message }]);
        }
        (status, Json(body)).into_response()
    }
}

impl From<EmulatorError> for ApiError {
    fn from(error: EmulatorError) -> Self {
        match error {
            EmulatorError::NoRepo(_)
            | EmulatorError::NoPull(..)
            | EmulatorError::NoComment(..)
            | EmulatorError::NoBranch(..)
            | EmulatorError::BadRepoName(_)
            | EmulatorError::BadRef(_) => Self::NotFound,
            EmulatorError::RepoExists(_)
            | EmulatorError::DirectoryInUse(_)
            | EmulatorError::NoDelivery(_)
            | EmulatorError::Refused(_)
            | EmulatorError::Conflict(..)
            | EmulatorError::Git(_)
            | EmulatorError::Start(_)
            | EmulatorError::AppKey(_) => Self::Broken(error.to_string()),
        }
    }
}

impl From<MergeError> for ApiError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::NotAllowed(refusal) => Self::NotNow(merge_refusal(&refusal)),
            MergeError::HeadModified => {
                Self::Changed("Head branch was modified. Review and try the merge again.")
            }
            MergeError::Other(error) => error.into(),
        }
    }
}

/// Returns the reason that a pull request may not be merged, in GitHub's words.
fn merge_refusal(refusal: &MergeRefusal) -> String {
    match refusal {
        MergeRefusal::Draft => "Pull Request is still a draft".to_owned(),
        MergeRefusal::NotMergeable => "Pull Request is not mergeable".to_owned(),
        MergeRefusal::MethodNotAllowed(method) => {
            let what = match method {
                MergeMethod::Merge => "Merge commits",
                MergeMethod::Rebase => "Rebase merges",
                MergeMethod::Squash => "Squash merges",
            };
            format!("{what} are not allowed on this repository.")
        }
        MergeRefusal::ApprovalsMissing(count) => {
            let noun = if *count == 1 {
                "review is"
            } else {
                "reviews are"
            };
            format!("At least {count} approving {noun} required by reviewers with write access.")
        }
        MergeRefusal::ChecksMissing { contexts, required } => match contexts.as_slice() {
            [one] => format!("Required status check \"{one}\" is expected."),
            several => format!(
                "{} of {required} required status checks are expected.",
                several.len()
            ),
        },
    }
}

impl From<CommentError> for ApiError {
    fn from(error: CommentError) -> Self {
        let message = match error {
            CommentError::Missing(error) => return error.into(),
            CommentError::Blank => "Body cannot be blank".to_owned(),
            CommentError::TooLong(max) => format!("Body is too long (maximum is {max} characters)"),
        };
        Self::Invalid {
            resource: "IssueComment",
            code: "unprocessable",
            field: "data",
            message,
        }
    }
}

impl From<StatusError> for ApiError {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::NoCommit(sha) => {
                Self::Unprocessable(format!("No commit found for SHA: {sha}"))
            }
            StatusError::TooMany => Self::Unprocessable(
                "This SHA and context has reached the maximum number of statuses.".to_owned(),
            ),
            StatusError::Other(error) => error.into(),
        }
    }
}

/// Answers unknown routes and methods: GitHub does not distinguish the two.
pub(super) async fn not_found() -> ApiError {
    ApiError::NotFound
}

/// Refuses requests without a user agent, as GitHub does (GitHub REST: user agent required).
pub(super) async fn require_user_agent(request: Request, next: Next) -> Response {
    match request.headers().get(header::USER_AGENT) {
        Some(agent) if !agent.is_empty() => next.run(request).await,
        _ => ApiError::NoUserAgent.into_response(),
    }
}

/// Reads a JSON body; an empty one counts as `{}`.
pub(super) fn read_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let value: Value = serde_json::from_slice(body).map_err(|_| ApiError::NotJson)?;
    serde_json::from_value(value).map_err(|error| ApiError::WrongShape(error.to_string()))
}
