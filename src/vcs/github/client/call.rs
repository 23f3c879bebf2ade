//! What a request asks, and how it ended.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::{HostName, RepoId, Traffic};
use crate::vcs::{ForgeError, WritePermit};

/// One request to the API.
#[derive(Clone)]
pub(super) struct Call {
    pub method: Method,
    /// Path and query below the base of the API.
    pub path: String,
    /// JSON to send.
    pub body: Option<Value>,
    /// What is asked for, in words: `pull request acme/infra#12`.
    pub what: String,
    /// Whether asking again cannot do harm.
    pub repeatable: bool,
    /// The tag of the answer we have; when it is still the right one, GitHub only says so.
    pub etag: Option<String>,
    /// Which of GitHub's limits it counts for.
    pub traffic: Traffic,
    /// Looked at immediately before the request leaves, if it needs one.
    pub permit: Option<WritePermit>,
    /// Whether to go where GitHub sends whoever asks by the old name of a repository.
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

    pub fn delete(path: String, what: impl Into<String>) -> Self {
        let read = Self::get(path, what);
        Self {
            method: Method::DELETE,
            repeatable: false,
            traffic: Traffic::Write,
            ..read
        }
    }

    /// For requests that leave nothing on the forge although they are no `GET`.
    pub fn counted_as_read(self) -> Self {
        Self {
            traffic: Traffic::Read,
            ..self
        }
    }

    /// Leaves only if the permit still holds then.
    pub fn with_permit(self, permit: &WritePermit) -> Self {
        Self {
            permit: Some(WritePermit::clone(permit)),
            ..self
        }
    }

    /// Goes where GitHub sends whoever asks by the old name of a repository.
    pub fn following(self) -> Self {
        Self {
            follow: true,
            ..self
        }
    }

    /// Asks only for what is not as it was when the tag was given.
    pub fn unless(self, etag: Option<&str>) -> Self {
        Self {
            etag: etag.map(str::to_owned),
            ..self
        }
    }

    /// For requests whose second effect does not matter.
    pub fn repeatable(self) -> Self {
        Self {
            repeatable: true,
            ..self
        }
    }
}

/// An answer with a status of success.
pub(super) struct Answer {
    /// Whether everything is as it was when the tag of the request was given; then there is no body.
    pub unchanged: bool,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Reads the JSON. An answer that is none may come from a proxy in between, and whether the request got through is
    /// not known then.
    pub fn json<T: DeserializeOwned>(&self, host: &HostName, what: &str) -> Result<T, Failure> {
        let mut deserializer = serde_json::Deserializer::from_slice(&self.body);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let message = format!(
                "the answer cannot be understood at `{}`: {}",
                error.path(),
                error.inner()
            );
            Failure::passing(host, what, &message)
        })
    }
}

/// How a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// The status, if there was an answer.
    pub status: Option<StatusCode>,
    /// Whether nothing is left of the primary limit, which is of reads and writes together.
    pub exhausted: bool,
    /// What the caller is told.
    pub error: ForgeError,
}

impl Failure {
    /// A passing fault.
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

    /// A request that was not sent, because GitHub has asked to wait until then.
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

    /// Something that trying again will not mend.
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

    /// Credentials that cannot work.
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

    /// What was asked for is somewhere else: the repository has another name.
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

    /// Whether credentials are taken, but may not ask this: some kinds of tokens have no account.
    pub fn is_of_another_kind(&self) -> bool {
        self.status
            .is_some_and(|status| matches!(status.as_u16(), 403 | 404))
            && !matches!(self.error, ForgeError::RateLimited { .. })
    }

    /// Whether the same request may work a moment later.
    pub fn is_passing(&self) -> bool {
        matches!(self.error, ForgeError::Unavailable { .. })
    }
}

/// Whether an answer says that what was asked for is somewhere else.
pub(super) fn is_move(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

impl From<Failure> for ForgeError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Longest message of the forge that we repeat, in characters.
const MAX_MESSAGE: usize = 300;

/// Puts words of others on one line and cuts them.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
        .collect();
    super::cut_chars(&words.join(" "), MAX_MESSAGE)
}
