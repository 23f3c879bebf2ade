//! Stars of an account.
//!
//! - `GET /api/accounts/{account}/starred.changes`, `PUT DELETE /api/accounts/{account}/starred.changes/{change}`
//! - `GET /api/accounts/{account}/stars.changes`, `GET POST /api/accounts/{account}/stars.changes/{change}`
//! - `GET /api/changes/?q=is:starred`, `…?q=star:LABEL`

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::blobs::StarLabels;
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::refs::ChangeNumber;
use serde::{Deserialize, Serialize};

use super::super::actions::LabelChanges;
use super::super::stars::StarredChange;
use super::super::store::AccountRow;
use super::{AccountRequest, ApiRoute, found};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;
use crate::kit::web::text::shown;
use crate::model::PullState;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (
            Method::GET,
            "/api/accounts/{account}/starred.changes",
            get(|name, api| list(name, api, true)),
        ),
        (
            Method::PUT,
            "/api/accounts/{account}/starred.changes/{change}",
            put(star),
        ),
        (
            Method::DELETE,
            "/api/accounts/{account}/starred.changes/{change}",
            delete(unstar),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/stars.changes",
            get(|name, api| list(name, api, false)),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/stars.changes/{change}",
            get(labels),
        ),
        (
            Method::POST,
            "/api/accounts/{account}/stars.changes/{change}",
            post(change_labels),
        ),
        (Method::GET, "/api/changes/", get(search)),
        (Method::GET, "/api/changes", get(search)),
    ]
}

/// A starred change. An account may star any number, so only an administrator is shown the change itself.
#[derive(Serialize)]
struct StarredChangeJson {
    #[serde(rename = "_number")]
    number: u32,
    #[serde(flatten)]
    change: Option<SeenChangeJson>,
    starred: bool,
    stars: BTreeSet<String>,
}

/// Facts about a change, with Gerrit's names of fields and states.
#[derive(Serialize)]
struct SeenChangeJson {
    /// Name of the repository.
    project: String,
    subject: String,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    url: String,
}

impl StarredChangeJson {
    fn new(star: StarredChange, is_administrator: bool) -> Self {
        let seen = star.seen.filter(|_| is_administrator);
        Self {
            number: star.number.get(),
            change: seen.map(|seen| SeenChangeJson {
                project: seen.at.repo.to_string(),
                subject: seen.at.subject.display_name(seen.title.as_deref()),
                status: match seen.state {
                    PullState::Open => "NEW",
                    PullState::Merged => "MERGED",
                    PullState::Closed => "ABANDONED",
                },
                url: seen.url,
            }),
            starred: star.labels.contains(StarLabels::STAR),
            stars: star.labels,
        }
    }
}

/// Body with changed labels.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LabelsBody {
    add: BTreeSet<String>,
    remove: BTreeSet<String>,
}

/// Lists the changes with the label `star`, or those with any label.
async fn list(
    Segment(name): Segment,
    api: AccountRequest,
    only_starred: bool,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    list_where(&api, &row, |labels| {
        !only_starred || labels.contains(StarLabels::STAR)
    })
    .await
}

/// Finds changes by the stars of the account that asks, which nobody else sees.
async fn search(RawQuery(parameters): RawQuery, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account("self").await?;
    let parameters = parameters.unwrap_or_default();
    let mut query = String::new();
    for (name, value) in url::form_urlencoded::parse(parameters.as_bytes()) {
        if name != "q" {
            let what = format!("there is no parameter `{}`", shown(&name));
            return Err(Problem::error(None, what, "known is q").into());
        }
        query = value.trim().to_owned();
    }
    let label = match query.split_once(':') {
        Some(("is", "starred")) => StarLabels::STAR,
        Some(("star", label)) if !label.is_empty() => label,
        _ => {
            let what = format!("`{}` is no query for changes", shown(&query));
            let fix = "write `is:starred` or `star:LABEL`";
            return Err(Problem::error(None, what, fix).into());
        }
    };
    list_where(&api, &row, |labels| labels.contains(label)).await
}

/// Lists the changes whose labels fit.
async fn list_where(
    api: &AccountRequest,
    row: &AccountRow,
    fits: impl Fn(&BTreeSet<String>) -> bool,
) -> Result<Response, WebError> {
    let mut stars = api.users().store().change_list_starred(row.number).await?;
    stars.retain(|star| fits(&star.labels));
    let is_administrator = api.caller.has(Capability::AdministrateServer);
    let stars = stars
        .into_iter()
        .map(|star| StarredChangeJson::new(star, is_administrator));
    Ok(found(row, stars.collect::<Vec<_>>()))
}

async fn star(
    Segment((name, change)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let changes = LabelChanges {
        add: BTreeSet::from([StarLabels::STAR.to_owned()]),
        ..LabelChanges::default()
    };
    let row = api.own(&name).await?;
    change_star(&api, &row, number(&change)?, &changes).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn unstar(
    Segment((name, change)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let number = number(&change)?;
    let store = api.users().store();
    let labels = store.account_star(row.number, number).await?;
    if !labels.contains(StarLabels::STAR) {
        let why = format!("The account has not starred the change {number}.");
        return Err(WebError::new(StatusCode::NOT_FOUND, "Not starred", why));
    }
    let changes = LabelChanges {
        remove: BTreeSet::from([StarLabels::STAR.to_owned()]),
        ..LabelChanges::default()
    };
    change_star(&api, &row, number, &changes).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn labels(
    Segment((name, change)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let number = number(&change)?;
    let store = api.users().store();
    let labels = store.account_star(row.number, number).await?;
    if labels.is_empty() && store.change_get(number).await?.is_none() {
        return Err(no_change(&change));
    }
    Ok(found(&row, labels))
}

async fn change_labels(
    Segment((name, change)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let body: LabelsBody = api.json()?;
    let row = api.own(&name).await?;
    let changes = LabelChanges {
        add: body.add,
        remove: body.remove,
    };
    let labels = change_star(&api, &row, number(&change)?, &changes).await?;
    Ok(Json(labels).into_response())
}

async fn change_star(
    api: &AccountRequest,
    row: &AccountRow,
    change: ChangeNumber,
    changes: &LabelChanges,
) -> Result<BTreeSet<String>, WebError> {
    let actor = api.actor();
    let labels = api
        .users()
        .change_labels(&actor, row.number, change, changes);
    Ok(labels.await?)
}

/// Reads the number of a change in a path.
pub(super) fn number(text: &str) -> Result<ChangeNumber, WebError> {
    text.parse().map_err(|_| no_change(text))
}

pub(super) fn no_change(text: &str) -> WebError {
    let why = format!(
        "There is no change `{}`. The page of a lock shows the number of its change.",
        shown(text)
    );
    WebError::new(StatusCode::NOT_FOUND, "No such change", why)
}
