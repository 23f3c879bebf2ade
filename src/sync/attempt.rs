//! One attempt at one mirror, under its exclusive lease: started, fetched, verified, and how that ended.

use std::time::Duration;

use chrono::TimeDelta;
use tracing::{error, info, warn};

use super::failure::{failure, of_forge, of_git};
use super::verify::{Verdict, verify};
use super::{Inner, Parts};
use crate::git::{Mirror, RefList, RefName, RefSelection, Remote};
use crate::leases::{LeaseKey, LeaseOutcome, Obtained};
use crate::model::{AttemptLease, FailureKind, MirrorEvent, MirrorState, PullRef, RepoId, SyncFacts, SyncFailure};
use crate::store::{MirrorChange, MirrorRow};
use crate::telemetry::Metric;
use crate::vcs::GitCredentials;

/// Longest time for one exchange with the forge; the first fetch of a very large repository over a slow line fits.
const DEADLINE: Duration = Duration::from_mins(30);
/// Every object of a mirror is looked for this often.
const CONNECTIVITY_EVERY: TimeDelta = TimeDelta::hours(24);
/// A mirror is tidied up this often.
const MAINTAIN_EVERY: TimeDelta = TimeDelta::hours(24);

/// What an attempt came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The mirror is in step and verified.
    Synced,
    /// It failed, and is made again after a wait.
    Failed(FailureKind),
    /// Somebody else works on the mirror; it is tried again with the next round.
    Busy,
    /// None was due: somebody else was faster.
    NotDue,
    /// The lease was lost on the way; who finds that out puts the mirror among those to be tried again.
    Lost,
    /// The database did not answer; nothing is known to have happened.
    NoDatabase,
}

impl Attempt {
    /// The words of the metric.
    pub(super) const OUTCOMES: [&'static str; 4] = ["synced", "failed", "busy", "lost"];

    fn outcome(self) -> Option<&'static str> {
        match self {
            Self::Synced => Some("synced"),
            Self::Failed(_) => Some("failed"),
            Self::Busy => Some("busy"),
            Self::Lost => Some("lost"),
            Self::NotDue | Self::NoDatabase => None,
        }
    }
}

impl Inner {
    pub(super) async fn attempt(&self, repo: &RepoId) -> Attempt {
        let attempt = self.under_lease(repo).await.unwrap_or_else(|error| {
            error!(%repo, %error, "The registry of mirrors could not be read or written");
            Attempt::NoDatabase
        });
        if let Some(outcome) = attempt.outcome() {
            self.parts.metrics.count(Metric::RepositorySyncs, &[outcome]);
        }
        if let Attempt::Failed(kind) = attempt {
            self.parts.metrics.count(Metric::RepositorySyncFailures, &[kind.as_str()]);
        }
        attempt
    }

    async fn under_lease(&self, repo: &RepoId) -> Result<Attempt, sqlx::Error> {
        let Parts { home, leases, lease_time, .. } = &self.parts;
        // A command of this server is at it.
        let Some(_gate) = self.gates.attempt(repo) else { return Ok(Attempt::Busy) };
        let key = LeaseKey::repository_sync(home.as_str(), repo);
        let held = match leases.obtain(&key, "bring a mirror in step", *lease_time).await? {
            Obtained::Held(held) => held,
            Obtained::Busy { .. } => return Ok(Attempt::Busy),
        };
        let lease = AttemptLease { key: held.hold().key.clone(), holder: held.hold().holder.clone() };
        match held.run(self.start_to_end(repo, lease)).await {
            LeaseOutcome::Done(ended) => ended,
            LeaseOutcome::Lost => Ok(Attempt::Lost),
        }
    }

    /// The row says that an attempt is under way as long as one is, and how it ended before the lease is given back.
    async fn start_to_end(&self, repo: &RepoId, lease: AttemptLease) -> Result<Attempt, sqlx::Error> {
        let Parts { home, store, clock, closing, metrics, .. } = &self.parts;
        let (holder, begun) = (lease.holder.clone(), clock.now());
        let row = match store.mirror_change(home, repo, &MirrorEvent::Started { at: begun, lease }).await? {
            MirrorChange::Changed(row) => row,
            MirrorChange::NotAllowed(_) | MirrorChange::Unknown => return Ok(Attempt::NotDue),
        };
        let done = tokio::select! {
            done = self.bring_in_step(&row) => done,
            () = closing.cancelled() => Err(failure(FailureKind::Interrupted, "the server was told to stop")),
        };
        let (at, jitter) = (clock.now(), self.jitter(repo));
        metrics.observe(Metric::RepositorySyncDuration, &[], (at - begun).to_std().unwrap_or_default());
        let (event, attempt) = match done {
            Ok(facts) => {
                info!(%repo, refs = facts.refs, checksum = %facts.checksum, "A mirror is in step");
                (MirrorEvent::Succeeded { at, holder, facts, jitter }, Attempt::Synced)
            }
            Err(failure) => {
                let (kind, message) = (failure.kind, failure.message.clone());
                warn!(%repo, %kind, message, fix = kind.fix(), "A mirror could not be brought in step");
                (MirrorEvent::Failed { at, holder, failure, jitter }, Attempt::Failed(kind))
            }
        };
        let change = store.mirror_change(home, repo, &event).await?;
        Ok(if matches!(change, MirrorChange::Changed(_)) { attempt } else { Attempt::Lost })
    }

    async fn bring_in_step(&self, row: &MirrorRow) -> Result<SyncFacts, SyncFailure> {
        let Parts { git, forge, .. } = &self.parts;
        let credentials = forge.git_credentials(&row.repo, row.installation).await.map_err(|error| of_forge(&error))?;
        let wanted = self.wanted(&row.repo).await?;
        let (url, mirror) = (forge.clone_url(&row.repo), git.mirror(&row.repo));
        let remote = remote(&url, &credentials);
        let synced = if row.state.needs_rebuild() {
            warn!(repo = %row.repo, "A mirror is made anew");
            mirror.rebuild(&remote, &wanted).await
        } else {
            mirror.sync(&remote, &wanted).await
        };
        synced.map_err(|error| of_git(&error))?;
        match verify(&mirror, &remote, &wanted).await.map_err(|error| of_git(&error))? {
            Verdict::Same(refs) => self.look_after(&mirror, &row.state, &refs).await,
            Verdict::Differs(how) => Err(failure(FailureKind::Verification, &how)),
        }
    }

    /// Branches, and the heads of the pulls that are open as far as is known.
    async fn wanted(&self, repo: &RepoId) -> Result<RefSelection, SyncFailure> {
        let Parts { store, forge, .. } = &self.parts;
        let heads = store.head_list(repo).await;
        let heads =
            heads.map_err(|error| failure(FailureKind::Other, &format!("the open pulls are not known: {error}")))?;
        let name = |number| RefName::new(&forge.pull_head_ref(&PullRef { repo: repo.clone(), number })).ok();
        Ok(RefSelection { branches: true, pulls: heads.into_iter().filter_map(|head| name(head.number)).collect() })
    }

    /// What is done now and then with a mirror that is in step.
    async fn look_after(&self, mirror: &Mirror, state: &MirrorState, refs: &RefList) -> Result<SyncFacts, SyncFailure> {
        let now = self.parts.clock.now();
        let connectivity = state.connectivity_at.is_none_or(|last| now - last >= CONNECTIVITY_EVERY);
        if connectivity {
            mirror
                .check_connectivity()
                .await
                .map_err(|error| failure(FailureKind::Corrupt, &format!("not every object is there: {error}")))?;
        }
        // One that was made just now is tidy.
        let known_since = state.maintained_at.or(state.succeeded_at);
        let is_untidy = known_since.is_some_and(|last| now - last >= MAINTAIN_EVERY);
        let maintained = known_since.is_none() || (is_untidy && maintain(mirror).await);
        let (checksum, refs) = (refs.checksum(), refs.len() as u64);
        Ok(SyncFacts { checksum, refs, bytes: None, connectivity, maintained })
    }
}

fn remote<'a>(url: &'a str, credentials: &'a GitCredentials) -> Remote<'a> {
    Remote { url, credentials: Some(credentials), deadline: DEADLINE }
}

/// A mirror that could not be tidied up is in step all the same.
async fn maintain(mirror: &Mirror) -> bool {
    match mirror.maintain().await {
        Ok(()) => true,
        Err(error) => {
            warn!(repo = %mirror.repo(), %error, "A mirror could not be tidied up, which is tried again");
            false
        }
    }
}
