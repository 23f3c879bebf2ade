//! Changes the state of one project: it passes the gate, runs the change, and records the result.

use std::iter;

use super::{Change, Order};
use crate::errors::describe_error;
use crate::handlers::commands::apply::closed_meanwhile;
use crate::handlers::commands::in_the_way::held;
use crate::handlers::commands::projects::{self, Work};
use crate::handlers::commands::{CommandCx, headline, log, needs, permission, taken_over};
use crate::handlers::tally;
use crate::model::{ApplyLock, LockKey, PlanState, ProjectKey, ProjectOutcome, RunId};
use crate::queue::{JobError, Place as PoolPlace};
use crate::render::{Next, ProjectReport, Refusal, UserText};
use crate::store::{LockWish, StateChanged, StateGate};
use crate::workflow::{RunError, RunOutput, StateWork, StepError, StepFailure};

/// Change of one project's state.
pub(super) struct Changing<'a> {
    pub cx: &'a CommandCx<'a>,
    pub work: &'a Work,
    pub order: &'a Order<'a>,
    pub key: &'a ProjectKey,
    pub run: RunId,
    /// Reason why it is not tried, if an earlier failure halts it.
    pub halted: Option<&'a UserText>,
}

/// Proof that the change has begun.
struct Begun {
    _place: PoolPlace,
    /// True if the lock was taken only for this change.
    fresh_lock: bool,
}

impl Changing<'_> {
    /// Carries out the whole change, and records how far it came.
    pub async fn report(&self) -> Result<ProjectReport, JobError> {
        let Self { cx, key, run, .. } = self;
        let report = ProjectReport {
            run_url: Some(cx.ctx.settings.run_url(*run)),
            tool: self.work.distribution(cx, key),
            ..ProjectReport::new((*key).clone(), ProjectOutcome::Failed)
        };
        let report = match self.begin(&report).await? {
            Ok(begun) => self.through(begun, report).await?,
            Err(refused) => {
                if cx.left_to_others().is_ok() {
                    cx.finish_run(*run, &refused).await?;
                }
                *refused
            }
        };
        Ok(ProjectReport {
            log: log(cx.ctx, self.order.verbose, *run).await?,
            ..report
        })
    }

    /// Makes all checks that can prevent the change from beginning.
    async fn begin(
        &self,
        report: &ProjectReport,
    ) -> Result<Result<Begun, Box<ProjectReport>>, JobError> {
        let Self {
            cx,
            work,
            key,
            order: Order { change, .. },
            ..
        } = self;
        let with = |outcome, text| {
            Ok(Err(Box::new(ProjectReport {
                outcome,
                message: Some(text),
                ..report.clone()
            })))
        };
        if let Some(text) = permission::check_project(cx, change.action(), key).await? {
            return with(ProjectOutcome::Refused, text);
        }
        if let Some(why) = self.halted.filter(|_| !cx.stop.is_cancelled()) {
            return with(ProjectOutcome::Skipped, why.clone());
        }
        let Ok(place) = projects::place_in_pool(cx, change.run_kind()).await else {
            return with(ProjectOutcome::Cancelled, self.not_begun().await?);
        };
        if let Err(error) = work.checkout(cx, &key.workspace).await {
            let error = RunError::from(error);
            return with(ProjectOutcome::Failed, described(cx, &error).await);
        }
        if *change == Change::Import
            && let Some(unmet) = needs::refusal_of_import(cx, work, key).await
        {
            return with(ProjectOutcome::Refused, unmet);
        }
        if cx.stop.is_cancelled() {
            return with(ProjectOutcome::Cancelled, self.not_begun().await?);
        }
        Ok(match self.gate().await? {
            StateGate::Granted { fresh_lock } => Ok(Begun {
                _place: place,
                fresh_lock,
            }),
            StateGate::HeldBy(lock) => Err(Box::new(held(cx, report.clone(), &lock))),
            StateGate::ApplyLocked(locks) => {
                return with(ProjectOutcome::Refused, self.apply_locked(&locks));
            }
            StateGate::PullClosed => {
                let text =
                    UserText::new("the pull request is closed now. Nothing was changed.", []);
                let closed = ProjectReport {
                    outcome: ProjectOutcome::Refused,
                    next: Next::Nothing,
                    ..report.clone()
                };
                Err(Box::new(ProjectReport {
                    message: Some(text),
                    ..closed
                }))
            }
        })
    }

    async fn gate(&self) -> Result<StateGate, sqlx::Error> {
        let Self {
            cx,
            key,
            run,
            order,
            ..
        } = self;
        let (policy, cause) = (self.work.policy(key), cx.cause(order.change.reason()));
        let (pull, lock) = (
            &cx.pull.at,
            LockKey::in_scope(policy.scope, &cx.pull.at.repo, key),
        );
        let wish = LockWish {
            key: &lock,
            project: key,
            pull,
            pull_url: &cx.pull.url,
            cause: &cause,
        };
        let wish = policy.mode.taken_by_apply().then_some(&wish);
        cx.ctx.store.state_change_begin(pull, key, *run, wish).await
    }

    fn apply_locked(&self, locks: &[ApplyLock]) -> UserText {
        let UserText { message, hints } =
            Refusal::apply_locked(locks, &self.cx.ctx.settings.apply_locks_url()).text;
        let why = format!(
            "What stops applies stops {} too: it changes the state as they do.",
            self.order.change.word()
        );
        UserText::new(message, iter::once(why).chain(hints))
    }

    /// Explains that the change was stopped before it began.
    async fn not_begun(&self) -> Result<UserText, JobError> {
        let why = self
            .cx
            .asked_to_stop()
            .await?
            .map_or_else(|| "the server was told to stop".to_owned(), |stop| stop.why);
        Ok(UserText::new(
            format!("{why} before anything was changed."),
            [],
        ))
    }

    /// Runs the change after the gate.
    async fn through(
        &self,
        begun: Begun,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let Self {
            cx,
            key,
            run,
            order,
            ..
        } = self;
        cx.ctx.hub.announce(*run);
        let done = self.carry_out().await?;
        if cx.lost.is_cancelled() {
            return Ok(report);
        }
        let touched = done.touched || done.ended.is_ok();
        let report = self.told(done, touched, report).await?;
        let message = headline(&report);
        let end = StateChanged {
            outcome: report.outcome,
            message: message.as_deref(),
            touched,
            give_back: begun.fresh_lock && !touched,
        };
        let cause = cx.cause(&format!(
            "the {} ended",
            order.change.word().replace('`', "")
        ));
        if !cx
            .ctx
            .store
            .state_change_end(&cx.pull.at, key, *run, &end, &cause)
            .await?
        {
            return Err(taken_over());
        }
        tally::run(cx.ctx, *run, report.outcome).await;
        cx.ctx.hub.announce(*run);
        Ok(report)
    }

    async fn carry_out(&self) -> Result<StateWork, JobError> {
        let Self {
            cx,
            work,
            key,
            run,
            order,
            ..
        } = self;
        let Order {
            change,
            arguments,
            given,
            ..
        } = order;
        if change
            .stage(&work.policies(key).workflow(key))
            .keeps_output_private()
        {
            cx.ctx.store.run_keep_private(*run).await?;
        }
        let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.hub.clone(), *run);
        let done = work
            .change_state(
                cx,
                key,
                |workflow| change.stage(workflow),
                (arguments.as_slice(), *given),
                &output,
            )
            .await;
        if let Err(error) = &done.ended {
            output.say(&describe_error(error)).await;
        }
        output.finish().await;
        Ok(done)
    }

    /// Builds the report for the pull request.
    async fn told(
        &self,
        done: StateWork,
        touched: bool,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let closed = closed_meanwhile(self.cx).await?;
        let next = match (&closed, touched) {
            (Some(_), _) => Next::Nothing,
            (None, true) => Next::Plan,
            (None, false) => Next::ByOutcome,
        };
        let discarded = touched && self.has_plan().await?;
        let report = ProjectReport { next, ..report };
        let closed = closed.map(|text| text.message);
        match done.ended {
            Ok(output) => {
                let text = "The plan that was made before is discarded: it knows nothing of this."
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
                let text = "What it did to the state is not known, so the plan that was made before is discarded.";
                let more = discarded.then(|| text.to_owned()).into_iter().chain(closed);
                self.failed(&error, more, report).await
            }
        }
    }

    /// Returns true if the project has a plan that could have been applied.
    async fn has_plan(&self) -> Result<bool, sqlx::Error> {
        let counts = |state| {
            matches!(
                state,
                PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed
            )
        };
        let plans = self.cx.ctx.store.plan_list(&self.cx.pull.at).await?;
        Ok(plans
            .iter()
            .any(|plan| plan.project == *self.key && counts(plan.state)))
    }

    async fn failed(
        &self,
        error: &RunError,
        more: impl Iterator<Item = String>,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let Self { cx, key, order, .. } = self;
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
                        "Lockkeeper was shut down while this {} was under way",
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
            | RunError::Disk(_)) => described(cx, error).await,
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
