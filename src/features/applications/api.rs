//! `/api/apps`: registered projects. Adding or changing one claims its repository. If another owner has claimed the
//! repository, the answer is 409 with the name of that owner, and nothing was changed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ApplicationAction;
use super::actions::{
    self, CancelRequest, app_id, cancel, discard, request_run, seen_app, the_app,
};
use super::view::{ApplicationDetails, ApplicationDetailsView, ApplicationView, DiscardedView};
use crate::authz::Resource;
use crate::claims::{ApplicationRemoved, application_remove};
use crate::config::access::{Action, NetworkRequester};
use crate::features::owners::{cause, owner_name};
use crate::kit::web::csrf::Script;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::{JsonBody, LenientQuery, Segment};
use crate::kit::web::reach::{VisibleScope, each, first_of};
use crate::kit::web::{Cancelling, WebError, WebState};
use crate::model::{ApplicationFields, ApplicationId, CommandId};
use crate::store::Application;

/// Page of the list of applications.
#[derive(Serialize)]
pub(super) struct Apps {
    apps: Vec<ApplicationView>,
    /// Value of `after` for the next page. `null`: this is the last page.
    next: Option<String>,
}

/// Query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ApplicationFilter {
    /// Owner of the listed applications.
    owner: Option<String>,
    /// Application after which the page begins.
    after: Option<ApplicationId>,
}

/// `GET /api/apps?owner=…`, `?after=…`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<ApplicationFilter>,
) -> Result<Json<Apps>, WebError> {
    let mut apps = Vec::new();
    for owner in each(visible.narrowed(which.owner.as_deref()).await?) {
        apps.extend(web.store.application_list(owner, which.after, PAGE).await?);
    }
    let apps = first_of(apps, PAGE, |app| app.id);
    let next = next_of(&apps, |app| app.id.to_string());
    Ok(Json(Apps {
        apps: apps.iter().map(ApplicationView::from).collect(),
        next,
    }))
}

/// `GET /api/apps/{id}`: with its last plan, its locks and its newest runs.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Json<ApplicationDetailsView>, WebError> {
    let app = seen_app(&web, &visible, &asked).await?;
    let details = ApplicationDetails::read(&web.store, app).await?;
    Ok(Json(ApplicationDetailsView::from(&details)))
}

/// `POST /api/apps/{id}/plan`, `…/apply`, `…/discard`. The first two answer 202: a server starts the run in a moment.
pub(super) async fn act(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment((asked, action)): Segment<(String, String)>,
) -> Result<(StatusCode, Json<Value>), WebError> {
    let who = who.by_script();
    let action = match action.as_str() {
        "plan" => ApplicationAction::Plan,
        "apply" => ApplicationAction::Apply,
        "discard" => {
            let locks = discard(&web, &the_app(&web, &asked).await?, &who).await?;
            return Ok((StatusCode::OK, Json(json!(DiscardedView::new(&locks)))));
        }
        _ => return Err(WebError::no_such_page()),
    };
    let app = the_app(&web, &asked).await?;
    let command = request_run(&web, &app, action, &who).await?;
    Ok((StatusCode::ACCEPTED, where_to_look(&web, &app, command)))
}

fn where_to_look(web: &WebState, app: &Application, command: CommandId) -> Json<Value> {
    let link = |path: String| format!("{}{path}", web.public_url.as_str().trim_end_matches('/'));
    let (page, look) = (
        link(format!("/apps/{}", app.id)),
        link(format!("/api/apps/{}", app.id)),
    );
    Json(json!({ "id": command, "page": page, "look": look }))
}

/// `POST /api/apps/{id}/cancel`: 200 if the run had not begun, 202 if it was asked to stop.
pub(super) async fn stop(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
    JsonBody(stopping): JsonBody<CancelRequest>,
) -> Result<(StatusCode, Json<Value>), WebError> {
    let app = the_app(&web, &asked).await?;
    let (command, outcome) = cancel(&web, &app, &stopping, &who.by_script()).await?;
    let status = if outcome == Cancelling::Dropped {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, where_to_look(&web, &app, command)))
}

/// Application to register, or new values of its fields.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApplicationBody {
    owner: Option<String>,
    url: Option<String>,
    branch: Option<String>,
    dir: Option<String>,
    workspace: Option<String>,
    name: Option<String>,
    any_branch: Option<bool>,
}

impl ApplicationBody {
    fn fields(&self) -> ApplicationFields<'_> {
        ApplicationFields {
            url: self.url.as_deref(),
            branch: self.branch.as_deref(),
            dir: self.dir.as_deref(),
            workspace: self.workspace.as_deref(),
            name: self.name.as_deref(),
            any_branch: self.any_branch,
        }
    }
}

/// `POST /api/apps`
pub(super) async fn add(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    JsonBody(body): JsonBody<ApplicationBody>,
) -> Result<(StatusCode, Json<ApplicationView>), WebError> {
    let who = who.by_script();
    let owner = owner_name("owner", body.owner.as_deref().unwrap_or_default());
    web.permit(
        &who,
        Action::Owners,
        &Resource::of_owner(owner.as_ref().ok()),
    )
    .await?;
    let owner = owner?;
    let spec = body
        .fields()
        .spec(&web.forges)
        .map_err(|problems| actions::invalid_application(&problems))?;
    let app = actions::register(&web, &owner, &spec, (&who, &cause(&who))).await?;
    Ok((StatusCode::CREATED, Json(ApplicationView::from(&app))))
}

/// `POST /api/apps/{id}`: fields that are not given stay unchanged.
pub(super) async fn change(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
    JsonBody(body): JsonBody<ApplicationBody>,
) -> Result<Json<ApplicationView>, WebError> {
    let who = who.by_script();
    permit_app(&web, &who, Action::Owners, &asked).await?;
    if body.owner.is_some() {
        let way_out = "Remove the application, and let the other owner add it.";
        return Err(WebError::unusable_field(
            "owner",
            "the owner of an application cannot be changed",
            way_out,
        ));
    }
    let app = the_app(&web, &asked).await?;
    let change = body
        .fields()
        .change(&web.forges)
        .map_err(|problems| actions::invalid_application(&problems))?;
    let app = actions::change(&web, &app, &change, (&who, &cause(&who))).await?;
    Ok(Json(ApplicationView::from(&app)))
}

/// `DELETE /api/apps/{id}`; answers with the removed application.
pub(super) async fn remove(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<ApplicationView>, WebError> {
    let who = who.by_script();
    permit_app(&web, &who, Action::Owners, &asked).await?;
    let removed = application_remove(&web.store, app_id(&asked)?, &cause(&who)).await?;
    let app = removed_or_why(removed)?;
    Ok(Json(ApplicationView::from(&app)))
}

/// Returns the removed application, or why it was not removed.
pub(crate) fn removed_or_why(removed: ApplicationRemoved) -> Result<Application, WebError> {
    match removed {
        ApplicationRemoved::Removed(app) => Ok(*app),
        ApplicationRemoved::NotFound(_) => Err(WebError::no_such_app()),
        busy @ ApplicationRemoved::InUse(..) => Err(WebError::conflict(
            "Application in use",
            &busy.or_why().err().unwrap_or_default(),
        )),
    }
}

/// Fails if the user may not perform the action on the application.
pub(super) async fn permit_app(
    web: &WebState,
    who: &NetworkRequester,
    action: Action,
    asked: &str,
) -> Result<(), WebError> {
    let app = match asked.parse() {
        Ok(id) => web.store.application_get(id).await?,
        Err(_) => None,
    };
    web.permit(
        who,
        action,
        &Resource::of_owner(app.as_ref().map(|app| &app.owner)),
    )
    .await
}
