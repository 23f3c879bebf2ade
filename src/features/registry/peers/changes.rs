//! Changes that administrators make of known deployments, on the command line and by the API.

use lockkeeper_registry::records::DeploymentName;

use super::model::{NamePatterns, Peer, PeerState};
use super::store::PeerTerms;
use crate::model::Cause;
use crate::store::{Result, Store};

/// States in which an administrator can suspend a deployment.
const RUNNING: &[PeerState] = &[
    PeerState::Joined,
    PeerState::Braked,
    PeerState::Approved,
    PeerState::Diverged,
];

/// States in which nothing new of a deployment counts until an administrator resumes it.
const STOPPED: &[PeerState] = &[PeerState::Suspended, PeerState::Braked, PeerState::Diverged];

/// States in which an administrator can remove a deployment.
const KNOWN: &[PeerState] = &[
    PeerState::Proposed,
    PeerState::Approved,
    PeerState::Joined,
    PeerState::Suspended,
    PeerState::Braked,
    PeerState::Diverged,
];

/// Change of a known deployment.
#[derive(Clone, Debug)]
pub(in crate::features::registry) enum PeerChange {
    /// Changes what is exchanged with it.
    Terms(PeerTerms),
    /// Lets the records of a proposed deployment count for these names.
    Approve(NamePatterns),
    /// Stops the exchange for a while.
    Suspend,
    /// Goes on after a suspension, a brake or a divergence.
    Resume,
    /// Ends the exchange for good.
    Remove,
}

/// Reason why a deployment stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::features::registry) enum UnchangedPeer {
    /// No deployment with this name is known.
    #[error("there is no such peer: {0}")]
    UnknownPeer(String),
    /// No deployment with this name is proposed.
    #[error("there is no such proposal: {0}")]
    UnknownProposal(String),
    /// The state of the deployment does not permit the change.
    #[error("{0} is {1}, so this has no effect")]
    OtherState(DeploymentName, PeerState),
}

/// Changes a deployment, and returns it as it is then.
pub(in crate::features::registry) async fn change_peer(
    store: &Store,
    name: &DeploymentName,
    change: &PeerChange,
    cause: &Cause,
) -> Result<std::result::Result<Peer, UnchangedPeer>> {
    let (from, to) = match change {
        PeerChange::Terms(terms) => {
            let changed = store.registry_peer_change(name, terms, cause).await?;
            return Ok(changed.ok_or_else(|| UnchangedPeer::UnknownPeer(name.to_string())));
        }
        PeerChange::Approve(accepts) => {
            let approved = store.registry_peer_approve(name, accepts, cause).await?;
            return Ok(approved.ok_or_else(|| UnchangedPeer::UnknownProposal(name.to_string())));
        }
        PeerChange::Suspend => (RUNNING, PeerState::Suspended),
        PeerChange::Resume => {
            let known = store.registry_peer(name).await?;
            let to = match known {
                // Nothing can be exchanged with a deployment that has never joined.
                Some(known) if known.sealed_token.is_none() => PeerState::Approved,
                Some(_) | None => PeerState::Joined,
            };
            (STOPPED, to)
        }
        PeerChange::Remove => (KNOWN, PeerState::Removed),
    };
    if let Some(peer) = store.registry_peer_turn(name, from, to, cause).await? {
        return Ok(Ok(peer));
    }
    let known = store.registry_peer(name).await?;
    Ok(Err(match known {
        Some(known) => UnchangedPeer::OtherState(name.clone(), known.state),
        None => UnchangedPeer::UnknownPeer(name.to_string()),
    }))
}
