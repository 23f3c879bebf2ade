//! Describes a request and its result.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::forges::{ForgeError, WritePermit};
use crate::model::{HostName, RepoId, Traffic};

/// Request to the API.
#[derive(Clone)]
pub(super) struct Call {
    pub method: Method,
    /// Path and query below the base of the API.
    pub path: String,
    /// JSON body to send.
    pub body: Option<Value>,
    /// Description of the request for messages: `pull request acme/infra#12`.
    pub what: String,
    /// True if a retry is harmless.
    pub repeatable: bool,
    /// Tag of the stored answer; if the answer has not changed, GitHub only reports that.
    pub etag: Option<String>,
    /// Kind of GitHub's limits for which the request counts.
    pub traffic: Traffic,
    /// Permit that is checked immediately before the request leaves, if it needs one.
    pub permit: Option<WritePermit>,
    /// True if the request follows GitHub's redirect from the old name of a repository.
    pub follow: bool,
}

impl Call {
    pub fn get(path: String, what: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
            what: what.into(),
            repeatable: true,
            etag: None,
            traffic: Traffic::Read,
            permit: None,
            follow: false,
        }
    }

    pub fn post(path: String, body: Value, what: impl Into<String>) -> Self {
        let read = Self::get(path, what);
        Self {
            method: Method::POST,
            body: Some(body),
            repeatable: false,
            traffic: Traffic::Write,
            ..read
        }
    }

    pub fn put(path: String, body: Value, what: impl Into<String>) -> Self {
        Self {
            method: Method::PUT,
            ..Self::post(path, body, what)
        }
    }

    pub fn patch(path: String, body: Value, what: impl Into<String>) -> Self {
        Self {
            method: Method::PATCH,
            ..Self::post(path, body, what)
        }
    }

    pub fn delete(path: String, what: impl Into<String>) -> Self {
        let read = Self::get(path, what);
        Self {
            method: Method::DELETE,
            repeatable: false,
            traffic: Traffic::Write,
            ..read
        }
    }

    /// Counts the request as a read. For requests that leave nothing on the forge although they are no `GET`.
    pub fn counted_as_read(self) -> Self {
        Self {
            traffic: Traffic::Read,
            ..self
        }
    }

    /// Sends the request only if the permit is still valid then.
    pub fn with_permit(self, permit: &WritePermit) -> Self {
        Self {
            permit: Some(WritePermit::clone(permit)),
            ..self
        }
    }

    /// Follows GitHub's redirect from the old name of a repository.
    pub fn following(self) -> Self {
        Self {
            follow: true,
            ..self
        }
    }

    /// Requests the answer only if it has changed since the tag was sent.
    pub fn unless(self, etag: Option<&str>) -> Self {
        Self {
            etag: etag.map(str::to_owned),
            ..self
        }
    }

    /// Marks the request as repeatable. For requests whose second effect does not matter.
    pub fn repeatable(self) -> Self {
        Self {
            repeatable: true,
            ..self
        }
    }
}

/// Answer with a status of success.
pub(super) struct SuccessResponse {
    /// True if nothing has changed since the tag of the request was sent; then there is no body.
    pub unchanged: bool,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl SuccessResponse {
    /// Reads the JSON. An invalid answer may come from a proxy in between, so it is unknown whether the request had
    /// an effect.
    pub fn json<T: DeserializeOwned>(
        &self,
        host: &HostName,
        what: &str,
    ) -> Result<T, RequestFailure> {
        let mut deserializer = serde_json::Deserializer::from_slice(&self.body);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let message = format!(
                "cannot parse the answer at `{}`: {}",
                error.path(),
                error.inner()
            );
            RequestFailure::passing(host, what, &message)
        })
    }
}

/// Failure of a request.
#[derive(Debug)]
pub(super) struct RequestFailure {
    /// Status of the answer, if there was one.
    pub status: Option<StatusCode>,
    /// True if the primary limit is used up, which counts reads and writes together.
    pub exhausted: bool,
    /// Error for the caller.
    pub error: ForgeError,
}

impl RequestFailure {
    /// Creates a temporary failure.
    pub fn passing(host: &HostName, what: &str, message: &str) -> Self {
        let error = ForgeError::Unavailable {
            what: what.to_owned(),
            host: host.clone(),
            message: one_line(message),
        };
        Self {
            status: None,
            exhausted: false,
            error,
        }
    }

    /// Creates a failure for a request that was not sent, because GitHub has asked to wait until that time.
    pub fn held_back(host: &HostName, what: &str, until: DateTime<Utc>) -> Self {
        let error = ForgeError::RateLimited {
            what: what.to_owned(),
            host: host.clone(),
            until,
        };
        Self {
            status: None,
            exhausted: false,
            error,
        }
    }

    /// Creates a failure that a retry will not fix.
    pub fn rejected(host: &HostName, what: &str, message: &str) -> Self {
        let error = ForgeError::Rejected {
            what: what.to_owned(),
            host: host.clone(),
            message: one_line(message),
        };
        Self {
            status: None,
            exhausted: false,
            error,
        }
    }

    /// Creates a failure for credentials that cannot work.
    pub fn denied(host: &HostName, what: &str, message: &str) -> Self {
        let error = ForgeError::Denied {
            what: what.to_owned(),
            host: host.clone(),
            message: one_line(message),
        };
        Self {
            status: None,
            exhausted: false,
            error,
        }
    }

    /// Converts a redirect to an error that says that the repository has another name.
    pub fn of_name(self, repo: &RepoId) -> Self {
        match (self.status.is_some_and(is_move), self.error) {
            (true, ForgeError::Rejected { what, message, .. }) => Self {
                error: ForgeError::Moved {
                    what,
                    repo: Box::new(repo.clone()),
                    message,
                },
                ..self
            },
            (_, error) => Self { error, ..self },
        }
    }

    /// Returns true if the credentials are accepted but may not send this request: some kinds of tokens have no
    /// account.
    pub fn is_of_another_kind(&self) -> bool {
        self.status
            .is_some_and(|status| matches!(status.as_u16(), 403 | 404))
            && !matches!(self.error, ForgeError::RateLimited { .. })
    }

    /// Returns true if GitHub refused the request for its credentials, so that others may work. It does not always say
    /// so: a repository that the credentials may not see is not found.
    pub fn is_of_credentials(&self) -> bool {
        self.status == Some(StatusCode::UNAUTHORIZED) || self.is_of_another_kind()
    }

    /// Returns true if the same request may work a moment later.
    pub fn is_passing(&self) -> bool {
        matches!(self.error, ForgeError::Unavailable { .. })
    }
}

/// Returns true if the answer redirects the request to another address.
pub(super) fn is_move(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

impl From<RequestFailure> for ForgeError {
    fn from(failure: RequestFailure) -> Self {
        failure.error
    }
}

/// Maximum length of a quoted message of the forge, in characters.
const MAX_MESSAGE: usize = 300;

/// Puts foreign text on one line and cuts it.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
        .collect();
    super::cut_chars(&words.join(" "), MAX_MESSAGE)
}
