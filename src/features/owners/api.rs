//! `/api/owners`: the teams or tenants of the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::cli::{in_registry, way_out_of_registry};
use super::view::OwnerView;
use crate::authz::Resource;
use crate::claims::too_many_owners;
use crate::config::access::{Action, NetworkRequester};
use crate::kit::web::csrf::Script;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::{JsonBody, LenientQuery, Segment};
use crate::kit::web::reach::{VisibleScope, first_of};
use crate::kit::web::{WebError, WebState};
use crate::model::{Cause, OwnerName};
use crate::store::{CreateOwner, DeleteOwner, Owner};

/// Page of the list of owners, by name.
#[derive(Serialize)]
pub(super) struct Owners {
    owners: Vec<OwnerView>,
    /// Value of `after` for the next page. `null`: this is the last page.
    next: Option<String>,
}

/// Query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerFilter {
    /// Name after which the page begins.
    after: Option<String>,
}

/// `GET /api/owners?after=…`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<OwnerFilter>,
) -> Result<Json<Owners>, WebError> {
    let after = which
        .after
        .as_deref()
        .map(|name| owner_name("after", name))
        .transpose()?;
    let owners = match visible.narrowed(None).await? {
        Some(mut own) => {
            own.retain(|owner| after.as_ref().is_none_or(|after| owner.name > *after));
            first_of(own, PAGE, |owner| owner.name.clone())
        }
        None => web.store.owner_part(after.as_ref(), PAGE).await?,
    };
    let next = next_of(&owners, |owner| owner.name.to_string());
    Ok(Json(Owners {
        owners: owners.iter().map(OwnerView::from).collect(),
        next,
    }))
}

/// Body with the owner to add.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OwnerBody {
    name: String,
}

/// `POST /api/owners`
pub(super) async fn add(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    JsonBody(body): JsonBody<OwnerBody>,
) -> Result<(StatusCode, Json<OwnerView>), WebError> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let name = owner_name("name", &body.name)?;
    let owner = created_or_why(web.store.owner_create(&name, &cause(&who)).await?)?;
    Ok((StatusCode::CREATED, Json(OwnerView::from(&owner))))
}

/// Returns the added owner, or why none was added.
pub(super) fn created_or_why(created: CreateOwner) -> Result<Owner, WebError> {
    match created {
        CreateOwner::Created(owner) => Ok(owner),
        CreateOwner::AlreadyThere(owner) => Err(super::errors::name_taken(&owner)),
        CreateOwner::TooMany(most) => Err(WebError::conflict(
            "Too many owners",
            &too_many_owners(most),
        )),
    }
}

/// `DELETE /api/owners/{name}`; answers with the removed owner.
pub(super) async fn remove(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<OwnerView>, WebError> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let name = OwnerName::new(&asked).map_err(|_| WebError::no_such_owner(&asked))?;
    let owner = deleted_or_why(web.store.owner_delete(&name, &cause(&who)).await?, &name)?;
    Ok(Json(OwnerView::from(&owner)))
}

/// Returns the removed owner, or why none was removed.
pub(super) fn deleted_or_why(deleted: DeleteOwner, name: &OwnerName) -> Result<Owner, WebError> {
    match deleted {
        DeleteOwner::Deleted(owner) => Ok(owner),
        DeleteOwner::NotFound => Err(WebError::no_such_owner(name.as_str())),
        DeleteOwner::InUse {
            applications,
            credentials,
            namespaces,
        } => Err(WebError::conflict(
            "Owner in use",
            &format!(
                "`{name}` has {applications} applications and {credentials} credentials{}. Remove these first. GET \
                 /api/apps?owner={name} lists the applications.{}",
                in_registry(namespaces),
                way_out_of_registry(namespaces)
            ),
        )),
    }
}

/// Returns the user as the cause of a change, for the audit log.
pub(crate) fn cause(who: &NetworkRequester) -> Cause {
    Cause::new(who.actor(), "by a script").from_address(who.remote.clone())
}

/// Reads the name of an owner from a field.
pub(crate) fn owner_name(field: &str, text: &str) -> Result<OwnerName, WebError> {
    let way_out = "GET /api/owners lists all owners.";
    OwnerName::new(text)
        .map_err(|error| WebError::unusable_field(field, &error.to_string(), way_out))
}
