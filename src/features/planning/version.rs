//! Runs `version`: each program reports its own version (reference 1.7). It takes no lock and changes nothing.
//!
//! Without a target, it covers the projects that have a plan. A plan, and not the changed files, determines what
//! would be applied, and with which program.

use futures::future::join_all;
use tracing::{Instrument, info_span};

use super::hooks::HookFacts;
use super::project_run::{ProjectRun, ProjectStop, Task, refuse};
use super::projects::{self, ProjectSelection, Work};
use super::stop::Stop;
use super::{CommandCx, forget_cut_off, permission};
use crate::command::VersionCommand;
use crate::config::access::Action;
use crate::errors::describe_error;
use crate::features::replies::Reply;
use crate::model::{CommandOutcome, Distribution, PlanState, ProjectKey, ProjectOutcome, RunKind};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText};
use crate::store::NewRun;
use crate::workflow::{RunError, RunOutput, StepError, StepFailure};

pub(super) async fn run(cx: &CommandCx<'_>, command: &VersionCommand) -> Result<Reply, Stop> {
    cx.start(vec![]).await?;
    // An interrupted attempt has changed nothing.
    forget_cut_off(cx.ctx, cx.ctx.store.run_list(cx.row.id).await?).await?;
    let wanted = if command.target.is_targeted() {
        ProjectSelection::Named(&command.target)
    } else {
        ProjectSelection::These(planned(cx).await?)
    };
    let work = projects::select(cx, &wanted, HookFacts::of(&command.target, &[])).await?;
    if work.projects.is_empty() {
        return Ok(no_projects(cx));
    }
    let asked = work.projects.iter().map(|project| {
        ask(cx, &work, &project.key, command.verbose)
            .instrument(info_span!("version", project = %project.key))
    });
    let reports = join_all(asked).await;
    cx.abandoned()?;
    Ok(Reply::new(Body::Projects(
        reports.into_iter().collect::<Result<_, _>>()?,
    )))
}

async fn ask(
    cx: &CommandCx<'_>,
    work: &Work,
    project: &ProjectKey,
    verbose: bool,
) -> Result<ProjectReport, JobError> {
    let new = NewRun {
        command: cx.row.id,
        kind: RunKind::Version,
        pull: cx.pull.at.clone(),
        project: project.clone(),
    };
    let run = ProjectRun {
        cx,
        project,
        kind: RunKind::Version,
        id: cx.ctx.store.run_create(&new).await?,
        has_status: false,
        verbose,
        halted: None,
    };
    run.drive(&VersionRequest { work }).await
}

/// Lists the projects with a plan that could be applied, or has no changes.
async fn planned(cx: &CommandCx<'_>) -> Result<Vec<ProjectKey>, JobError> {
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let counts = |state| {
        matches!(
            state,
            PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed
        )
    };
    Ok(plans
        .into_iter()
        .filter(|plan| counts(plan.state))
        .map(|plan| plan.project)
        .collect())
}

fn no_projects(cx: &CommandCx<'_>) -> Reply {
    if cx.ctx.settings.comments.silence.no_projects {
        return Reply::silent(CommandOutcome::Success);
    }
    let word = cx.ctx.settings.comments.executable();
    let hint = format!("Plan first, or name a project: `{word} version -d DIR`.");
    Reply::new(Body::NoProjects(Some(UserText::new(
        "No project of this pull request has a plan.",
        [hint],
    ))))
}

/// Request for the version of one project's program.
struct VersionRequest<'a> {
    work: &'a Work,
}

impl Task for VersionRequest<'_> {
    type Begun = ();
    type Done = Result<String, RunError>;

    fn tool(&self, run: &ProjectRun<'_>) -> Distribution {
        self.work.distribution(run.cx, run.project)
    }

    fn still_ours(&self, cx: &CommandCx<'_>) -> Result<(), JobError> {
        cx.abandoned()
    }

    async fn check(&self, run: &ProjectRun<'_>, report: &ProjectReport) -> Result<(), ProjectStop> {
        match permission::check_project(run.cx, Action::Version, run.project).await? {
            Some(why) => Err(refuse(report, ProjectOutcome::Refused, why)),
            None => Ok(()),
        }
    }

    async fn not_begun(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        stopped(run.cx, report.clone()).await
    }

    async fn begin(&self, run: &ProjectRun<'_>, _: &ProjectReport) -> Result<(), ProjectStop> {
        Ok(run.cx.ctx.store.run_start(run.id).await?)
    }

    fn is_private(&self, _: &ProjectRun<'_>, (): &()) -> bool {
        false
    }

    async fn carry_out(
        &self,
        run: &ProjectRun<'_>,
        (): &(),
        output: &RunOutput,
    ) -> Result<String, RunError> {
        self.work.version(run.cx, run.project, output).await
    }

    fn error(done: &Self::Done) -> Option<&RunError> {
        done.as_ref().err()
    }

    async fn end(
        &self,
        run: &ProjectRun<'_>,
        (): (),
        told: Self::Done,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let cx = run.cx;
        match told {
            Ok(output) => Ok(ProjectReport {
                outcome: ProjectOutcome::Told,
                output,
                ..report
            }),
            Err(RunError::Step(StepError {
                why: StepFailure::Stopped { .. },
                ..
            })) => stopped(cx, report).await,
            Err(error) => {
                let text = UserText::new(
                    format!("{}.", describe_error(&error)),
                    projects::hints(cx, &error).await,
                );
                Ok(ProjectReport {
                    message: Some(text),
                    output: error.output().to_owned(),
                    ..report
                })
            }
        }
    }
}

async fn stopped(cx: &CommandCx<'_>, report: ProjectReport) -> Result<ProjectReport, JobError> {
    let why = cx
        .asked_to_stop()
        .await?
        .map_or_else(|| "the server was stopped".to_owned(), |stop| stop.why);
    let message = Some(UserText::new(format!("{why}."), []));
    Ok(ProjectReport {
        outcome: ProjectOutcome::Cancelled,
        message,
        ..report
    })
}
