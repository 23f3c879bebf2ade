//! Replication between deployments (`docs/replication.md`). Each deployment has its own database, log and key.
//!
//! | File | Content |
//! |--|--|
//! | `model.rs` | peers, invitations, addresses and patterns of names |
//! | `store.rs` | peers in the database |
//! | `page.rs` | pages of the log of a peer, and everything that is checked of one |
//! | `merge.rs` | a page becomes versions and records here, in one transaction |
//! | `client.rs` | requests to peers |
//! | `pull.rs` | reads the logs of peers, each interval and when a version is missing |
//! | `push.rs` | tells peers at once about new records, and takes what they tell |
//! | `downloads.rs` | packages come here |
//! | `server.rs` | answers to peers |
//! | `join.rs` | keys and tokens are exchanged |
//! | `changes.rs` | what administrators change of known peers |
//! | `view.rs` | peers and conflicts, as people and programs see them |
//!
//! # Rules
//!
//! - Requests go only to addresses that an administrator here has given.
//! - A peer whose log was cut, forked or changed is `diverged`: nothing of it is merged, and others go on.
//! - What is here is served as before when peers are away (R8). A version whose packages are still at a peer is fetched
//!   when somebody requests it.

mod changes;
mod client;
mod downloads;
mod join;
mod merge;
mod model;
mod page;
mod pull;
mod push;
mod server;
mod store;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::Semaphore;

pub(super) use self::changes::{PeerChange, UnchangedPeer, change_peer};
use self::client::PeerClient;
pub(super) use self::downloads::DOWNLOADS;
use self::downloads::RunningDownload;
pub use self::downloads::{DownloadReport, WaitingDownload};
pub(super) use self::join::{INVITATION_TIME, TOO_MANY_INVITATIONS, invitation_time, invite, join};
pub use self::join::{JoinFault, JoinRequest, NewInvitation, check_join};
pub(super) use self::merge::Makers;
pub(super) use self::model::fingerprint;
pub use self::model::{
    Invitation, InvitationId, NamePatterns, Peer, PeerConflict, PeerLimits, PeerPushes, PeerState,
    PeerUrl, PeerWalk,
};
pub use self::page::{CheckedDiff, CheckedItem, PageFault, check_page};
use self::pull::LastAsked;
pub(super) use self::pull::PULL;
pub use self::pull::{PullReport, check_members};
pub(super) use self::push::PUSH;
pub use self::push::{PushReport, check_push};
pub(crate) use self::server::{PeerServer, routes};
pub(super) use self::store::terms_text;
pub use self::store::{JoinOutcome, JoinedPeer, PeerTerms};
pub(super) use self::view::{
    ConflictView, InvitationView, InvitationsView, OpenInvitationView, PeerView, PeerWithConflicts,
    PeersView, conflicts_with,
};
use super::service::{Registry, RegistryError};
use crate::config::server::{OwnRegistry, RegistryMisses};
use crate::context::ServerCtx;
use crate::leases::Leases;
use crate::model::{Actor, Cause, Origin};
use crate::seal::{Keyring, OpenError};
use crate::secret::Secret;

/// Maximum number of packages that are downloaded at a time.
const DOWNLOADS_AT_ONCE: usize = 8;

/// Maximum number of them that one peer has announced, so that a slow one leaves places to the others.
const DOWNLOADS_OF_PEER: usize = 2;

/// Settings of the exchange.
#[derive(Clone, Debug)]
pub struct ExchangeSettings {
    /// Maximum number of takedowns that a deployment makes in an hour.
    pub takedown_brake: u64,
    /// Number of attempts to tell a peer about a record before it is given up.
    pub push_attempts: u64,
    /// Rules and limits for versions that nobody has published.
    pub misses: RegistryMisses,
}

impl From<&OwnRegistry> for ExchangeSettings {
    fn from(config: &OwnRegistry) -> Self {
        Self {
            takedown_brake: config.takedown_brake,
            push_attempts: config.push_attempts,
            misses: config.misses.clone(),
        }
    }
}

/// Everything that is exchanged with other deployments.
pub struct PeerExchange {
    registry: Registry,
    keys: Arc<Keyring>,
    leases: Leases,
    client: PeerClient,
    settings: ExchangeSettings,
    places: Semaphore,
    places_of_peers: Mutex<HashMap<DeploymentName, Arc<Semaphore>>>,
    running: Mutex<HashMap<VersionKey, RunningDownload>>,
    /// Last time at which the log of a peer was read because a version was missing.
    asked: Mutex<HashMap<DeploymentName, LastAsked>>,
}

impl PeerExchange {
    /// Prepares the exchange of an open registry.
    pub fn new(
        registry: Registry,
        keys: Arc<Keyring>,
        leases: Leases,
        settings: ExchangeSettings,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            registry,
            keys,
            leases,
            client: PeerClient::new()?,
            settings,
            places: Semaphore::new(DOWNLOADS_AT_ONCE),
            places_of_peers: Mutex::default(),
            running: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// Prepares the exchange of a server. `None`: it has no registry.
    pub async fn of(ctx: &ServerCtx) -> anyhow::Result<Option<Self>> {
        let Some(parts) = &ctx.server.registry else {
            return Ok(None);
        };
        let keys = parts.keys.clone().context("the registry has no keys")?;
        let (name, packages) = (parts.config.name.clone(), &parts.packages);
        let registry = Registry::reopen(ctx.store.clone(), Some(Arc::clone(&keys)), name, packages);
        let registry = registry.await.context("cannot open the registry")?;
        let leases = ctx.server.leases.clone();
        Self::new(registry, keys, leases, (&parts.config).into()).map(Some)
    }

    /// Invites another deployment. Returns a one-time word, or `None` if there are too many invitations.
    pub async fn invite(
        &self,
        new: NewInvitation,
        cause: &Cause,
    ) -> Result<Option<Secret>, RegistryError> {
        Ok(invite(self.registry.store(), new, cause).await?)
    }

    /// Joins a deployment that has invited this one.
    pub async fn join(
        &self,
        request: JoinRequest,
        cause: &Cause,
    ) -> anyhow::Result<Result<Peer, JoinFault>> {
        join(&self.registry, &self.keys, request, cause).await
    }

    /// Returns the registry here.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the token for requests to a peer. `None`: there is none, or it cannot be read. Nobody shows it.
    pub fn token_of(&self, peer: &Peer) -> Option<Secret> {
        self.token(peer).ok()
    }

    /// Returns the token for requests to a peer.
    fn token(&self, peer: &Peer) -> Result<Secret, PeerTokenFault> {
        let sealed = peer.sealed_token.as_ref().ok_or(PeerTokenFault::None)?;
        Ok(self.keys.open(sealed, &Peer::binding(&peer.name))?)
    }
}

/// Reason why there is no token for a peer.
#[derive(Debug, thiserror::Error)]
enum PeerTokenFault {
    #[error("no token was exchanged with it: let it join again")]
    None,
    #[error("the token for it cannot be read: {0}")]
    Sealed(#[from] OpenError),
}

/// Returns a deployment as the one who made a change.
fn by_peer(name: &DeploymentName) -> Actor {
    Actor::new(name.as_str(), Origin::Reconciler)
}

/// Encrypts the tokens for peers again with the first key of the file.
pub(super) async fn reseal_tokens(
    store: &crate::store::Store,
    keys: &Keyring,
) -> anyhow::Result<()> {
    for peer in store.registry_peers().await? {
        let Some(sealed) = &peer.sealed_token else {
            continue;
        };
        if sealed.key == *keys.first() {
            continue;
        }
        let binding = Peer::binding(&peer.name);
        let token = keys.open(sealed, &binding)?;
        let again = keys.seal(&token, &binding);
        store
            .registry_peer_reseal(&peer.name, sealed, &again)
            .await?;
    }
    Ok(())
}

impl From<PeerTokenFault> for RegistryError {
    fn from(fault: PeerTokenFault) -> Self {
        Self::Refused(fault.to_string())
    }
}
