//! The routes of Atlantis for locks, in the formats that its clients know (reference 11.4): `GET /api/locks` and
//! `DELETE /locks?id=…`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::actions::{LockAction, hand_over_lock, read_reason, the_lock};
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::rfc3339;
use crate::kit::web::{WebError, WebState};
use crate::model::{Lock, LockName};

/// All locks, newest first.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AtlantisLocks {
    locks: Vec<AtlantisLockJson>,
}

/// One lock in the format of reference 11.4. Fields that Atlantis does not have come last.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AtlantisLockJson {
    name: String,
    project_name: String,
    project_repo: String,
    project_repo_path: String,
    #[serde(rename = "PullID")]
    pull_id: String,
    #[serde(rename = "PullURL")]
    pull_url: String,
    user: String,
    workspace: String,
    time: String,
    #[serde(rename = "ID")]
    id: String,
    host: String,
    reason: String,
    /// Title of the application that holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
}

/// `?owner=…`, which Atlantis does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AtlantisLocksQuery {
    /// Owner of the repositories of the listed locks.
    owner: Option<String>,
}

/// Answers with the locks that the user may see, newest first, at most [`crate::store::MOST_LISTED`].
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<AtlantisLocksQuery>,
) -> Result<Json<AtlantisLocks>, WebError> {
    let locks = match visible.repos(which.owner.as_deref()).await? {
        Some(repos) => web.store.lock_list_of_repos(&repos).await?,
        None => web.store.lock_list().await?,
    };
    Ok(Json(AtlantisLocks {
        locks: locks.iter().map(AtlantisLockJson::from).collect(),
    }))
}

impl From<&Lock> for AtlantisLockJson {
    fn from(lock: &Lock) -> Self {
        let project_name = lock
            .project
            .name
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        Self {
            name: LockName::of_atlantis(&lock.key, lock.project.name.as_ref()),
            project_name,
            project_repo: lock.key.repo.full_name().to_owned(),
            project_repo_path: lock.key.dir.to_string(),
            pull_id: lock.pull.subject.to_string(),
            pull_url: lock.pull_url.clone(),
            user: lock.holder.login.clone(),
            workspace: lock.key.workspace.to_string(),
            time: rfc3339(lock.taken_at),
            id: lock.id.to_string(),
            host: lock.key.repo.host().to_string(),
            reason: lock.reason.clone(),
            application: lock.title.clone(),
        }
    }
}

const BY_A_SCRIPT: &str = "by a script";

/// The requested lock: its identifier or its classic name.
#[derive(Default, Deserialize)]
pub(super) struct AtlantisLockQuery {
    id: Option<String>,
}

/// `DELETE /locks?id=…`: releases by force, as Atlantis does.
pub(super) async fn discard(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<AtlantisLockQuery>,
) -> Result<&'static str, WebError> {
    let asked = which.id.ok_or_else(|| WebError::query_wanted("id"))?;
    let lock = the_lock(&web, &visible, &asked).await?;
    let action = LockAction {
        to: None,
        force: true,
        reason: read_reason(BY_A_SCRIPT)?,
    };
    hand_over_lock(&web, lock.id, &asked, &who.by_script(), action).await?;
    Ok("The lock was released, and its plans were discarded.\n")
}
