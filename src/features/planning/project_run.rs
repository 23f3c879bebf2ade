//! Drives the run of one project, from its pending status to its last one. The life is the same for every kind of run:
//!
//! 1. The checks that need nothing but the database ([`Task::check`]).
//! 2. A permit of the pool.
//! 3. The checks that need the code, and the gate. The gate stores that the run has begun ([`Task::begin`]).
//! 4. The work of Terraform or of commands, with its output streamed to the database ([`Task::carry_out`]).
//! 5. The result of the work is stored ([`Task::end`]).
//! 6. The run ends, and so does its status.
//!
//! A refusal in one of the first three steps leads to the last one. If another server continues the command, nothing
//! of it is stored here.

use super::stop::Stop;
use super::{CommandCx, log, projects};
use crate::boxed::boxed;
use crate::errors::describe_error;
use crate::model::{Distribution, ProjectKey, ProjectOutcome, RunId, RunKind};
use crate::queue::JobError;
use crate::render::{ProjectReport, UserText};
use crate::store::NewJob;
use crate::workflow::{RunError, RunOutput};

/// Run of one project.
pub(super) struct ProjectRun<'a> {
    pub cx: &'a CommandCx<'a>,
    pub project: &'a ProjectKey,
    pub kind: RunKind,
    pub id: RunId,
    /// True if the run sets the status of its project.
    pub has_status: bool,
    /// True if the reply quotes the whole output.
    pub verbose: bool,
    /// Reason why the run is skipped, if an earlier failure prevents it.
    pub halted: Option<&'a UserText>,
}

/// Report that ends a run early.
pub(super) type ProjectStop = Stop<Box<ProjectReport>>;

/// Parts of a run that differ between the kinds of runs.
pub(super) trait Task {
    /// Proof that the run has begun.
    type Begun;
    /// Result of the work.
    type Done;

    /// True if [`Self::end`] also ends the run, in the transaction that stores its result.
    const ENDS_RUN: bool = false;

    /// Program that runs the project, for the report.
    fn tool(&self, run: &ProjectRun<'_>) -> Distribution;

    /// Returns an error if nothing about the run may be stored here any more.
    fn still_ours(&self, cx: &CommandCx<'_>) -> Result<(), JobError>;

    /// Checks everything that can refuse the run before it waits for a permit.
    async fn check(&self, run: &ProjectRun<'_>, report: &ProjectReport) -> Result<(), ProjectStop>;

    /// Builds the report of a run that was stopped before it began.
    async fn not_begun(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<ProjectReport, JobError>;

    /// Makes the last checks, and stores that the run has begun.
    async fn begin(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<Self::Begun, ProjectStop>;

    /// True if the output is only for people who may see the page of the run.
    fn is_private(&self, run: &ProjectRun<'_>, begun: &Self::Begun) -> bool;

    /// Runs the steps of the command.
    async fn carry_out(
        &self,
        run: &ProjectRun<'_>,
        begun: &Self::Begun,
        output: &RunOutput,
    ) -> Self::Done;

    /// Error of the work, which is added to the output.
    fn error(done: &Self::Done) -> Option<&RunError>;

    /// Stores the result, and builds the report.
    async fn end(
        &self,
        run: &ProjectRun<'_>,
        begun: Self::Begun,
        done: Self::Done,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError>;

    /// Returns the job that sets the status of the project after its run; `None` for kinds without statuses.
    async fn last_status(
        &self,
        _run: &ProjectRun<'_>,
        _report: &ProjectReport,
    ) -> Result<Option<NewJob>, JobError> {
        Ok(None)
    }
}

impl ProjectRun<'_> {
    /// Carries out the run, and stores how far it came.
    pub async fn drive<T: Task>(&self, task: &T) -> Result<ProjectReport, JobError> {
        let cx = self.cx;
        let (report, has_ended) = match boxed(|| self.attempt(task)).await {
            Ok(report) => (report, T::ENDS_RUN),
            Err(Stop::Reply(report)) => (*report, false),
            Err(Stop::Job(error)) => return Err(error),
        };
        let report = ProjectReport {
            log: log(cx.ctx, self.verbose, self.id).await?,
            ..report
        };
        if task.still_ours(cx).is_err() {
            // The caller notices it too, once all runs of the command have come this far.
            return Ok(report);
        }
        let status = if self.has_status {
            task.last_status(self, &report).await?
        } else {
            None
        };
        if has_ended {
            cx.push(status).await?;
        } else {
            cx.finish_run(self.id, &report, status).await?;
        }
        Ok(report)
    }

    async fn attempt<T: Task>(&self, task: &T) -> Result<ProjectReport, ProjectStop> {
        let (ctx, run) = (self.cx.ctx, self.id);
        let report = ProjectReport {
            run_url: Some(ctx.settings.run_url(run)),
            tool: task.tool(self),
            ..ProjectReport::new(self.project.clone(), ProjectOutcome::Failed)
        };
        task.check(self, &report).await?;
        let Ok(_permit) = projects::acquire_permit(self.cx, self.kind).await else {
            return Err(Stop::Reply(Box::new(task.not_begun(self, &report).await?)));
        };
        let begun = task.begin(self, &report).await?;
        ctx.runs.hub.announce(run);
        if task.is_private(self, &begun) {
            ctx.store.run_keep_private(run).await?;
        }
        let output = RunOutput::start(ctx.store.clone(), ctx.runs.hub.clone(), run);
        let done = task.carry_out(self, &begun, &output).await;
        if let Some(error) = T::error(&done) {
            output.push_line(&describe_error(error)).await;
        }
        output.finish().await;
        Ok(task.end(self, begun, done, report).await?)
    }

    /// Returns why the run is skipped. A command that has to stop says that instead.
    pub fn skipped(&self) -> Option<&UserText> {
        self.halted.filter(|_| !self.cx.stop.is_cancelled())
    }
}

/// Ends a run early with an outcome and its reason.
pub(super) fn refuse(
    report: &ProjectReport,
    outcome: ProjectOutcome,
    why: UserText,
) -> ProjectStop {
    Stop::Reply(Box::new(ProjectReport {
        outcome,
        message: Some(why),
        ..report.clone()
    }))
}
