//! Forms of the pages of owners: they add and remove owners, register and remove applications, and remove credentials.
//! Credentials are added by a command or a script, because no page ever contains a secret. A form that is refused is
//! answered by [`redirect_or_page`].

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::api::{created_or_why, deleted_or_why};
use super::page::{SentForm, list_page, owner_page};
use crate::authz::Resource;
use crate::claims::application_remove;
use crate::config::access::{Action, NetworkRequester};
use crate::features::applications::{self, removed_or_why};
use crate::kit::web::csrf::{Confirmed, EmptyForm};
use crate::kit::web::extract::Segment;
use crate::kit::web::forms::{FormProblems, redirect_or_page};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{ApplicationFields, Cause, OwnerName, RepoUrl};

/// Message of the page after a form was sent.
pub(super) fn notice(code: &str) -> Option<&'static str> {
    match code {
        "owner-added" => Some(
            "The owner was added. Its first application or credential for a repository claims that repository.",
        ),
        "owner-removed" => Some("The owner was removed."),
        "app-added" => Some("The application was registered, and the repository is claimed."),
        "app-removed" => Some(
            "The application was removed. The last application or credential of a repository ends the claim.",
        ),
        "credential-removed" => Some(
            "The credential was removed. The last application or credential of a repository ends the claim.",
        ),
        _ => None,
    }
}

/// Form with the owner to add.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct NewOwner {
    name: String,
}

/// `POST /owners`
pub(super) async fn add(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    form: Confirmed<NewOwner>,
) -> Result<Response, WebError> {
    let added = add_owner(&web, &form.who.at_page(), form.fields.name.trim()).await;
    let again = |wrong| {
        list_page(
            &visitor,
            &visible,
            SentForm {
                typed: form.fields,
                wrong,
                ..SentForm::default()
            },
        )
    };
    redirect_or_page(&web, added, &["name"], again).await
}

async fn add_owner(web: &WebState, who: &NetworkRequester, name: &str) -> Result<String, WebError> {
    web.permit(who, Action::Owners, &Resource::Server).await?;
    let name = OwnerName::new(name);
    let name = name.map_err(|error| {
        WebError::unusable_field("name", &error.to_string(), "Choose another name.")
    })?;
    let owner = created_or_why(web.store.owner_create(&name, &cause(who)).await?)?;
    Ok(format!("/owners/{}?notice=owner-added", owner.name))
}

/// `POST /owners/{name}/remove`
pub(super) async fn remove(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
    form: Confirmed<EmptyForm>,
) -> Result<Response, WebError> {
    let removed = remove_owner(&web, &form.who.at_page(), &asked).await;
    redirect_or_page(&web, removed, &[], |wrong| {
        owner_page(&web, (&visitor, &visible), &asked, refused(wrong))
    })
    .await
}

async fn remove_owner(
    web: &WebState,
    who: &NetworkRequester,
    asked: &str,
) -> Result<String, WebError> {
    web.permit(who, Action::Owners, &Resource::Server).await?;
    let name = owner_name(asked)?;
    deleted_or_why(web.store.owner_delete(&name, &cause(who)).await?, &name)?;
    Ok("/owners?notice=owner-removed".to_owned())
}

/// Shows the problem above the page of the owner, because a button has no field to correct.
fn refused(wrong: FormProblems) -> SentForm<NewApp> {
    SentForm {
        refused: Some(wrong.all),
        ..SentForm::default()
    }
}

/// Form with the application to register.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct NewApp {
    url: String,
    branch: String,
    dir: String,
    workspace: String,
    name: String,
    /// `yes` if the branch may be another than the default one.
    any_branch: String,
}

impl NewApp {
    /// Fields in the order of the form.
    const NAMES: &[&str] = &["url", "branch", "dir", "workspace", "name"];

    /// Returns the fields. An empty field counts as not given.
    fn fields(&self) -> ApplicationFields<'_> {
        fn non_empty(text: &str) -> Option<&str> {
            Some(text.trim()).filter(|text| !text.is_empty())
        }
        ApplicationFields {
            url: non_empty(&self.url),
            branch: non_empty(&self.branch),
            dir: non_empty(&self.dir),
            workspace: non_empty(&self.workspace),
            name: non_empty(&self.name),
            any_branch: non_empty(&self.any_branch).map(|word| word == "yes"),
        }
    }

    /// Fills the form again after a refusal, without values that may contain a secret.
    fn refill(self, mut wrong: FormProblems) -> SentForm<Self> {
        let is_secret = RepoUrl::may_hold_secret(&self.url);
        if is_secret {
            wrong.mark_removed_value("url");
        }
        let url = if is_secret { String::new() } else { self.url };
        SentForm {
            typed: Self { url, ..self },
            wrong,
            ..SentForm::default()
        }
    }
}

/// `POST /owners/{name}/apps`
pub(super) async fn add_app(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
    form: Confirmed<NewApp>,
) -> Result<Response, WebError> {
    let added = register(&web, &form.who.at_page(), &asked, &form.fields).await;
    let again = |wrong| {
        owner_page(
            &web,
            (&visitor, &visible),
            &asked,
            form.fields.refill(wrong),
        )
    };
    redirect_or_page(&web, added, NewApp::NAMES, again).await
}

async fn register(
    web: &WebState,
    who: &NetworkRequester,
    asked: &str,
    app: &NewApp,
) -> Result<String, WebError> {
    let owner = owner_name(asked)?;
    web.permit(who, Action::Owners, &Resource::Owner(&owner))
        .await?;
    let spec = app
        .fields()
        .spec(&web.forges)
        .map_err(|problems| applications::invalid_application(&problems))?;
    applications::register(web, &owner, &spec, (who, &cause(who))).await?;
    Ok(format!("/owners/{owner}?notice=app-added#applications"))
}

/// `POST /owners/{name}/{things}/{id}/remove`
pub(super) async fn remove_thing(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment((asked, things, id)): Segment<(String, String, String)>,
    form: Confirmed<EmptyForm>,
) -> Result<Response, WebError> {
    let removed = unregister(&web, &form.who.at_page(), &asked, (&things, &id)).await;
    redirect_or_page(&web, removed, &[], |wrong| {
        owner_page(&web, (&visitor, &visible), &asked, refused(wrong))
    })
    .await
}

/// Removes an application or a credential of this owner.
async fn unregister(
    web: &WebState,
    who: &NetworkRequester,
    asked: &str,
    (things, id): (&str, &str),
) -> Result<String, WebError> {
    let owner = owner_name(asked)?;
    web.permit(who, Action::Owners, &Resource::Owner(&owner))
        .await?;
    let (store, cause) = (&web.store, cause(who));
    let done = match things {
        "apps" => {
            let id = id.parse().map_err(|_| WebError::no_such_app())?;
            let app = store
                .application_get(id)
                .await?
                .filter(|app| app.owner == owner);
            app.ok_or_else(WebError::no_such_app)?;
            removed_or_why(application_remove(store, id, &cause).await?)?;
            "app-removed#applications"
        }
        "credentials" => {
            let id = id.parse().map_err(|_| WebError::no_such_credential())?;
            let row = store
                .credential_get(id)
                .await?
                .filter(|row| row.owner_name == owner);
            row.ok_or_else(WebError::no_such_credential)?;
            store
                .credential_remove(id, &cause)
                .await?
                .ok_or_else(WebError::no_such_credential)?;
            "credential-removed#credentials"
        }
        _ => return Err(WebError::no_such_page()),
    };
    Ok(format!("/owners/{owner}?notice={done}"))
}

fn owner_name(asked: &str) -> Result<OwnerName, WebError> {
    OwnerName::new(asked).map_err(|_| WebError::no_such_owner(asked))
}

fn cause(who: &NetworkRequester) -> Cause {
    Cause::new(who.actor(), "on the page of the owner").from_address(who.remote.clone())
}
