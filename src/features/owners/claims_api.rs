//! `/api/claims`: the owners of repositories. Claims come and go with applications and credentials, so they cannot be
//! changed here.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::view::ClaimView;
use crate::authz::Resource;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::reach::{VisibleScope, each, first_of};
use crate::kit::web::{WebError, WebState};
use crate::model::RepoUrl;

/// Page of the list of claims, by address.
#[derive(Serialize)]
pub(super) struct ClaimList {
    claims: Vec<ClaimView>,
    /// Value of `after` for the next page. `null`: this is the last page.
    next: Option<String>,
}

/// Query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimFilter {
    /// Repository of the claim, in any spelling.
    url: Option<String>,
    /// Owner of the claims.
    owner: Option<String>,
    /// Address after which the page begins.
    after: Option<String>,
}

/// `GET /api/claims?url=…`, `?owner=…`, `?after=…`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<ClaimFilter>,
) -> Result<Json<ClaimList>, WebError> {
    if let Some(url) = &which.url {
        let claim = web.store.claim_get(&repo_url(&web, "url", url)?).await?;
        visible
            .require_access(&Resource::of_owner(
                claim.as_ref().map(|claim| &claim.owner),
            ))
            .await?;
        return Ok(Json(ClaimList {
            claims: claim.iter().map(ClaimView::from).collect(),
            next: None,
        }));
    }
    let after = which
        .after
        .as_deref()
        .map(|url| repo_url(&web, "after", url))
        .transpose()?;
    let mut claims = Vec::new();
    for owner in each(visible.narrowed(which.owner.as_deref()).await?) {
        claims.extend(web.store.claim_list(owner, after.as_ref(), PAGE).await?);
    }
    let claims = first_of(claims, PAGE, |claim| claim.url.clone());
    let next = next_of(&claims, |claim| claim.url.to_string());
    Ok(Json(ClaimList {
        claims: claims.iter().map(ClaimView::from).collect(),
        next,
    }))
}

/// Reads the address of a repository from a field, in any spelling.
pub(crate) fn repo_url(web: &WebState, field: &str, text: &str) -> Result<RepoUrl, WebError> {
    let way_out = "Write the address as in https://github.com/acme/infra.";
    let url = RepoUrl::parse_at(text, &web.forges);
    url.map_err(|error| WebError::unusable_field(field, &error.to_string(), way_out))
}
