//! The gate of an apply. One transaction checks the apply locks, the pull, the project lock, the plan and its policy
//! checks, and marks the plan as being applied. The mark is stored before Terraform starts, so that a crash can never
//! lead to a second apply (P3). After an error, nothing passes the gate (P6).

use lockkeeper_policy::decision::{NeededSet, SetDecision};
use lockkeeper_policy::sets::SetName;

use super::locks::taken_event;
use super::news::{News, announce_in_tx};
use super::plans::plans_close_in_tx;
use super::policies::{approvals_forget_in_tx, policies_unmet_in_tx};
use super::pulls::pull_share_in_tx;
use super::{LockAttempt, LockChange, Result, Store, TakeLock, Tx, execute, on_tx};
use crate::model::{
    ApplyLock, Cause, Lock, LockEventKind, NewLockEvent, PlanId, PlanRecord, PlanState, PullRef,
    PullState, RunId,
};

/// Proof that an apply may run: it holds the lock, no apply lock is in effect there, and the plan is marked.
#[derive(Debug)]
pub struct ApplyGrant {
    /// Project lock; `None` where locks are switched off.
    pub lock: Option<Lock>,
    plan: PlanId,
    run: RunId,
}

/// Outcome of a request to apply.
#[must_use]
#[derive(Debug)]
pub enum ApplyGate {
    /// The apply may run.
    Granted(ApplyGrant),
    /// All of these apply locks prevent the apply.
    ApplyLocked(Vec<ApplyLock>),
    /// Another pull holds the project lock.
    HeldBy(Lock),
    /// The pull is not open.
    PullClosed,
    /// The plan cannot be applied any more. Holds its state now.
    PlanGone(PlanState),
    /// The plan uses a version of the registry of modules that was taken down.
    ModuleTakenDown,
    /// The policy checks of the plan do not let it be applied. Holds the decision of every policy set that is configured
    /// or has a verdict on the plan, and at least one of them is not met.
    PoliciesUnmet(Vec<(SetName, SetDecision)>),
}

/// Further checks of a request to apply. By default, the plan must have no verdict of a policy set, because none is
/// configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyChecks<'a> {
    /// True if no module of the plan may have been taken down.
    pub modules: bool,
    /// Policy sets that concern the plan now.
    pub policies: &'a [NeededSet],
    /// Members of teams, as the forge says now. An approval counts for a team only if its author is one of them.
    pub members: &'a [TeamMember],
}

/// Member of a team on the forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamMember {
    /// Login on the forge, compared without case.
    pub login: String,
    /// Team as the policies name it, compared without case.
    pub team: String,
}

impl Store {
    /// Requests to apply a plan in a run that has not ended, under the requested lock, if locks are used. Fails for a
    /// store whose lease was lost or has expired.
    pub async fn apply_begin(
        &self,
        plan: &PlanRecord,
        run: RunId,
        attempt: Option<&LockAttempt<'_>>,
        checks: &ApplyChecks<'_>,
    ) -> Result<ApplyGate> {
        let mut tx = self.begin().await?;
        self.fence_not_expired_in_tx(&mut tx).await?;
        let in_way = self
            .apply_locks_in_way_in_tx(&mut tx, &plan.pull.repo, &plan.project.dir)
            .await?;
        if !in_way.is_empty() {
            return Ok(ApplyGate::ApplyLocked(in_way));
        }
        if checks.modules && Self::registry_uses_taken_down_in_tx(&mut tx, plan.id).await? {
            return Ok(ApplyGate::ModuleTakenDown);
        }
        let (lock, taken) = match self.verify_lock(&mut tx, plan, attempt).await? {
            Ok(verified) => verified,
            Err(refused) => return Ok(refused),
        };
        if !mark_applying(&mut tx, plan.id).await? {
            let state = plan_state(&mut tx, plan.id).await?;
            return Ok(ApplyGate::PlanGone(state));
        }
        // The rows of the pull and the plan are held now, so approvals neither come nor go until the end.
        let today = self.now().date_naive();
        if let Some(unmet) = policies_unmet_in_tx(&mut tx, plan.id, checks, today).await? {
            tx.roll_back().await?;
            return Ok(ApplyGate::PoliciesUnmet(unmet));
        }
        if !super::runs::run_start_in_tx(&mut tx, run, self.now()).await? {
            return Err(sqlx::Error::Protocol(
                "the run of this apply has ended or does not exist".to_owned(),
            ));
        }
        self.lock_events_in_tx(&mut tx, taken.into_iter().collect())
            .await?;
        announce_in_tx(&mut tx, News::Run(run)).await?;
        tx.commit().await?;
        Ok(ApplyGate::Granted(ApplyGrant {
            lock,
            plan: plan.id,
            run,
        }))
    }

    /// Takes the lock, or finds that the pull has it already, and returns it with the event to log. Where locks are
    /// switched off, checks only the pull.
    async fn verify_lock(
        &self,
        tx: &mut Tx,
        plan: &PlanRecord,
        attempt: Option<&LockAttempt<'_>>,
    ) -> Result<Result<(Option<Lock>, Option<NewLockEvent>), ApplyGate>> {
        let Some(attempt) = attempt else {
            let open = pull_share_in_tx(tx, &plan.pull).await? == Some(PullState::Open);
            return Ok(if open {
                Ok((None, None))
            } else {
                Err(ApplyGate::PullClosed)
            });
        };
        Ok(match self.lock_take_in_tx(tx, attempt).await? {
            TakeLock::Taken(lock) => {
                let event = taken_event(&lock, attempt.cause);
                Ok((Some(lock), Some(event)))
            }
            TakeLock::AlreadyOurs(lock) => Ok((Some(lock), None)),
            TakeLock::HeldBy(lock) => Err(ApplyGate::HeldBy(lock)),
            TakeLock::PullClosed => Err(ApplyGate::PullClosed),
        })
    }

    /// Ends an apply. Releases the locks if the pull was closed meanwhile. The locks of an application are also
    /// released once everything is applied.
    pub async fn apply_end(
        &self,
        grant: ApplyGrant,
        pull: &PullRef,
        state: PlanState,
        cause: &Cause,
    ) -> Result<()> {
        let (mut change, at) = LockChange::begin(self, pull, cause).await?;
        end_in(&mut change, grant.plan, pull, at, state).await?;
        tracing::debug!(run = %grant.run, plan = %grant.plan, %state, "Apply ended");
        change.commit().await
    }

    /// Cleans up after a crash. Discards the plan that the run was applying, because nobody knows how far the apply
    /// came. Releases the locks of a pull that was closed meanwhile.
    pub async fn apply_abandon(&self, pull: &PullRef, run: RunId, cause: &Cause) -> Result<()> {
        let (mut change, at) = LockChange::begin(self, pull, cause).await?;
        let plans = on_tx!(&mut change.tx, db => sqlx::query_scalar::<_, PlanId>(
            "SELECT p.id FROM plans p JOIN runs r ON r.repo = p.repo AND r.pull = p.pull AND r.dir = p.dir \
             AND r.workspace = p.workspace AND r.name = p.name WHERE r.id = $1 AND p.state = 'applying'")
            .bind(run).fetch_all(db))?;
        for plan in plans {
            end_in(&mut change, plan, pull, at, PlanState::Discarded).await?;
        }
        change.commit().await
    }
}

async fn mark_applying(tx: &mut Tx, plan: PlanId) -> Result<bool> {
    execute!(
        tx,
        "UPDATE plans SET state = 'applying' WHERE id = $1 AND state IN ('planned', 'apply_failed') AND blocked IS NULL",
        plan,
    )
    .map(|rows| rows == 1)
}

async fn plan_state(tx: &mut Tx, plan: PlanId) -> Result<PlanState> {
    on_tx!(tx, db => sqlx::query_scalar::<_, PlanState>("SELECT state FROM plans WHERE id = $1")
        .bind(plan).fetch_optional(db))
    .map(|state| state.unwrap_or(PlanState::Discarded))
}

async fn end_in(
    change: &mut LockChange<'_>,
    plan: PlanId,
    pull: &PullRef,
    at: Option<PullState>,
    state: PlanState,
) -> Result<()> {
    let closed = at != Some(PullState::Open);
    let state = if closed { PlanState::Discarded } else { state };
    execute!(
        &mut change.tx,
        "UPDATE plans SET state = $1 WHERE id = $2 AND state = 'applying'",
        state,
        plan
    )?;
    if state == PlanState::Applied && pull.subject.is_application() {
        // Nothing is left to merge: the branch already says what was applied.
        approvals_forget_in_tx(&mut change.tx, pull).await?;
        change.free_all(pull, LockEventKind::Released).await?;
    }
    if closed {
        plans_close_in_tx(&mut change.tx, pull).await?;
        change.free_all(pull, LockEventKind::Released).await?;
    }
    Ok(())
}
