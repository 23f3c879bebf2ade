//! `/api/credentials`: credentials of repositories. Secrets can be sent, but are never returned.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::view::CredentialView;
use crate::authz::Resource;
use crate::claims::{self, ChangeCredential, CredentialError};
use crate::config::access::{Action, NetworkRequester};
use crate::credential::{CredentialKind, GitAccess};
use crate::features::applications::unclaimed;
use crate::features::owners::{cause, owner_name, repo_url};
use crate::kit::web::csrf::Script;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::{JsonBody, LenientQuery, Segment};
use crate::kit::web::reach::{VisibleScope, each, first_of};
use crate::kit::web::{WebError, WebState};
use crate::model::{CredentialId, OwnerName};
use crate::secret::Secret;

/// Page of the list of credentials.
#[derive(Serialize)]
pub(super) struct CredentialsJson {
    credentials: Vec<CredentialView>,
    /// Value of `after` for the next page. `null`: this is the last page.
    next: Option<String>,
}

/// Query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CredentialFilter {
    /// Owner of the listed credentials.
    owner: Option<String>,
    /// Repository of the listed credentials, in any spelling.
    url: Option<String>,
    /// Credential after which the page begins.
    after: Option<CredentialId>,
}

/// `GET /api/credentials?owner=…&url=…&after=…`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<CredentialFilter>,
) -> Result<Json<CredentialsJson>, WebError> {
    let url = which
        .url
        .as_deref()
        .map(|url| repo_url(&web, "url", url))
        .transpose()?;
    let mut rows = Vec::new();
    for owner in each(visible.narrowed(which.owner.as_deref()).await?) {
        rows.extend(
            web.store
                .credential_list(owner, url.as_ref(), which.after, PAGE)
                .await?,
        );
    }
    let rows = first_of(rows, PAGE, |row| row.id);
    let next = next_of(&rows, |row| row.id.to_string());
    Ok(Json(CredentialsJson {
        credentials: rows.iter().map(CredentialView::from).collect(),
        next,
    }))
}

/// `GET /api/credentials/{id}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Json<CredentialView>, WebError> {
    let row = web.store.credential_get(credential_id(&asked)?).await?;
    visible
        .require_access(&Resource::of_owner(row.as_ref().map(|row| &row.owner_name)))
        .await?;
    row.map(|row| Json(CredentialView::from(&row)))
        .ok_or_else(WebError::no_such_credential)
}

/// Requested credential. Has no `Debug`, because it contains secrets.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CredentialBody {
    owner: Option<String>,
    url: Option<String>,
    kind: Option<String>,
    user: Option<String>,
    token: Option<String>,
    app_id: Option<u64>,
    installation_id: Option<u64>,
    private_key: Option<String>,
    known_hosts: Option<String>,
    ssh_port: Option<u16>,
}

impl CredentialBody {
    /// Reads the value. `None`: the request has none of its fields.
    fn access(self) -> Result<Option<GitAccess>, WebError> {
        let Some(kind) = &self.kind else {
            let is_said = self.token.is_some() || self.private_key.is_some();
            return if is_said {
                Err(wrong("kind", "it is missing"))
            } else {
                Ok(None)
            };
        };
        let kind: CredentialKind = kind
            .parse()
            .map_err(|_| wrong("kind", "it must be token, app or ssh"))?;
        let strays = [
            ("token", self.token.is_some(), kind == CredentialKind::Token),
            ("user", self.user.is_some(), kind != CredentialKind::App),
            (
                "private_key",
                self.private_key.is_some(),
                kind != CredentialKind::Token,
            ),
            ("app_id", self.app_id.is_some(), kind == CredentialKind::App),
            (
                "installation_id",
                self.installation_id.is_some(),
                kind == CredentialKind::App,
            ),
            (
                "known_hosts",
                self.known_hosts.is_some(),
                kind == CredentialKind::Ssh,
            ),
            (
                "ssh_port",
                self.ssh_port.is_some(),
                kind == CredentialKind::Ssh,
            ),
        ];
        if let Some((field, ..)) = strays
            .into_iter()
            .find(|(_, is_said, fits)| *is_said && !fits)
        {
            return Err(wrong(
                field,
                &format!("it cannot be used with {}", kind.words()),
            ));
        }
        self.of_kind(kind).map(Some)
    }

    fn of_kind(self, kind: CredentialKind) -> Result<GitAccess, WebError> {
        let key = |key: Option<String>| needed("private_key", key).map(|key| Secret::new(&key));
        Ok(match kind {
            CredentialKind::Token => GitAccess::Token {
                user: self.user,
                token: Secret::new(&needed("token", self.token)?),
            },
            CredentialKind::App => GitAccess::App {
                app_id: needed("app_id", self.app_id)?,
                installation: needed("installation_id", self.installation_id)?,
                key: key(self.private_key)?,
            },
            CredentialKind::Ssh => {
                let known_hosts = needed("known_hosts", self.known_hosts)?;
                GitAccess::ssh(
                    self.user,
                    self.ssh_port,
                    key(self.private_key)?,
                    known_hosts,
                )
            }
        })
    }
}

/// `POST /api/credentials`
pub(super) async fn add(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    JsonBody(body): JsonBody<CredentialBody>,
) -> Result<(StatusCode, Json<CredentialView>), WebError> {
    let who = who.by_script();
    let owner = owner_name("owner", body.owner.as_deref().unwrap_or_default());
    web.permit(
        &who,
        Action::Owners,
        &Resource::of_owner(owner.as_ref().ok()),
    )
    .await?;
    let owner = owner?;
    let url = repo_url(&web, "url", body.url.as_deref().unwrap_or_default())?;
    let access = needed("kind", body.access()?)?;
    let rights = web.rights(&who).await?;
    let kept = match web
        .credentials
        .add(&owner, &url, &access, (rights, &cause(&who)))
        .await
    {
        Err(CredentialError::Unclaimed(url)) => {
            return Err(unclaimed(&web, &who, &owner, &url).await);
        }
        kept => kept.map_err(why)?,
    };
    Ok((StatusCode::CREATED, shown(&web, kept.id).await?))
}

/// `POST /api/credentials/{id}`: fields that are not given stay unchanged.
pub(super) async fn change(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
    JsonBody(body): JsonBody<CredentialBody>,
) -> Result<Json<CredentialView>, WebError> {
    let who = who.by_script();
    permit_credential(&web, &who, &asked).await?;
    if body.owner.is_some() {
        let way_out = "Remove the credential, and let the other owner add one.";
        return Err(WebError::unusable_field(
            "owner",
            "the owner of a credential cannot be changed",
            way_out,
        ));
    }
    let url = body
        .url
        .as_deref()
        .map(|url| repo_url(&web, "url", url))
        .transpose()?;
    let change = ChangeCredential {
        url,
        access: body.access()?,
    };
    let (id, rights) = (credential_id(&asked)?, web.rights(&who).await?);
    let kept = match web
        .credentials
        .change(id, change, (rights, &cause(&who)))
        .await
    {
        Err(CredentialError::Unclaimed(url)) => {
            let row = web
                .store
                .credential_get(id)
                .await?
                .ok_or_else(WebError::no_such_credential)?;
            return Err(unclaimed(&web, &who, &row.owner_name, &url).await);
        }
        kept => kept.map_err(why)?,
    };
    shown(&web, kept.id).await
}

/// `DELETE /api/credentials/{id}`; answers with the removed credential.
pub(super) async fn remove(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<CredentialView>, WebError> {
    let who = who.by_script();
    permit_credential(&web, &who, &asked).await?;
    let removed = web
        .store
        .credential_remove(credential_id(&asked)?, &cause(&who))
        .await?;
    removed
        .map(|row| Json(CredentialView::from(&row)))
        .ok_or_else(WebError::no_such_credential)
}

async fn shown(web: &WebState, id: CredentialId) -> Result<Json<CredentialView>, WebError> {
    let row = web.store.credential_get(id).await?;
    row.map(|row| Json(CredentialView::from(&row)))
        .ok_or_else(WebError::no_such_credential)
}

/// Fails if the user may not change the credential.
async fn permit_credential(
    web: &WebState,
    who: &NetworkRequester,
    asked: &str,
) -> Result<(), WebError> {
    let row = match asked.parse() {
        Ok(id) => web.store.credential_get(id).await?,
        Err(_) => None,
    };
    web.permit(
        who,
        Action::Owners,
        &Resource::of_owner(row.as_ref().map(|row| &row.owner_name)),
    )
    .await
}

fn credential_id(asked: &str) -> Result<CredentialId, WebError> {
    asked.parse().map_err(|_| WebError::no_such_credential())
}

fn needed<T>(field: &str, value: Option<T>) -> Result<T, WebError> {
    value.ok_or_else(|| wrong(field, "it is missing"))
}

fn wrong(field: &str, what: &str) -> WebError {
    WebError::unusable_field(
        field,
        what,
        "See docs/credentials.md for the fields of each kind.",
    )
}

fn why(error: CredentialError) -> WebError {
    match error {
        CredentialError::Store(error) => error.into(),
        CredentialError::NoOwner(name) => WebError::no_such_owner(OwnerName::as_str(&name)),
        CredentialError::NotFound(_) => WebError::no_such_credential(),
        CredentialError::OwnedBy { url, owner } => {
            let why = claims::owned_by(&url, &owner);
            WebError::owned_by(&why, owner.as_str())
        }
        CredentialError::Invalid(error) => WebError::unusable_field(
            "kind",
            &error.to_string(),
            "See docs/credentials.md for the fields of each kind.",
        ),
        error @ (CredentialError::NoKeys
        | CredentialError::TooMany(_)
        | CredentialError::Changed(_)
        | CredentialError::Unreadable { .. }
        | CredentialError::Unclaimed(_)) => {
            WebError::conflict("Credential not stored", &format!("{error}."))
        }
    }
}
