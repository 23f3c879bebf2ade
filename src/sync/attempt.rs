//! Makes one attempt to sync one mirror under its exclusive lease: starts, fetches, verifies, and records the result.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use tracing::{error, info, warn};

use super::coalescer::WaitingTasks;
use super::failure::{failure, of_forge, of_git, of_replacing};
use super::verify::{VerifyResult, verify};
use super::{SyncerDependencies, SyncerInner};
use crate::git::{Mirror, RefList, RefName, RefSelection, RefusedRef, Remote};
use crate::leases::{LeaseAttempt, LeaseKey, LeaseOutcome};
use crate::model::{
    AttemptLease, FailureKind, MirrorEvent, MirrorState, PullRef, RepoId, SyncFacts, SyncFailure,
};
use crate::store::{MirrorChange, MirrorRow};
use crate::telemetry::Metric;

/// Interval between two checks for every object of a mirror.
const CONNECTIVITY_EVERY: TimeDelta = TimeDelta::hours(24);
/// Interval between two runs of upkeep of a mirror.
const MAINTAIN_EVERY: TimeDelta = TimeDelta::hours(24);

/// Additional time during which upkeep lets commands pass; after it, commands wait for upkeep once.
const PATIENCE: TimeDelta = TimeDelta::days(3);

/// Result of an attempt.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncAttempt {
    /// The mirror is in sync and verified.
    Synced,
    /// The attempt failed and is retried after a wait.
    Failed(FailureKind),
    /// Another task or server works on the mirror; the next round tries again.
    Busy,
    /// The mirror is not due: another attempt was faster.
    NotDue,
    /// The lease was lost during the attempt; the server that notices this queues the mirror for a retry.
    Lost,
    /// The database did not answer; nothing is known to have happened.
    NoDatabase,
}

impl SyncAttempt {
    /// Values of the label in the metric.
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

impl SyncerInner {
    pub(super) async fn attempt(&self, repo: &RepoId) -> SyncAttempt {
        let attempt = self.under_lease(repo).await.unwrap_or_else(|error| {
            error!(%repo, %error, "Could not read or write the table of mirrors");
            SyncAttempt::NoDatabase
        });
        if let Some(outcome) = attempt.outcome() {
            self.parts
                .metrics
                .count(Metric::RepositorySyncs, &[outcome]);
        }
        if let SyncAttempt::Failed(kind) = attempt {
            self.parts
                .metrics
                .count(Metric::RepositorySyncFailures, &[kind.as_str()]);
        }
        attempt
    }

    async fn under_lease(&self, repo: &RepoId) -> Result<SyncAttempt, sqlx::Error> {
        let SyncerDependencies {
            data_dir_id,
            leases,
            lease_time,
            ..
        } = &self.parts;
        // A command of this server works on the mirror.
        let Some(_gate) = self.gates.attempt(repo) else {
            return Ok(SyncAttempt::Busy);
        };
        let key = LeaseKey::repository_sync(data_dir_id.as_str(), repo);
        let held = match leases.obtain(&key, "sync a mirror", *lease_time).await? {
            LeaseAttempt::Held(held) => held,
            LeaseAttempt::Busy { .. } => return Ok(SyncAttempt::Busy),
        };
        let lease = AttemptLease {
            key: held.hold().key.clone(),
            holder: held.hold().holder.clone(),
        };
        // The future is large and part of every future that waits for it.
        match Box::pin(held.run(self.start_to_end(repo, lease))).await {
            LeaseOutcome::Done(ended) => ended,
            LeaseOutcome::Lost => Ok(SyncAttempt::Lost),
        }
    }

    /// Keeps the row up to date: it shows the attempt while one is under way, and its result before the lease is
    /// released.
    async fn start_to_end(
        &self,
        repo: &RepoId,
        lease: AttemptLease,
    ) -> Result<SyncAttempt, sqlx::Error> {
        let SyncerDependencies {
            data_dir_id,
            store,
            clock,
            closing,
            metrics,
            forges,
            ..
        } = &self.parts;
        let (holder, begun) = (lease.holder.clone(), clock.now());
        let row = match store
            .mirror_change(
                data_dir_id,
                repo,
                &MirrorEvent::Started { at: begun, lease },
            )
            .await?
        {
            MirrorChange::Changed(row) => row,
            MirrorChange::NotAllowed(_) | MirrorChange::Unknown => return Ok(SyncAttempt::NotDue),
        };
        let done = tokio::select! {
            done = self.bring_in_step(&row) => done,
            () = closing.cancelled() => Err(failure(FailureKind::Interrupted, "the server was stopping")),
        };
        let (at, jitter) = (clock.now(), self.jitter(repo));
        metrics.observe(
            Metric::RepositorySyncDuration,
            &[],
            (at - begun).to_std().unwrap_or_default(),
        );
        let (event, attempt) = match done {
            Ok(facts) => {
                let (refs, refused) = (facts.refs, facts.refused.len());
                info!(%repo, refs, refused, checksum = %facts.checksum, "A mirror is in sync");
                (
                    MirrorEvent::Succeeded {
                        at,
                        holder,
                        facts,
                        jitter,
                    },
                    SyncAttempt::Synced,
                )
            }
            Err(failure) => {
                let (kind, message) = (failure.kind, failure.message.clone());
                if let Ok(forge) = forges.of(repo)
                    && kind.needs_somebody()
                {
                    forge.renew_access(repo);
                }
                warn!(%repo, %kind, message, fix = kind.fix(), "Could not sync a mirror");
                (
                    MirrorEvent::Failed {
                        at,
                        holder,
                        failure,
                        jitter,
                    },
                    SyncAttempt::Failed(kind),
                )
            }
        };
        let change = store.mirror_change(data_dir_id, repo, &event).await?;
        Ok(if matches!(change, MirrorChange::Changed(_)) {
            attempt
        } else {
            SyncAttempt::Lost
        })
    }

    async fn bring_in_step(&self, row: &MirrorRow) -> Result<SyncFacts, SyncFailure> {
        let SyncerDependencies { git, forges, .. } = &self.parts;
        let forge = forges.of(&row.repo).map_err(|error| of_forge(&error))?;
        let credentials = || async {
            forge
                .git_credentials(&row.repo)
                .await
                .map_err(|error| of_forge(&error))
        };
        let given = credentials().await?;
        let wanted = self.wanted(&row.repo).await?;
        let (url, mirror) = (forge.clone_url(&row.repo), git.mirror(&row.repo));
        let remote = Remote {
            url: &url,
            credentials: Some(&given),
            deadline: self.parts.fetch_time,
        };
        let synced = if row.state.needs_rebuild() {
            warn!(repo = %row.repo, "Creating a mirror again");
            mirror.rebuild(&remote, &wanted).await
        } else {
            mirror.sync(&remote, &wanted).await
        };
        synced.map_err(|error| of_replacing(&error, row.state.failure.as_ref()))?;
        // A clone may take as long as the first credentials are valid.
        let given = credentials().await?;
        let remote = Remote {
            credentials: Some(&given),
            ..remote
        };
        let mut waiting = WaitingTasks::default();
        let verdict = verify(&mirror, &remote, &wanted, || {
            waiting = self.coalescer.waiting_tasks(&row.repo);
        })
        .await;
        match verdict.map_err(|error| of_git(&error))? {
            VerifyResult::Same(refs, refused) => {
                // For a partial mirror, the waiting commands also need files.
                if !mirror.is_partial() {
                    waiting.finish(&wanted, &refs, &refused);
                }
                self.do_upkeep(&mirror, &row.state, &refs, &refused).await
            }
            VerifyResult::Differs(how) => Err(failure(FailureKind::Verification, &how)),
        }
    }

    /// Selects all branches, and the heads of the pulls that are known to be open.
    async fn wanted(&self, repo: &RepoId) -> Result<RefSelection, SyncFailure> {
        let SyncerDependencies { store, forges, .. } = &self.parts;
        let forge = forges.of(repo).map_err(|error| of_forge(&error))?;
        let heads = store.head_list(repo).await;
        let heads = heads.map_err(|error| {
            failure(
                FailureKind::Other,
                &format!("cannot list the open pull requests: {error}"),
            )
        })?;
        let mut pulls = BTreeSet::new();
        for head in heads {
            let at = PullRef {
                repo: repo.clone(),
                subject: head.number.into(),
            };
            let source = forge.head_source(&at).await;
            let name = source.map_err(|error| of_forge(&error))?.ref_in(repo);
            pulls.extend(name.and_then(|name| RefName::new(&name).ok()));
        }
        Ok(RefSelection {
            branches: true,
            pulls,
        })
    }

    /// Does the periodic upkeep of a mirror that is in sync.
    async fn do_upkeep(
        &self,
        mirror: &Mirror,
        state: &MirrorState,
        refs: &RefList,
        refused: &[RefusedRef],
    ) -> Result<SyncFacts, SyncFailure> {
        let now = self.parts.clock.now();
        let connectivity = self.check(mirror, state).await?;
        // A mirror that was just created needs no upkeep.
        let known_since = state.maintained_at.or(state.succeeded_at);
        let is_untidy = known_since.is_some_and(|last| now - last >= MAINTAIN_EVERY);
        let is_overdue = known_since.is_some_and(|last| now - last >= MAINTAIN_EVERY + PATIENCE);
        let maintained =
            known_since.is_none() || (is_untidy && self.tidy(mirror, is_overdue).await);
        let (checksum, refs) = (refs.checksum(), refs.len() as u64);
        let refused = refused.iter().map(ToString::to_string).collect();
        Ok(SyncFacts {
            checksum,
            refs,
            refused,
            bytes: size(mirror).await,
            connectivity,
            maintained,
        })
    }

    /// Checks for every object if the interval has passed. Returns true if the check was done.
    async fn check(&self, mirror: &Mirror, state: &MirrorState) -> Result<bool, SyncFailure> {
        let is_older = |last: Option<DateTime<Utc>>, than| {
            last.is_none_or(|last| self.parts.clock.now() - last >= than)
        };
        if !is_older(state.connectivity_at, CONNECTIVITY_EVERY) {
            return Ok(false);
        }
        let is_overdue = is_older(
            state.connectivity_at.or(state.succeeded_at),
            CONNECTIVITY_EVERY + PATIENCE,
        );
        let checked = self
            .unless_wanted(mirror, is_overdue, mirror.check_connectivity())
            .await;
        checked
            .transpose()
            .map(|checked| checked.is_some())
            .map_err(|error| of_git(&error))
    }

    async fn tidy(&self, mirror: &Mirror, is_overdue: bool) -> bool {
        self.unless_wanted(mirror, is_overdue, maintain(mirror))
            .await
            .unwrap_or(false)
    }

    /// Does upkeep unless a command waits for the mirror. Upkeep may be aborted at any time: the next fetch or upkeep
    /// removes its remains, and the next sync begins it again. An overdue upkeep is not aborted, so that mirrors in
    /// constant use get theirs.
    async fn unless_wanted<T>(
        &self,
        mirror: &Mirror,
        is_overdue: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let done = self
            .gates
            .unless_wanted(mirror.repo(), is_overdue, work)
            .await;
        if done.is_none() {
            info!(repo = %mirror.repo(), "Stopped the maintenance of a mirror because a command needs it");
        }
        done
    }
}

/// Returns the size of the mirror on disk. Without a result, the recorded size stays unchanged.
async fn size(mirror: &Mirror) -> Option<u64> {
    mirror
        .size()
        .await
        .inspect_err(
            |error| warn!(repo = %mirror.repo(), %error, "Could not determine the size of a mirror"),
        )
        .ok()
}

/// Does the upkeep and returns false if it fails; the mirror is in sync nevertheless.
async fn maintain(mirror: &Mirror) -> bool {
    match mirror.maintain().await {
        Ok(()) => true,
        Err(error) => {
            warn!(repo = %mirror.repo(), %error, "Could not clean up a mirror; this will be retried");
            false
        }
    }
}
