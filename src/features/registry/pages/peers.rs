//! `/registry/peers`: other deployments, and what went wrong with them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use lockkeeper_registry::records::{Record, RecordChange};
use serde::Serialize;

use super::super::peers::{NamePatterns, Peer, PeerConflict, PeerState, fingerprint};
use super::super::view::checksums_of;
use super::{PageReaders, PageScope, RegistryPages, name_path};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, shown, size};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};

/// Most conflicts that are shown.
const SHOWN: i64 = 100;

#[derive(Serialize)]
struct PeersPage {
    name: String,
    fingerprint: String,
    /// True if the person does not see peers.
    is_closed: bool,
    peers: Vec<PeerFacts>,
    conflicts: Vec<ConflictFacts>,
    downloads: i64,
}

#[derive(Serialize)]
struct PeerFacts {
    name: String,
    url: String,
    fingerprint: String,
    badge: Badge,
    since: PastTime,
    shares: Vec<String>,
    accepts: Vec<String>,
    merged: u64,
    size: u64,
    lag: u64,
    complete: Option<PastTime>,
    error: Option<String>,
    error_since: Option<PastTime>,
    skipped: u64,
    skipped_last: Option<String>,
    /// Versions and bytes that its records have added, and their limits.
    added: String,
    wrong_packages: u64,
    /// Reason why it was not told of new records.
    push_error: Option<String>,
    given_up: u64,
    advice: Option<&'static str>,
}

#[derive(Serialize)]
struct ConflictFacts {
    name: String,
    version: String,
    path: String,
    peer: String,
    maker: String,
    ours: String,
    theirs: String,
    since: PastTime,
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

fn list(patterns: &NamePatterns) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

impl PeerFacts {
    fn new(peer: &Peer, now: DateTime<Utc>) -> Self {
        Self {
            name: peer.name.to_string(),
            url: peer.url.to_string(),
            fingerprint: fingerprint(&peer.verifier),
            badge: badge(peer.state),
            since: PastTime::new(peer.state_since, now),
            shares: list(&peer.shares),
            accepts: list(&peer.accepts),
            merged: peer.walk.last_id(),
            size: peer.seen_size,
            lag: peer.lag_records(),
            complete: peer.complete_at.map(|at| PastTime::new(at, now)),
            error: peer.error.as_ref().map(|(why, _)| shown(why)),
            error_since: peer
                .error
                .as_ref()
                .map(|(_, since)| PastTime::new(*since, now)),
            skipped: peer.skipped,
            skipped_last: peer.skipped_last.as_deref().map(shown),
            added: format!(
                "{} of {} versions, {} of {}",
                peer.versions,
                peer.limits.versions,
                size(peer.bytes),
                size(peer.limits.bytes)
            ),
            wrong_packages: peer.wrong_packages,
            push_error: peer.pushes.error.as_deref().map(shown),
            given_up: peer.pushes.given_up,
            advice: advice(peer.state),
        }
    }
}

/// `GET /registry/peers`
pub(super) async fn list_peers(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    sight: VisibleScope,
    pages: RegistryPages,
) -> Result<Response, WebError> {
    let now = web.clock.now();
    let scope = PageScope::of(&web, &pages, &sight).await?;
    let registry = &pages.0.registry;
    let mut view = PeersPage {
        name: registry.name().to_string(),
        fingerprint: fingerprint(registry.verifier()),
        is_closed: true,
        peers: Vec::new(),
        conflicts: Vec::new(),
        downloads: 0,
    };
    // Names and addresses of others are for accounts of the whole server.
    if matches!(scope.readers, PageReaders::Everything) {
        view.is_closed = false;
        let peers = web.store.registry_peers().await?;
        view.peers = peers.iter().map(|peer| PeerFacts::new(peer, now)).collect();
        view.downloads = web.store.registry_download_count().await?;
        for conflict in web.store.registry_conflicts(SHOWN).await? {
            view.conflicts
                .push(conflict_facts(&pages, conflict, now).await?);
        }
    }
    visitor.page("registry_peers.html", &view)
}

async fn conflict_facts(
    pages: &RegistryPages,
    conflict: PeerConflict,
    now: DateTime<Utc>,
) -> Result<ConflictFacts, WebError> {
    let (key, name) = (&conflict.key, conflict.key.name());
    let here = pages.0.registry.version(key).await?;
    let here = here.as_ref().and_then(|version| version.known.content());
    let record = Record::parse(conflict.record.as_bytes()).ok();
    let theirs = record.as_ref().and_then(|record| match record.change() {
        RecordChange::Add(content) => Some(checksums_of(content)),
        RecordChange::Deprecate(_) | RecordChange::Delete(..) => None,
    });
    Ok(ConflictFacts {
        path: name_path(&name, Some(&key.version())),
        name: name.as_str().to_owned(),
        version: key.version(),
        peer: conflict.peer.to_string(),
        maker: record
            .map(|record| record.maker().deployment.to_string())
            .unwrap_or_default(),
        ours: here
            .map(|located| checksums_of(&located.content))
            .unwrap_or_default(),
        theirs: theirs.unwrap_or_default(),
        since: PastTime::new(conflict.since, now),
    })
}
