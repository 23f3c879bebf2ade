//! Renames a repository: the rows of all tables move to the new name, in one transaction.
//!
//! The need: every table knows a repository by its name. Once the forge gives it another name, rows under the old
//! name do not stop a command that uses the new one. Then one directory could have two locks.
//!
//! - *Nothing is at work*: work under way has the name in its memory. While a job of the repository runs, nothing
//!   moves. Its other commands wait, so that a busy repository comes to rest. Therefore applies, plans and their ends
//!   are never split between two names. The job that found out may run.
//! - *Both names have rows*: the older of two locks on one place stays, and the plans under the other are discarded.
//!   Where only one row can exist, the row of the new name or the newer row stays. If two owners claim the
//!   repository, nothing moves, and a person has to decide.
//! - *Sealed for an address*: the holder of the keys seals credentials again for the new address. If one of them
//!   cannot be opened, nothing moves.
//! - *The audit log keeps the old name*: it gets an event that says which name followed.
//!
//! The transaction locks in the same order as all others: the switch, the lines of both names in order, rows of pulls,
//! their heads, their changes and locks, applications, credentials, claims, lanes, and last the audit log and the events of repositories.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use serde_json::Value;

use super::claims::claim_hold_in_tx;
use super::credentials::sealed_of_url_in_tx;
use super::jobs::{JobState, answers_share, lane_hold_in_tx};
use super::lock_change::{LockChange, line_hold_in_tx};
use super::repositories::repository_named_in_tx;
use super::{Result, SealedCredential, Store, Tx, execute, free_text, kept_time, on_tx};
use crate::model::{
    ApplicationId, Cause, Concern, CredentialId, JobId, Lock, LockEventKind, LockId, NewLockEvent,
    OwnerName, RepoId, RepoUrl, RepositoryChange, RepositoryEventKind,
};
use crate::seal::{OpenError, SealedText};

/// All columns that name a repository and move with it, as `table.column`. A test compares them with the schema.
pub const RENAMED_COLUMNS: &[&str] = &[
    "absences.repo",
    "applications.url",
    "apply_locks.repo",
    "changes.repo",
    "commands.repo",
    "credentials.url",
    "forge_pages.repo",
    "jobs.lane",
    "jobs.payload",
    "jobs.share",
    "lock_waiters.pull_url",
    "lock_waiters.repo",
    "locks.pull_url",
    "locks.repo",
    "pending_statuses.repo",
    "plans.repo",
    "policy_approvals.repo",
    "pull_heads.repo",
    "pulls.repo",
    "pulls.url",
    "registry_branch_repos.repo",
    "registry_branch_uses.repo",
    "registry_tag_moves.repo",
    "registry_tag_repos.repo",
    "registry_tag_versions.repo",
    "registry_tags.repo",
    "repositories.repo",
    "repository_claims.url",
    "repository_events.repo",
    "repository_syncs.repo",
    "runs.repo",
    "watched_repos.repo",
];

/// Wait of queued commands for those of the same repository that are under way.
const WAIT_FOR_REST: TimeDelta = TimeDelta::seconds(10);

/// A repository that has another name now.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Identifier on the forge.
    pub id: u64,
    /// Name in the database.
    pub old: &'a RepoId,
    /// New name on the forge.
    pub new: &'a RepoId,
    /// Person or program that moves the repository, and the reason.
    pub cause: &'a Cause,
    /// The job that found out. It is running, and does not prevent the move.
    pub within: Option<JobId>,
}

/// Outcome of a rename.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// Number of rows that have the new name now.
    Done(u64),
    /// A job of the repository is running; nothing was moved.
    Busy,
    /// A person has to decide first; nothing was moved.
    Refused(RenameRefused),
}

/// Reason why the rows of a repository cannot be moved to its new name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenameRefused {
    /// Different owners have claimed the two names.
    #[error(
        "the repository {old} was renamed to {new}, but `{owner}` has claimed the old name and `{other}` the new one. \
         Remove the applications and credentials of one of them (lockkeeper apps remove, lockkeeper credentials \
         remove); until then, no work is done in the repository"
    )]
    TwoOwners {
        /// Name in the database.
        old: RepoId,
        /// New name on the forge.
        new: RepoId,
        /// Owner who has claimed the old name.
        owner: OwnerName,
        /// Owner who has claimed the new name.
        other: OwnerName,
    },
    /// The same project is registered under both names.
    #[error(
        "the repository {old} was renamed to {new}, but the same project is registered under both names, as \
         application {first} and as {second}. Remove one of them (lockkeeper apps remove)"
    )]
    SameApplication {
        /// Name in the database.
        old: RepoId,
        /// New name on the forge.
        new: RepoId,
        /// The application under the old name.
        first: ApplicationId,
        /// The application under the new name.
        second: ApplicationId,
    },
    /// A credential of the repository cannot be sealed for the new address.
    #[error(
        "the repository {old} was renamed to {new}, but the credential {id} of the old name cannot be moved: \
         {reason}. Give the server the key, or remove the credential (lockkeeper credentials remove) and add it again \
         under the new name"
    )]
    Sealed {
        /// Name in the database.
        old: RepoId,
        /// New name on the forge.
        new: RepoId,
        /// Identifier of the credential.
        id: CredentialId,
        /// Reason why it cannot be opened.
        reason: OpenError,
    },
}

/// Deletes rows of pulls and their heads that would conflict under the new name (`$2`) with rows of the old one (`$1`).
/// The last known state of a pull stays.
const MERGE_PULLS: [&str; 3] = [
    "DELETE FROM pulls WHERE repo = $2 AND EXISTS (SELECT 1 FROM pulls o WHERE o.repo = $1 AND o.number = pulls.number \
     AND o.updated_at > pulls.updated_at)",
    "DELETE FROM pulls WHERE repo = $1 AND number IN (SELECT number FROM pulls WHERE repo = $2)",
    "DELETE FROM pull_heads WHERE repo = $1 AND number IN (SELECT number FROM pull_heads WHERE repo = $2)",
];

/// Gives pulls and their heads the new name. They come before everything else, because the row of a pull is the mutex of
/// other rows, and a push takes the rows of the pull, its head and its change in this order.
const MOVE_PULLS: [&str; 2] = [
    "UPDATE pulls SET repo = $2 WHERE repo = $1",
    "UPDATE pull_heads SET repo = $2 WHERE repo = $1",
];

/// Deletes or changes rows that would conflict under the new name (`$2`) with rows of the old one (`$1`).
const MERGE: [&str; 16] = [
    // The old name has been known for longer, so fewer changes count as older than that.
    "DELETE FROM watched_repos WHERE repo = $2 AND EXISTS (SELECT 1 FROM watched_repos o WHERE o.repo = $1)",
    // The tags of these pages belong to addresses.
    "DELETE FROM forge_pages WHERE repo = $1 OR repo = $2",
    "DELETE FROM absences WHERE repo = $1 OR repo = $2",
    "DELETE FROM pending_statuses WHERE repo = $1 AND EXISTS (SELECT 1 FROM pending_statuses n WHERE n.repo = $2 \
     AND n.head = pending_statuses.head AND n.context = pending_statuses.context)",
    "UPDATE commands SET comment = NULL WHERE repo = $1 AND comment IS NOT NULL AND EXISTS (SELECT 1 FROM commands n \
     WHERE n.repo = $2 AND n.pull = commands.pull AND n.comment = commands.comment)",
    "UPDATE plans SET state = 'discarded' WHERE repo = $1 AND state <> 'discarded' AND EXISTS (SELECT 1 FROM plans n \
     WHERE n.repo = $2 AND n.pull = plans.pull AND n.dir = plans.dir AND n.workspace = plans.workspace \
     AND n.name = plans.name AND n.state <> 'discarded')",
    "DELETE FROM lock_waiters WHERE repo = $1 AND EXISTS (SELECT 1 FROM lock_waiters n WHERE n.repo = $2 \
     AND n.dir = lock_waiters.dir AND n.workspace = lock_waiters.workspace AND n.scope = lock_waiters.scope \
     AND n.pull = lock_waiters.pull)",
    // If two locks stop the same applies, the one that lasts longer stays.
    "DELETE FROM apply_locks WHERE repo = $2 AND ends_at IS NOT NULL AND EXISTS (SELECT 1 FROM apply_locks o \
     WHERE o.repo = $1 AND o.scope = apply_locks.scope AND o.dir = apply_locks.dir \
     AND (o.ends_at IS NULL OR o.ends_at > apply_locks.ends_at))",
    "DELETE FROM apply_locks WHERE repo = $1 AND EXISTS (SELECT 1 FROM apply_locks n WHERE n.repo = $2 \
     AND n.scope = apply_locks.scope AND n.dir = apply_locks.dir)",
    "DELETE FROM repository_syncs WHERE repo = $1 AND replica IN (SELECT replica FROM repository_syncs WHERE repo = $2)",
    // The default branch of the new name is read again.
    "DELETE FROM registry_branch_uses WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_branch_repos o WHERE o.repo = $1)",
    "DELETE FROM registry_branch_repos WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_branch_repos o WHERE o.repo = $1)",
    // The old name knows what it has published. What the new name knows beside that is found again.
    "DELETE FROM registry_tag_repos WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_tag_repos o WHERE o.repo = $1)",
    "DELETE FROM registry_tags WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_tags o WHERE o.repo = $1 \
     AND o.tag = registry_tags.tag AND o.commit_sha = registry_tags.commit_sha)",
    "DELETE FROM registry_tag_versions WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_tag_versions o \
     WHERE o.repo = $1 AND o.tag = registry_tag_versions.tag AND o.commit_sha = registry_tag_versions.commit_sha \
     AND o.kind = registry_tag_versions.kind AND o.name = registry_tag_versions.name \
     AND o.version = registry_tag_versions.version)",
    "DELETE FROM registry_tag_moves WHERE repo = $2 AND EXISTS (SELECT 1 FROM registry_tag_moves o WHERE o.repo = $1 \
     AND o.tag = registry_tag_moves.tag AND o.from_sha = registry_tag_moves.from_sha \
     AND o.moved_at = registry_tag_moves.moved_at)",
];

/// Gives the rows of the old name (`$1`) the new one (`$2`).
const MOVE: [&str; 16] = [
    "UPDATE locks SET repo = $2 WHERE repo = $1",
    "UPDATE lock_waiters SET repo = $2 WHERE repo = $1",
    "UPDATE apply_locks SET repo = $2 WHERE repo = $1",
    "UPDATE plans SET repo = $2 WHERE repo = $1",
    "UPDATE policy_approvals SET repo = $2 WHERE repo = $1",
    "UPDATE runs SET repo = $2 WHERE repo = $1",
    "UPDATE commands SET repo = $2 WHERE repo = $1",
    "UPDATE watched_repos SET repo = $2, failures = 0, complete_at = NULL WHERE repo = $1",
    "UPDATE pending_statuses SET repo = $2 WHERE repo = $1",
    "UPDATE repository_syncs SET repo = $2, revision = revision + 1 WHERE repo = $1",
    "UPDATE registry_branch_uses SET repo = $2 WHERE repo = $1",
    "UPDATE registry_branch_repos SET repo = $2 WHERE repo = $1",
    "UPDATE registry_tag_repos SET repo = $2 WHERE repo = $1",
    "UPDATE registry_tags SET repo = $2 WHERE repo = $1",
    "UPDATE registry_tag_versions SET repo = $2 WHERE repo = $1",
    "UPDATE registry_tag_moves SET repo = $2 WHERE repo = $1",
];

/// Changes the addresses of the pages of pulls. A forge redirects the old name to the new one, but only until another
/// repository has the old name. Addresses of forges are compared without case.
macro_rules! pages_sql {
    ($table:literal, $column:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET ",
            $column,
            " = REPLACE(LOWER(",
            $column,
            "), $2, $3) WHERE repo = $1 AND REPLACE(LOWER(",
            $column,
            "), $2, '') <> LOWER(",
            $column,
            ")"
        )
    };
}
const PAGES: [&str; 3] = [
    pages_sql!("pulls", "url"),
    pages_sql!("locks", "pull_url"),
    pages_sql!("lock_waiters", "pull_url"),
];

/// Removes a pull from the queue of a lock that it holds.
const WAITS_FOR_ITSELF: &str = "DELETE FROM lock_waiters WHERE repo = $1 AND EXISTS (SELECT 1 FROM locks l \
     WHERE l.repo = $1 AND l.dir = lock_waiters.dir AND l.workspace = lock_waiters.workspace \
     AND l.pull = lock_waiters.pull AND (l.scope = '' OR l.scope = lock_waiters.scope))";
const TWICE_REGISTERED: &str = "SELECT o.id, n.id FROM applications o JOIN applications n ON n.branch = o.branch \
     AND n.dir = o.dir AND n.workspace = o.workspace WHERE o.url = $1 AND n.url = $2 ORDER BY o.id LIMIT 1";

/// Reason to give up a transaction.
enum RenameStop {
    Busy,
    Refused(RenameRefused),
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for RenameStop {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

type RenameResult<T> = std::result::Result<T, RenameStop>;

#[derive(sqlx::FromRow)]
struct OpenJob {
    seq: i64,
    id: JobId,
    lane: String,
    share: String,
    payload: String,
    state: JobState,
}

impl Store {
    /// Gives all rows of a repository its new name. `reseal` seals a credential for the new address.
    pub async fn repository_rename(
        &self,
        rename: &Rename<'_>,
        reseal: impl Fn(&SealedCredential, &RepoUrl) -> std::result::Result<SealedText, OpenError>
        + Send
        + Sync,
    ) -> Result<Renamed> {
        if rename.old == rename.new {
            return Ok(Renamed::Done(0));
        }
        match self.rename_all(rename, &reseal).await {
            Ok(rows) => Ok(Renamed::Done(rows)),
            Err(RenameStop::Busy) => self.rest(rename).await.map(|()| Renamed::Busy),
            Err(RenameStop::Refused(why)) => Ok(Renamed::Refused(why)),
            Err(RenameStop::Failed(error)) => Err(error),
        }
    }

    async fn rename_all(
        &self,
        rename: &Rename<'_>,
        reseal: &(
             impl Fn(&SealedCredential, &RepoUrl) -> std::result::Result<SealedText, OpenError>
             + Send
             + Sync
         ),
    ) -> RenameResult<u64> {
        let Rename {
            id,
            old,
            new,
            cause,
            ..
        } = *rename;
        let mut tx = self.begin().await?;
        let jobs = open_jobs_in_tx(&mut tx, rename).await?;
        self.apply_switch_hold_in_tx(&mut tx).await?;
        for repo in BTreeSet::from([old, new]) {
            line_hold_in_tx(&mut tx, repo).await?;
        }
        let mut change = LockChange::of(self, tx, cause);
        settle_locks(&mut change, old, new).await?;
        let mut rows = self.rows_in_tx(&mut change.tx, old, new).await?;
        rows += registered_in_tx(&mut change.tx, (old, new), reseal).await?;
        rows += jobs_move_in_tx(&mut change.tx, &jobs, old, new).await?;
        repository_named_in_tx(&mut change.tx, id, (old, new), kept_time(self.now())).await?;
        if rows > 0 {
            change.note(renamed_event(rename));
        }
        let news = RepositoryChange {
            repo: new.clone(),
            kind: RepositoryEventKind::Renamed,
        };
        let news = if rows > 0 && is_proper(new) {
            vec![news]
        } else {
            Vec::new()
        };
        change.commit_with(&news).await?;
        Ok(rows)
    }

    async fn rows_in_tx(&self, tx: &mut Tx, old: &RepoId, new: &RepoId) -> Result<u64> {
        for sql in MERGE_PULLS {
            execute!(&mut *tx, sql, old, new)?;
        }
        let mut rows = 0;
        for sql in MOVE_PULLS {
            rows += execute!(&mut *tx, sql, old, new)?;
        }
        // A change with a row under both names keeps both numbers, because stars name them.
        execute!(
            &mut *tx,
            "UPDATE changes SET repo = $2 WHERE repo = $1",
            old,
            new
        )?;
        for sql in MERGE {
            execute!(&mut *tx, sql, old, new)?;
        }
        if !is_proper(new) {
            // Nobody will request it from the forge any more.
            execute!(&mut *tx, "DELETE FROM watched_repos WHERE repo = $1", old)?;
            execute!(
                &mut *tx,
                "DELETE FROM repository_syncs WHERE repo = $1",
                old
            )?;
        }
        for sql in MOVE {
            rows += execute!(&mut *tx, sql, old, new)?;
        }
        execute!(
            &mut *tx,
            "UPDATE watched_repos SET due_at = $2 WHERE repo = $1",
            new,
            kept_time(self.now())
        )?;
        // Every data directory walks the stored events under the name that the repository has now.
        execute!(
            &mut *tx,
            "UPDATE repository_events SET repo = $2 WHERE repo = $1",
            old,
            new
        )?;
        execute!(&mut *tx, WAITS_FOR_ITSELF, new)?;
        let [old_page, new_page] = [old, new].map(|repo| format!("/{}/", repo.full_name()));
        for sql in PAGES {
            execute!(&mut *tx, sql, new, &old_page, &new_page)?;
        }
        Ok(rows)
    }

    /// Delays the queued commands of the repository for a moment, so that those under way are the last ones.
    async fn rest(&self, rename: &Rename<'_>) -> Result<()> {
        let mut tx = self.begin().await?;
        let until = self
            .clock_offset_in_tx(&mut tx)
            .await?
            .of(self.now() + WAIT_FOR_REST);
        execute!(
            &mut tx,
            "UPDATE jobs SET run_after = $1 WHERE state IN ('queued', 'running') AND state = 'queued' \
             AND share IN ($2, $3, $4, $5) AND run_after < $1",
            until,
            rename.old.to_string(),
            rename.new.to_string(),
            answers_share(rename.old),
            answers_share(rename.new),
        )?;
        tx.commit().await
    }
}

/// Returns true if a forge can have a repository of this name.
fn is_proper(repo: &RepoId) -> bool {
    repo.to_string().parse::<RepoId>().is_ok()
}

/// Returns the open jobs of the old name. Fails if a job of either name is running, except the one that does the
/// rename.
async fn open_jobs_in_tx(tx: &mut Tx, rename: &Rename<'_>) -> RenameResult<Vec<OpenJob>> {
    let jobs = on_tx!(tx, db => sqlx::query_as::<_, OpenJob>(
        "SELECT seq, id, lane, share, payload, state FROM jobs WHERE state IN ('queued', 'running') ORDER BY seq")
        .fetch_all(db))?;
    let names = |job: &OpenJob, repo: &RepoId| {
        names(&job.lane, repo) || share_moved(&job.share, repo, repo).is_some()
    };
    let at_work = |job: &OpenJob| job.state == JobState::Running && rename.within != Some(job.id);
    if jobs
        .iter()
        .any(|job| at_work(job) && (names(job, rename.old) || names(job, rename.new)))
    {
        return Err(RenameStop::Busy);
    }
    Ok(jobs
        .into_iter()
        .filter(|job| names(job, rename.old) && !is_of_another(&job.payload, rename.id))
        .collect())
}

/// Returns true if a job names the identifier of another repository. That repository has the old name by now, so its
/// job stays.
fn is_of_another(payload: &str, id: u64) -> bool {
    let value: Value = serde_json::from_str(payload).unwrap_or_default();
    value
        .pointer("/told/id")
        .and_then(Value::as_u64)
        .is_some_and(|told| told != id)
}

/// Returns true if a lane is one of a repository: `pull:github.com/acme/infra#12`, `status:github.com/acme/infra@…`.
fn names(lane: &str, repo: &RepoId) -> bool {
    lane_moved(lane, repo, repo).is_some()
}

/// Returns the lane under the new name; `None` for a lane of another repository. A kind can have two words:
/// `repeat:status`.
fn lane_moved(lane: &str, old: &RepoId, new: &RepoId) -> Option<String> {
    let (kind, rest) = lane.split_once(&format!(":{old}"))?;
    let is_kind = kind
        .chars()
        .all(|char| char.is_ascii_lowercase() || matches!(char, '_' | ':'));
    (is_kind && rest.starts_with(['#', '@', ':'])).then(|| format!("{kind}:{new}{rest}"))
}

/// Returns the share under the new name; `None` for a share of another repository.
fn share_moved(share: &str, old: &RepoId, new: &RepoId) -> Option<String> {
    let shares = |repo: &RepoId| [repo.to_string(), answers_share(repo)];
    shares(old)
        .into_iter()
        .zip(shares(new))
        .find_map(|(old, new)| (old == share).then_some(new))
}

/// Moves jobs and their arguments to the lanes of the new name. Gives up if a job has begun meanwhile.
async fn jobs_move_in_tx(
    tx: &mut Tx,
    jobs: &[OpenJob],
    old: &RepoId,
    new: &RepoId,
) -> RenameResult<u64> {
    let lane = |job: &OpenJob| lane_moved(&job.lane, old, new).unwrap_or_else(|| job.lane.clone());
    for lane in jobs.iter().map(lane).collect::<BTreeSet<String>>() {
        lane_hold_in_tx(tx, &lane).await?;
    }
    for job in jobs {
        let share = share_moved(&job.share, old, new).unwrap_or_else(|| job.share.clone());
        let payload = payload_moved(&job.payload, old, new);
        if let Some(statuses) = job.lane.strip_prefix("repeat:") {
            done_jobs_move_in_tx(tx, statuses, old, new).await?;
        }
        let moved = execute!(
            &mut *tx,
            "UPDATE jobs SET lane = $1, share = $2, payload = $3 WHERE seq = $4 AND state = $5",
            lane(job),
            share,
            free_text(&payload),
            job.seq,
            job.state,
        )?;
        if moved == 0 {
            return Err(RenameStop::Busy);
        }
    }
    Ok(jobs.len() as u64)
}

/// Moves the finished jobs of a lane, because the newest of them is about to be repeated.
async fn done_jobs_move_in_tx(
    tx: &mut Tx,
    lane: &str,
    old: &RepoId,
    new: &RepoId,
) -> RenameResult<()> {
    let Some(moved) = lane_moved(lane, old, new) else {
        return Ok(());
    };
    let done = on_tx!(&mut *tx, db => sqlx::query_as::<_, (i64, String)>(
        "SELECT seq, payload FROM jobs WHERE lane = $1 AND state = 'done'").bind(lane).fetch_all(db))?;
    for (seq, payload) in done {
        let payload = payload_moved(&payload, old, new);
        execute!(
            &mut *tx,
            "UPDATE jobs SET lane = $1, payload = $2 WHERE seq = $3",
            &moved,
            free_text(&payload),
            seq
        )?;
    }
    Ok(())
}

/// Returns the arguments of a job under the new name. Changes every text that is the repository, one of its pulls, or
/// (in `statuses`) one of its lanes.
fn payload_moved(payload: &str, old: &RepoId, new: &RepoId) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(payload) else {
        return payload.to_owned();
    };
    if let Some(Value::String(lane)) = value.get_mut("statuses")
        && let Some(moved) = lane_moved(lane, old, new)
    {
        *lane = moved;
    }
    rename_texts(&mut value, &old.to_string(), &new.to_string());
    value.to_string()
}

fn rename_texts(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => {
            let rest = text.strip_prefix(old);
            let is_number = |rest: &str| {
                rest.strip_prefix('#')
                    .is_some_and(|number| number.parse::<i64>().is_ok())
            };
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || is_number(rest)) {
                *text = format!("{new}{rest}");
            }
        }
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| rename_texts(value, old, new)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|value| rename_texts(value, old, new)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Releases the younger of two locks that exclude each other under both names, because the pull of the older one was
/// first.
async fn settle_locks(change: &mut LockChange<'_>, old: &RepoId, new: &RepoId) -> RenameResult<()> {
    let (ours, theirs) = (change.locks(old).await?, change.locks(new).await?);
    let mut freed: BTreeSet<LockId> = BTreeSet::new();
    for one in &ours {
        for other in theirs.iter().filter(|other| exclude_each_other(one, other)) {
            let loser = if one.taken_at <= other.taken_at {
                other
            } else {
                one
            };
            if [one.id, other.id].iter().any(|id| freed.contains(id)) {
                continue;
            }
            freed.insert(loser.id);
            if one.pull.subject == other.pull.subject {
                execute!(&mut change.tx, "DELETE FROM locks WHERE id = $1", loser.id)?;
                continue;
            }
            change.discard_plans(loser).await?;
            if change
                .free_for(loser.id, LockEventKind::Released)
                .await?
                .is_none()
            {
                return Err(RenameStop::Busy);
            }
        }
    }
    Ok(())
}

/// Returns true if two locks, under the two names of a repository, cannot both be held.
fn exclude_each_other(one: &Lock, other: &Lock) -> bool {
    let (one_key, other_key) = (&one.key, &other.key);
    let same_place = one_key.dir == other_key.dir && one_key.workspace == other_key.workspace;
    let (one_scope, other_scope) = (&one_key.project, &other_key.project);
    let whole = one_scope.is_none() || other_scope.is_none();
    let same_scope = one_scope == other_scope;
    same_place && (same_scope || (whole && one.pull.subject != other.pull.subject))
}

/// Moves the applications, credentials and claims that owners have registered.
async fn registered_in_tx(
    tx: &mut Tx,
    (old, new): (&RepoId, &RepoId),
    reseal: &(
         impl Fn(&SealedCredential, &RepoUrl) -> std::result::Result<SealedText, OpenError> + Send + Sync
     ),
) -> RenameResult<u64> {
    // A repository without an address in normal form was never registered.
    let Ok(old_url) = RepoUrl::of(old) else {
        return Ok(0);
    };
    let new_url = RepoUrl::of(new).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    let twice = on_tx!(&mut *tx, db => sqlx::query_as::<_, (ApplicationId, ApplicationId)>(TWICE_REGISTERED)
        .bind(&old_url).bind(&new_url).fetch_optional(db))?;
    if let Some((first, second)) = twice {
        let (old, new) = (old.clone(), new.clone());
        return Err(RenameStop::Refused(RenameRefused::SameApplication {
            old,
            new,
            first,
            second,
        }));
    }
    let mut rows = execute!(
        &mut *tx,
        "UPDATE applications SET url = $2 WHERE url = $1",
        &old_url,
        &new_url
    )?;
    for credential in sealed_of_url_in_tx(tx, &old_url).await? {
        let refused = |reason| {
            RenameStop::Refused(RenameRefused::Sealed {
                old: old.clone(),
                new: new.clone(),
                id: credential.id,
                reason,
            })
        };
        let sealed = reseal(&credential, &new_url).map_err(refused)?;
        rows += execute!(
            &mut *tx,
            "UPDATE credentials SET url = $1, key_id = $2, secret = $3 WHERE id = $4",
            &new_url,
            &sealed.key,
            sealed.bytes.as_slice(),
            credential.id,
        )?;
    }
    Ok(rows + claim_move_in_tx(tx, (old, &old_url), (new, &new_url)).await?)
}

async fn claim_move_in_tx(
    tx: &mut Tx,
    (old, old_url): (&RepoId, &RepoUrl),
    (new, new_url): (&RepoId, &RepoUrl),
) -> RenameResult<u64> {
    let (first, second) = if old_url < new_url {
        (old_url, new_url)
    } else {
        (new_url, old_url)
    };
    let (first, second) = (
        claim_hold_in_tx(tx, first).await?,
        claim_hold_in_tx(tx, second).await?,
    );
    let (from, to) = if old_url < new_url {
        (first, second)
    } else {
        (second, first)
    };
    let Some(from) = from else { return Ok(0) };
    let Some(to) = to else {
        return Ok(execute!(
            tx,
            "UPDATE repository_claims SET url = $1 WHERE id = $2",
            new_url,
            from.id
        )?);
    };
    if from.owner != to.owner {
        let (old, new) = (old.clone(), new.clone());
        return Err(RenameStop::Refused(RenameRefused::TwoOwners {
            old,
            new,
            owner: from.name,
            other: to.name,
        }));
    }
    execute!(
        &mut *tx,
        "UPDATE claim_applications SET claim = $1 WHERE claim = $2",
        to.id,
        from.id
    )?;
    execute!(
        &mut *tx,
        "UPDATE claim_credentials SET claim = $1 WHERE claim = $2",
        to.id,
        from.id
    )?;
    Ok(execute!(
        tx,
        "DELETE FROM repository_claims WHERE id = $1",
        from.id
    )?)
}

fn renamed_event(rename: &Rename<'_>) -> NewLockEvent {
    let Rename {
        old, new, cause, ..
    } = *rename;
    let about = if is_proper(new) { new } else { old };
    let reason = format!("{old} was renamed to {new}: {}", cause.reason);
    NewLockEvent {
        kind: LockEventKind::RepositoryRenamed,
        key: None,
        scope: None,
        pull: None,
        concern: Some(Concern::Repo(about.clone())),
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(text: &str) -> RepoId {
        text.parse().unwrap()
    }

    #[test]
    fn lanes_move_only_if_they_are_of_the_repository() {
        let (old, new) = (repo("github.com/acme/old"), repo("github.com/acme/new"));
        for (lane, moved) in [
            (
                "pull:github.com/acme/old#12",
                Some("pull:github.com/acme/new#12"),
            ),
            (
                "status:github.com/acme/old@ab:plan: x",
                Some("status:github.com/acme/new@ab:plan: x"),
            ),
            (
                "reaction:github.com/acme/old:7",
                Some("reaction:github.com/acme/new:7"),
            ),
            (
                "repeat:status:github.com/acme/old@ab:plan",
                Some("repeat:status:github.com/acme/new@ab:plan"),
            ),
            ("status:github.com/acme/other@ab:github.com/acme/old@", None),
            ("pull:github.com/acme/old-2#12", None),
            ("pull:github.com/acme/older#12", None),
            ("events:0198", None),
        ] {
            assert_eq!(lane_moved(lane, &old, &new).as_deref(), moved, "{lane}");
        }
    }

    #[test]
    fn what_was_told_of_another_repository_stays() {
        assert!(is_of_another(r#"{"told":{"id":8}}"#, 7));
        for payload in [
            r#"{"told":{"id":7}}"#,
            r#"{"told":null}"#,
            r#"{"pull":"x"}"#,
            "not JSON",
        ] {
            assert!(!is_of_another(payload, 7), "{payload}");
        }
    }

    #[test]
    fn what_jobs_are_told_moves_and_what_people_wrote_stays() {
        let (old, new) = (repo("github.com/acme/old"), repo("github.com/acme/new"));
        let told = r#"{"body":"see github.com/acme/old#1 there","event":{"pull":"github.com/acme/old#12","repo":"github.com/acme/old"},"other":["github.com/acme/older#1"]}"#;
        let moved = r#"{"body":"see github.com/acme/old#1 there","event":{"pull":"github.com/acme/new#12","repo":"github.com/acme/new"},"other":["github.com/acme/older#1"]}"#;
        assert_eq!(payload_moved(told, &old, &new), moved);
        let lane = r#"{"since":"0198","statuses":"status:github.com/acme/old@ab:plan"}"#;
        let moved = r#"{"since":"0198","statuses":"status:github.com/acme/new@ab:plan"}"#;
        assert_eq!(payload_moved(lane, &old, &new), moved);
    }
}
