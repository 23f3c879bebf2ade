//! `/owners`, `/owners/{name}` and `/claims`: owners and their repositories. Secrets are not even read here.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::forms::{NewApp, NewOwner, notice};
use super::view::{ClaimView, OwnerView};
use crate::authz::Resource;
use crate::features::applications::ApplicationView;
use crate::features::credentials::CredentialView;
use crate::kit::web::cursor::is_full;
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::forms::FormProblems;
use crate::kit::web::reach::{VisibleScope, each, first_of};
use crate::kit::web::text::{query, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{OwnerName, RepoUrl};
use crate::store::{Application, Claim, CredentialRow, OwnerOverview};

/// Maximum number of claims, applications or credentials on a page. The list of claims has further pages.
const MOST: i64 = 500;

/// State of a form after it was sent: its problems and the values of its fields.
#[derive(Default, Serialize)]
pub(super) struct SentForm<T> {
    pub notice: Option<&'static str>,
    /// Reason why a button had no effect, and the way out.
    pub refused: Option<String>,
    pub typed: T,
    pub wrong: FormProblems,
}

#[derive(Serialize)]
struct OwnerList {
    #[serde(flatten)]
    said: SentForm<NewOwner>,
    longest: usize,
    owners: Vec<OwnerLine>,
    is_cut: bool,
}

/// An owner in the table, with numbers of its things.
#[derive(Serialize)]
struct OwnerLine {
    #[serde(flatten)]
    owner: OwnerView,
    claims: i64,
    applications: i64,
    credentials: i64,
}

impl From<&OwnerOverview> for OwnerLine {
    fn from(overview: &OwnerOverview) -> Self {
        Self {
            owner: (&overview.owner).into(),
            claims: overview.claims,
            applications: overview.applications,
            credentials: overview.credentials,
        }
    }
}

/// `GET /owners`
pub(super) async fn list(
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(OwnersQuery { notice: code }): LenientQuery<OwnersQuery>,
) -> Result<Response, WebError> {
    list_page(
        &visitor,
        &visible,
        SentForm {
            notice: notice(&code),
            ..SentForm::default()
        },
    )
    .await
}

/// Renders the page of all owners that the user may see.
pub(super) async fn list_page(
    visitor: &Visitor,
    visible: &VisibleScope,
    said: SentForm<NewOwner>,
) -> Result<Response, WebError> {
    let owners = visible.owners_seen().await?;
    let is_cut = is_full(owners.len(), VisibleScope::MOST_OWNERS);
    visitor.page(
        "owners.html",
        &OwnerList {
            said,
            longest: OwnerName::MAX_BYTES,
            owners: owners.iter().map(OwnerLine::from).collect(),
            is_cut,
        },
    )
}

/// `?notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnersQuery {
    notice: String,
}

#[derive(Serialize)]
struct OwnerPage {
    #[serde(flatten)]
    said: SentForm<NewApp>,
    #[serde(flatten)]
    owner: OwnerView,
    claims: Vec<ClaimLine>,
    applications: Vec<ApplicationLine>,
    credentials: Vec<CredentialLine>,
    is_cut: bool,
    /// True if the user has the account of the whole server.
    is_whole: bool,
}

/// An application in the table.
#[derive(Serialize)]
struct ApplicationLine {
    #[serde(flatten)]
    application: ApplicationView,
    repo: String,
}

impl From<&Application> for ApplicationLine {
    fn from(application: &Application) -> Self {
        Self {
            application: application.into(),
            repo: short(&application.spec.url),
        }
    }
}

/// A credential in the table.
#[derive(Serialize)]
struct CredentialLine {
    #[serde(flatten)]
    credential: CredentialView,
    repo: String,
    /// Kind in words, such as `a token`.
    words: &'static str,
    /// Public parts in one line.
    parts: String,
}

impl From<&CredentialRow> for CredentialLine {
    fn from(row: &CredentialRow) -> Self {
        Self {
            credential: row.into(),
            repo: short(&row.url),
            words: row.kind.words(),
            parts: row.public.0.to_string(),
        }
    }
}

/// `GET /owners/{name}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
    LenientQuery(OwnersQuery { notice: code }): LenientQuery<OwnersQuery>,
) -> Result<Response, WebError> {
    owner_page(
        &web,
        (&visitor, &visible),
        &asked,
        SentForm {
            notice: notice(&code),
            ..SentForm::default()
        },
    )
    .await
}

/// Renders the page of an owner.
pub(super) async fn owner_page(
    web: &WebState,
    (visitor, visible): (&Visitor, &VisibleScope),
    asked: &str,
    said: SentForm<NewApp>,
) -> Result<Response, WebError> {
    let name = OwnerName::new(asked).map_err(|_| WebError::no_such_owner(asked))?;
    visible.require_access(&Resource::Owner(&name)).await?;
    let owner = web
        .store
        .owner_get(&name)
        .await?
        .ok_or_else(|| WebError::no_such_owner(asked))?;
    let claims = web.store.claim_list(Some(owner.id), None, MOST).await?;
    let applications = web
        .store
        .application_list(Some(owner.id), None, MOST)
        .await?;
    let mut credentials = web
        .store
        .credential_list(Some(owner.id), None, None, MOST)
        .await?;
    credentials.sort_by(|one, other| (&one.url, one.id).cmp(&(&other.url, other.id)));
    let is_cut = [claims.len(), applications.len(), credentials.len()]
        .into_iter()
        .any(|len| is_full(len, MOST));
    let page = OwnerPage {
        said,
        owner: (&owner).into(),
        claims: claims.iter().map(ClaimLine::from).collect(),
        applications: applications.iter().map(ApplicationLine::from).collect(),
        credentials: credentials.iter().map(CredentialLine::from).collect(),
        is_cut,
        is_whole: visible.owners().is_none(),
    };
    visitor.page("owner.html", &page)
}

/// A claim in the table.
#[derive(Serialize)]
struct ClaimLine {
    #[serde(flatten)]
    claim: ClaimView,
    repo: String,
}

impl From<&Claim> for ClaimLine {
    fn from(claim: &Claim) -> Self {
        Self {
            claim: claim.into(),
            repo: short(&claim.url),
        }
    }
}

/// `?owner=…&after=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimsQuery {
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
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<ClaimsQuery>,
) -> Result<Response, WebError> {
    let asked = which.owner.trim();
    // An invalid place means the first page.
    let (after, mut claims) = (RepoUrl::normalised(&which.after).ok(), Vec::new());
    for owner in each(visible.narrowed(Some(asked)).await?) {
        claims.extend(web.store.claim_list(owner, after.as_ref(), MOST).await?);
    }
    let claims = first_of(claims, MOST, |claim| claim.url.clone());
    let last = claims.last().filter(|_| is_full(claims.len(), MOST));
    let page = ClaimsPage {
        next: last.map(|last| query(&[("owner", asked), ("after", last.url.as_str())])),
        claims: claims.iter().map(ClaimLine::from).collect(),
        owners: visible.owners_to_choose().await?,
        owner: shown(&asked.to_lowercase()),
    };
    visitor.page("claims.html", &page)
}

/// Returns an address without the beginning that all addresses share.
fn short(url: &RepoUrl) -> String {
    shown(
        url.as_str()
            .strip_prefix("https://")
            .unwrap_or(url.as_str()),
    )
}
