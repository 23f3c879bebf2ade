//! Imports the locks, pulls and statuses of another program in one transaction: either all of them or none.
//!
//! The import changes nothing that is held here. A trial does the same and rolls it back, so that it reports what
//! would really happen, races aside. Every pull is shared before the first lock is taken, ordered by name. As
//! everywhere in `store`, the row of the pull comes first. Nobody who holds the row of a lock waits for that of a
//! pull. If applies are to be stopped, the switch comes before both.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use semver::Version;

use super::locks::name_column;
use super::plans::insert_in_tx;
use super::pulls::pull_share_in_tx;
use super::{Result, Store, Tx, execute, free_text, kept_time, on_tx};
use crate::model::{
    Actor, ApplyLock, ApplyScope, BranchName, Cause, CommandId, CommandKind, CommandOutcome,
    CommitSha, Distribution, Lock, LockEventKind, LockId, LockKey, NewLockEvent, Origin,
    PlanCounts, PlanId, PlanRecord, PlanState, ProjectKey, ProjectOutcome, PullRef, PullState,
    RunId, RunKind, Sha256Digest,
};

/// Locks, pulls and statuses to import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportBatch {
    /// Open pulls, with their pages. The pulls of `locks` need not be among them.
    pub pulls: Vec<(PullRef, String)>,
    /// Locks to import, ordered by precedence: if two exclude each other, the first one is taken.
    pub locks: Vec<ImportLock>,
    /// Apply lock for the whole server.
    pub apply_lock: Option<ImportApplyLock>,
    /// Statuses of the projects of pulls; each pull is among `pulls`.
    pub statuses: Vec<ImportStatuses>,
}

/// Statuses of the projects of a pull at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportStatuses {
    pub pull: PullRef,
    /// Head of the pull at that time.
    pub head: CommitSha,
    /// Base branch at that time.
    pub base_branch: BranchName,
    /// Login that is shown as the author.
    pub holder: String,
    /// Reason that is shown.
    pub reason: String,
    /// Command to store for it, in the format of [`crate::store::CommandRow::spec`].
    pub spec: String,
    /// Projects with their statuses.
    pub projects: Vec<(ProjectKey, ImportStatus)>,
}

/// Status of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStatus {
    Applied,
    /// Planned, with nothing to change.
    NoChanges,
    /// The project needs a new plan.
    Unplanned,
}

impl ImportStatus {
    /// Returns the run to store for the project, and the state of its plan, if there is one.
    const fn record(self) -> (RunKind, ProjectOutcome, Option<PlanState>) {
        match self {
            Self::Applied => (
                RunKind::Apply,
                ProjectOutcome::Applied,
                Some(PlanState::Applied),
            ),
            Self::NoChanges => (
                RunKind::Plan,
                ProjectOutcome::NoChanges,
                Some(PlanState::NoChanges),
            ),
            Self::Unplanned => (RunKind::Plan, ProjectOutcome::Discarded, None),
        }
    }
}

/// An apply lock for the whole server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportApplyLock {
    /// Login of the person who set the lock.
    pub holder: String,
    pub reason: String,
    /// Time when the lock was set.
    pub taken_at: DateTime<Utc>,
}

/// A lock to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportLock {
    /// Pull that holds the lock.
    pub pull: PullRef,
    /// Page of the pull.
    pub pull_url: String,
    /// Project that the lock protects.
    pub project: ProjectKey,
    /// Login of the person who caused the lock to be taken.
    pub holder: String,
    /// Reason for holding the lock.
    pub reason: String,
    /// Time when the lock was taken; `None` means now.
    pub taken_at: Option<DateTime<Utc>>,
}

impl ImportLock {
    /// Returns the key of the lock.
    pub fn key(&self) -> LockKey {
        LockKey::of(&self.pull.repo, &self.project)
    }
}

/// Mode of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportMode {
    /// Only find out what would happen.
    Trial,
    /// Write to the database.
    Write,
}

/// Outcome of an import, in the order of the batch.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Outcome for each pull.
    pub pulls: Vec<ImportedPull>,
    /// Outcome for each lock.
    pub locks: Vec<ImportedLock>,
    /// Outcome for the apply lock.
    pub apply_lock: Option<ImportedApplyLock>,
    /// Plans that were stored for projects that are applied or have nothing to change.
    pub plans: Vec<(PullRef, ProjectKey, PlanState)>,
}

/// Outcome of importing a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportedPull {
    /// The pull was unknown before, and is open now.
    Taken,
    /// The pull is known in this state, which stays.
    AlreadyThere(PullState),
}

/// Outcome of importing a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportedLock {
    /// The lock was free before, and is held now.
    Taken,
    /// The same pull holds the lock already.
    AlreadyThere(Box<Lock>),
    /// Another pull holds the lock, and keeps it.
    HeldBy(Box<Lock>),
    /// The pull was closed here, so it takes no lock (P7).
    PullClosed(PullState),
}

/// Outcome of importing an apply lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportedApplyLock {
    /// Applies were allowed before, and are stopped now.
    Taken,
    /// Applies were stopped before, by this apply lock.
    AlreadyThere(Box<ApplyLock>),
}

const INSERT_LOCK: &str = "INSERT INTO locks \
     (id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at) \
     SELECT $1, $2, $3, $4, '', $5, $6, $7, $8, $9, $10, $11 WHERE NOT EXISTS (SELECT 1 FROM locks o \
     WHERE o.repo = $2 AND o.dir = $3 AND o.workspace = $4 AND o.pull <> $6) \
     ON CONFLICT (repo, dir, workspace, scope) DO NOTHING";
const INSERT_PULL: &str = "INSERT INTO pulls (repo, number, state, url, updated_at) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (repo, number) DO NOTHING";
/// Number of tries before a holder that changes faster than we can read it is reported as an error.
const TAKE_TRIES: usize = 16;

impl Store {
    /// Imports a batch, or finds out what the import would do.
    pub async fn import(&self, batch: &ImportBatch, mode: ImportMode) -> Result<Imported> {
        let mut tx = self.begin().await?;
        if batch.apply_lock.is_some() {
            self.apply_switch_hold_in_tx(&mut tx).await?;
        }
        let known = self.import_pulls(&mut tx, batch).await?;
        let mut locks = Vec::with_capacity(batch.locks.len());
        for lock in &batch.locks {
            locks.push(self.import_lock(&mut tx, lock, known[&lock.pull]).await?);
        }
        let mut plans = Vec::new();
        for statuses in &batch.statuses {
            match known.get(&statuses.pull) {
                Some(ImportedPull::Taken | ImportedPull::AlreadyThere(PullState::Open)) => {
                    plans.extend(self.import_statuses(&mut tx, statuses).await?);
                }
                Some(ImportedPull::AlreadyThere(PullState::Closed | PullState::Merged)) | None => {}
            }
        }
        let mut events = events(batch, &locks);
        let apply_lock = match &batch.apply_lock {
            Some(lock) => Some(self.import_apply_lock(&mut tx, lock, &mut events).await?),
            None => None,
        };
        if mode == ImportMode::Write {
            self.lock_events_in_tx(&mut tx, events).await?;
            tx.commit().await?;
        } else {
            tx.roll_back().await?;
        }
        Ok(Imported {
            pulls: batch.pulls.iter().map(|(pull, _)| known[pull]).collect(),
            locks,
            apply_lock,
            plans,
        })
    }

    /// Stores the statuses of projects that have no runs here. There is no plan file, so these plans can never be
    /// applied. The base commit is not known, and the head stands for it.
    async fn import_statuses(
        &self,
        tx: &mut Tx,
        it: &ImportStatuses,
    ) -> Result<Vec<(PullRef, ProjectKey, PlanState)>> {
        let (mut command, mut plans) = (None, Vec::new());
        for (project, status) in &it.projects {
            if has_runs_in_tx(tx, &it.pull, project).await? {
                continue;
            }
            let command = match command {
                Some(command) => command,
                None => *command.insert(self.import_command(tx, it).await?),
            };
            let (kind, outcome, state) = status.record();
            let run = RunId::next(&*self.ids);
            execute!(
                &mut *tx,
                "INSERT INTO runs (id, command, kind, repo, pull, dir, workspace, name, state, outcome, message, \
                 created_at, started_at, finished_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'finished', $9, $10, $11, $11, $11)",
                run,
                command,
                kind,
                &it.pull.repo,
                it.pull.subject,
                &project.dir,
                &project.workspace,
                name_column(project),
                outcome,
                free_text(&it.reason),
                self.now(),
            )?;
            let Some(state) = state else { continue };
            let plan = PlanRecord {
                id: PlanId::next(&*self.ids),
                pull: it.pull.clone(),
                project: project.clone(),
                run,
                head: it.head.clone(),
                base_branch: it.base_branch.clone(),
                base: it.head.clone(),
                distribution: Distribution::Terraform,
                tool_version: Version::new(0, 0, 0),
                workflow: Sha256Digest::of(it.reason.as_bytes()),
                order_group: 0,
                digest: None,
                counts: PlanCounts::default(),
                blocked: None,
                state,
                created_at: self.now(),
            };
            insert_in_tx(tx, &plan, self.now()).await?;
            plans.push((it.pull.clone(), project.clone(), state));
        }
        Ok(plans)
    }

    async fn import_command(&self, tx: &mut Tx, it: &ImportStatuses) -> Result<CommandId> {
        let id = CommandId::next(&*self.ids);
        execute!(
            tx,
            "INSERT INTO commands (id, kind, repo, pull, actor, origin, spec, head, state, outcome, created_at, finished_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'finished', $9, $10, $10)",
            id,
            CommandKind::Apply,
            &it.pull.repo,
            it.pull.subject,
            free_text(&it.holder),
            Origin::Cli,
            free_text(&it.spec),
            &it.head,
            CommandOutcome::Success,
            self.now(),
        )?;
        Ok(id)
    }

    /// Stores every unknown pull of the batch, and shares the rows of all of them until the transaction ends.
    async fn import_pulls(
        &self,
        tx: &mut Tx,
        batch: &ImportBatch,
    ) -> Result<BTreeMap<PullRef, ImportedPull>> {
        let of_locks = batch.locks.iter().map(|lock| (&lock.pull, &lock.pull_url));
        let wanted: BTreeMap<&PullRef, &String> = of_locks
            .chain(batch.pulls.iter().map(|(pull, url)| (pull, url)))
            .collect();
        let mut known = BTreeMap::new();
        for (pull, url) in wanted {
            let (repo, number, open) = (&pull.repo, pull.subject, PullState::Open);
            let new = execute!(
                &mut *tx,
                INSERT_PULL,
                repo,
                number,
                open,
                free_text(url),
                self.now()
            )? == 1;
            let state = pull_share_in_tx(tx, pull)
                .await?
                .ok_or(sqlx::Error::RowNotFound)?;
            known.insert(
                pull.clone(),
                if new {
                    ImportedPull::Taken
                } else {
                    ImportedPull::AlreadyThere(state)
                },
            );
        }
        Ok(known)
    }

    async fn import_lock(
        &self,
        tx: &mut Tx,
        lock: &ImportLock,
        pull: ImportedPull,
    ) -> Result<ImportedLock> {
        match pull {
            ImportedPull::Taken | ImportedPull::AlreadyThere(PullState::Open) => {}
            ImportedPull::AlreadyThere(closed @ (PullState::Closed | PullState::Merged)) => {
                return Ok(ImportedLock::PullClosed(closed));
            }
        }
        for _ in 0..TAKE_TRIES {
            if self.import_lock_insert(tx, lock).await? {
                return Ok(ImportedLock::Taken);
            }
            if let Some(held) = lock_holder_in_tx(tx, &lock.key()).await? {
                let is_ours = held.pull == lock.pull;
                let held = Box::new(held);
                return Ok(if is_ours {
                    ImportedLock::AlreadyThere(held)
                } else {
                    ImportedLock::HeldBy(held)
                });
            }
        }
        Err(sqlx::Error::Protocol(format!(
            "the lock {} changed hands {TAKE_TRIES} times",
            lock.key()
        )))
    }

    async fn import_lock_insert(&self, tx: &mut Tx, lock: &ImportLock) -> Result<bool> {
        let rows = execute!(
            tx,
            INSERT_LOCK,
            LockId::next(&*self.ids),
            &lock.pull.repo,
            &lock.project.dir,
            &lock.project.workspace,
            name_column(&lock.project),
            lock.pull.subject,
            free_text(&lock.pull_url),
            free_text(&lock.holder),
            free_text(&lock.reason),
            lock.taken_at.map_or_else(|| self.now(), kept_time),
            self.now(),
        )?;
        Ok(rows == 1)
    }

    /// Imports the apply lock. Adds its events to `told`, for the caller to store.
    async fn import_apply_lock(
        &self,
        tx: &mut Tx,
        lock: &ImportApplyLock,
        told: &mut Vec<NewLockEvent>,
    ) -> Result<ImportedApplyLock> {
        let cause = cause_of(&lock.holder, &lock.reason);
        let (there, events) = self
            .apply_lock_take_over_in_tx(tx, lock.taken_at, &cause)
            .await?;
        told.extend(events);
        Ok(there.map_or(ImportedApplyLock::Taken, |there| {
            ImportedApplyLock::AlreadyThere(Box::new(there))
        }))
    }

    /// Reads a written batch back from the database, and describes every difference.
    pub async fn import_verify(
        &self,
        batch: &ImportBatch,
        imported: &Imported,
    ) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for (lock, outcome) in batch.locks.iter().zip(&imported.locks) {
            let held = self.lock_holder(&lock.key()).await?;
            if !is_as_reported(held.as_ref(), lock, outcome) {
                wrong.push(format!(
                    "the lock {} differs from what was written",
                    lock.key()
                ));
            }
        }
        for ((pull, _), outcome) in batch.pulls.iter().zip(&imported.pulls) {
            let expected = match outcome {
                ImportedPull::Taken => PullState::Open,
                ImportedPull::AlreadyThere(state) => *state,
            };
            if self.pull_state(pull).await? != Some(expected) {
                wrong.push(format!(
                    "the pull request {pull} is not recorded as {expected}"
                ));
            }
        }
        for (pull, project, state) in &imported.plans {
            let plans = self.plan_list(pull).await?;
            if !plans
                .iter()
                .any(|plan| plan.project == *project && plan.state == *state)
            {
                wrong.push(format!("{project} of {pull} is not recorded as {state}"));
            }
        }
        if batch.apply_lock.is_some() && self.apply_lock_get(&ApplyScope::Server).await?.is_none() {
            wrong.push("applies are not stopped".to_owned());
        }
        Ok(wrong)
    }
}

/// Makes the events of the audit log for a batch.
fn events(batch: &ImportBatch, locks: &[ImportedLock]) -> Vec<NewLockEvent> {
    let taken = batch
        .locks
        .iter()
        .zip(locks)
        .filter(|(_, outcome)| matches!(outcome, ImportedLock::Taken));
    let of_lock = |(lock, _): (&ImportLock, _)| NewLockEvent {
        kind: LockEventKind::Taken,
        key: Some(lock.key()),
        scope: None,
        pull: Some(lock.pull.clone()),
        concern: None,
        cause: cause_of(&lock.holder, &lock.reason),
    };
    taken.map(of_lock).collect()
}

async fn has_runs_in_tx(tx: &mut Tx, pull: &PullRef, project: &ProjectKey) -> Result<bool> {
    let count = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT COUNT(*) FROM runs WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 AND name = $5")
        .bind(&pull.repo).bind(pull.subject).bind(&project.dir).bind(&project.workspace).bind(name_column(project))
        .fetch_one(db))?;
    Ok(count > 0)
}

fn cause_of(who: &str, reason: &str) -> Cause {
    Cause::new(Actor::new(who, Origin::Cli), reason)
}

fn is_as_reported(held: Option<&Lock>, lock: &ImportLock, outcome: &ImportedLock) -> bool {
    match outcome {
        ImportedLock::Taken => held.is_some_and(|held| {
            held.pull == lock.pull
                && held.project == lock.project
                && held.holder.login == free_text(&lock.holder)
                && held.reason == free_text(&lock.reason)
                && held.pull_url == free_text(&lock.pull_url)
                && lock
                    .taken_at
                    .is_none_or(|time| held.taken_at == kept_time(time))
        }),
        ImportedLock::AlreadyThere(other) => held.is_some_and(|held| held.pull == other.pull),
        ImportedLock::HeldBy(_) | ImportedLock::PullClosed(_) => {
            held.is_none_or(|held| held.pull != lock.pull)
        }
    }
}

async fn lock_holder_in_tx(tx: &mut Tx, key: &LockKey) -> Result<Option<Lock>> {
    let row = on_tx!(tx, db => sqlx::query_as::<_, super::locks::LockRow>(super::locks::BY_KEY)
        .bind(&key.repo).bind(&key.dir).bind(&key.workspace).bind("").fetch_all(db))?;
    Ok(row.into_iter().next().map(Lock::from))
}
