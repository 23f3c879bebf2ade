//! The gate of an apply: the apply lock, the pull, the project lock and the plan are checked and the plan is marked
//! as being applied in one transaction. What passed the gate is on record before Terraform starts, so that a crash can
//! never lead to a second apply (P3), and an error anywhere lets nothing through (P6).

use super::apply_locks::apply_lock_in_tx;
use super::locks::Wanted;
use super::news::{News, announce_in_tx};
use super::pulls::pull_hold_in_tx;
use super::{Result, Store, TakeLock, Tx, execute, on_tx};
use crate::model::{ApplyLock, Lock, PlanId, PlanRecord, PlanState, PullRef, PullState, RunId};

/// Proof that an apply may run: it holds the lock, the apply lock was off, and the plan is marked.
#[derive(Debug)]
pub struct ApplyGrant {
    /// The project lock.
    pub lock: Lock,
    plan: PlanId,
    run: RunId,
}

/// What came of asking.
#[must_use]
#[derive(Debug)]
pub enum ApplyGate {
    /// Go.
    Granted(ApplyGrant),
    /// Applies are stopped.
    ApplyLocked(ApplyLock),
    /// Another pull holds the project lock.
    HeldBy(Lock),
    /// The pull is closed.
    PullClosed,
    /// The plan is not waiting to be applied; this is its state now.
    PlanGone(PlanState),
}

impl Store {
    /// Asks to apply a plan in a run that has not ended. A store under a lease that was lost, or that has ended by
    /// time, gets an error.
    pub async fn apply_begin(
        &self,
        plan: &PlanRecord,
        run: RunId,
        pull_url: &str,
        holder: &str,
        reason: &str,
    ) -> Result<ApplyGate> {
        let mut tx = self.begin().await?;
        self.fence_not_expired_in_tx(&mut tx).await?;
        if let Some(lock) = apply_lock_in_tx(&mut tx).await? {
            return Ok(ApplyGate::ApplyLocked(lock));
        }
        let wanted = Wanted { pull: &plan.pull, pull_url, project: &plan.project, holder, reason };
        let lock = match self.lock_take_in_tx(&mut tx, &wanted).await? {
            TakeLock::Taken(lock) | TakeLock::AlreadyOurs(lock) => lock,
            TakeLock::HeldBy(lock) => return Ok(ApplyGate::HeldBy(lock)),
            TakeLock::PullClosed => return Ok(ApplyGate::PullClosed),
        };
        if !mark_applying(&mut tx, plan.id).await? {
            let state = plan_state(&mut tx, plan.id).await?;
            return Ok(ApplyGate::PlanGone(state));
        }
        if !super::runs::run_start_in_tx(&mut tx, run, self.now()).await? {
            return Err(sqlx::Error::Protocol("the run of this apply has ended or was never kept".to_owned()));
        }
        announce_in_tx(&mut tx, News::Run(run)).await?;
        tx.commit().await?;
        Ok(ApplyGate::Granted(ApplyGrant { lock, plan: plan.id, run }))
    }

    /// The apply ended. If the pull was closed meanwhile, the lock goes back now.
    pub async fn apply_end(&self, grant: ApplyGrant, pull: &PullRef, state: PlanState) -> Result<()> {
        let mut tx = self.begin().await?;
        end_in_tx(&mut tx, grant.plan, pull, state).await?;
        tracing::debug!(run = %grant.run, plan = %grant.plan, %state, "Apply ended");
        tx.commit().await
    }

    /// Repairs after a crash: plans of a pull that were being applied are discarded, because nobody can say how far
    /// the apply came; the locks of a pull that was closed meanwhile go back.
    pub async fn apply_abandon(&self, pull: &PullRef, run: RunId) -> Result<()> {
        let mut tx = self.begin().await?;
        pull_hold_in_tx(&mut tx, pull).await?;
        let plans = on_tx!(&mut tx, db => sqlx::query_scalar::<_, PlanId>(
            "SELECT p.id FROM plans p JOIN runs r ON r.repo = p.repo AND r.pull = p.pull AND r.dir = p.dir \
             AND r.workspace = p.workspace AND r.name = p.name WHERE r.id = $1 AND p.state = 'applying'")
            .bind(run).fetch_all(db))?;
        for plan in plans {
            end_in_tx(&mut tx, plan, pull, PlanState::Discarded).await?;
        }
        tx.commit().await
    }
}

async fn mark_applying(tx: &mut Tx, plan: PlanId) -> Result<bool> {
    execute!(tx, "UPDATE plans SET state = 'applying' WHERE id = $1 AND state IN ('planned', 'apply_failed')", plan,)
        .map(|rows| rows == 1)
}

async fn plan_state(tx: &mut Tx, plan: PlanId) -> Result<PlanState> {
    on_tx!(tx, db => sqlx::query_scalar::<_, PlanState>("SELECT state FROM plans WHERE id = $1")
        .bind(plan).fetch_optional(db))
    .map(|state| state.unwrap_or(PlanState::Discarded))
}

async fn end_in_tx(tx: &mut Tx, plan: PlanId, pull: &PullRef, state: PlanState) -> Result<()> {
    let closed = pull_hold_in_tx(tx, pull).await? != Some(PullState::Open);
    let state = if closed { PlanState::Discarded } else { state };
    execute!(tx, "UPDATE plans SET state = $1 WHERE id = $2 AND state = 'applying'", state, plan)?;
    if closed {
        super::plans::plans_discard_in_tx(tx, pull).await?;
        super::locks::locks_release_in_tx(tx, pull).await?;
    }
    Ok(())
}
