//! An owner and a claim as pages, the API and the command line show them.

use serde::Serialize;

use crate::kit::web::text::rfc3339;
use crate::store::{Claim, Owner};

/// One owner. Texts are unescaped: pages and terminals escape them.
#[derive(Serialize)]
pub(super) struct OwnerView {
    id: String,
    name: String,
    created_by: String,
    created_at: String,
}

impl From<&Owner> for OwnerView {
    fn from(owner: &Owner) -> Self {
        Self {
            id: owner.id.to_string(),
            name: owner.name.to_string(),
            created_by: owner.created_by.clone(),
            created_at: rfc3339(owner.created_at),
        }
    }
}

/// One claim, with the number of its references.
#[derive(Serialize)]
pub(super) struct ClaimView {
    id: String,
    url: String,
    owner: String,
    since: String,
    applications: i64,
    credentials: i64,
}

impl From<&Claim> for ClaimView {
    fn from(claim: &Claim) -> Self {
        Self {
            id: claim.id.to_string(),
            url: claim.url.to_string(),
            owner: claim.owner.to_string(),
            since: rfc3339(claim.created_at),
            applications: claim.applications,
            credentials: claim.credentials,
        }
    }
}
