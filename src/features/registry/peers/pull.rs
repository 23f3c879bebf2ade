//! Reads the logs of peers, page by page, from the last record that was merged.
//!
//! Each peer is read under a lease of its own. A peer that is away, slow or wrong does not keep the others waiting, because
//! all are read at the same time and each only for [`PEER_TIME`] before the next turn.
//!
//! A peer that shares other names than before is read again from the first record, at most once in [`AGAIN_AFTER`]. Until
//! then, new records are merged, and a note says when the others come.
//!
//! A version that is missing may have been published at a peer since the last turn. So the logs are read at once
//! ([`PeerExchange::read_logs`]): what a peer has of it is in its log, and everything that is checked of a page is
//! checked there too. Any number of missing versions need one reading.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::NoteVerifier;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{error, info, warn};

use super::super::service::RegistryError;
use super::PeerExchange;
use super::client::{ClientFault, json_place};
use super::merge::{Makers, MergeOutcome, MergedPage};
use super::model::{Peer, PeerState, PeerUrl, SHARES_OTHER};
use super::page::{MAX_ITEMS, PageFault, check_page, read_end_text};
use super::store::AGAIN_AFTER;
use crate::config::server::Periods;
use crate::context::ServerCtx;
use crate::errors::describe_error;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::leases::{LeaseKey, LeaseOutcome};
use crate::model::Cause;

/// Time for the pages of a peer in one turn. A page that was begun is ended.
const PEER_TIME: Duration = Duration::from_mins(1);

/// Time of the lease of a peer, which is renewed meanwhile.
const LEASE_TIME: Duration = Duration::from_mins(2);

/// Longest wait for the logs of peers when a version is missing.
const ASK_TIME: Duration = Duration::from_secs(5);
/// Shortest time between two readings of a log because of missing versions. Clients can make up any number of those.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Pause before the log of a peer is read that somebody else reads at the moment.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Beginning of the last reading of a log because of a missing version. Who holds it reads.
pub(super) type LastAsked = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// Most members that a peer may propose at a time.
const MAX_MEMBERS: usize = 100;

pub(in crate::features::registry) const PULL: Reconciler = Reconciler::new(
    "registry_pull",
    "Reads new records from the logs of other deployments.",
    Periods::DEFAULT.registry_sync,
    |ctx| Box::pin(tick(ctx)),
)
.set_by(|periods| periods.registry_sync);

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let known = ctx.store.registry_peers().await?;
    if !known.iter().any(|peer| peer.state == PeerState::Joined) {
        return Ok(TickResult::default());
    }
    let Some(peers) = PeerExchange::of(ctx).await? else {
        return Ok(TickResult::default());
    };
    // Deployments that were started together should not ask each other at the same moment again and again.
    let share = 0.1 * rand::random::<f64>();
    sleep(ctx.settings.periods.registry_sync.mul_f64(share)).await;
    let report = peers.pull_all().await?;
    Ok(TickResult {
        looked_at: report.peers,
        repaired: report.records,
    })
}

/// Result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullReport {
    /// Number of peers whose logs were read.
    pub peers: u64,
    /// Number of records that were added to the log here.
    pub records: u64,
}

/// Members that a peer knows.
#[derive(Serialize, Deserialize)]
pub(super) struct MembersBody {
    pub members: Vec<MemberBody>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MemberBody {
    pub url: String,
    pub key: String,
}

/// Reason why the log of a peer is not read further in this turn.
enum PullStop {
    /// The peer sent something that cannot be merged, or nothing.
    Failed(String),
    Diverged(String),
    /// The registry here failed.
    Here(RegistryError),
}

impl From<RegistryError> for PullStop {
    fn from(error: RegistryError) -> Self {
        Self::Here(error)
    }
}

impl From<sqlx::Error> for PullStop {
    fn from(error: sqlx::Error) -> Self {
        Self::Here(error.into())
    }
}

impl From<PageFault> for PullStop {
    fn from(fault: PageFault) -> Self {
        match fault {
            PageFault::Refused(_) => Self::Failed(fault.to_string()),
            PageFault::Diverged(why) => Self::Diverged(why),
        }
    }
}

impl PeerExchange {
    /// Reads the logs of all peers that have joined, at the same time.
    pub async fn pull_all(&self) -> Result<PullReport, RegistryError> {
        let peers = self.registry.store().registry_peers().await?;
        let joined = peers.iter().filter(|peer| peer.state == PeerState::Joined);
        let pulls = join_all(joined.map(|peer| Box::pin(self.pull(&peer.name)))).await;
        let mut report = PullReport::default();
        for pulled in pulls {
            report.peers += 1;
            report.records += pulled?.unwrap_or(0);
        }
        Ok(report)
    }

    /// Reads the logs of all peers that have joined now, because a version of this name is missing. Returns when all of them
    /// were read, or after [`ASK_TIME`]. A peer whose last reading failed is left to the reconciler, so that nobody waits for
    /// one that is away (R8).
    ///
    /// A failure is logged. The result is true if everything was read that peers have of the name.
    pub(in crate::features::registry) async fn read_logs(
        self: &Arc<Self>,
        name: &RegistryName,
    ) -> Result<bool, sqlx::Error> {
        let asked_at = Instant::now();
        let store = self.registry.store();
        let joined = store.registry_peers().await?;
        let joined = joined
            .into_iter()
            .filter(|peer| peer.state == PeerState::Joined && !peer.is_failing());
        let pulls = joined.map(|peer| {
            let peers = Arc::clone(self);
            // A task of its own, so that a page that was begun is merged although nobody waits for it any more.
            tokio::spawn(async move {
                if let Err(error) = peers.read_log_of(&peer.name, asked_at).await {
                    let (peer, error) = (peer.name.as_str(), describe_error(&error));
                    warn!(peer, error, "Cannot ask a peer for a missing version");
                }
            })
        });
        let in_time = timeout(ASK_TIME, join_all(pulls)).await.is_ok();
        let peers = store.registry_peers().await?;
        let mut joined = peers
            .iter()
            .filter(|peer| peer.state == PeerState::Joined && peer.accepts.matches(name));
        Ok(in_time && !joined.any(Peer::is_failing))
    }

    /// Reads the log of a peer, unless somebody has begun to do so after `asked_at`.
    async fn read_log_of(
        &self,
        name: &DeploymentName,
        asked_at: Instant,
    ) -> Result<(), RegistryError> {
        let last = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(asked.entry(name.clone()).or_default())
        };
        let mut last = last.lock().await;
        if last.is_some_and(|begun| begun >= asked_at) {
            return Ok(());
        }
        if let Some(begun) = *last {
            sleep_until(begun + ASK_PAUSE).await;
        }
        *last = Some(Instant::now());
        // The reconciler, or another replica, may have begun to read before the version was published.
        while Box::pin(self.pull(name)).await?.is_none() {
            if asked_at.elapsed() > ASK_TIME {
                return Ok(());
            }
            sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// Reads the log of a peer until everything is merged or the time is over. Returns the number of records that were
    /// added here, or `None` if somebody else reads the log. A failure of the peer is stored with it.
    async fn pull(&self, name: &DeploymentName) -> Result<Option<u64>, RegistryError> {
        let key = LeaseKey::registry_pull(name.as_str());
        let purpose = "reads the log of a peer of the registry";
        let Some(lease) = self.leases.turn(&key, purpose, LEASE_TIME).await? else {
            return Ok(None);
        };
        let mut records = 0;
        let pulled = lease
            .run(Box::pin(self.pull_pages(name, &mut records)))
            .await;
        let stop = match pulled {
            LeaseOutcome::Lost | LeaseOutcome::Done(Ok(())) => return Ok(Some(records)),
            LeaseOutcome::Done(Err((walk, stop))) => (walk, stop),
        };
        let store = self.registry.store();
        match stop {
            (_, PullStop::Here(error)) => return Err(error),
            (_, PullStop::Failed(why)) => {
                warn!(
                    peer = name.as_str(),
                    why, "Cannot read all of the log of a peer"
                );
                store.registry_peer_failed(name, &why).await?;
            }
            (walk, PullStop::Diverged(why)) => {
                error!(
                    peer = name.as_str(),
                    why, "The log of a peer has diverged, so nothing of it is merged"
                );
                let cause = Cause::new(super::by_peer(self.registry.name()), "");
                store
                    .registry_peer_diverged(name, walk, &why, &cause)
                    .await?;
            }
        }
        Ok(Some(records))
    }

    async fn pull_pages(
        &self,
        name: &DeploymentName,
        records: &mut u64,
    ) -> Result<(), (i64, PullStop)> {
        let begun = Instant::now();
        loop {
            let peers = self.registry.store().registry_peers().await;
            let peers = peers.map_err(|error| (0, error.into()))?;
            let makers = Makers::new(self.registry.name().clone(), peers.clone());
            let peer = peers.into_iter().find(|peer| peer.name == *name);
            let Some(peer) = peer.filter(|peer| peer.state == PeerState::Joined) else {
                return Ok(());
            };
            let walk = peer.walk.number;
            let page = self.pull_page(&peer, makers).await;
            match page.map_err(|stop| (walk, stop))? {
                PageOutcome::BegunAgain => {}
                PageOutcome::Stop => return Ok(()),
                PageOutcome::Merged { merged, waits } => {
                    *records += merged.records;
                    if merged.records > 0 {
                        info!(
                            peer = name.as_str(),
                            records = merged.records,
                            "Merged records of a peer"
                        );
                    }
                    if merged.is_complete {
                        self.learn_members(&peer)
                            .await
                            .map_err(|stop| (walk, stop))?;
                        return match waits {
                            None => Ok(()),
                            Some(why) => Err((walk, PullStop::Failed(why))),
                        };
                    }
                }
            }
            if begun.elapsed() > PEER_TIME {
                return Ok(());
            }
        }
    }

    async fn pull_page(&self, peer: &Peer, makers: Makers) -> Result<PageOutcome, PullStop> {
        let token = self
            .token(peer)
            .map_err(|fault| PullStop::Failed(fault.to_string()))?;
        let (after, seen) = (peer.walk.last_id(), peer.walk.seen());
        let accepts = makers.accepted().join("\n");
        let body = self
            .client
            .diff(&peer.url, &token, (after, MAX_ITEMS), seen, &accepts)
            .await;
        let body = body.map_err(|fault| without_page(&fault, seen))?;
        let (walk, verifier) = (peer.walk.clone(), peer.verifier.clone());
        let sender = peer.name.clone();
        let of_task = makers.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let checked = check_page(&body, &walk, &verifier)?;
            let sharing = checked.sharing.clone();
            Ok::<_, PageFault>((sharing, of_task.verify(checked, &sender)?))
        });
        let read = reading.await;
        let (sharing, diff) = read.map_err(|error| PullStop::Failed(error.to_string()))??;
        let store = self.registry.store();
        // What it shares only matters to those who have read something.
        let is_other = after > 0 && peer.walk.sharing != sharing;
        if is_other {
            let walk = peer.walk.number;
            let begins = store.registry_peer_walk_again(&peer.name, walk, &sharing);
            if begins.await? {
                return Ok(PageOutcome::BegunAgain);
            }
        }
        let merged = {
            let _place = self.registry.recording.acquire().await;
            let (walk, settings) = (&peer.walk, &self.settings);
            let merged = store.registry_peer_merge(&peer.name, walk, &makers, &diff, settings);
            merged.await?
        };
        let MergeOutcome::Merged(merged) = merged else {
            return Ok(PageOutcome::Stop);
        };
        self.has_merged(&peer.name, &merged).await;
        let waits = is_other.then(|| waits_for_walk(peer));
        Ok(PageOutcome::Merged { merged, waits })
    }

    /// Does what follows after records of a sender were merged.
    pub(super) async fn has_merged(&self, sender: &DeploymentName, merged: &MergedPage) {
        if merged.takedowns > 0
            && let Err(error) = self.registry.remove_orphans().await
        {
            // The reconciler of packages goes on with what is left.
            warn!(
                error = describe_error(&error),
                "Cannot remove packages of versions that were taken down"
            );
        }
        for maker in &merged.braked {
            error!(
                peer = maker.as_str(),
                sender = sender.as_str(),
                brake = self.settings.takedown_brake,
                "A deployment made more takedowns in an hour than allowed, so nothing of it is merged until somebody agrees"
            );
        }
    }

    /// Notes the deployments that a peer knows and this one does not. They stay proposals until an administrator here
    /// approves them.
    async fn learn_members(&self, peer: &Peer) -> Result<(), PullStop> {
        let token = self
            .token(peer)
            .map_err(|fault| PullStop::Failed(fault.to_string()))?;
        let body = self.client.members(&peer.url, &token).await;
        let body = body.map_err(|fault| PullStop::Failed(fault.to_string()))?;
        let members = check_members(&body, self.registry.name()).map_err(PullStop::Failed)?;
        let known = self.registry.store().registry_peers().await?;
        let is_new = |(_, key): &(PeerUrl, NoteVerifier)| {
            !known.iter().any(|peer| peer.name.as_str() == key.name())
        };
        let new: Vec<(PeerUrl, NoteVerifier)> = members.into_iter().filter(is_new).collect();
        if !new.is_empty() {
            let store = self.registry.store();
            store.registry_peers_propose(&peer.name, &new).await?;
        }
        Ok(())
    }
}

/// Reads the members that a peer knows: the address and the key of each. This deployment is left out, and so is everything
/// after [`MAX_MEMBERS`] and everything with an address or a key that is none.
pub fn check_members(
    body: &[u8],
    own: &DeploymentName,
) -> Result<Vec<(PeerUrl, NoteVerifier)>, String> {
    let body: MembersBody = serde_json::from_slice(body)
        .map_err(|error| format!("its answer cannot be read ({})", json_place(&error)))?;
    let members = body.members.iter().take(MAX_MEMBERS);
    let members = members.filter_map(|member| {
        let url: PeerUrl = member.url.parse().ok()?;
        let key: NoteVerifier = member.key.parse().ok()?;
        (key.name() != own.as_str()).then_some((url, key))
    });
    Ok(members.collect())
}

/// Explains why a peer has sent no page. `seen` is the last record that was merged.
fn without_page(fault: &ClientFault, seen: u64) -> PullStop {
    if let ClientFault::Status(StatusCode::CONFLICT, text) = fault
        && let Some(size) = read_end_text(text)
        && size < seen
    {
        return PullStop::Diverged(format!(
            "its log was cut: it has {size} records, and {seen} were seen"
        ));
    }
    PullStop::Failed(fault.to_string())
}

/// Says when the log of a peer is read again that shares something else.
fn waits_for_walk(peer: &Peer) -> String {
    let again_at = peer.again_at.map(|at| at + AGAIN_AFTER);
    let again_at = again_at.map_or_else(
        || "in an hour at the latest".to_owned(),
        |at| format!("after {}", at.format("%H:%M UTC")),
    );
    format!(
        "{SHARES_OTHER}. Its new records are merged, and earlier ones that it shares now come \
         {again_at}, because its whole log is read again at most once in an hour"
    )
}

/// Outcome of a page.
enum PageOutcome {
    Merged {
        merged: MergedPage,
        /// Reason why something that the peer shares is not here yet, although everything was merged.
        waits: Option<String>,
    },
    /// The walk begins again from the first record.
    BegunAgain,
    /// Nothing more can be merged in this turn.
    Stop,
}
