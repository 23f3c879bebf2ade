//! Changes the state of one project: it passes the gate, runs the change, and records the result.

use std::iter;

use super::StateChangeRequest;
use crate::errors::describe_error;
use crate::features::apply_locks::apply_refusal;
use crate::features::planning::apply::closed_meanwhile;
use crate::features::planning::conflicts::held;
use crate::features::planning::project_run::{ProjectRun, ProjectStop, Task, refuse};
use crate::features::planning::projects::{self, Work};
use crate::features::planning::stop::Stop;
use crate::features::planning::{CommandCx, headline, needs, permission, taken_over, tally};
use crate::model::{ApplyLock, Distribution, LockKey, PlanState, ProjectOutcome};
use crate::queue::JobError;
use crate::render::{Next, ProjectReport, UserText};
use crate::store::{LockAttempt, StateChanged, StateGate};
use crate::workflow::{RunError, RunOutput, StateWork, StepError, StepFailure};

/// Change of one project's state.
pub(super) struct Changing<'a> {
    pub work: &'a Work,
    pub order: &'a StateChangeRequest<'a>,
}

/// Proof that the change has begun.
pub(super) struct Begun {
    /// True if the lock was taken only for this change.
    fresh_lock: bool,
}

impl Task for Changing<'_> {
    type Begun = Begun;
    type Done = StateWork;

    const ENDS_RUN: bool = true;

    fn tool(&self, run: &ProjectRun<'_>) -> Distribution {
        self.work.distribution(run.cx, run.project)
    }

    fn still_ours(&self, cx: &CommandCx<'_>) -> Result<(), JobError> {
        cx.left_to_others()
    }

    async fn check(&self, run: &ProjectRun<'_>, report: &ProjectReport) -> Result<(), ProjectStop> {
        let action = self.order.change.action();
        if let Some(why) = permission::check_project(run.cx, action, run.project).await? {
            return Err(refuse(report, ProjectOutcome::Refused, why));
        }
        if let Some(why) = run.skipped() {
            return Err(refuse(report, ProjectOutcome::Skipped, why.clone()));
        }
        Ok(())
    }

    async fn not_begun(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let stop = run.cx.asked_to_stop().await?;
        let why = stop.map_or_else(|| "the server was stopped".to_owned(), |stop| stop.why);
        let text = UserText::new(format!("{why} before anything was changed."), []);
        Ok(ProjectReport {
            outcome: ProjectOutcome::Cancelled,
            message: Some(text),
            ..report.clone()
        })
    }

    async fn begin(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<Begun, ProjectStop> {
        let (cx, key, work) = (run.cx, run.project, self.work);
        if let Err(error) = work.checkout(cx, &key.workspace).await {
            let why = described(cx, &RunError::from(error)).await;
            return Err(refuse(report, ProjectOutcome::Failed, why));
        }
        let kind = self.order.change.run_kind();
        if let Some(unmet) = needs::refusal_of_state_change(cx, work, kind, key).await {
            return Err(refuse(report, ProjectOutcome::Refused, unmet));
        }
        if cx.stop.is_cancelled() {
            return Err(Stop::Reply(Box::new(self.not_begun(run, report).await?)));
        }
        match self.gate(run).await? {
            StateGate::Granted { fresh_lock } => Ok(Begun { fresh_lock }),
            StateGate::HeldBy(lock) => Err(Stop::Reply(Box::new(held(cx, report.clone(), &lock)))),
            StateGate::ApplyLocked(locks) => {
                let why = self.apply_locked(cx, &locks);
                Err(refuse(report, ProjectOutcome::Refused, why))
            }
            StateGate::PullClosed => {
                let why = "the pull request is closed now. Nothing was changed.";
                Err(Stop::Reply(Box::new(ProjectReport {
                    outcome: ProjectOutcome::Refused,
                    message: Some(UserText::new(why, [])),
                    next: Next::Nothing,
                    ..report.clone()
                })))
            }
        }
    }

    fn is_private(&self, run: &ProjectRun<'_>, _: &Begun) -> bool {
        let workflow = self.work.policies(run.project).workflow(run.project);
        self.order.change.stage(&workflow).keeps_output_private()
    }

    async fn carry_out(&self, run: &ProjectRun<'_>, _: &Begun, output: &RunOutput) -> StateWork {
        let StateChangeRequest {
            change,
            arguments,
            given,
            ..
        } = self.order;
        self.work
            .change_state(
                run.cx,
                run.project,
                |workflow| change.stage(workflow),
                (arguments, *given),
                output,
            )
            .await
    }

    fn error(done: &StateWork) -> Option<&RunError> {
        done.ended.as_ref().err()
    }

    async fn end(
        &self,
        run: &ProjectRun<'_>,
        begun: Begun,
        done: StateWork,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let (cx, key) = (run.cx, run.project);
        if cx.lost.is_cancelled() {
            return Ok(report);
        }
        let touched = done.touched || done.ended.is_ok();
        let report = self.told(run, done, touched, report).await?;
        let message = headline(&report);
        let end = StateChanged {
            outcome: report.outcome,
            message: message.as_deref(),
            touched,
            release_lock: begun.fresh_lock && !touched,
        };
        let word = self.order.change.word().replace('`', "");
        let cause = cx.cause(&format!("the {word} ended"));
        let store = &cx.ctx.store;
        if !store
            .state_change_end(&cx.pull.at, key, run.id, &end, &cause)
            .await?
        {
            return Err(taken_over());
        }
        tally::run(cx.ctx, run.id, report.outcome).await;
        cx.ctx.runs.hub.announce(run.id);
        Ok(report)
    }
}

impl Changing<'_> {
    async fn gate(&self, run: &ProjectRun<'_>) -> Result<StateGate, sqlx::Error> {
        let (cx, key) = (run.cx, run.project);
        let policy = self.work.policy(key);
        let cause = cx.cause(self.order.change.reason());
        let lock = LockKey::in_scope(policy.scope, &cx.pull.at.repo, key);
        let attempt = LockAttempt {
            key: &lock,
            project: key,
            pull: &cx.pull.at,
            pull_url: &cx.pull.url,
            cause: &cause,
        };
        let attempt = policy.mode.taken_by_apply().then_some(&attempt);
        let store = &cx.ctx.store;
        store
            .state_change_begin(&cx.pull.at, key, run.id, attempt)
            .await
    }

    fn apply_locked(&self, cx: &CommandCx<'_>, locks: &[ApplyLock]) -> UserText {
        let UserText { message, hints } =
            apply_refusal(locks, &cx.ctx.settings.apply_locks_url()).text;
        let why = format!(
            "An apply lock also prevents {}, because it changes the state as well.",
            self.order.change.word()
        );
        UserText::new(message, iter::once(why).chain(hints))
    }

    /// Builds the report for the pull request.
    async fn told(
        &self,
        run: &ProjectRun<'_>,
        done: StateWork,
        touched: bool,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let closed = closed_meanwhile(run.cx).await?;
        let next = match (&closed, touched) {
            (Some(_), _) => Next::Nothing,
            (None, true) => Next::Plan,
            (None, false) => Next::ByOutcome,
        };
        let discarded = touched && has_plan(run).await?;
        let report = ProjectReport { next, ..report };
        let closed = closed.map(|text| text.message);
        match done.ended {
            Ok(output) => {
                let text =
                    "The earlier plan is discarded, because it does not include this change."
                        .to_owned();
                let all: Vec<String> = discarded
                    .then_some(text)
                    .into_iter()
                    .chain(closed)
                    .collect();
                let message = (!all.is_empty()).then(|| UserText::new(all.join(" "), []));
                Ok(ProjectReport {
                    outcome: self.order.change.outcome(),
                    output,
                    message,
                    ..report
                })
            }
            Err(error) => {
                let text = "Its effect on the state is unknown, so the earlier plan is discarded.";
                let more = discarded.then(|| text.to_owned()).into_iter().chain(closed);
                self.failed(run, &error, more, report).await
            }
        }
    }

    async fn failed(
        &self,
        run: &ProjectRun<'_>,
        error: &RunError,
        more: impl Iterator<Item = String>,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let (cx, key, order) = (run.cx, run.project, self.order);
        let output = error.output().to_owned();
        let state_lock = cx.ctx.checkouts.state_lock_left(&cx.pull.at, key).await;
        let report = ProjectReport {
            output,
            state_lock,
            ..report
        };
        let UserText { message, hints } = match error {
            RunError::Step(
                error @ StepError {
                    why: StepFailure::Stopped { .. },
                    ..
                },
            ) => {
                let shut_down = || {
                    format!(
                        "Lockkeeper was shut down during this {}",
                        order.change.word()
                    )
                };
                let why = cx
                    .asked_to_stop()
                    .await?
                    .map_or_else(shut_down, |stop| stop.why);
                UserText::new(format!("{why}, so {error}."), [])
            }
            error @ (RunError::Step(_)
            | RunError::Tool(_)
            | RunError::Checkout(_)
            | RunError::Artifact(_)
            | RunError::Disk(_)
            | RunError::Registry(_)) => described(cx, error).await,
        };
        let was_stopped = matches!(
            error,
            RunError::Step(StepError {
                why: StepFailure::Stopped { .. },
                ..
            })
        );
        let outcome = if was_stopped {
            ProjectOutcome::Cancelled
        } else {
            ProjectOutcome::Failed
        };
        let message = Some(UserText::new(message, hints.into_iter().chain(more)));
        Ok(ProjectReport {
            outcome,
            message,
            ..report
        })
    }
}

async fn described(cx: &CommandCx<'_>, error: &RunError) -> UserText {
    UserText::new(
        format!("{}.", describe_error(error)),
        projects::hints(cx, error).await,
    )
}

/// Returns true if the project has a plan that could have been applied.
async fn has_plan(run: &ProjectRun<'_>) -> Result<bool, sqlx::Error> {
    let counts = |state| {
        matches!(
            state,
            PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed
        )
    };
    let plans = run.cx.ctx.store.plan_list(&run.cx.pull.at).await?;
    Ok(plans
        .iter()
        .any(|plan| plan.project == *run.project && counts(plan.state)))
}
