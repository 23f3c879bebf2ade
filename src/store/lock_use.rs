//! Finds out what is under way under a lock, to tell if the lock can be taken from its pull without harm.

use super::lock_change::LockChange;
use super::locks::{name_from_column, scope_column};
use super::{Result, Store, on_pool, on_tx};
use crate::model::{
    CommandId, CommandKind, Lock, LockUse, ProjectKey, PullRef, RepoPath, WorkspaceName,
};

/// Selects commands with a run under the lock that has not ended. Also selects plans that took the lock and have not
/// begun a run under it yet, because they wait for another project.
const AT_WORK: &str = "SELECT c.id, c.kind FROM commands c WHERE c.repo = $1 AND c.pull = $2 AND c.state <> 'finished' \
     AND (EXISTS (SELECT 1 FROM runs r WHERE r.command = c.id AND r.dir = $3 AND r.workspace = $4 \
     AND ($5 = '' OR r.name = $5) AND r.hook IS NULL AND r.kind <> 'version' AND r.state <> 'finished') \
     OR (c.state = 'running' AND c.kind IN ('plan', 'autoplan') AND c.created_at <= $6 \
     AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.command = c.id AND r.dir = $3 AND r.workspace = $4 \
     AND r.hook IS NULL AND ($5 = '' OR r.name = $5)))) ORDER BY c.id";
/// Counts the applies, imports and `state rm`s that are under way.
const APPLYING: &str = "SELECT (SELECT COUNT(*) FROM plans WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 \
     AND ($5 = '' OR name = $5) AND state = 'applying') \
     + (SELECT COUNT(*) FROM runs WHERE repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 \
     AND ($5 = '' OR name = $5) AND hook IS NULL AND kind IN ('import', 'state_rm') AND state = 'running')";
const APPLIED: &str = "SELECT DISTINCT dir, workspace, name FROM runs WHERE repo = $1 AND pull = $2 \
     AND kind IN ('apply', 'import', 'state_rm') AND hook IS NULL AND started_at IS NOT NULL";

macro_rules! at_work {
    ($lock:expr) => {
        sqlx::query_as::<_, (CommandId, CommandKind)>(AT_WORK)
            .bind(&$lock.pull.repo)
            .bind($lock.pull.subject)
            .bind(&$lock.key.dir)
            .bind(&$lock.key.workspace)
            .bind(scope_column(&$lock.key))
            .bind($lock.taken_at)
    };
}

macro_rules! applying {
    ($lock:expr) => {
        sqlx::query_scalar::<_, i64>(APPLYING)
            .bind(&$lock.pull.repo)
            .bind($lock.pull.subject)
            .bind(&$lock.key.dir)
            .bind(&$lock.key.workspace)
            .bind(scope_column(&$lock.key))
    };
}

macro_rules! applied {
    ($pull:expr) => {
        sqlx::query_as::<_, (RepoPath, WorkspaceName, String)>(APPLIED)
            .bind(&$pull.repo)
            .bind($pull.subject)
    };
}

/// Returns the applied projects that wait to be merged. For an application there are none: its changes are on its
/// branch.
fn unmerged(pull: &PullRef, rows: Vec<(RepoPath, WorkspaceName, String)>) -> Vec<ProjectKey> {
    if pull.subject.is_application() {
        return Vec::new();
    }
    let project = |(dir, workspace, name): (RepoPath, WorkspaceName, String)| ProjectKey {
        dir,
        workspace,
        name: name_from_column(&name),
    };
    rows.into_iter().map(project).collect()
}

fn lock_use(
    lock: &Lock,
    applying: i64,
    at_work: Vec<(CommandId, CommandKind)>,
    applied: &[ProjectKey],
) -> LockUse {
    let applied = applied.iter().any(|project| lock.key.covers(project));
    LockUse {
        applying: applying > 0,
        at_work,
        applied,
    }
}

impl Store {
    /// Returns what is under way under a lock right now. It may change at any time, so it is only for display.
    pub async fn lock_use(&self, lock: &Lock) -> Result<LockUse> {
        let applying = on_pool!(self, db => applying!(lock).fetch_one(db))?;
        let at_work = on_pool!(self, db => at_work!(lock).fetch_all(db))?;
        let applied = unmerged(
            &lock.pull,
            on_pool!(self, db => applied!(lock.pull).fetch_all(db))?,
        );
        Ok(lock_use(lock, applying, at_work, &applied))
    }
}

impl LockChange<'_> {
    /// Returns what is under way under a lock. The row of the pull must be held, so that no apply begins until the
    /// change is over.
    pub(crate) async fn lock_use(&mut self, lock: &Lock) -> Result<LockUse> {
        let applying = on_tx!(&mut self.tx, db => applying!(lock).fetch_one(db))?;
        let at_work = on_tx!(&mut self.tx, db => at_work!(lock).fetch_all(db))?;
        let applied = self.applied(&lock.pull).await?;
        Ok(lock_use(lock, applying, at_work, &applied))
    }

    /// Lists the projects for which the pull has begun to apply something that waits to be merged. Their locks cannot
    /// be given away.
    pub(crate) async fn applied(&mut self, pull: &PullRef) -> Result<Vec<ProjectKey>> {
        on_tx!(&mut self.tx, db => applied!(pull).fetch_all(db)).map(|rows| unmerged(pull, rows))
    }
}
