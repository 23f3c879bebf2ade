//! Mirrors of repositories: how they stand on every disk, and asking for one to be synchronised, for the pages and the API
//! alike.

use axum::http::StatusCode;
use tracing::info;

use crate::config::access::{Action, Asker};
use crate::handlers::authz::Resource;
use crate::kit::web::reach::Sight;
use crate::kit::web::{Failure, Web, shown};
use crate::model::{Cause, Reason, RepoId, SyncState};
use crate::store::{MirrorQuery, MirrorRow};

/// Disks that one repository is listed on.
const DISKS: i64 = 1000;

/// Reads the name of a repository in an address.
pub(super) fn read_repo(text: &str) -> Result<RepoId, Failure> {
    text.parse().map_err(|_| no_such_mirror(text))
}

/// Reads the name of a state in an address; `None`: any.
pub(super) fn read_state(text: &str) -> Option<SyncState> {
    text.parse().ok()
}

/// The mirrors of a repository, by disk, for somebody who may see them.
pub(super) async fn mirrors_of(
    web: &Web,
    sight: &Sight,
    repo: &RepoId,
) -> Result<Vec<MirrorRow>, Failure> {
    sight.must_see(&Resource::Repository(repo)).await?;
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

/// Asks for the mirrors of a repository to be synchronised, for somebody who may. Tells how many there are.
pub(super) async fn ask(
    web: &Web,
    repo: &RepoId,
    reason: &str,
    who: &Asker,
) -> Result<u64, Failure> {
    let way_out = "Say in a few words why, for those who look at the repository or the audit log.";
    let reason = Reason::read(reason)
        .map_err(|e| Failure::unusable_field("reason", &e.to_string(), way_out))?;
    let reason = reason.ok_or_else(|| Failure::unusable_field("reason", "it is empty", way_out))?;
    web.permit(who, Action::Sync, &Resource::Repository(repo))
        .await?;
    let cause = Cause::new(who.actor(), reason.as_str()).from_address(who.remote.clone());
    match web.store.mirror_ask(repo, &cause).await? {
        0 => Err(no_such_mirror(&repo.to_string())),
        mirrors => {
            web.mirror_nudge.nudge();
            info!(who = who.name(), %repo, mirrors, reason = reason.as_str(), "Somebody asked for a sync");
            Ok(mirrors)
        }
    }
}

/// No server has a mirror of this repository.
fn no_such_mirror(asked: &str) -> Failure {
    let message = format!(
        "No server has a mirror of “{}”. One is made as soon as something happens to a repository that is served \
         (--repo-allowlist). Names of repositories have their host in front, as in github.com/acme/infra.",
        shown(asked)
    );
    Failure::new(
        StatusCode::NOT_FOUND,
        "This repository is not known",
        message,
    )
}
