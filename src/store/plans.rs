//! Plan records (P5). At most one plan of a project in a pull is not discarded.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use lockkeeper_policy::verdict::Verdict;
use lockkeeper_registry::versions::VersionKey;
use semver::Version;

use super::locks::{name_column, name_from_column, scope_column};
use super::plan_files::plan_file_put_in_tx;
use super::policies::{approvals_forget_in_tx, verdicts_insert_in_tx};
use super::pulls::pull_share_in_tx;
use super::runs::run_hold_in_tx;
use super::{JsonText, LockChange, Result, Store, Tx, execute, kept_time, on_pool, on_tx};
use crate::model::{
    BranchName, Cause, CommandId, CommitSha, Distribution, Lock, LockId, LockKey, PlanCounts,
    PlanId, PlanRecord, PlanState, ProjectKey, PullRef, PullState, RepoId, RepoPath, RunId,
    Sha256Digest, Subject, WorkspaceName,
};

/// Outcome of storing a plan.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlan {
    /// The plan was stored, and earlier plans of the project in the pull were discarded.
    Recorded,
    /// The lock for the plan was released (the pull was closed, somebody unlocked); nothing was stored.
    LockLost,
    /// The run has ended, because another replica took its command over; nothing was stored.
    Overtaken,
}

/// Facts about a plan that are stored and removed with its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanParts<'a> {
    /// Versions of the registry of modules that the plan uses.
    pub modules: &'a [VersionKey],
    /// Verdicts of policy sets, at most one of each set.
    pub verdicts: &'a [Verdict],
}

const CURRENT_OF_PULL: &str = "SELECT id, repo, pull, dir, workspace, name, run, head, base_branch, base, distribution, \
     tool_version, workflow, order_group, digest, counts, blocked, state, created_at FROM plans \
     WHERE repo = $1 AND pull = $2 AND state <> 'discarded'";

/// Selects the projects with a plan or a lock of a pull, and the locks that it is queued for, with their places.
const PLACES_OF_PULL: &str = "SELECT CAST(NULL AS BIGINT), dir, workspace, name FROM plans \
     WHERE repo = $1 AND pull = $2 AND state <> 'discarded' \
     UNION ALL SELECT NULL, dir, workspace, name FROM locks WHERE repo = $1 AND pull = $2 \
     UNION ALL SELECT seq, dir, workspace, scope FROM lock_waiters WHERE repo = $1 AND pull = $2";

impl Store {
    /// Stores a plan with the facts about it, and its file if plan files are in the database. The lock of the plan must
    /// still be held. A plan without a lock needs an open pull. There is no moment at which the plan can be applied
    /// without its verdicts.
    pub async fn plan_record(
        &self,
        plan: &PlanRecord,
        lock: Option<LockId>,
        file: Option<&[u8]>,
        parts: &PlanParts<'_>,
    ) -> Result<RecordPlan> {
        let mut tx = self.begin_shared().await?;
        let open = pull_share_in_tx(&mut tx, &plan.pull).await? == Some(PullState::Open);
        let held = match lock {
            Some(lock) => lock_hold_in_tx(&mut tx, plan, lock).await?,
            None => open,
        };
        if !held {
            return tx.roll_back().await.map(|()| RecordPlan::LockLost);
        }
        if !run_hold_in_tx(&mut tx, plan.run).await? {
            return tx.roll_back().await.map(|()| RecordPlan::Overtaken);
        }
        discard_in_tx(&mut tx, &plan.pull, &plan.project).await?;
        let created_at = self.clock_offset_in_tx(&mut tx).await?.of(plan.created_at);
        insert_in_tx(&mut tx, plan, created_at).await?;
        if let Some(bytes) = file {
            plan_file_put_in_tx(&mut tx, plan.id, bytes).await?;
        }
        Self::registry_uses_add_in_tx(&mut tx, plan.id, parts.modules).await?;
        verdicts_insert_in_tx(&mut tx, plan.id, parts.verdicts).await?;
        tx.commit().await.map(|()| RecordPlan::Recorded)
    }

    /// Lists the plans of a pull that were not discarded, sorted by project. The database does not sort them, because
    /// PostgreSQL sorts texts by the rules of its locale.
    pub async fn plan_list(&self, pull: &PullRef) -> Result<Vec<PlanRecord>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PlanRow>(CURRENT_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let mut plans: Vec<PlanRecord> = rows.into_iter().map(PlanRecord::from).collect();
        plans.sort_by(|a, b| a.project.cmp(&b.project));
        Ok(plans)
    }

    /// Returns true if there is a record of this plan, discarded or not.
    pub async fn plan_is_stored(&self, plan: PlanId) -> Result<bool> {
        let found = on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM plans WHERE id = $1")
            .bind(plan).fetch_one(db))?;
        Ok(found > 0)
    }

    /// Discards the earlier plan of a project and releases its lock, after a new plan failed.
    pub async fn plan_drop(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        cause: &Cause,
    ) -> Result<()> {
        let (mut change, _) = LockChange::begin_shared(self, pull, cause).await?;
        drop_in(&mut change, pull, project).await?;
        change.commit().await
    }

    /// Discards the earlier plan of a project that needed no lock, after a new plan failed.
    pub async fn plan_discard(&self, pull: &PullRef, project: &ProjectKey) -> Result<()> {
        let mut tx = self.begin_shared().await?;
        discard_in_tx(&mut tx, pull, project).await?;
        tx.commit().await
    }

    /// Discards the plans that a command has made. Locks stay.
    pub async fn plan_discard_of_command(&self, pull: &PullRef, command: CommandId) -> Result<()> {
        let mut tx = self.begin_shared().await?;
        execute!(
            &mut tx,
            "UPDATE plans SET state = 'discarded' WHERE repo = $1 AND pull = $2 AND state IN ('planned', 'no_changes') \
             AND run IN (SELECT id FROM runs WHERE command = $3)",
            &pull.repo,
            pull.subject,
            command,
        )?;
        tx.commit().await
    }

    /// Discards plans, releases locks and leaves queues of all projects except `keep`. Runs before a plan of the
    /// whole pull, for the projects that it no longer concerns.
    pub async fn plan_keep_only(
        &self,
        pull: &PullRef,
        keep: &[ProjectKey],
        cause: &Cause,
    ) -> Result<Vec<ProjectKey>> {
        let places = on_pool!(self, db => sqlx::query_as::<_, (Option<i64>, RepoPath, WorkspaceName, String)>(PLACES_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let (mut gone, mut waited) = (BTreeSet::new(), BTreeMap::new());
        for (seq, dir, workspace, name) in places {
            let project = ProjectKey {
                dir,
                workspace,
                name: name_from_column(&name),
            };
            if let Some(seq) = seq {
                let key = LockKey {
                    repo: pull.repo.clone(),
                    dir: project.dir,
                    workspace: project.workspace,
                    project: project.name,
                };
                waited.insert(seq, key);
            } else if !keep.contains(&project) {
                gone.insert(project);
            }
        }
        let gone: Vec<ProjectKey> = gone.into_iter().collect();
        waited.retain(|_, key| !keep.iter().any(|project| key.covers(project)));
        if gone.is_empty() && waited.is_empty() {
            return Ok(gone);
        }
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        for project in &gone {
            discard_in_tx(&mut change.tx, pull, project).await?;
            let shared = keep
                .iter()
                .any(|k| k.dir == project.dir && k.workspace == project.workspace);
            if !shared {
                drop_in(&mut change, pull, project).await?;
            }
        }
        for key in waited.values() {
            change.leave(key, pull).await?;
        }
        change.commit().await.map(|()| gone)
    }

    /// Deletes discarded plans made before the given time, at most `limit` of them. Returns them, because their files
    /// are not needed any more.
    pub async fn plan_prune(&self, before: DateTime<Utc>, limit: i64) -> Result<Vec<PlanId>> {
        let mut tx = self.begin().await?;
        let gone = on_tx!(&mut tx, db => sqlx::query_scalar::<_, PlanId>(
            "DELETE FROM plans WHERE id IN (SELECT id FROM plans WHERE state = 'discarded' AND created_at < $1 LIMIT $2) \
             RETURNING id").bind(kept_time(before)).bind(limit).fetch_all(db))?;
        tx.commit().await.map(|()| gone)
    }
}

/// Returns true if the lock is that of the plan, and locks its row, so that nobody releases it until the transaction
/// ends.
async fn lock_hold_in_tx(tx: &mut Tx, plan: &PlanRecord, lock: LockId) -> Result<bool> {
    execute!(
        tx,
        "UPDATE locks SET reason = reason WHERE id = $1 AND repo = $2 AND pull = $3 AND dir = $4 AND workspace = $5 \
         AND (scope = '' OR scope = $6)",
        lock,
        &plan.pull.repo,
        plan.pull.subject,
        &plan.project.dir,
        &plan.project.workspace,
        name_column(&plan.project),
    )
    .map(|rows| rows == 1)
}

pub(super) async fn insert_in_tx(
    tx: &mut Tx,
    plan: &PlanRecord,
    created_at: DateTime<Utc>,
) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO plans (id, repo, pull, dir, workspace, name, run, head, base_branch, base, distribution, \
         tool_version, workflow, order_group, digest, counts, blocked, state, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)",
        plan.id,
        &plan.pull.repo,
        plan.pull.subject,
        &plan.project.dir,
        &plan.project.workspace,
        name_column(&plan.project),
        plan.run,
        &plan.head,
        &plan.base_branch,
        &plan.base,
        plan.distribution,
        plan.tool_version.to_string(),
        &plan.workflow,
        i64::from(plan.order_group),
        plan.digest.as_ref(),
        JsonText(plan.counts),
        plan.blocked.as_deref(),
        plan.state,
        created_at,
    )
    .map(drop)
}

/// Discards the plan of one project, unless it is being applied.
pub(super) async fn discard_in_tx(tx: &mut Tx, pull: &PullRef, project: &ProjectKey) -> Result<()> {
    execute!(
        tx,
        "UPDATE plans SET state = 'discarded' WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 \
         AND name = $5 AND state <> 'applying'",
        &pull.repo,
        pull.subject,
        &project.dir,
        &project.workspace,
        name_column(project),
    )
    .map(drop)
}

/// Discards the plan of one project and releases its lock, unless the lock has another plan that is not discarded.
async fn drop_in(change: &mut LockChange<'_>, pull: &PullRef, project: &ProjectKey) -> Result<()> {
    discard_in_tx(&mut change.tx, pull, project).await?;
    let others = on_tx!(&mut change.tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT COUNT(*) FROM plans p JOIN locks l ON l.repo = p.repo AND l.pull = p.pull AND l.dir = p.dir \
         AND l.workspace = p.workspace AND (l.scope = '' OR l.scope = p.name) \
         WHERE p.repo = $1 AND p.pull = $2 AND p.dir = $3 AND p.workspace = $4 AND (l.scope = '' OR l.scope = $5) \
         AND p.state <> 'discarded'")
        .bind(&pull.repo).bind(pull.subject).bind(&project.dir).bind(&project.workspace)
        .bind(name_column(project)).fetch_one(db))?;
    if others == 0 {
        change.free_project(pull, project).await?;
    }
    Ok(())
}

/// Discards all plans of a pull, except one that is being applied.
pub(super) async fn plans_discard_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<()> {
    execute!(
        tx,
        "UPDATE plans SET state = 'discarded' WHERE repo = $1 AND pull = $2 AND state <> 'applying'",
        &pull.repo,
        pull.subject,
    )
    .map(drop)
}

/// Discards all plans of a pull that is closed, except one that is being applied, and forgets approvals of violations.
pub(super) async fn plans_close_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<()> {
    plans_discard_in_tx(tx, pull).await?;
    approvals_forget_in_tx(tx, pull).await
}

/// Discards the plans made under a lock. Returns true if any of them could still have been applied.
pub(super) async fn plans_discard_of_lock_in_tx(tx: &mut Tx, lock: &Lock) -> Result<bool> {
    let states = on_tx!(tx, db => sqlx::query_scalar::<_, PlanState>(
        "SELECT state FROM plans WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 \
         AND ($5 = '' OR name = $5) AND state NOT IN ('discarded', 'applying')")
        .bind(&lock.key.repo).bind(lock.pull.subject).bind(&lock.key.dir).bind(&lock.key.workspace)
        .bind(scope_column(&lock.key)).fetch_all(db))?;
    execute!(
        tx,
        "UPDATE plans SET state = 'discarded' WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 \
         AND ($5 = '' OR name = $5) AND state <> 'applying'",
        &lock.key.repo,
        lock.pull.subject,
        &lock.key.dir,
        &lock.key.workspace,
        scope_column(&lock.key),
    )?;
    Ok(states.iter().any(|state| {
        matches!(
            state,
            PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed
        )
    }))
}

#[derive(sqlx::FromRow)]
pub(super) struct PlanRow {
    id: PlanId,
    repo: RepoId,
    pull: Subject,
    dir: RepoPath,
    workspace: WorkspaceName,
    name: String,
    run: RunId,
    head: CommitSha,
    base_branch: BranchName,
    base: CommitSha,
    distribution: Distribution,
    #[sqlx(try_from = "String")]
    tool_version: ToolVersion,
    workflow: Sha256Digest,
    #[sqlx(try_from = "i64")]
    order_group: i32,
    digest: Option<Sha256Digest>,
    counts: JsonText<PlanCounts>,
    blocked: Option<String>,
    state: PlanState,
    created_at: DateTime<Utc>,
}

struct ToolVersion(Version);

impl TryFrom<String> for ToolVersion {
    type Error = semver::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<PlanRow> for PlanRecord {
    fn from(row: PlanRow) -> Self {
        let name = name_from_column(&row.name);
        Self {
            id: row.id,
            pull: PullRef {
                repo: row.repo,
                subject: row.pull,
            },
            project: ProjectKey {
                dir: row.dir,
                workspace: row.workspace,
                name,
            },
            run: row.run,
            head: row.head,
            base_branch: row.base_branch,
            base: row.base,
            distribution: row.distribution,
            tool_version: row.tool_version.0,
            workflow: row.workflow,
            order_group: row.order_group,
            digest: row.digest,
            counts: row.counts.0,
            blocked: row.blocked,
            state: row.state,
            created_at: row.created_at,
        }
    }
}
