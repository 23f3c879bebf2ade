//! Mirrors of repositories for the pages and the API: their state on every disk, and requests for a sync.

use axum::http::StatusCode;
use tracing::info;

use crate::authz::Resource;
use crate::config::access::{Action, NetworkRequester};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState, shown};
use crate::model::{Cause, Reason, RepoId, SyncState};
use crate::store::{MirrorQuery, MirrorRow};

/// Maximum number of disks that one repository is listed on.
const DISKS: i64 = 1000;

/// Reads the name of a repository from a path.
pub(super) fn read_repo(text: &str) -> Result<RepoId, WebError> {
    text.parse().map_err(|_| no_such_mirror(text))
}

/// Reads the name of a state from a query. `None`: any state.
pub(super) fn read_state(text: &str) -> Option<SyncState> {
    text.parse().ok()
}

/// Returns the mirrors of a repository by disk, if the user may see them.
pub(super) async fn mirrors_of(
    web: &WebState,
    visible: &VisibleScope,
    repo: &RepoId,
) -> Result<Vec<MirrorRow>, WebError> {
    visible.require_access(&Resource::Repository(repo)).await?;
    let query = MirrorQuery {
        repo: Some(repo.clone()),
        ..MirrorQuery::default()
    };
    let rows = web.store.mirror_list(&query, DISKS).await?;
    if rows.is_empty() {
        Err(no_such_mirror(&repo.to_string()))
    } else {
        Ok(rows)
    }
}

/// Requests a sync of the mirrors of a repository, if the user may. Returns the number of mirrors.
pub(super) async fn request_sync(
    web: &WebState,
    repo: &RepoId,
    reason: &str,
    who: &NetworkRequester,
) -> Result<u64, WebError> {
    let way_out = "Give a short reason for the page of the repository and the audit log.";
    let reason = Reason::read(reason)
        .map_err(|e| WebError::unusable_field("reason", &e.to_string(), way_out))?;
    let reason =
        reason.ok_or_else(|| WebError::unusable_field("reason", "it is empty", way_out))?;
    web.permit(who, Action::Sync, &Resource::Repository(repo))
        .await?;
    let cause = Cause::new(who.actor(), reason.as_str()).from_address(who.remote.clone());
    match web.store.mirror_request_sync(repo, &cause).await? {
        0 => Err(no_such_mirror(&repo.to_string())),
        mirrors => {
            web.mirror_wake_up.send();
            info!(who = who.name(), %repo, mirrors, reason = reason.as_str(), "Somebody requested a sync");
            Ok(mirrors)
        }
    }
}

/// Says that no server has a mirror of this repository.
fn no_such_mirror(asked: &str) -> WebError {
    let message = format!(
        "No server has a mirror of “{}”. A server creates one at the first event of a repository that it serves \
         (--repo-allowlist). Put the host in front of the name, as in github.com/acme/infra.",
        shown(asked)
    );
    WebError::new(StatusCode::NOT_FOUND, "Unknown repository", message)
}
