//! Exclusive work: who does what, and taking it away by hand, for the pages and the API alike.

use axum::http::StatusCode;
use tracing::warn;

use crate::config::access::{Action, Asker};
use crate::handlers::authz::Resource;
use crate::kit::web::reach::Sight;
use crate::kit::web::{Failure, Web};
use crate::leases::LeaseKey;
use crate::model::{Cause, Reason};
use crate::store::{FreeLease, LeaseRow};

/// Which lease is taken away, and why.
pub(super) struct Release<'a> {
    pub key: &'a str,
    /// Only if this one holds it; `None`: whoever does.
    pub holder: Option<&'a str>,
    pub reason: &'a str,
}

/// The leases that somebody may see, by key: those of the mirrors of repositories, also of one owner alone, or all.
pub(super) async fn seen(
    web: &Web,
    sight: &Sight,
    owner: Option<&str>,
) -> Result<Vec<LeaseRow>, Failure> {
    Ok(match sight.repos(owner).await? {
        Some(repos) => web.store.lease_list_of_repos(&repos).await?,
        None => web.store.lease_list().await?,
    })
}

/// Takes a lease away for somebody who may.
pub(super) async fn release(
    web: &Web,
    wish: Release<'_>,
    who: &Asker,
) -> Result<FreeLease, Failure> {
    let way_out = "Say in a few words why, for those who look at the audit log.";
    let reason = Reason::read(wish.reason)
        .map_err(|e| Failure::unusable_field("reason", &e.to_string(), way_out))?;
    let reason = reason.ok_or_else(|| Failure::unusable_field("reason", "it is empty", way_out))?;
    let repo = LeaseKey::of_text(wish.key).repo();
    web.permit(
        who,
        Action::Lease,
        &repo.as_ref().map_or(Resource::Server, Resource::Repository),
    )
    .await?;
    let cause = Cause::new(who.actor(), reason.as_str()).from_address(who.remote.clone());
    let freed = web
        .store
        .lease_free(wish.key, wish.holder, repo.as_ref(), &cause)
        .await?;
    if let FreeLease::Freed(lease) | FreeLease::Told(lease) = &freed {
        warn!(
            who = who.name(),
            key = lease.key,
            holder = lease.holder,
            reason = reason.as_str(),
            "A lease is given back by hand"
        );
    }
    Ok(freed)
}

/// Nobody holds this lease, or another holder than the one that was named.
pub(super) fn not_held() -> Failure {
    let message = "Nobody holds this lease, or another holder than the one that was named. Most likely it was given back; \
                   GET /api/leases and the page of operations show those that are held. Nothing was changed.";
    Failure::new(StatusCode::NOT_FOUND, "This lease is not held", message)
}
