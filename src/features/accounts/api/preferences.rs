//! Preferences and watches of an account.
//!
//! - `GET PUT /api/accounts/{account}/preferences`, the same for `preferences.diff` and `preferences.edit`
//! - `GET POST /api/accounts/{account}/watched.projects`
//! - `POST /api/accounts/{account}/watched.projects:delete`

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::preferences::{
    Preference, PreferenceSection, PreferenceValue, Preferences, TABLE,
};
use lockkeeper_accounts::watches::{NotifyType, Watch, WatchFilter, Watches};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::actions::WatchChange;
use super::super::store::AccountRow;
use super::{AccountRequest, ApiRoute, found, unusable};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;
use crate::kit::web::text::shown;

pub(super) fn routes() -> Vec<ApiRoute> {
    use PreferenceSection::{Diff, Edit, General};
    let mut routes = vec![
        (
            Method::GET,
            "/api/accounts/{account}/watched.projects",
            get(watches),
        ),
        (
            Method::POST,
            "/api/accounts/{account}/watched.projects",
            post(set_watches),
        ),
        (
            Method::POST,
            "/api/accounts/{account}/watched.projects:delete",
            post(delete_watches),
        ),
    ];
    for (path, section) in [
        ("/api/accounts/{account}/preferences", General),
        ("/api/accounts/{account}/preferences.diff", Diff),
        ("/api/accounts/{account}/preferences.edit", Edit),
    ] {
        routes.push((
            Method::GET,
            path,
            get(move |name, api| show(section, name, api)),
        ));
        routes.push((
            Method::PUT,
            path,
            put(move |name, api| set(section, name, api)),
        ));
    }
    routes
}

async fn show(
    section: PreferenceSection,
    Segment(name): Segment,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    Ok(found(&row, values(&api, &row, section).await?))
}

/// Changes the given preferences. `null` restores the default.
async fn set(
    section: PreferenceSection,
    Segment(name): Segment,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let body: Map<String, Value> = api.json()?;
    let row = api.own(&name).await?;
    let wanted = body.iter().map(|(name, value)| {
        let row = of_section(section).find(|row| row.api_name() == *name);
        let row = row.ok_or_else(|| unknown(section, name))?;
        Ok((row, read(name, value)?))
    });
    let wanted: Vec<_> = wanted.collect::<Result<_, WebError>>()?;
    let users = api.users();
    users
        .set_preferences(&api.actor(), row.number, &wanted)
        .await?;
    let row = api.reread(row).await?;
    let values = values(&api, &row, section).await?;
    Ok((StatusCode::OK, Json(values)).into_response())
}

fn of_section(section: PreferenceSection) -> impl Iterator<Item = &'static Preference> {
    TABLE.iter().filter(move |row| row.section == section)
}

fn unknown(section: PreferenceSection, name: &str) -> WebError {
    let known: Vec<String> = of_section(section).map(Preference::api_name).collect();
    unusable(format!(
        "there is no preference `{}`; known are {}",
        shown(name),
        known.join(", ")
    ))
}

fn read(name: &str, value: &Value) -> Result<Option<PreferenceValue>, WebError> {
    match (value, value.as_i64()) {
        (Value::Null, _) => Ok(None),
        (Value::Bool(value), _) => Ok(Some(PreferenceValue::Boolean(*value))),
        (Value::String(value), _) => Ok(Some(PreferenceValue::Text(value.clone()))),
        (_, Some(number)) => Ok(Some(PreferenceValue::Integer(number))),
        _ => Err(unusable(format!(
            "`{}` is neither a word nor a number that fits",
            shown(name)
        ))),
    }
}

/// Returns every preference of a section with the value that applies.
async fn values(
    api: &AccountRequest,
    row: &AccountRow,
    section: PreferenceSection,
) -> Result<BTreeMap<String, Value>, WebError> {
    let own = config(api, row, Preferences::FILE).await?;
    let (own, _) = Preferences::read(&own);
    let defaults = api.users().default_preferences().await?;
    let values = of_section(section).map(|row| {
        let value = match own.get(row, &defaults) {
            PreferenceValue::Boolean(value) => Value::from(value),
            PreferenceValue::Integer(value) => Value::from(value),
            PreferenceValue::Text(value) => Value::from(value),
        };
        (row.api_name(), value)
    });
    Ok(values.collect())
}

async fn config(
    api: &AccountRequest,
    row: &AccountRow,
    file: &str,
) -> Result<ConfigText, WebError> {
    let files = api.users().files(row.commit).await?;
    let content = files.get(file).map_or(&[][..], Vec::as_slice);
    // An imported file may be one that cannot be read. It has no effect.
    Ok(ConfigText::parse(content).unwrap_or_default())
}

/// A watch: a project, a filter, and `notify_…` for each type of event.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct WatchedProjectJson {
    project: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(flatten)]
    types: BTreeMap<String, bool>,
}

impl WatchedProjectJson {
    fn new(project: &str, watch: &Watch) -> Self {
        Self {
            project: project.to_owned(),
            filter: watch.filter.as_ref().map(ToString::to_string),
            types: watch
                .types
                .iter()
                .map(|word| (field(*word), true))
                .collect(),
        }
    }

    fn filter(&self) -> Result<Option<WatchFilter>, Problem> {
        let filter = self.filter.as_deref().map(str::trim);
        let filter = filter.filter(|filter| !matches!(*filter, "" | "*"));
        filter.map(str::parse).transpose()
    }

    fn types(&self) -> Result<BTreeSet<NotifyType>, WebError> {
        let types = self.types.iter().map(|(name, is_on)| {
            let known = NotifyType::ALL.into_iter();
            let known = known.into_iter().find(|word| field(*word) == *name);
            let word = known.ok_or_else(|| {
                let known: Vec<String> = NotifyType::ALL.into_iter().map(field).collect();
                unusable(format!(
                    "there is no field `{}`; known are project, filter, {}",
                    shown(name),
                    known.join(", ")
                ))
            })?;
            Ok(is_on.then_some(word))
        });
        let types: Vec<Option<NotifyType>> = types.collect::<Result<_, WebError>>()?;
        Ok(types.into_iter().flatten().collect())
    }
}

/// Returns the name of a field, in Gerrit's spelling.
fn field(word: NotifyType) -> String {
    if word == NotifyType::NewPatchsets {
        return "notify_new_patch_sets".to_owned();
    }
    format!("notify_{}", word.as_str().to_ascii_lowercase())
}

async fn watches(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    Ok(found(&row, watched(&api, &row).await?))
}

async fn watched(
    api: &AccountRequest,
    row: &AccountRow,
) -> Result<Vec<WatchedProjectJson>, WebError> {
    let (watches, _) = Watches::read(&config(api, row, Watches::FILE).await?);
    let projects = watches.iter().flat_map(|(project, watches)| {
        let watches = watches.iter();
        watches.map(move |watch| WatchedProjectJson::new(project, watch))
    });
    Ok(projects.collect())
}

async fn set_watches(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: Vec<WatchedProjectJson> = api.json()?;
    let changes = body.iter().map(|watch| {
        Ok(WatchChange {
            project: watch.project.clone(),
            filter: watch.filter()?,
            types: Some(watch.types()?),
        })
    });
    let changes: Vec<_> = changes.collect::<Result<_, WebError>>()?;
    let row = change(&api, &name, &changes).await?;
    let watched = watched(&api, &row).await?;
    Ok((StatusCode::OK, Json(watched)).into_response())
}

async fn delete_watches(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: Vec<WatchedProjectJson> = api.json()?;
    let changes = body.iter().map(|watch| {
        Ok(WatchChange {
            project: watch.project.clone(),
            filter: watch.filter()?,
            types: None,
        })
    });
    let changes: Vec<_> = changes.collect::<Result<_, WebError>>()?;
    change(&api, &name, &changes).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Changes watches, and returns the account as it is then.
async fn change(
    api: &AccountRequest,
    name: &str,
    changes: &[WatchChange],
) -> Result<AccountRow, WebError> {
    let row = api.own(name).await?;
    let users = api.users();
    users
        .edit_watches(&api.actor(), row.number, changes)
        .await?;
    api.reread(row).await
}
