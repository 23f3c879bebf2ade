//! Lists names, versions and records by tokens, for scripts:
//!
//! | Request | Answer |
//! |--|--|
//! | `GET /api/registry/names`, `GET /api/registry/names?prefix=acme/` | names with their newest versions, [`NAMES`] at a time |
//! | `GET /api/registry/module/acme/vpc/aws`, `GET /api/registry/go/example.com/m` | all versions of a name, the highest first |
//! | `GET /api/registry/module/acme/vpc/aws/1.2.3`, `GET /api/registry/go/example.com/m/@v/v1.2.3` | one version |
//! | `GET /api/registry/log` | records of the log, [`RECORDS`] at a time |
//!
//! A reader finds the names that `terraform` and `go` get with the same token (`serve/access.rs`). Nobody learns here who has
//! published a version. Of other names, an answer tells only numbers:
//!
//! - The IDs of records tell how many records there are, as the signed head of the log does.
//! - `next` of names counts all names. So with `prefix` and `after`, a reader finds out how many names begin with a text, if
//!   there are more than [`NAMES`].
//!
//! Each answer reads many rows, so only a few are made at a time.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::records::{LogId, Record};
use lockkeeper_registry::versions::VersionKey;
use serde::{Deserialize, Serialize};

use super::ListedState;
use super::upload::{
    ApiRefusal, ListReader, RegistryUploads, go_key, go_path, module_key, module_name,
};
use super::view::{NameView, VersionView};

/// Maximum number of names in an answer.
const NAMES: i64 = 500;

/// Maximum number of records in an answer.
const RECORDS: i64 = 500;

/// `?prefix=…&after=…`
#[derive(Deserialize)]
pub(super) struct ListQuery {
    /// Text that the names begin with.
    #[serde(default)]
    prefix: String,
    /// Number of names to skip, as `next` of the answer before.
    #[serde(default)]
    after: u32,
}

/// `?after=…`
#[derive(Deserialize)]
pub(super) struct RecordsAfter {
    /// ID of the last record that the client has.
    #[serde(default)]
    after: u64,
}

#[derive(Serialize)]
struct NamesView {
    names: Vec<NameView>,
    /// Value of `after` for the names behind these, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

#[derive(Serialize)]
struct VersionsView {
    versions: Vec<VersionView>,
}

#[derive(Serialize)]
struct LogView {
    records: Vec<RecordView>,
    /// Value of `after` for the records behind these, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

/// A record, as `lockkeeper registry log --json` prints it, and what it says.
#[derive(Serialize)]
struct RecordView {
    id: i64,
    action: String,
    kind: NameKind,
    name: String,
    version: String,
    time: String,
    /// Text of the record. Its SHA-256 with a zero byte in front is the leaf in the tree of the log.
    record: String,
}

/// `GET /api/registry/names`
pub(super) async fn names(
    State(api): State<Arc<RegistryUploads>>,
    query: Result<Query<ListQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let reader = api.list_reader(&headers).await?;
    let Query(query) = query.map_err(|_| ApiRefusal::After)?;
    let store = api.registry().store();
    let skip = i64::from(query.after);
    // One more tells if there are others.
    let mut found = store
        .registry_names_part(&query.prefix, skip, NAMES + 1)
        .await?;
    let has_more = i64::try_from(found.len()).is_ok_and(|read| read > NAMES);
    if has_more {
        found.pop();
    }
    let next = has_more.then_some(skip + NAMES);
    found.retain(|name| reader.scope.may_read(name));
    let mut versions: HashMap<RegistryName, Vec<ListedState>> = HashMap::new();
    for version in store.registry_states_of(&found).await? {
        let of_name = versions.entry(version.key.name()).or_default();
        of_name.push(version);
    }
    let names = found.into_iter().map(|name| {
        let of_name = versions.remove(&name).unwrap_or_default();
        let of_name = of_name.iter().map(|version| (&version.key, version.state));
        NameView::new(&name, of_name)
    });
    let names = names.collect();
    Ok(Json(NamesView { names, next }).into_response())
}

/// `GET /api/registry/module/{namespace}/{name}/{system}`
pub(super) async fn module(
    State(api): State<Arc<RegistryUploads>>,
    Path((namespace, name, system)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let reader = api.list_reader(&headers).await?;
    let name = module_name([&namespace, &name, &system])?;
    versions(&api, &reader, name).await
}

/// `GET /api/registry/module/{namespace}/{name}/{system}/{version}`
pub(super) async fn module_version(
    State(api): State<Arc<RegistryUploads>>,
    Path((namespace, name, system, number)): Path<(String, String, String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let reader = api.version_reader(&headers).await?;
    let key = module_key([&namespace, &name, &system], &number)?;
    version(&api, &reader, key).await
}

/// `GET /api/registry/go/{path}`, and `GET /api/registry/go/{path}/@v/{version}`
pub(super) async fn go(
    State(api): State<Arc<RegistryUploads>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    if path.contains("/@v/") {
        let reader = api.version_reader(&headers).await?;
        version(&api, &reader, go_key(&path)?).await
    } else {
        let reader = api.list_reader(&headers).await?;
        versions(&api, &reader, go_path(&path)?).await
    }
}

/// `GET /api/registry/log`
pub(super) async fn log(
    State(api): State<Arc<RegistryUploads>>,
    query: Result<Query<RecordsAfter>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let reader = api.list_reader(&headers).await?;
    let Query(query) = query.map_err(|_| ApiRefusal::After)?;
    let from = query.after.checked_add(1).map(i64::try_from);
    let Some(Ok(from)) = from else {
        return Err(ApiRefusal::After);
    };
    let from = LogId::new(from).map_err(|_| ApiRefusal::After)?;
    let read = api
        .registry()
        .store()
        .registry_records(from, RECORDS)
        .await?;
    let is_full = i64::try_from(read.len()).unwrap_or(RECORDS) == RECORDS;
    let last = read.last().map(|(id, _)| id.get());
    let mut records = Vec::new();
    for (id, text) in read {
        // `lockkeeper registry verify` names a record that cannot be read.
        let Ok(record) = Record::parse(text.as_bytes()) else {
            continue;
        };
        let (key, name) = (record.key(), record.key().name());
        if reader.scope.may_read(&name) {
            records.push(RecordView {
                id: id.get(),
                action: record.change().action().to_string(),
                kind: key.kind(),
                name: name.as_str().to_owned(),
                version: key.version(),
                time: record.time().to_string(),
                record: text,
            });
        }
    }
    let next = last.filter(|_| is_full);
    Ok(Json(LogView { records, next }).into_response())
}

async fn versions(
    api: &RegistryUploads,
    reader: &ListReader,
    name: RegistryName,
) -> Result<Response, ApiRefusal> {
    if !reader.scope.may_read(&name) {
        return Err(ApiRefusal::NameNotFound(name));
    }
    let mut versions = api.registry().store().registry_versions(&name).await?;
    if versions.is_empty() {
        return Err(ApiRefusal::NameNotFound(name));
    }
    versions.sort_by(|one, other| other.key.cmp(&one.key));
    let versions = versions.iter().map(VersionView::of_client).collect();
    Ok(Json(VersionsView { versions }).into_response())
}

async fn version(
    api: &RegistryUploads,
    reader: &ListReader,
    key: VersionKey,
) -> Result<Response, ApiRefusal> {
    let version = if reader.scope.may_read(&key.name()) {
        api.registry().version(&key).await?
    } else {
        None
    };
    let version = version.ok_or(ApiRefusal::NotFound(key))?;
    Ok(Json(VersionView::of_client(&version)).into_response())
}
