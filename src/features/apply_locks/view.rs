//! An apply lock as pages, the API and the command line show it.

use serde::Serialize;

use crate::kit::web::text::rfc3339;
use crate::model::{ApplyLock, ApplyScope, NamedAccount};

/// One apply lock. Texts are unescaped: pages and terminals escape them.
#[derive(Serialize)]
pub(crate) struct ApplyLockView {
    id: String,
    /// `server`, `repo`, `path`, or `unknown`, which stops everything.
    scope: &'static str,
    repo: Option<String>,
    dir: Option<String>,
    holder: String,
    /// Account of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<NamedAccount>,
    reason: String,
    since: String,
    until: Option<String>,
    /// Stored scope that this version does not understand.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_understood: Option<String>,
}

/// One apply lock for the template of a page.
#[derive(Serialize)]
pub(crate) struct ApplyLockEntry {
    #[serde(flatten)]
    lock: ApplyLockView,
    /// Holder with name and status.
    who: String,
}

impl From<&ApplyLock> for ApplyLockEntry {
    fn from(lock: &ApplyLock) -> Self {
        Self {
            lock: lock.into(),
            who: lock.holder.to_string(),
        }
    }
}

impl From<&ApplyLock> for ApplyLockView {
    fn from(lock: &ApplyLock) -> Self {
        Self {
            id: lock.id.to_string(),
            scope: lock.scope.kind(),
            repo: lock.scope.repo().map(ToString::to_string),
            dir: lock.scope.dir().map(ToString::to_string),
            holder: lock.holder.login.clone(),
            account: lock.holder.account.clone(),
            reason: lock.reason.clone(),
            since: rfc3339(lock.taken_at),
            until: lock.ends_at.map(rfc3339),
            not_understood: match &lock.scope {
                ApplyScope::Unknown(text) => Some(text.clone()),
                ApplyScope::Server | ApplyScope::Repo(_) | ApplyScope::Path { .. } => None,
            },
        }
    }
}
