//! `/registry/peers`: other deployments, and what went wrong with them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::super::peers::{
    ConflictView, OpenInvitationView, PeerState, PeerView, PeersView, fingerprint,
};
use super::{PageScope, RegistryPages};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, size};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};

/// Maximum number of conflicts on the page.
const SHOWN: i64 = 100;

#[derive(Serialize)]
struct PeersPage {
    name: String,
    fingerprint: String,
    downloads: i64,
    peers: Vec<PeerEntry>,
    invitations: Vec<OpenInvitationView>,
    conflicts: Vec<ConflictView>,
    /// True if the person does not see peers.
    is_closed: bool,
}

/// A peer for the template of the page.
#[derive(Serialize)]
struct PeerEntry {
    #[serde(flatten)]
    peer: PeerView,
    badge: Badge,
    is_failing: bool,
    /// Versions and bytes that its records have added, and their limits.
    added: String,
    advice: Option<&'static str>,
}

impl From<PeerView> for PeerEntry {
    fn from(peer: PeerView) -> Self {
        Self {
            badge: badge(peer.state),
            is_failing: peer.is_failing,
            added: format!(
                "{} of {} versions, {} of {}",
                peer.versions,
                peer.max_versions,
                size(peer.bytes),
                size(peer.max_bytes)
            ),
            advice: advice(peer.state),
            peer,
        }
    }
}

fn badge(state: PeerState) -> Badge {
    match state {
        PeerState::Proposed => Badge::new("idle", "proposed"),
        PeerState::Approved => Badge::new("good", "approved"),
        PeerState::Joined => Badge::new("good", "joined"),
        PeerState::Suspended => Badge::new("idle", "suspended"),
        PeerState::Braked => Badge::new("bad", "braked"),
        PeerState::Diverged => Badge::new("bad", "diverged"),
        PeerState::Removed => Badge::new("idle", "removed"),
    }
}

/// Returns what an administrator can do about the state of a peer.
fn advice(state: PeerState) -> Option<&'static str> {
    match state {
        PeerState::Proposed => Some(
            "A member knows this deployment. Nothing is exchanged until somebody runs `lockkeeper registry peers approve` or invites it.",
        ),
        PeerState::Braked => Some(
            "It made more takedowns in an hour than allowed, so none of its records counts. If they are right, run `lockkeeper registry peers resume`.",
        ),
        PeerState::Diverged => Some(
            "Its log is not the one that was seen, so nothing of it is merged. Find out why with its administrator, and then run `lockkeeper registry peers resume` to read all of its log.",
        ),
        PeerState::Approved | PeerState::Joined | PeerState::Suspended | PeerState::Removed => None,
    }
}

/// `GET /registry/peers`
pub(super) async fn list_peers(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    pages: RegistryPages,
) -> Result<Response, WebError> {
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let registry = &pages.0.registry;
    if !scope.sees_peers() {
        let closed = PeersPage {
            name: registry.name().to_string(),
            fingerprint: fingerprint(registry.verifier()),
            downloads: 0,
            peers: Vec::new(),
            invitations: Vec::new(),
            conflicts: Vec::new(),
            is_closed: true,
        };
        return visitor.page("registry_peers.html", &closed);
    }
    let seen = PeersView::read(registry, SHOWN, web.clock.now()).await?;
    let page = PeersPage {
        name: seen.name,
        fingerprint: seen.fingerprint,
        downloads: seen.downloads,
        peers: seen.peers.into_iter().map(PeerEntry::from).collect(),
        invitations: OpenInvitationView::read(&web.store).await?,
        conflicts: seen.conflicts,
        is_closed: false,
    };
    visitor.page("registry_peers.html", &page)
}
