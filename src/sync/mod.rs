//! Keeps the mirrors of one data directory in sync with their forge.
//!
//! The need: a command must find the commits that it plans on this disk, fresh and whole. No push, no killed server
//! and no failure of the forge may leave a mirror outdated permanently.
//!
//! The table of mirrors (`store::repository_syncs`) contains all pending work; memory alone never does.
//! [`Syncer::round`] is the reconciler. It reads the events of repositories since the last round and finds attempts
//! that nobody will end. Then it lets a bounded number of workers take the mirrors that are due. A round waits for no
//! worker, so a repository that takes an hour delays no other. An attempt runs under the exclusive lease of its mirror
//! ([`attempt`]). [`crate::model::MirrorState::next`] decides whether an attempt may begin, and the consequences of its
//! end.

mod attempt;
mod coalescer;
mod data_dir_id;
mod failure;
mod gates;
mod turns;
mod verify;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

pub use self::attempt::SyncAttempt;
pub use self::coalescer::{FetchTicket, IncludedTasks};
pub use self::data_dir_id::{DataDirIdError, data_dir_id};
pub use self::gates::MirrorGate;

use self::coalescer::RequestCoalescer;
use self::gates::MirrorGates;
use self::turns::{DueMirrors, NextMirror};
use crate::clock::Clock;
use crate::config::server::RepoAllowlist;
use crate::forges::Forges;
use crate::git::{Git, Mirror, RefName};
use crate::leases::Leases;
use crate::model::{
    DataDirId, FailureKind, Jitter, MirrorEvent, MirrorState, RepoId, RepoUrl, SyncState,
};
use crate::store::{EventWalk, MirrorChange, Store};
use crate::telemetry::{Metric, Metrics};

/// Maximum number of events read in one transaction.
const EVENTS: i64 = 500;
/// Maximum number of these transactions in one round; the next round continues.
const WALKS: usize = 40;
/// Maximum number of mirrors of each kind in a round.
const BATCH: i64 = 200;
/// Accuracy of the recorded time of the last use of a mirror. People and the order of syncs need no better one, and it
/// saves two transactions for most commands.
const USE_ACCURACY: Duration = Duration::from_mins(1);
/// Maximum number of claims in a round.
const CLAIMS: i64 = 500;

/// Dependencies of a syncer.
pub struct SyncerDependencies {
    /// Data directory of the mirrors.
    pub data_dir_id: DataDirId,
    /// Database with the table of mirrors.
    pub store: Store,
    /// Access to the mirrors on disk.
    pub git: Git,
    /// Forges of the mirrored repositories.
    pub forges: Forges,
    pub clock: Arc<dyn Clock>,
    /// Leases that allow one attempt at a time for each mirror.
    pub leases: Leases,
    /// Duration of a lease without a renewal.
    pub lease_time: Duration,
    /// Longest time for one exchange with the forge.
    pub fetch_time: Duration,
    /// Metrics of syncs and mirrors.
    pub metrics: Metrics,
    /// Token that is cancelled when the server stops starting work.
    pub closing: CancellationToken,
}

/// Current settings of the administrator.
#[derive(Clone)]
pub struct SyncSettings {
    /// Repositories that have mirrors.
    pub allowlist: RepoAllowlist,
    /// Maximum number of concurrent attempts.
    pub parallel: usize,
}

impl SyncSettings {
    /// Returns true if a repository has a mirror. With `--require-claims`, an unclaimed repository has none. Without
    /// an owner's credentials it would be fetched with those of the server, and nobody would use it. A claim can be
    /// released at any time, so this is checked before each attempt.
    async fn includes(&self, store: &Store, repo: &RepoId) -> Result<bool, sqlx::Error> {
        let list = &self.allowlist;
        Ok(list.allows(repo)
            && (!list.demands_claims() || store.claim_owner_of(repo).await?.is_some()))
    }
}

/// Result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRound {
    /// Number of events read and of mirrors that were due.
    pub looked_at: u64,
    /// Number of attempts without a server to end them; they are retried.
    pub orphaned: u64,
}

/// Service that keeps mirrors in sync. Clones share their workers.
#[derive(Clone)]
pub struct Syncer(Arc<SyncerInner>);

struct SyncerInner {
    parts: SyncerDependencies,
    gates: MirrorGates,
    coalescer: RequestCoalescer,
    /// Mirrors that are due, in order.
    turns: Mutex<DueMirrors>,
    /// Position in the claims, which are searched for repositories without a mirror.
    claims: Mutex<Option<RepoUrl>>,
    /// Number of active workers.
    workers: watch::Sender<usize>,
}

impl Syncer {
    /// Creates the syncer without starting work.
    pub fn new(parts: SyncerDependencies) -> Self {
        for outcome in SyncAttempt::OUTCOMES {
            parts.metrics.add(Metric::RepositorySyncs, &[outcome], 0);
        }
        for kind in FailureKind::ALL {
            parts
                .metrics
                .add(Metric::RepositorySyncFailures, &[kind.as_str()], 0);
        }
        let (gates, coalescer) = (MirrorGates::default(), RequestCoalescer::default());
        let (turns, claims, workers) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(SyncerInner {
            parts,
            gates,
            coalescer,
            turns,
            claims,
            workers,
        }))
    }

    /// Returns the data directory of the mirrors.
    pub fn data_dir_id(&self) -> &DataDirId {
        &self.0.parts.data_dir_id
    }

    /// Returns the mirrors on this disk, for reading.
    pub fn mirrors(&self) -> &Git {
        &self.0.parts.git
    }

    /// Returns the mirror of a repository. A caller that changes it holds its gate and its lease.
    pub fn mirror(&self, repo: &RepoId) -> Mirror {
        self.0.parts.git.mirror(repo)
    }

    /// Returns the longest time for one exchange of git with the forge (`--fetch-timeout`).
    pub fn fetch_time(&self) -> Duration {
        self.0.parts.fetch_time
    }

    /// Reads new events and lets workers begin the mirrors that are due.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn round(&self, wants: &SyncSettings) -> Result<SyncRound, sqlx::Error> {
        let inner = &self.0;
        let mut round = SyncRound {
            looked_at: inner.walk().await?,
            orphaned: inner.end_orphans().await?,
        };
        inner.wake_stale().await?;
        inner.backfill(wants).await?;
        let due = inner
            .parts
            .store
            .mirror_list_due(&inner.parts.data_dir_id, BATCH)
            .await?;
        let many = {
            let mut turns = inner.turns();
            turns.set(due);
            turns.len()
        };
        round.looked_at += many as u64;
        inner.measure().await?;
        if !inner.parts.closing.is_cancelled() {
            self.start_workers(many, wants);
        }
        Ok(round)
    }

    /// Attempts to sync a mirror now, if it is due. A caller that needs an attempt requests it first
    /// ([`crate::model::MirrorEvent::Asked`]).
    pub async fn attempt(&self, repo: &RepoId) -> SyncAttempt {
        self.0.attempt(repo).await
    }

    /// Waits until no worker is active.
    pub async fn idle(&self) {
        let mut workers = self.0.workers.subscribe();
        // The sender lives as long as `self`.
        workers.wait_for(|many| *many == 0).await.ok();
    }

    /// Waits until no other task of this process works on a mirror. A caller that changes the mirror obtains its
    /// lease while it holds this gate.
    pub async fn gate(&self, repo: &RepoId) -> MirrorGate {
        self.0.gates.wait(repo).await
    }

    /// Takes the gate without waiting. Returns `None` if another task works on the mirror.
    pub fn gate_if_free(&self, repo: &RepoId) -> Option<MirrorGate> {
        self.0.gates.attempt(repo)
    }

    /// Requests these refs as they are from now on. Call this before waiting for the gate: the task that works on the
    /// mirror until then may fetch them.
    pub fn enter(&self, repo: &RepoId, refs: &[RefName]) -> FetchTicket {
        self.0.coalescer.enter(repo, refs)
    }

    /// Records that a command uses a mirror. The mirror is registered from now on, and one that was removed to make
    /// room is due again. A failure to record this does not fail the command.
    pub async fn used(&self, repo: &RepoId) {
        let SyncerDependencies {
            store,
            data_dir_id,
            clock,
            ..
        } = &self.0.parts;
        let noted = async {
            let known = store.mirror_get(data_dir_id, repo).await?;
            let was_used = |mirror: &MirrorState| {
                mirror.evicted_at.is_none()
                    && mirror
                        .used_at
                        .is_some_and(|at| clock.now() < at + USE_ACCURACY)
            };
            if known.as_ref().is_some_and(|row| was_used(&row.state)) {
                return Ok(());
            }
            let used = MirrorEvent::Used { at: clock.now() };
            // A known mirror may be forgotten in the meantime.
            if known.is_some()
                && store.mirror_change(data_dir_id, repo, &used).await? != MirrorChange::Unknown
            {
                return Ok(());
            }
            store.mirror_know(data_dir_id, repo).await?;
            store
                .mirror_change(data_dir_id, repo, &used)
                .await
                .map(drop)
        };
        if let Err(error) = noted.await {
            warn!(%repo, %error, "Could not record the use of a mirror");
        }
    }

    /// Records that a mirror was removed to make room; it is created again when a command uses it.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn evicted(&self, repo: &RepoId) -> Result<(), sqlx::Error> {
        let SyncerDependencies {
            store,
            data_dir_id,
            clock,
            ..
        } = &self.0.parts;
        let _change = store
            .mirror_change(data_dir_id, repo, &MirrorEvent::Evicted { at: clock.now() })
            .await?;
        Ok(())
    }

    /// Starts workers for the due mirrors. Together with the active ones, they do not exceed the administrator's
    /// limit.
    fn start_workers(&self, due: usize, wants: &SyncSettings) {
        for _ in 0..due {
            let Some(place) = WorkerSlot::take(&self.0, wants.parallel) else {
                return;
            };
            let (inner, wants) = (Arc::clone(&self.0), wants.clone());
            tokio::spawn(async move { inner.work(&wants, place).await });
        }
    }
}

impl SyncerInner {
    fn turns(&self) -> MutexGuard<'_, DueMirrors> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the events since the last round and returns their number.
    async fn walk(&self) -> Result<u64, sqlx::Error> {
        let SyncerDependencies {
            store, data_dir_id, ..
        } = &self.parts;
        let mut walked = 0;
        for _ in 0..WALKS {
            match store.repository_event_walk(data_dir_id, EVENTS).await? {
                EventWalk::NoCursor => {
                    let repositories = store.repository_event_begin(data_dir_id).await?;
                    info!(%data_dir_id, repositories, "This data directory now follows the events of repositories");
                }
                EventWalk::Walked(0) => break,
                EventWalk::Walked(many) => walked += many as u64,
            }
        }
        Ok(walked)
    }

    /// Ends orphaned attempts. A server that died or lost its lease does not end its attempts, so other servers end
    /// them.
    async fn end_orphans(&self) -> Result<u64, sqlx::Error> {
        let SyncerDependencies { store, clock, .. } = &self.parts;
        let mut ended = 0;
        for (data_dir_id, repo) in store.mirror_list_orphaned(BATCH).await? {
            let event = MirrorEvent::Orphaned {
                at: clock.now(),
                jitter: self.jitter(&repo),
            };
            if let MirrorChange::Changed(row) =
                store.mirror_change(&data_dir_id, &repo, &event).await?
            {
                let message = row
                    .state
                    .failure
                    .map(|failure| failure.message)
                    .unwrap_or_default();
                info!(%repo, %data_dir_id, message, "The sync of a mirror was interrupted and will be retried");
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Makes mirrors due that had no event for a long time.
    async fn wake_stale(&self) -> Result<(), sqlx::Error> {
        let SyncerDependencies {
            store,
            data_dir_id,
            clock,
            ..
        } = &self.parts;
        for repo in store.mirror_list_stale(data_dir_id, BATCH).await? {
            let _change = store
                .mirror_change(data_dir_id, &repo, &MirrorEvent::Due { at: clock.now() })
                .await?;
        }
        Ok(())
    }

    /// Registers mirrors of repositories that somebody plans to work with: claimed ones (including those of
    /// applications) and those that the allow-list names. No command waits for them.
    async fn backfill(&self, wants: &SyncSettings) -> Result<(), sqlx::Error> {
        let SyncerDependencies {
            store,
            data_dir_id,
            forges,
            ..
        } = &self.parts;
        let after = self
            .claims
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let claims = store.claim_list(None, after.as_ref(), CLAIMS).await?;
        // The first page follows the last page.
        let is_full = i64::try_from(claims.len()).is_ok_and(|many| many == CLAIMS);
        let next = claims
            .last()
            .map(|claim| claim.url.clone())
            .filter(|_| is_full);
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = next;
        let claimed = claims.iter().filter_map(|claim| claim.url.repo_id());
        let mut wanted: Vec<RepoId> = claimed.chain(wants.allowlist.named()).collect();
        wanted.retain(|repo| forges.has(repo.host()) && wants.allowlist.allows(repo));
        wanted.sort();
        wanted.dedup();
        for repo in store.mirror_list_unknown(data_dir_id, wanted).await? {
            if wants.includes(store, &repo).await? && store.mirror_know(data_dir_id, &repo).await? {
                info!(%repo, "A repository will get a mirror when no other work is left");
            }
        }
        Ok(())
    }

    async fn measure(&self) -> Result<(), sqlx::Error> {
        let counted = self
            .parts
            .store
            .mirror_count(&self.parts.data_dir_id)
            .await?;
        for state in SyncState::ALL {
            let many = counted
                .iter()
                .find(|(known, _)| known == state)
                .map_or(0, |(_, many)| *many);
            self.parts.metrics.set(
                Metric::RepositoryMirrors,
                &[state.as_str()],
                u32::try_from(many).unwrap_or(u32::MAX).into(),
            );
        }
        Ok(())
    }

    /// Takes one mirror after the other until none is left or the server closes.
    async fn work(&self, wants: &SyncSettings, place: WorkerSlot) {
        while !self.parts.closing.is_cancelled() {
            let Some(NextMirror { repo, is_backfill }) = self.turns().next(wants.parallel) else {
                break;
            };
            let _backfill = is_backfill.then(|| Backfill(self));
            match wants.includes(&self.parts.store, &repo).await {
                Ok(true) => {
                    let span = info_span!("sync", %repo);
                    let outcome = self.attempt(&repo).instrument(span).await;
                    debug!(%repo, ?outcome, "An attempt to sync a mirror ended");
                }
                Ok(false) => {
                    if let Err(error) = self.forget(wants, &repo).await {
                        error!(%repo, %error, "Could not remove a mirror of an unused repository from the table of mirrors");
                    }
                }
                // The mirror stays due: the next round checks again.
                Err(error) => {
                    error!(%repo, %error, "Could not check whether a repository is claimed");
                }
            }
        }
        drop(place);
    }

    /// Removes an unwanted mirror from the table. This is checked again after its row was read. An event from
    /// then on keeps the row, for example when somebody claims the repository and pushes.
    async fn forget(&self, wants: &SyncSettings, repo: &RepoId) -> Result<(), sqlx::Error> {
        let SyncerDependencies {
            data_dir_id, store, ..
        } = &self.parts;
        let Some(row) = store.mirror_get(data_dir_id, repo).await? else {
            return Ok(());
        };
        if !wants.includes(store, repo).await? && !store.mirror_forget(&row).await? {
            debug!(%repo, "An unused mirror was changed before its removal from the table of mirrors; it will be checked again");
        }
        Ok(())
    }

    /// Returns a jitter that differs for each mirror on each disk, so that many mirrors are not checked at the same
    /// moment.
    fn jitter(&self, repo: &RepoId) -> Jitter {
        let now = self.parts.clock.now().timestamp();
        Jitter::of(&format!("{} {repo} {now}", self.parts.data_dir_id))
    }
}

/// Marker of a worker that handles a mirror without waiting commands. Dropping it, also by a panic, lets another
/// worker begin such a mirror.
struct Backfill<'a>(&'a SyncerInner);

impl Drop for Backfill<'_> {
    fn drop(&mut self) {
        self.0.turns().backfilled();
    }
}

/// Slot of a worker. Dropping it, also by a panic, frees the slot.
struct WorkerSlot(Arc<SyncerInner>);

impl WorkerSlot {
    fn take(inner: &Arc<SyncerInner>, most: usize) -> Option<Self> {
        let taken = inner.workers.send_if_modified(|many| {
            let is_free = *many < most;
            *many += usize::from(is_free);
            is_free
        });
        taken.then(|| Self(Arc::clone(inner)))
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.0.workers.send_modify(|many| *many -= 1);
    }
}
