//! Reviewed flags of the account that asks. Nobody sees those of others.
//!
//! - `GET /api/reviewed/`
//! - `GET DELETE /api/changes/{change}/revisions/{revision}/files/?reviewed`,
//!   `PUT DELETE /api/changes/{change}/revisions/{revision}/files/{path}/reviewed`
//! - `GET DELETE /api/plans/{plan}/resources/?reviewed`, `PUT DELETE /api/plans/{plan}/resources/{address}/reviewed`
//!
//! A revision is the number of a patch set, `current`, or the commit. Slashes in a path or an address are `%2F`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, RawQuery, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, put};
use lockkeeper_accounts::refs::AccountId;
use serde::Serialize;

use super::super::flags::{FlagCount, FlagSet, MAX_ITEM, Reviewed};
use super::super::patch_sets::PatchSetName;
use super::super::sign_in::AccountSignIn;
use super::stars::{no_change, number};
use super::{AccountRequest, ApiRoute, unusable};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;
use crate::kit::web::text::shown;
use crate::model::PlanId;

const ALL: &str = "/api/reviewed/";
const FILES: &str = "/api/changes/{change}/revisions/{revision}/files/";
const FILE: &str = "/api/changes/{change}/revisions/{revision}/files/{path}/reviewed";
/// A path whose slashes are not written as `%2F`.
const FILE_IN_PARTS: &str = "/api/changes/{change}/revisions/{revision}/files/{path}/{*rest}";
const RESOURCES: &str = "/api/plans/{plan}/resources/";
const RESOURCE: &str = "/api/plans/{plan}/resources/{address}/reviewed";
const RESOURCE_IN_PARTS: &str = "/api/plans/{plan}/resources/{address}/{*rest}";

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (Method::GET, ALL, get(counts)),
        (Method::GET, FILES, get(files)),
        (Method::DELETE, FILES, delete(clear_files)),
        (Method::PUT, FILE, put(set_file)),
        (Method::DELETE, FILE, delete(clear_file)),
        (Method::PUT, FILE_IN_PARTS, put(in_parts)),
        (Method::DELETE, FILE_IN_PARTS, delete(in_parts)),
        (Method::GET, RESOURCES, get(resources)),
        (Method::DELETE, RESOURCES, delete(clear_resources)),
        (Method::PUT, RESOURCE, put(set_resource)),
        (Method::DELETE, RESOURCE, delete(clear_resource)),
        (Method::PUT, RESOURCE_IN_PARTS, put(in_parts)),
        (Method::DELETE, RESOURCE_IN_PARTS, delete(in_parts)),
    ]
}

/// Patch set or plan with flags.
#[derive(Serialize)]
struct FlagCountJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_set: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanId>,
    flags: u64,
}

impl From<FlagCount> for FlagCountJson {
    fn from(count: FlagCount) -> Self {
        let (patch_set, plan) = match count.of {
            Reviewed::Files(of) => (Some(of), None),
            Reviewed::Resources(plan) => (None, Some(plan)),
        };
        Self {
            change: patch_set.map(|of| of.change.get()),
            patch_set: patch_set.map(|of| of.number),
            plan,
            flags: count.flags,
        }
    }
}

/// Request about flags. They have a limit of their own, because people set many.
struct FlagRequest(AccountRequest);

impl FromRequest<Arc<AccountSignIn>> for FlagRequest {
    type Rejection = Response;

    async fn from_request(
        request: Request,
        sign_in: &Arc<AccountSignIn>,
    ) -> Result<Self, Response> {
        let request = AccountRequest::read(request, sign_in, AccountSignIn::count_flag);
        request.await.map(Self)
    }
}

impl FlagRequest {
    /// Returns the account that asks. Flags are private, so nobody names another one.
    fn own(&self) -> Result<AccountId, WebError> {
        let own = self.0.caller.own().map(|own| own.number);
        own.ok_or_else(|| {
            let why =
                "You have signed in as the administrator, who has no account and so no flags.";
            WebError::new(StatusCode::NOT_FOUND, "No account", why)
        })
    }

    async fn files_of(&self, change: &str, revision: &str) -> Result<Reviewed, WebError> {
        let number = number(change)?;
        let store = self.0.users().store();
        let name = PatchSetName::parse(revision);
        let patch_set = match &name {
            Some(name) => store.patch_set_find(number, name).await?,
            None => None,
        };
        if let Some(patch_set) = patch_set {
            return Ok(Reviewed::Files(patch_set));
        }
        if store.change_get(number).await?.is_none() {
            return Err(no_change(change));
        }
        let why = if name == Some(PatchSetName::Current) {
            format!(
                "No head of the change {number} is known. It is an application, or was closed before heads were numbered."
            )
        } else {
            format!(
                "The change {number} has no revision `{}`. Name it by `current`, by the number of the patch set, or by \
                 all digits of the commit.",
                shown(revision)
            )
        };
        Err(WebError::new(
            StatusCode::NOT_FOUND,
            "No such revision",
            why,
        ))
    }

    fn resources_of(plan: &str) -> Result<(PlanId, Reviewed), WebError> {
        let id = plan.parse::<PlanId>().map_err(|_| no_plan(plan))?;
        Ok((id, Reviewed::Resources(id)))
    }

    async fn list(&self, query: Option<&str>, of: Reviewed) -> Result<Response, WebError> {
        check_query(query)?;
        let items = self.0.sign_in.flags.flag_list(self.own()?, of).await?;
        Ok(Json(items).into_response())
    }

    async fn set(&self, of: Reviewed, item: &str) -> Result<Response, WebError> {
        match self
            .0
            .sign_in
            .flags
            .flag_set(self.own()?, of, checked(item)?)
            .await?
        {
            FlagSet::New => Ok(StatusCode::CREATED.into_response()),
            FlagSet::Same => Ok(StatusCode::OK.into_response()),
            FlagSet::Full => Err(unusable(
                "you have too many flags, here or in all; `GET /api/reviewed/` names the patch sets and plans with flags, \
                 and DELETE of a list removes all flags in it",
            )),
        }
    }

    async fn clear_all(&self, query: Option<&str>, of: Reviewed) -> Result<Response, WebError> {
        check_query(query)?;
        self.0.sign_in.flags.flag_remove(self.own()?, of).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    async fn clear(&self, of: Reviewed, item: &str) -> Result<Response, WebError> {
        let cleared = self
            .0
            .sign_in
            .flags
            .flag_clear(self.own()?, of, checked(item)?);
        cleared.await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

/// Refuses a request for anything but what was reviewed.
fn check_query(query: Option<&str>) -> Result<(), WebError> {
    let is_reviewed = |part: &str| part == "reviewed" || part == "reviewed=";
    if query.is_some_and(|query| query.split('&').any(is_reviewed)) {
        return Ok(());
    }
    let why = "Lockkeeper knows only what you have reviewed here; add `?reviewed`.";
    Err(WebError::new(StatusCode::BAD_REQUEST, "Invalid input", why))
}

/// Refuses what can be neither a path nor an address.
fn checked(item: &str) -> Result<&str, WebError> {
    if item.len() > MAX_ITEM {
        return Err(unusable(format!("the name has more than {MAX_ITEM} bytes")));
    }
    if item.is_empty() || item.chars().any(char::is_control) {
        return Err(unusable(
            "the name is empty or has control characters in it",
        ));
    }
    Ok(item)
}

async fn counts(flags: FlagRequest) -> Result<Response, WebError> {
    let counts = flags.0.sign_in.flags.flag_counts(flags.own()?).await?;
    let counts = counts.into_iter().map(FlagCountJson::from);
    Ok(Json(counts.collect::<Vec<_>>()).into_response())
}

async fn files(
    Segment((change, revision)): Segment<(String, String)>,
    RawQuery(query): RawQuery,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let of = flags.files_of(&change, &revision).await?;
    flags.list(query.as_deref(), of).await
}

async fn clear_files(
    Segment((change, revision)): Segment<(String, String)>,
    RawQuery(query): RawQuery,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let of = flags.files_of(&change, &revision).await?;
    flags.clear_all(query.as_deref(), of).await
}

async fn set_file(
    Segment((change, revision, path)): Segment<(String, String, String)>,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let of = flags.files_of(&change, &revision).await?;
    flags.set(of, &path).await
}

async fn clear_file(
    Segment((change, revision, path)): Segment<(String, String, String)>,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let of = flags.files_of(&change, &revision).await?;
    flags.clear(of, &path).await
}

async fn resources(
    Segment(plan): Segment,
    RawQuery(query): RawQuery,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let (_, of) = FlagRequest::resources_of(&plan)?;
    flags.list(query.as_deref(), of).await
}

async fn clear_resources(
    Segment(plan): Segment,
    RawQuery(query): RawQuery,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let (_, of) = FlagRequest::resources_of(&plan)?;
    flags.clear_all(query.as_deref(), of).await
}

async fn set_resource(
    Segment((plan, address)): Segment<(String, String)>,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let (id, of) = FlagRequest::resources_of(&plan)?;
    if !flags.0.users().store().plan_is_stored(id).await? {
        return Err(no_plan(&plan));
    }
    flags.set(of, &address).await
}

async fn clear_resource(
    Segment((plan, address)): Segment<(String, String)>,
    flags: FlagRequest,
) -> Result<Response, WebError> {
    let (_, of) = FlagRequest::resources_of(&plan)?;
    flags.clear(of, &address).await
}

/// Refuses a path or an address whose slashes part the path of the request.
async fn in_parts(_: FlagRequest) -> WebError {
    let why = "A path or an address is one part of the path of the request. Write each `/` in it as `%2F`, as in \
               `files/net%2Fmain.tf/reviewed`.";
    WebError::new(StatusCode::NOT_FOUND, "No such path", why)
}

fn no_plan(plan: &str) -> WebError {
    let why = format!("There is no plan `{}`.", shown(plan));
    WebError::new(StatusCode::NOT_FOUND, "No such plan", why)
}
