//! `/owners`, `/owners/{name}` and `/claims`: who drives which repository, and with what. Secrets are not even read here.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::text::{Stamp, shown};
use super::visitor::Visitor;
use crate::http::extract::{Asked, Segment};
use crate::http::{Failure, Web};
use crate::model::{OwnerName, RepoUrl};
use crate::store::{Application, Claim, CredentialRow, OwnerOverview};

/// Most owners on a page.
const MOST_OWNERS: i64 = 2_000;
/// Most claims, applications or credentials on a page; the list of claims goes on on another.
const MOST: i64 = 500;

#[derive(Serialize)]
struct Owners {
    owners: Vec<OwnerLine>,
    is_cut: bool,
}

#[derive(Serialize)]
struct OwnerLine {
    name: String,
    by: String,
    since: Stamp,
    claims: i64,
    applications: i64,
    credentials: i64,
}

impl OwnerLine {
    fn new(owner: &OwnerOverview, now: DateTime<Utc>) -> Self {
        Self {
            name: owner.name.to_string(),
            by: shown(&owner.created_by),
            since: Stamp::new(owner.created_at, now),
            claims: owner.claims,
            applications: owner.applications,
            credentials: owner.credentials,
        }
    }
}

/// `GET /owners`
pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor) -> Result<Response, Failure> {
    let now = web.clock.now();
    let owners = web.store.owner_overview(MOST_OWNERS).await?;
    let owners: Vec<_> = owners.iter().map(|owner| OwnerLine::new(owner, now)).collect();
    let is_cut = is_full(owners.len(), MOST_OWNERS);
    visitor.page("owners.html", &Owners { owners, is_cut })
}

#[derive(Serialize)]
struct OwnerPage {
    name: String,
    by: String,
    since: Stamp,
    claims: Vec<ClaimLine>,
    applications: Vec<ApplicationLine>,
    credentials: Vec<CredentialLine>,
    is_cut: bool,
}

#[derive(Serialize)]
struct ApplicationLine {
    repo: String,
    branch: String,
    dir: String,
    workspace: String,
    name: Option<String>,
    by: String,
    since: Stamp,
}

impl ApplicationLine {
    fn new(application: &Application, now: DateTime<Utc>) -> Self {
        let spec = &application.spec;
        Self {
            repo: short(&spec.url),
            branch: shown(&spec.branch.to_string()),
            dir: shown(&spec.dir.to_string()),
            workspace: shown(&spec.workspace.to_string()),
            name: spec.name.as_ref().map(|name| shown(&name.to_string())),
            by: shown(&application.created_by),
            since: Stamp::new(application.created_at, now),
        }
    }
}

#[derive(Serialize)]
struct CredentialLine {
    id: String,
    repo: String,
    kind: &'static str,
    public: String,
    by: String,
    since: Stamp,
    used: Option<Stamp>,
    key: String,
}

impl CredentialLine {
    fn new(row: &CredentialRow, now: DateTime<Utc>) -> Self {
        Self {
            id: row.id.to_string(),
            repo: short(&row.url),
            kind: row.kind.words(),
            public: shown(&row.public.0.to_string()),
            by: shown(&row.created_by),
            since: Stamp::new(row.created_at, now),
            used: row.used_at.map(|at| Stamp::new(at, now)),
            key: row.key_id.to_string(),
        }
    }
}

/// `GET /owners/{name}`
pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Segment(asked): Segment,
) -> Result<Response, Failure> {
    let name = OwnerName::new(&asked).map_err(|_| Failure::no_such_owner(&asked))?;
    let owner = web.store.owner_get(&name).await?.ok_or_else(|| Failure::no_such_owner(&asked))?;
    let now = web.clock.now();
    let claims = web.store.claim_list(Some(owner.id), None, MOST).await?;
    let applications = web.store.application_list(Some(owner.id), None, MOST).await?;
    let credentials = web.store.credential_list(Some(&owner.name), None, MOST).await?;
    let is_cut = [claims.len(), applications.len(), credentials.len()].into_iter().any(|len| is_full(len, MOST));
    let page = OwnerPage {
        name: owner.name.to_string(),
        by: shown(&owner.created_by),
        since: Stamp::new(owner.created_at, now),
        claims: claims.iter().map(|claim| ClaimLine::new(claim, now)).collect(),
        applications: applications.iter().map(|application| ApplicationLine::new(application, now)).collect(),
        credentials: credentials.iter().map(|row| CredentialLine::new(row, now)).collect(),
        is_cut,
    };
    visitor.page("owner.html", &page)
}

#[derive(Serialize)]
struct ClaimLine {
    repo: String,
    owner: String,
    since: Stamp,
    applications: i64,
    credentials: i64,
}

impl ClaimLine {
    fn new(claim: &Claim, now: DateTime<Utc>) -> Self {
        Self {
            repo: short(&claim.url),
            owner: claim.owner.to_string(),
            since: Stamp::new(claim.created_at, now),
            applications: claim.applications,
            credentials: claim.credentials,
        }
    }
}

/// `?owner=…&after=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Which {
    owner: String,
    after: String,
}

#[derive(Serialize)]
struct ClaimsPage {
    claims: Vec<ClaimLine>,
    owners: Vec<String>,
    owner: String,
    next: Option<String>,
}

/// `GET /claims`
pub(super) async fn claims(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Asked(which): Asked<Which>,
) -> Result<Response, Failure> {
    let asked = Some(which.owner.trim()).filter(|name| !name.is_empty());
    let owner = match asked {
        Some(asked) => {
            let name = OwnerName::new(asked).map_err(|_| Failure::no_such_owner(asked))?;
            Some(web.store.owner_get(&name).await?.ok_or_else(|| Failure::no_such_owner(asked))?)
        }
        None => None,
    };
    // A place that is none is the beginning.
    let after = RepoUrl::normalised(&which.after).ok();
    let claims = web.store.claim_list(owner.as_ref().map(|owner| owner.id), after.as_ref(), MOST).await?;
    let now = web.clock.now();
    let page = ClaimsPage {
        next: claims
            .last()
            .filter(|_| is_full(claims.len(), MOST))
            .map(|last| next_page(asked.unwrap_or_default(), last)),
        claims: claims.iter().map(|claim| ClaimLine::new(claim, now)).collect(),
        owners: web.store.owner_overview(MOST_OWNERS).await?.iter().map(|owner| owner.name.to_string()).collect(),
        owner: owner.map(|owner| owner.name.to_string()).unwrap_or_default(),
    };
    visitor.page("claims.html", &page)
}

/// The query of the page that goes on after a claim.
fn next_page(owner: &str, last: &Claim) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("owner", owner).append_pair("after", last.url.as_str()).finish()
}

/// Without what every address begins with.
fn short(url: &RepoUrl) -> String {
    shown(url.as_str().strip_prefix("https://").unwrap_or(url.as_str()))
}

fn is_full(read: usize, most: i64) -> bool {
    usize::try_from(most).is_ok_and(|most| read >= most)
}
