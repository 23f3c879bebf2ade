//! Answers without content, as sentences of plain text: `go` and `terraform` print them.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::versions::VersionKey;
use tracing::error;

use super::super::misses::FillLimit;
use super::super::{RegistryError, VersionNotice};
use crate::errors::describe_error;

/// Seconds after which a client that found no place can try again.
const TRY_AGAIN: u64 = 5;

/// Reason why a request is not answered with content.
#[derive(Debug)]
pub(in crate::features::registry) enum ServeRefusal {
    /// The request has no token, and this needs one.
    SignIn,
    /// The token is unknown, has expired or was revoked.
    WrongToken,
    /// The run whose token the request has is not in progress.
    RunEnded,
    /// Nothing is here for this reader, with a sentence about it.
    NotFound(String),
    /// The version, or all versions of a name, were taken down.
    TakenDown {
        /// The version, or the name with its versions.
        what: String,
        notice: Box<VersionNotice>,
    },
    /// The operator refuses a name that is not here, by a rule.
    Rule { name: RegistryName, rule: String },
    /// The request cannot be understood, with a sentence about it.
    BadRequest(String),
    /// The link to a package is not valid.
    BadLink,
    /// Too many packages are sent at this moment, or the index is read too often.
    Busy,
    /// The packages of the version are at another deployment, which did not send them in time.
    Elsewhere(String),
    /// The requested part of a package with this size is not there.
    NoSuchRange(u64),
    /// The database or the store of packages failed.
    Failed(RegistryError),
}

impl ServeRefusal {
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound(what.into())
    }

    /// Says that a name is not here, or that the reader may not read it. A request that names a version gets
    /// [`unknown_version`](Self::unknown_version) in both cases.
    pub fn unknown(name: &RegistryName) -> Self {
        Self::NotFound(format!("{} is not in this registry", name.as_str()))
    }

    /// Says that a version is not here, or that the reader may not read its name.
    pub fn unknown_version(key: &VersionKey) -> Self {
        Self::NotFound(format!(
            "{} {} is not in this registry",
            key.name().as_str(),
            key.version()
        ))
    }

    /// Says that a version is not here, and why nobody looks for it elsewhere at the moment.
    pub fn not_fetched(key: &VersionKey, limit: FillLimit) -> Self {
        Self::NotFound(format!(
            "{} {} is not in this registry and was not fetched, because {limit}",
            key.name().as_str(),
            key.version()
        ))
    }

    /// Says that the packages of a version are not here yet.
    pub fn elsewhere(key: &VersionKey) -> Self {
        Self::Elsewhere(format!("{} {}", key.name().as_str(), key.version()))
    }

    /// Says that a version was taken down.
    pub fn taken_down(key: &VersionKey, notice: &VersionNotice) -> Self {
        Self::TakenDown {
            what: format!("{} {}", key.name().as_str(), key.version()),
            notice: Box::new(notice.clone()),
        }
    }

    /// Explains why a name has no version. `takedown` is the reason for which the highest one was taken down.
    pub fn none_left(name: &RegistryName, takedown: Option<&VersionNotice>) -> Self {
        match takedown {
            Some(notice) => Self::TakenDown {
                what: format!("The last version of {}", name.as_str()),
                notice: Box::new(notice.clone()),
            },
            None => Self::unknown(name),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::SignIn | Self::WrongToken | Self::RunEnded => StatusCode::UNAUTHORIZED,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::TakenDown { notice, .. } => match notice.takedown {
                Some(TakedownKind::Legal) => StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS,
                Some(TakedownKind::Security | TakedownKind::Mistake) | None => {
                    StatusCode::FORBIDDEN
                }
            },
            Self::BadLink | Self::Rule { .. } => StatusCode::FORBIDDEN,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Busy | Self::Elsewhere(_) | Self::Failed(RegistryError::Database(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Failed(error) if error.is_store_away() => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSuchRange(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::SignIn => "Send a token of this registry, as a bearer token or as a password (docs/registry.md)."
                .to_owned(),
            Self::WrongToken => "The token is unknown, has expired or was revoked. Ask an administrator of the registry \
                                 for a new one."
                .to_owned(),
            Self::RunEnded => "The run has ended, and its access to the registry with it.".to_owned(),
            Self::NotFound(what) => format!("not found: {what}"),
            Self::TakenDown { what, notice } => {
                let kind = match notice.takedown {
                    Some(TakedownKind::Legal) => " for legal reasons",
                    Some(TakedownKind::Security) => " for security",
                    Some(TakedownKind::Mistake) | None => "",
                };
                format!(
                    "{what} was taken down{kind} on {}: {}",
                    notice.at.format("%Y-%m-%d"),
                    reason(notice)
                )
            }
            Self::Rule { name, rule } => format!(
                "{} is not in this registry, and the rule `{rule}` refuses it (--registry-on-miss). Ask an administrator of \
                 the registry.",
                name.as_str()
            ),
            Self::BadRequest(why) => why.clone(),
            Self::BadLink => "The link is not valid any more. Request the version again.".to_owned(),
            Self::Busy => {
                "The server answers as many such requests as it can. Try again in a few seconds.".to_owned()
            }
            Self::Elsewhere(what) => format!(
                "{what} was published at another deployment, which has not sent the package yet. Try again in a few \
                 seconds."
            ),
            Self::NoSuchRange(size) => format!("The package has {size} bytes."),
            Self::Failed(RegistryError::Database(_)) => {
                "The database does not answer. Try again in a moment.".to_owned()
            }
            Self::Failed(error) if error.is_store_away() => {
                "The store of packages cannot be used at this moment. Try again in a few seconds.".to_owned()
            }
            Self::Failed(_) => "The registry has failed. The log of the server says why.".to_owned(),
        }
    }
}

/// Returns the reason, and the version to use instead.
fn reason(notice: &VersionNotice) -> String {
    let reason = notice.notice.reason.as_str();
    let end = if reason.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    match &notice.notice.replacement {
        None => format!("{reason}{end}"),
        Some(key) => format!(
            "{reason}{end} Use {} {} instead.",
            key.name().as_str(),
            key.version()
        ),
    }
}

impl From<RegistryError> for ServeRefusal {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for ServeRefusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for ServeRefusal {
    fn into_response(self) -> Response {
        if let Self::Failed(cause) = &self {
            error!(
                error = describe_error(cause),
                "The registry could not answer a request"
            );
        }
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        let text = format!("{}\n", self.text());
        let mut response = (self.status(), [(header::CONTENT_TYPE, plain)], text).into_response();
        let headers = response.headers_mut();
        match self {
            Self::SignIn | Self::WrongToken => {
                let challenge = HeaderValue::from_static(
                    "Basic realm=\"Lockkeeper registry\", charset=\"UTF-8\"",
                );
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            Self::Busy | Self::Elsewhere(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(TRY_AGAIN));
            }
            Self::Failed(error) if error.is_store_away() => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(TRY_AGAIN));
            }
            Self::NoSuchRange(size) => {
                if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
                    headers.insert(header::CONTENT_RANGE, value);
                }
            }
            Self::RunEnded
            | Self::NotFound(_)
            | Self::TakenDown { .. }
            | Self::Rule { .. }
            | Self::BadRequest(_)
            | Self::BadLink
            | Self::Failed(_) => {}
        }
        response
    }
}
