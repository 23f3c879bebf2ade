//! `/api/registry/peers` and `/api/registry/invitations`: other deployments, for accounts of the whole server.
//!
//! | Request | Command of `lockkeeper registry peers` |
//! |--|--|
//! | `GET /api/registry/peers` | `list` |
//! | `GET /api/registry/peers/{name}` | `show` |
//! | `POST /api/registry/invitations` | `invite` |
//! | `GET /api/registry/invitations` | `invitations` |
//! | `DELETE /api/registry/invitations/{id}` | `withdraw` |
//! | `POST /api/registry/peers` | `join` |
//! | `POST /api/registry/peers/{name}` | `change` |
//! | `POST /api/registry/peers/{name}/approve`, `…/suspend`, `…/resume` | the same |
//! | `DELETE /api/registry/peers/{name}` | `remove` |
//!
//! Bodies have the flags of the commands as fields. The rules and the reasons are those of the commands, too.

use std::panic::resume_unwind;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_registry::names::{InvalidNamePattern, NamePattern};
use lockkeeper_registry::records::DeploymentName;
use serde::Deserialize;
use tracing::{error, warn};

use super::super::namespaces::Visibility;
use super::super::peers::{
    INVITATION_TIME, InvitationId, InvitationView, InvitationsView, JoinFault, JoinRequest,
    NamePatterns, NewInvitation, OpenInvitationView, PeerChange, PeerTerms, PeerUrl, PeerView,
    PeerWithConflicts, PeersView, TOO_MANY_INVITATIONS, UnchangedPeer, change_peer, conflicts_with,
    invitation_time,
};
use super::{PageScope, RegistryPages};
use crate::authz::Resource;
use crate::config::access::Action;
use crate::config::size::ByteSize;
use crate::features::owners;
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::{JsonBody, Segment};
use crate::kit::web::forms::sentence;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState, WebUser, shown};
use crate::model::Cause;
use crate::secret::Secret;

/// Maximum number of conflicts in an answer.
const CONFLICTS: i64 = 1_000;

/// `GET /api/registry/peers`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
) -> Result<Json<PeersView>, WebError> {
    require_peer_access(&web, &pages, &visible).await?;
    let seen = PeersView::read(&pages.0.registry, CONFLICTS, web.clock.now()).await?;
    Ok(Json(seen))
}

/// `GET /api/registry/peers/{name}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<PeerWithConflicts>, WebError> {
    require_peer_access(&web, &pages, &visible).await?;
    let name: Option<DeploymentName> = asked.parse().ok();
    let known = match &name {
        Some(name) => web.store.registry_peer(name).await?,
        None => None,
    };
    let peer = known.ok_or(UnchangedPeer::UnknownPeer(asked))?;
    let conflicts = conflicts_with(&web.store, &peer.name).await?;
    let now = web.clock.now();
    let shown = PeerWithConflicts::read(&web.store, &peer, conflicts, now).await?;
    Ok(Json(shown))
}

async fn require_peer_access(
    web: &WebState,
    pages: &RegistryPages,
    visible: &VisibleScope,
) -> Result<(), WebError> {
    let scope = PageScope::of(web, pages, visible).await?;
    if scope.sees_peers() {
        return Ok(());
    }
    Err(WebError::new(
        StatusCode::FORBIDDEN,
        "Not allowed",
        "Other deployments are shown to accounts of the whole server only. Sign in with one of these.",
    ))
}

/// Body of a request that invites a deployment.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InvitationBody {
    url: Option<PeerUrl>,
    share: Vec<String>,
    accept: Vec<String>,
    visibility: Option<Visibility>,
    expires: Option<String>,
}

/// Deployment to join. Has no `Debug`, because the word is a secret.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JoinFields {
    url: Option<PeerUrl>,
    word: String,
    share: Vec<String>,
    accept: Vec<String>,
    visibility: Option<Visibility>,
}

/// Change of what is exchanged with a peer. What is missing stays as it is.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TermsBody {
    share: Option<Vec<String>>,
    accept: Option<Vec<String>>,
    visibility: Option<Visibility>,
    max_versions: Option<u64>,
    max_bytes: Option<String>,
}

/// Names for which the records of a proposed deployment count.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApprovalBody {
    accept: Vec<String>,
}

/// Body of a request without fields.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyBody {}

impl InvitationBody {
    fn read(self, web: &WebState, pages: &RegistryPages) -> Result<NewInvitation, WebError> {
        let expires = self.expires.as_deref().unwrap_or(INVITATION_TIME);
        let expires = invitation_time(expires).map_err(|problem| {
            WebError::unusable_field("expires", &problem, "Write a time such as 12h or 7d.")
        })?;
        let url = address(self.url, pages)?;
        let is_own = url.is_address_of(pages.0.registry.name().as_str())
            || url.to_string() == web.public_url.as_str().trim_end_matches('/');
        if is_own {
            let problem = "it is the address of this deployment itself";
            return Err(WebError::unusable_field("url", problem, OTHER_ADDRESS));
        }
        Ok(NewInvitation {
            url,
            shares: patterns("share", &self.share)?,
            accepts: patterns("accept", &self.accept)?,
            visibility: self.visibility.unwrap_or(Visibility::Public),
            expires,
        })
    }
}

impl JoinFields {
    fn read(self, pages: &RegistryPages) -> Result<JoinRequest, WebError> {
        Ok(JoinRequest {
            url: address(self.url, pages)?,
            word: Secret::new(self.word.trim()),
            shares: patterns("share", &self.share)?,
            accepts: patterns("accept", &self.accept)?,
            visibility: self.visibility.unwrap_or(Visibility::Public),
        })
    }
}

impl TermsBody {
    fn read(self) -> Result<PeerTerms, WebError> {
        let Self {
            share,
            accept,
            visibility,
            max_versions,
            max_bytes,
        } = self;
        let is_empty = share.is_none()
            && accept.is_none()
            && visibility.is_none()
            && max_versions.is_none()
            && max_bytes.is_none();
        if is_empty {
            return Err(WebError::nothing_changed(
                (StatusCode::UNPROCESSABLE_ENTITY, "Invalid input"),
                None,
                "unusable",
                "The body has no change.",
                "Give `share`, `accept`, `visibility`, `max_versions` or `max_bytes`.",
            ));
        }
        if max_versions.is_some_and(|most| most > PeerTerms::MAX_VERSIONS) {
            let problem = format!("it is larger than {}", PeerTerms::MAX_VERSIONS);
            let way_out = "Give a smaller number.";
            return Err(WebError::unusable_field("max_versions", &problem, way_out));
        }
        let max_bytes: Option<Result<ByteSize, String>> = max_bytes.map(|size| size.parse());
        let max_bytes = max_bytes.transpose().map_err(|problem| {
            WebError::unusable_field("max_bytes", &problem, "Write a size such as 200GiB.")
        })?;
        let given = |field, given: Option<Vec<String>>| {
            given.map(|given| patterns(field, &given)).transpose()
        };
        Ok(PeerTerms {
            shares: given("share", share)?,
            accepts: given("accept", accept)?,
            visibility,
            max_versions,
            max_bytes: max_bytes.map(ByteSize::bytes),
        })
    }
}

/// Way out of a wrong address.
const OTHER_ADDRESS: &str =
    "Give the address of the other deployment, such as https://mods.example.com.";

/// Returns the address of another deployment. An unencrypted one is on this machine, whose services are not for scripts.
fn address(url: Option<PeerUrl>, pages: &RegistryPages) -> Result<PeerUrl, WebError> {
    let problem = match url {
        Some(url) if url.is_encrypted() || pages.0.has_local_peers => return Ok(url),
        Some(_) => {
            "it does not begin with https, and only the command line names deployments on the same machine"
        }
        None => "it is missing",
    };
    Err(WebError::unusable_field("url", problem, OTHER_ADDRESS))
}

fn patterns(field: &str, given: &[String]) -> Result<NamePatterns, WebError> {
    let wrong = |problem: String| {
        let way_out = "Give a list of names, such as [\"module acme/*\"].";
        WebError::unusable_field(field, &problem, way_out)
    };
    let patterns: Result<Vec<NamePattern>, InvalidNamePattern> =
        given.iter().map(|text| text.parse()).collect();
    let patterns = patterns.map_err(|error| wrong(error.to_string()))?;
    NamePatterns::new(patterns).map_err(|error| wrong(error.to_string()))
}

/// Returns the cause of a change, if the sender of a request may change what is exchanged with others.
async fn permit(web: &WebState, who: &WebUser) -> Result<Cause, WebError> {
    let who = who.by_script();
    web.permit(&who, Action::Peers, &Resource::Server).await?;
    Ok(owners::cause(&who))
}

/// `POST /api/registry/invitations`: the word is answered once, and as every answer without a lifetime, no cache keeps it.
pub(super) async fn invite(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    pages: RegistryPages,
    JsonBody(body): JsonBody<InvitationBody>,
) -> Result<(StatusCode, Json<InvitationView>), WebError> {
    let cause = permit(&web, &who).await?;
    let invited = pages
        .0
        .peers
        .invite(body.read(&web, &pages)?, &cause)
        .await?;
    let word = invited.ok_or_else(|| {
        WebError::conflict("Too many invitations", &sentence(TOO_MANY_INVITATIONS))
    })?;
    let view = InvitationView::new(&word, pages.0.registry.verifier());
    Ok((StatusCode::CREATED, Json(view)))
}

/// `GET /api/registry/invitations`: those that nobody has used. Nobody can read their words.
pub(super) async fn invitations(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
) -> Result<Json<InvitationsView>, WebError> {
    require_peer_access(&web, &pages, &visible).await?;
    Ok(Json(InvitationsView::read(&web.store).await?))
}

/// `DELETE /api/registry/invitations/{id}`; answers with the invitation that was withdrawn.
pub(super) async fn withdraw(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<OpenInvitationView>, WebError> {
    let cause = permit(&web, &who).await?;
    let id: Option<InvitationId> = asked.parse().ok();
    let withdrawn = match &id {
        Some(id) => web.store.registry_invitation_withdraw(id, &cause).await?,
        None => None,
    };
    let invitation = withdrawn.ok_or_else(|| {
        let message = format!(
            "There is no open invitation {}. GET /api/registry/invitations lists all of them.",
            shown(&asked)
        );
        WebError::new(StatusCode::NOT_FOUND, "Invitation not found", message).unchanged()
    })?;
    Ok(Json(OpenInvitationView::new(&invitation)))
}

/// `POST /api/registry/peers`
pub(super) async fn join(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    pages: RegistryPages,
    JsonBody(body): JsonBody<JoinFields>,
) -> Result<(StatusCode, Json<PeerView>), WebError> {
    let cause = permit(&web, &who).await?;
    let request = body.read(&pages)?;
    let place = Arc::clone(&pages.0.joining).try_acquire_owned();
    let place = place.map_err(|_| {
        WebError::nothing_changed(
            (StatusCode::SERVICE_UNAVAILABLE, "The server is busy"),
            None,
            "busy",
            "The server joins other deployments for other requests at this moment.",
            "Try again in half a minute.",
        )
    })?;
    let exchange = Arc::clone(&pages.0.peers);
    // A task of its own: when the client leaves or its time is over, the other deployment may have joined already.
    let joined = tokio::spawn(async move {
        let _place = place;
        exchange.join(request, &cause).await
    });
    let joined = joined
        .await
        .unwrap_or_else(|error| resume_unwind(error.into_panic()));
    let joined = joined.map_err(|failure| {
        error!(
            error = format!("{failure:#}"),
            "Cannot join another deployment"
        );
        WebError::internal()
    })?;
    let peer = joined.map_err(not_joined)?;
    let view = PeerView::new(&peer, web.clock.now());
    Ok((StatusCode::CREATED, Json(view)))
}

/// Failure of a join, with the reason of the command line.
fn not_joined(fault: JoinFault) -> WebError {
    match fault {
        JoinFault::Database(error) => error.into(),
        fault @ JoinFault::Word => {
            let way_out = "Send the word of the invitation.";
            WebError::unusable_field("word", &fault.to_string(), way_out)
        }
        // Nothing was sent.
        fault @ JoinFault::TooMany => {
            WebError::conflict("Deployment not joined", &sentence(&fault.to_string()))
        }
        fault @ (JoinFault::Same | JoinFault::OtherKey | JoinFault::OneSided(_)) => {
            WebError::not_read(
                (StatusCode::CONFLICT, "Deployment not joined"),
                "not_joined",
                &shown(&sentence(&fault.to_string())),
                "The administrator of the other deployment can show its peers, and remove this one from them.",
            )
        }
        fault @ (JoinFault::Refused(_) | JoinFault::Key | JoinFault::NoInvitation) => {
            not_answered(&shown(&sentence(&fault.to_string())))
        }
        // A script names the address, so it must not read what anything but a deployment answers there.
        JoinFault::Remote(why) => {
            warn!(why = shown(&why), "Another deployment was not joined");
            not_answered(
                "The address does not answer as a deployment does. The log of this server has the details.",
            )
        }
    }
}

/// Failure of a join because of the other side.
fn not_answered(why: &str) -> WebError {
    WebError::not_read(
        (StatusCode::BAD_GATEWAY, "Deployment not joined"),
        "not_joined",
        why,
        "Check the address, and ask the administrator of the other deployment.",
    )
}

/// `POST /api/registry/peers/{name}`: fields that are not given stay unchanged.
pub(super) async fn change(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
    JsonBody(body): JsonBody<TermsBody>,
) -> Result<Json<PeerView>, WebError> {
    let cause = permit(&web, &who).await?;
    let change = PeerChange::Terms(body.read()?);
    changed(&web, &asked, &change, &cause).await
}

/// `POST /api/registry/peers/{name}/approve`
pub(super) async fn approve(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
    JsonBody(body): JsonBody<ApprovalBody>,
) -> Result<Json<PeerView>, WebError> {
    let cause = permit(&web, &who).await?;
    if body.accept.is_empty() {
        let way_out = "Give the names for which its records count, such as [\"module acme/*\"].";
        return Err(WebError::unusable_field("accept", "it is missing", way_out));
    }
    let change = PeerChange::Approve(patterns("accept", &body.accept)?);
    changed(&web, &asked, &change, &cause).await
}

/// `POST /api/registry/peers/{name}/suspend`
pub(super) async fn suspend(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Json<PeerView>, WebError> {
    let cause = permit(&web, &who).await?;
    changed(&web, &asked, &PeerChange::Suspend, &cause).await
}

/// `POST /api/registry/peers/{name}/resume`
pub(super) async fn resume(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Json<PeerView>, WebError> {
    let cause = permit(&web, &who).await?;
    changed(&web, &asked, &PeerChange::Resume, &cause).await
}

/// `DELETE /api/registry/peers/{name}`; answers with the removed peer, which stays in the list.
pub(super) async fn remove(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    _: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<PeerView>, WebError> {
    let cause = permit(&web, &who).await?;
    changed(&web, &asked, &PeerChange::Remove, &cause).await
}

/// Changes a peer, and returns it as it is then.
async fn changed(
    web: &WebState,
    asked: &str,
    change: &PeerChange,
    cause: &Cause,
) -> Result<Json<PeerView>, WebError> {
    let name: Option<DeploymentName> = asked.parse().ok();
    let name = name.ok_or_else(|| UnchangedPeer::UnknownPeer(asked.to_owned()))?;
    let peer = change_peer(&web.store, &name, change, cause).await??;
    Ok(Json(PeerView::new(&peer, web.clock.now())))
}

impl From<UnchangedPeer> for WebError {
    fn from(refusal: UnchangedPeer) -> Self {
        let why = refusal.to_string();
        match refusal {
            UnchangedPeer::UnknownPeer(_) | UnchangedPeer::UnknownProposal(_) => {
                let way_out = "GET /api/registry/peers lists all of them.";
                let message = format!("{} {way_out}", shown(&sentence(&why)));
                Self::new(StatusCode::NOT_FOUND, "Peer not found", message).unchanged()
            }
            UnchangedPeer::OtherState(..) => Self::conflict("No effect", &format!("{why}.")),
        }
    }
}
