//! `/api/owners`: the teams or tenants of the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::time;
use crate::config::access::{Action, Asker};
use crate::handlers::authz::Resource;
use crate::http::csrf::Script;
use crate::http::extract::{JsonBody, Segment};
use crate::http::{Failure, Web};
use crate::model::{Cause, OwnerName};
use crate::store::{CreateOwner, DeleteOwner, Owner};

/// All of them, by name.
#[derive(Serialize)]
pub(super) struct Owners {
    owners: Vec<OwnerJson>,
}

/// One of them.
#[derive(Serialize)]
pub(super) struct OwnerJson {
    id: String,
    name: String,
    created_by: String,
    created_at: String,
}

impl From<Owner> for OwnerJson {
    fn from(owner: Owner) -> Self {
        Self {
            id: owner.id.to_string(),
            name: owner.name.to_string(),
            created_by: owner.created_by,
            created_at: time(owner.created_at),
        }
    }
}

/// `GET /api/owners`
pub(super) async fn list(State(web): State<Arc<Web>>) -> Result<Json<Owners>, Failure> {
    let owners = web.store.owner_list().await?;
    Ok(Json(Owners { owners: owners.into_iter().map(OwnerJson::from).collect() }))
}

/// Who is to be added.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wish {
    name: String,
}

/// `POST /api/owners`
pub(super) async fn add(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    JsonBody(wish): JsonBody<Wish>,
) -> Result<(StatusCode, Json<OwnerJson>), Failure> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let name = owner_name("name", &wish.name)?;
    match web.store.owner_create(&name, &cause(&who)).await? {
        CreateOwner::Created(owner) => Ok((StatusCode::CREATED, Json(owner.into()))),
        CreateOwner::AlreadyThere(owner) => Err(Failure::in_the_way(
            "There before",
            &format!("There is an owner `{}` already, added by {}.", owner.name, owner.created_by),
        )),
    }
}

/// `DELETE /api/owners/{name}`; the answer is who was removed.
pub(super) async fn remove(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<OwnerJson>, Failure> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let name = OwnerName::new(&asked).map_err(|_| Failure::no_such_owner(&asked))?;
    match web.store.owner_delete(&name, &cause(&who)).await? {
        DeleteOwner::Deleted(owner) => Ok(Json(owner.into())),
        DeleteOwner::NotThere => Err(Failure::no_such_owner(&asked)),
        DeleteOwner::InUse { applications, credentials } => Err(Failure::in_the_way(
            "Still in use",
            &format!(
                "`{name}` has {applications} applications and {credentials} credentials. Remove these first: GET \
                 /api/apps?owner={name} lists the applications."
            ),
        )),
    }
}

/// Who did it, for the record.
pub(super) fn cause(who: &Asker) -> Cause {
    Cause::new(who.actor(), "by a script").from_address(who.remote.clone())
}

/// The name of an owner in a field.
pub(super) fn owner_name(field: &str, text: &str) -> Result<OwnerName, Failure> {
    let way_out = "GET /api/owners lists those there are.";
    OwnerName::new(text).map_err(|error| Failure::unusable_field(field, &error.to_string(), way_out))
}
