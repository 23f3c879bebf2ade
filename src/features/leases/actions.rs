//! Shows leases and releases them manually, for the pages and the API.

use axum::http::StatusCode;
use tracing::warn;

use crate::authz::Resource;
use crate::config::access::{Action, NetworkRequester};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::leases::LeaseKey;
use crate::model::{Cause, Reason};
use crate::store::{FreeLease, LeaseRow};

/// Request to release a lease, with the reason.
pub(super) struct Release<'a> {
    pub key: &'a str,
    /// Expected holder. `None`: any holder.
    pub holder: Option<&'a str>,
    pub reason: &'a str,
}

/// Returns the leases that the user may see, by key: those of mirrors, limited to an owner or not, or all of them.
pub(super) async fn seen(
    web: &WebState,
    visible: &VisibleScope,
    owner: Option<&str>,
) -> Result<Vec<LeaseRow>, WebError> {
    Ok(match visible.repos(owner).await? {
        Some(repos) => web.store.lease_list_of_repos(&repos).await?,
        None => web.store.lease_list().await?,
    })
}

/// Releases a lease if the user may.
pub(super) async fn release(
    web: &WebState,
    request: Release<'_>,
    who: &NetworkRequester,
) -> Result<FreeLease, WebError> {
    let way_out = "Give a short reason for the audit log.";
    let reason = Reason::read(request.reason)
        .map_err(|e| WebError::unusable_field("reason", &e.to_string(), way_out))?;
    let reason =
        reason.ok_or_else(|| WebError::unusable_field("reason", "it is empty", way_out))?;
    let repo = LeaseKey::of_text(request.key).repo();
    web.permit(
        who,
        Action::Lease,
        &repo.as_ref().map_or(Resource::Server, Resource::Repository),
    )
    .await?;
    let cause = Cause::new(who.actor(), reason.as_str()).from_address(who.remote.clone());
    let freed = web
        .store
        .lease_free(request.key, request.holder, repo.as_ref(), &cause)
        .await?;
    if let FreeLease::Freed(lease) | FreeLease::Told(lease) = &freed {
        warn!(
            who = who.name(),
            key = lease.key,
            holder = lease.holder,
            reason = reason.as_str(),
            "Somebody releases a lease manually"
        );
    }
    Ok(freed)
}

/// Failure for a lease that the requested holder, or any holder, does not have.
pub(super) fn not_held() -> WebError {
    let message = "Nobody holds this lease, or its holder is not the one that you named. Most likely it was released. GET \
                   /api/leases and the page of operations show the leases that are held. Nothing was changed.";
    WebError::new(StatusCode::NOT_FOUND, "Lease not held", message)
}
