//! Keeps the mirrors of one data directory in step with their forge.
//!
//! The need: a command must find what it plans on this disk, fresh and whole, and no push, no killed server and no bad day
//! of the forge may leave a mirror behind for ever.
//!
//! What is to be done stands in the registry (`store::repository_syncs`), never in memory alone. [`Syncer::round`] is the
//! one repair: it walks what happened to repositories since the last time, notices attempts that nobody will end, and lets
//! a bounded number of workers take what is due. A round waits for no worker, so a repository that takes an hour keeps
//! nobody else waiting. An attempt is made under the exclusive lease of its mirror ([`attempt`]); whether one may begin,
//! and what follows from its end, is decided by [`crate::model::MirrorState::next`].

mod attempt;
mod failure;
mod flights;
mod gates;
mod home;
mod turns;
mod verify;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

pub use self::attempt::Attempt;
pub use self::flights::{Boarded, Ticket};
pub use self::gates::Gate;
pub use self::home::{HomeError, home};

use self::flights::Flights;
use self::gates::Gates;
use self::turns::{Turn, Turns};
use crate::clock::Clock;
use crate::config::server::RepoAllowlist;
use crate::git::{Git, RefName};
use crate::leases::Leases;
use crate::model::{FailureKind, HomeId, Jitter, MirrorEvent, RepoId, RepoUrl, SyncState};
use crate::store::{EventWalk, MirrorChange, Store};
use crate::telemetry::{Metric, Metrics};
use crate::vcs::Forge;

/// Events that are walked in one transaction.
const EVENTS: i64 = 500;
/// So many such walks in one round; the next round goes on.
const WALKS: usize = 40;
/// Mirrors of each sort that a round looks at.
const BATCH: i64 = 200;
/// Claims that a round looks at.
const CLAIMS: i64 = 500;

/// What a syncer works with.
pub struct Parts {
    /// The data directory whose mirrors these are.
    pub home: HomeId,
    /// The registry.
    pub store: Store,
    /// The mirrors.
    pub git: Git,
    /// Where they come from.
    pub forge: Arc<dyn Forge>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// One attempt at a time for each mirror.
    pub leases: Leases,
    /// How long a lease lasts unless it is renewed.
    pub lease_time: Duration,
    /// Longest time for one exchange with the forge.
    pub fetch_time: Duration,
    /// Numbers for monitors.
    pub metrics: Metrics,
    /// Cancelled when the server begins nothing more.
    pub closing: CancellationToken,
}

/// What the operator wants, as it is now.
#[derive(Clone)]
pub struct Wants {
    /// Which repositories have mirrors.
    pub allowlist: RepoAllowlist,
    /// Attempts at one time.
    pub parallel: usize,
}

impl Wants {
    /// Whether a repository has a mirror. With `--require-claims` one that nobody has claimed has none: where nobody gave
    /// credentials of their own, it would be fetched with those of the server, for nobody. A claim can be given up at any
    /// time, so that is asked before each attempt.
    async fn includes(&self, store: &Store, repo: &RepoId) -> Result<bool, sqlx::Error> {
        let list = &self.allowlist;
        Ok(list.allows(repo)
            && (!list.demands_claims() || store.claim_owner_of(repo).await?.is_some()))
    }
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Events that were walked, and mirrors that were due.
    pub looked_at: u64,
    /// Attempts that nobody would have ended, and are made again.
    pub orphaned: u64,
}

/// Keeps mirrors in step. Clones share their workers.
#[derive(Clone)]
pub struct Syncer(Arc<Inner>);

struct Inner {
    parts: Parts,
    gates: Gates,
    flights: Flights,
    /// Mirrors that are due, in turn.
    turns: Mutex<Turns>,
    /// How far the claims were looked through for repositories without a mirror.
    claims: Mutex<Option<RepoUrl>>,
    /// Workers that are at it.
    workers: watch::Sender<usize>,
}

impl Syncer {
    /// Begins nothing yet.
    pub fn new(parts: Parts) -> Self {
        for outcome in Attempt::OUTCOMES {
            parts.metrics.add(Metric::RepositorySyncs, &[outcome], 0);
        }
        for kind in FailureKind::ALL {
            parts
                .metrics
                .add(Metric::RepositorySyncFailures, &[kind.as_str()], 0);
        }
        let (gates, flights) = (Gates::default(), Flights::default());
        let (turns, claims, workers) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Inner {
            parts,
            gates,
            flights,
            turns,
            claims,
            workers,
        }))
    }

    /// The data directory whose mirrors these are.
    pub fn home(&self) -> &HomeId {
        &self.0.parts.home
    }

    /// Longest time for one exchange of git with the forge (`--fetch-timeout`).
    pub fn fetch_time(&self) -> Duration {
        self.0.parts.fetch_time
    }

    /// Takes up what happened, and lets workers begin what is due.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn round(&self, wants: &Wants) -> Result<Round, sqlx::Error> {
        let inner = &self.0;
        let mut round = Round {
            looked_at: inner.walk().await?,
            orphaned: inner.end_orphans().await?,
        };
        inner.wake_stale().await?;
        inner.backfill(wants).await?;
        let due = inner
            .parts
            .store
            .mirror_list_due(&inner.parts.home, BATCH)
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

    /// One attempt at a mirror now, if one is due. Whoever wants it to be due asks first
    /// ([`crate::model::MirrorEvent::Asked`]).
    pub async fn attempt(&self, repo: &RepoId) -> Attempt {
        self.0.attempt(repo).await
    }

    /// Waits until no worker is at it.
    pub async fn idle(&self) {
        let mut workers = self.0.workers.subscribe();
        // The sender lives as long as we do.
        workers.wait_for(|many| *many == 0).await.ok();
    }

    /// Waits until nobody else of this process is at a mirror. Who changes it asks for its lease while this is held.
    pub async fn gate(&self, repo: &RepoId) -> Gate {
        self.0.gates.wait(repo).await
    }

    /// The same without waiting; `None`: somebody is at it.
    pub fn gate_if_free(&self, repo: &RepoId) -> Option<Gate> {
        self.0.gates.attempt(repo)
    }

    /// Somebody needs these refs as they are from now on. To be asked for before the gate is waited for: whoever is at the
    /// mirror until then may bring them.
    pub fn enter(&self, repo: &RepoId, refs: &[RefName]) -> Ticket {
        self.0.flights.enter(repo, refs)
    }

    /// A command uses a mirror: it is known from now on, and one that was removed to make room is wanted again. The
    /// command does not fail because that could not be noted.
    pub async fn used(&self, repo: &RepoId, installation: Option<u64>) {
        let Parts {
            store, home, clock, ..
        } = &self.0.parts;
        let noted = async {
            store.mirror_know(home, repo, installation).await?;
            store
                .mirror_change(home, repo, &MirrorEvent::Used { at: clock.now() })
                .await
        };
        if let Err(error) = noted.await {
            warn!(%repo, %error, "That a mirror is used could not be noted");
        }
    }

    /// A mirror was removed to make room: it is made again when somebody uses it.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn evicted(&self, repo: &RepoId) -> Result<(), sqlx::Error> {
        let Parts {
            store, home, clock, ..
        } = &self.0.parts;
        let _change = store
            .mirror_change(home, repo, &MirrorEvent::Evicted { at: clock.now() })
            .await?;
        Ok(())
    }

    /// As many as there is work for, together with those that are still at it not more than the operator wants.
    fn start_workers(&self, due: usize, wants: &Wants) {
        for _ in 0..due {
            let Some(place) = Place::take(&self.0, wants.parallel) else {
                return;
            };
            let (inner, wants) = (Arc::clone(&self.0), wants.clone());
            tokio::spawn(async move { inner.work(&wants, place).await });
        }
    }
}

impl Inner {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what happened since the last time. Tells how many events that were.
    async fn walk(&self) -> Result<u64, sqlx::Error> {
        let Parts { store, home, .. } = &self.parts;
        let mut walked = 0;
        for _ in 0..WALKS {
            match store.repository_event_walk(home, EVENTS).await? {
                EventWalk::NoCursor => {
                    let repositories = store.repository_event_begin(home).await?;
                    info!(%home, repositories, "This data directory begins to follow what happens to repositories");
                }
                EventWalk::Walked(0) => break,
                EventWalk::Walked(many) => walked += many as u64,
            }
        }
        Ok(walked)
    }

    /// A server that died, or lost its lease, does not end what it began; one that never comes back has it ended by others.
    async fn end_orphans(&self) -> Result<u64, sqlx::Error> {
        let Parts { store, clock, .. } = &self.parts;
        let mut ended = 0;
        for (home, repo) in store.mirror_list_orphaned(BATCH).await? {
            let event = MirrorEvent::Orphaned {
                at: clock.now(),
                jitter: self.jitter(&repo),
            };
            if let MirrorChange::Changed(row) = store.mirror_change(&home, &repo, &event).await? {
                let message = row
                    .state
                    .failure
                    .map(|failure| failure.message)
                    .unwrap_or_default();
                info!(%repo, %home, message, "The sync of a mirror was cut off and is made again");
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// What nobody has told of for long is looked at all the same.
    async fn wake_stale(&self) -> Result<(), sqlx::Error> {
        let Parts {
            store, home, clock, ..
        } = &self.parts;
        for repo in store.mirror_list_stale(home, BATCH).await? {
            let _change = store
                .mirror_change(home, &repo, &MirrorEvent::Due { at: clock.now() })
                .await?;
        }
        Ok(())
    }

    /// Makes mirrors known of repositories that somebody means to work with: those that are claimed (as those of applications
    /// are) and those that the allow-list names. Nobody waits for them.
    async fn backfill(&self, wants: &Wants) -> Result<(), sqlx::Error> {
        let Parts {
            store, home, forge, ..
        } = &self.parts;
        let after = self
            .claims
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let claims = store.claim_list(None, after.as_ref(), CLAIMS).await?;
        // After the last page the first one follows.
        let is_full = i64::try_from(claims.len()).is_ok_and(|many| many == CLAIMS);
        let next = claims
            .last()
            .map(|claim| claim.url.clone())
            .filter(|_| is_full);
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = next;
        let claimed = claims.iter().filter_map(|claim| claim.url.repo_id());
        let mut wanted: Vec<RepoId> = claimed.chain(wants.allowlist.named()).collect();
        wanted.retain(|repo| repo.host() == forge.host() && wants.allowlist.allows(repo));
        wanted.sort();
        wanted.dedup();
        for repo in store.mirror_list_unknown(home, wanted).await? {
            if wants.includes(store, &repo).await? && store.mirror_know(home, &repo, None).await? {
                info!(%repo, "A repository gets its mirror when there is nothing else to do");
            }
        }
        Ok(())
    }

    async fn measure(&self) -> Result<(), sqlx::Error> {
        let counted = self.parts.store.mirror_count(&self.parts.home).await?;
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

    /// Takes one mirror after the other until none is left, or the server closes.
    async fn work(&self, wants: &Wants, place: Place) {
        while !self.parts.closing.is_cancelled() {
            let Some(Turn { repo, is_backfill }) = self.turns().next(wants.parallel) else {
                break;
            };
            let _backfill = is_backfill.then(|| Backfill(self));
            match wants.includes(&self.parts.store, &repo).await {
                Ok(true) => {
                    let span = info_span!("sync", %repo);
                    let outcome = self.attempt(&repo).instrument(span).await;
                    debug!(%repo, ?outcome, "An attempt at a mirror ended");
                }
                Ok(false) => {
                    if let Err(error) = self.forget(wants, &repo).await {
                        error!(%repo, %error, "A mirror of a repository that is not served any more could not be forgotten");
                    }
                }
                // It stays due: the next round asks again.
                Err(error) => {
                    error!(%repo, %error, "Whether somebody has claimed a repository could not be asked");
                }
            }
        }
        drop(place);
    }

    /// Forgets a mirror that is not wanted. That is asked once more after its row was read: what is told of it from then on,
    /// as when somebody claims the repository and pushes, keeps the row.
    async fn forget(&self, wants: &Wants, repo: &RepoId) -> Result<(), sqlx::Error> {
        let Parts { home, store, .. } = &self.parts;
        let Some(row) = store.mirror_get(home, repo).await? else {
            return Ok(());
        };
        if !wants.includes(store, repo).await? && !store.mirror_forget(&row).await? {
            debug!(%repo, "A mirror that was to be forgotten was changed at that moment, and is looked at again");
        }
        Ok(())
    }

    /// Different for each mirror on each disk, so that those of many are not looked at in the same moment.
    fn jitter(&self, repo: &RepoId) -> Jitter {
        let now = self.parts.clock.now().timestamp();
        Jitter::of(&format!("{} {repo} {now}", self.parts.home))
    }
}

/// A worker at a mirror that nobody waits for. Dropping it, also by a panic, lets another begin with one.
struct Backfill<'a>(&'a Inner);

impl Drop for Backfill<'_> {
    fn drop(&mut self) {
        self.0.turns().backfilled();
    }
}

/// The place of a worker. Dropping it, also by a panic, makes room for another.
struct Place(Arc<Inner>);

impl Place {
    fn take(inner: &Arc<Inner>, most: usize) -> Option<Self> {
        let taken = inner.workers.send_if_modified(|many| {
            let is_free = *many < most;
            *many += usize::from(is_free);
            is_free
        });
        taken.then(|| Self(Arc::clone(inner)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.workers.send_modify(|many| *many -= 1);
    }
}
