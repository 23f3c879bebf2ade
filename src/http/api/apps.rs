//! `/api/apps`: registered projects. Who adds or changes one claims its repository; if that is somebody else's, the answer
//! is 409 and names them, and nothing was changed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::claims::{PAGE, asked_owner, next_of};
use super::owners::{cause, owner_name};
use super::time;
use crate::claims::{ApplicationSaved, application_add, application_change, application_remove};
use crate::config::access::Action;
use crate::handlers::authz::Resource;
use crate::http::csrf::Script;
use crate::http::extract::{Asked, JsonBody, Segment};
use crate::http::{Failure, Web};
use crate::model::{ApplicationFields, ApplicationId};
use crate::store::Application;

/// A part of the list.
#[derive(Serialize)]
pub(super) struct Apps {
    apps: Vec<AppJson>,
    /// What to ask for with `after` to see more; `null`: there is no more.
    next: Option<String>,
}

/// One registered project.
#[derive(Serialize)]
pub(super) struct AppJson {
    id: String,
    owner: String,
    url: String,
    branch: String,
    dir: String,
    workspace: String,
    name: Option<String>,
    created_by: String,
    created_at: String,
    updated_at: String,
}

impl From<Application> for AppJson {
    fn from(app: Application) -> Self {
        Self {
            id: app.id.to_string(),
            owner: app.owner.to_string(),
            url: app.spec.url.to_string(),
            branch: app.spec.branch.to_string(),
            dir: app.spec.dir.to_string(),
            workspace: app.spec.workspace.to_string(),
            name: app.spec.name.map(|name| name.to_string()),
            created_by: app.created_by,
            created_at: time(app.created_at),
            updated_at: time(app.updated_at),
        }
    }
}

/// Which are asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Which {
    /// Those of this owner.
    owner: Option<String>,
    /// Those that come after this one.
    after: Option<ApplicationId>,
}

/// `GET /api/apps?owner=…`, `?after=…`
pub(super) async fn list(State(web): State<Arc<Web>>, Asked(which): Asked<Which>) -> Result<Json<Apps>, Failure> {
    let owner = asked_owner(&web, which.owner.as_deref()).await?;
    let apps = web.store.application_list(owner, which.after, PAGE).await?;
    let next = next_of(&apps, |app| app.id.to_string());
    Ok(Json(Apps { apps: apps.into_iter().map(AppJson::from).collect(), next }))
}

/// `GET /api/apps/{id}`
pub(super) async fn show(State(web): State<Arc<Web>>, Segment(asked): Segment) -> Result<Json<AppJson>, Failure> {
    let app = web.store.application_get(app_id(&asked)?).await?;
    app.map(|app| Json(app.into())).ok_or_else(Failure::no_such_app)
}

/// What is to be registered, or to become different.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wish {
    owner: Option<String>,
    url: Option<String>,
    branch: Option<String>,
    dir: Option<String>,
    workspace: Option<String>,
    name: Option<String>,
}

impl Wish {
    fn fields(&self) -> ApplicationFields<'_> {
        ApplicationFields {
            url: self.url.as_deref(),
            branch: self.branch.as_deref(),
            dir: self.dir.as_deref(),
            workspace: self.workspace.as_deref(),
            name: self.name.as_deref(),
        }
    }
}

/// `POST /api/apps`
pub(super) async fn add(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    JsonBody(wish): JsonBody<Wish>,
) -> Result<(StatusCode, Json<AppJson>), Failure> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let owner = owner_name("owner", wish.owner.as_deref().unwrap_or_default())?;
    let spec = wish.fields().spec(&web.forges).map_err(|problems| Failure::wrong_application(&problems))?;
    let saved = application_add(&web.store, &owner, &spec, &cause(&who)).await?;
    Ok((StatusCode::CREATED, Json(saved_or_why(saved)?.into())))
}

/// `POST /api/apps/{id}`: what is not said stays as it is.
pub(super) async fn change(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    Segment(asked): Segment,
    JsonBody(wish): JsonBody<Wish>,
) -> Result<Json<AppJson>, Failure> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    if wish.owner.is_some() {
        let way_out = "Remove the application, and let the other owner add it.";
        return Err(Failure::unusable_field("owner", "an application stays with its owner", way_out));
    }
    let id = app_id(&asked)?;
    let change = wish.fields().change(&web.forges).map_err(|problems| Failure::wrong_application(&problems))?;
    let saved = application_change(&web.store, id, &change, &cause(&who)).await?;
    Ok(Json(saved_or_why(saved)?.into()))
}

/// `DELETE /api/apps/{id}`; the answer is what was removed.
pub(super) async fn remove(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<AppJson>, Failure> {
    let who = who.by_script();
    web.permit(&who, Action::Owners, &Resource::Server).await?;
    let removed = application_remove(&web.store, app_id(&asked)?, &cause(&who)).await?;
    removed.map(|app| Json(app.into())).ok_or_else(Failure::no_such_app)
}

fn app_id(asked: &str) -> Result<ApplicationId, Failure> {
    asked.parse().map_err(|_| Failure::no_such_app())
}

fn saved_or_why(saved: ApplicationSaved) -> Result<Application, Failure> {
    match saved {
        ApplicationSaved::Saved(app) => Ok(app),
        ApplicationSaved::OwnedBy(url, owner) => Err(Failure::owned_by(&url, &owner)),
        ApplicationSaved::NoOwner(name) => Err(Failure::no_such_owner(name.as_str())),
        ApplicationSaved::NotThere(_) => Err(Failure::no_such_app()),
        there @ ApplicationSaved::AlreadyThere(_) => {
            let why = there.or_why().err().unwrap_or_default();
            Err(Failure::in_the_way("There before", &why))
        }
    }
}
