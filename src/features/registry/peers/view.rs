//! Other deployments and conflicts with them, as pages, the API and the command line show them.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::records::{DeploymentName, Record, RecordChange};
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::states::LocatedContent;
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;

use super::super::namespaces::Visibility;
use super::super::service::Registry;
use super::super::view::checksums_of;
use super::model::{
    Invitation, InvitationId, NamePatterns, Peer, PeerConflict, PeerState, fingerprint, secret_hash,
};
use crate::kit::term::time;
use crate::secret::Secret;
use crate::store::{Result, Store};

/// Everything that this deployment knows of others.
#[derive(Serialize)]
pub(in crate::features::registry) struct PeersView {
    /// Name of this deployment.
    pub name: String,
    /// Fingerprint of its key.
    pub fingerprint: String,
    /// Number of packages that are still at other deployments.
    pub downloads: i64,
    pub peers: Vec<PeerView>,
    pub conflicts: Vec<ConflictView>,
}

/// A peer with its state, its lag and its limits.
#[derive(Serialize)]
pub(in crate::features::registry) struct PeerView {
    name: String,
    url: String,
    key: String,
    fingerprint: String,
    pub state: PeerState,
    /// True if `error` is a failure, and not a note about something that comes later. Only for the page.
    #[serde(skip)]
    pub is_failing: bool,
    state_since: String,
    /// Names that it may read.
    shares: Vec<String>,
    /// Names for which its records count.
    accepts: Vec<String>,
    visibility: Visibility,
    /// Patterns that were accepted as private, and that nobody has opened since. Their names stay private, no matter what
    /// `accepts` has.
    closed: Vec<String>,
    /// Last record of its log that was merged.
    last_id: u64,
    /// Number of records of its log.
    size: u64,
    lag_records: u64,
    lag_seconds: u64,
    complete_at: Option<String>,
    error: Option<String>,
    error_since: Option<String>,
    skipped: u64,
    skipped_last: Option<String>,
    limited: u64,
    pub versions: u64,
    pub max_versions: u64,
    pub bytes: u64,
    pub max_bytes: u64,
    fetched_versions: u64,
    fetched_bytes: u64,
    wrong_packages: u64,
    pushed_id: u64,
    push_error: Option<String>,
    pushes_given_up: u64,
}

/// Maximum number of conflicts with one peer that are shown.
const CONFLICTS: i64 = 1_000;

/// A peer with everything that it sent and that does not count here.
#[derive(Serialize)]
pub(in crate::features::registry) struct PeerWithConflicts {
    #[serde(flatten)]
    peer: PeerView,
    conflicts: Vec<ConflictView>,
}

/// An invitation with its one-time word, which is shown once. Has no `Debug`, because the word is a secret.
#[derive(Serialize)]
pub(in crate::features::registry) struct InvitationView {
    /// Identifier of the invitation, by which it can be withdrawn.
    id: String,
    word: String,
    /// Fingerprint of the key of this deployment.
    fingerprint: String,
}

/// Invitations that nobody has used yet.
#[derive(Serialize)]
pub(in crate::features::registry) struct InvitationsView {
    invitations: Vec<OpenInvitationView>,
}

/// An invitation that nobody has used yet, without its word, which is not stored.
#[derive(Serialize)]
pub(in crate::features::registry) struct OpenInvitationView {
    id: String,
    url: String,
    /// Names that the deployment may read once it has joined.
    shares: Vec<String>,
    /// Names for which its records count then.
    accepts: Vec<String>,
    visibility: Visibility,
    created_by: String,
    created_at: Option<String>,
    expires_at: String,
}

/// A version with two contents.
#[derive(Serialize)]
pub(in crate::features::registry) struct ConflictView {
    kind: NameKind,
    name: String,
    version: String,
    /// Deployment that sent the other content.
    peer: String,
    /// Deployment that published it.
    maker: String,
    /// Checksums of the content here, which stays.
    ours: String,
    /// Checksums of the other content.
    theirs: String,
    /// Record of the other content.
    record: String,
    since: String,
}

impl PeersView {
    /// Reads all deployments and at most `most` conflicts.
    pub async fn read(registry: &Registry, most: i64, now: DateTime<Utc>) -> Result<Self> {
        let store = registry.store();
        let peers = store.registry_peers().await?;
        let conflicts = store.registry_conflicts(most).await?;
        Ok(Self {
            name: registry.name().to_string(),
            fingerprint: fingerprint(registry.verifier()),
            downloads: store.registry_download_count().await?,
            peers: peers.iter().map(|peer| PeerView::new(peer, now)).collect(),
            conflicts: ConflictView::read(store, conflicts).await?,
        })
    }
}

/// Lists the conflicts with a peer, the newest first.
pub(in crate::features::registry) async fn conflicts_with(
    store: &Store,
    peer: &DeploymentName,
) -> Result<Vec<PeerConflict>> {
    store.registry_conflicts_with(peer, CONFLICTS).await
}

impl PeerWithConflicts {
    /// Reads the contents here of the conflicts with a peer.
    pub async fn read(
        store: &Store,
        peer: &Peer,
        conflicts: Vec<PeerConflict>,
        now: DateTime<Utc>,
    ) -> Result<Self> {
        Ok(Self {
            peer: PeerView::new(peer, now),
            conflicts: ConflictView::read(store, conflicts).await?,
        })
    }
}

impl InvitationView {
    pub fn new(word: &Secret, key: &NoteVerifier) -> Self {
        Self {
            id: InvitationId::of(&secret_hash(word.expose())).to_string(),
            word: word.expose().to_owned(),
            fingerprint: fingerprint(key),
        }
    }
}

impl InvitationsView {
    /// Reads all open invitations.
    pub async fn read(store: &Store) -> Result<Self> {
        Ok(Self {
            invitations: OpenInvitationView::read(store).await?,
        })
    }
}

impl OpenInvitationView {
    /// Reads all open invitations.
    pub async fn read(store: &Store) -> Result<Vec<Self>> {
        let open = store.registry_invitations().await?;
        Ok(open.iter().map(Self::new).collect())
    }

    pub fn new(invitation: &Invitation) -> Self {
        Self {
            id: invitation.id.to_string(),
            url: invitation.url.to_string(),
            shares: list(&invitation.shares),
            accepts: list(&invitation.accepts),
            visibility: invitation.visibility,
            created_by: invitation.created_by.clone(),
            created_at: invitation.created_at.map(time),
            expires_at: time(invitation.expires_at),
        }
    }
}

fn list(patterns: &NamePatterns) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

impl PeerView {
    pub fn new(peer: &Peer, now: DateTime<Utc>) -> Self {
        let error = peer.error.as_ref();
        Self {
            name: peer.name.to_string(),
            url: peer.url.to_string(),
            key: peer.verifier.to_string(),
            fingerprint: fingerprint(&peer.verifier),
            state: peer.state,
            is_failing: peer.is_failing(),
            state_since: time(peer.state_since),
            shares: list(&peer.shares),
            accepts: list(&peer.accepts),
            visibility: peer.visibility,
            closed: list(&peer.closed),
            last_id: peer.walk.last_id(),
            size: peer.seen_size,
            lag_records: peer.lag_records(),
            lag_seconds: peer.lag_seconds(now),
            complete_at: peer.complete_at.map(time),
            error: error.map(|(why, _)| why.clone()),
            error_since: error.map(|(_, since)| time(*since)),
            skipped: peer.skipped,
            skipped_last: peer.skipped_last.clone(),
            limited: peer.limited,
            versions: peer.versions,
            max_versions: peer.limits.versions,
            bytes: peer.bytes,
            max_bytes: peer.limits.bytes,
            fetched_versions: peer.fetched_versions,
            fetched_bytes: peer.fetched_bytes,
            wrong_packages: peer.wrong_packages,
            pushed_id: peer.pushes.last_id,
            push_error: peer.pushes.error.clone(),
            pushes_given_up: peer.pushes.given_up,
        }
    }
}

impl ConflictView {
    /// Reads the contents here of all conflicts with one statement. Several peers may have other contents of a version.
    pub async fn read(store: &Store, conflicts: Vec<PeerConflict>) -> Result<Vec<Self>> {
        let keys: BTreeSet<VersionKey> = conflicts
            .iter()
            .map(|conflict| conflict.key.clone())
            .collect();
        let versions = store.registry_versions_by_key(&keys).await?;
        let views = conflicts.into_iter().map(|conflict| {
            let here = versions.get(&conflict.key);
            Self::new(conflict, here.and_then(|version| version.known.content()))
        });
        Ok(views.collect())
    }

    fn new(conflict: PeerConflict, here: Option<&LocatedContent>) -> Self {
        let key = &conflict.key;
        let record = Record::parse(conflict.record.as_bytes()).ok();
        let theirs = record.as_ref().and_then(|record| match record.change() {
            RecordChange::Add(content) => Some(checksums_of(content)),
            RecordChange::Deprecate(_) | RecordChange::Delete(..) => None,
        });
        let maker = record.map(|record| record.maker().deployment.to_string());
        Self {
            kind: key.kind(),
            name: key.name().as_str().to_owned(),
            version: key.version(),
            peer: conflict.peer.to_string(),
            maker: maker.unwrap_or_default(),
            ours: here
                .map(|located| checksums_of(&located.content))
                .unwrap_or_default(),
            theirs: theirs.unwrap_or_default(),
            record: conflict.record,
            since: time(conflict.since),
        }
    }
}
