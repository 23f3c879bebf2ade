//! Runs `version`: each program reports its own version (reference 1.7). It takes no lock and changes nothing.
//!
//! Without a target, it covers the projects that have a plan. A plan, and not the changed files, determines what
//! would be applied, and with which program.

use futures::future::join_all;
use tracing::{Instrument, info_span};

use super::hooks::Given;
use super::permission;
use super::projects::{self, Selection, Wanted, Work};
use super::{CommandCx, forget_cut_off};
use crate::command::VersionCommand;
use crate::config::access::Action;
use crate::discovery::Project;
use crate::errors::describe_error;
use crate::handlers::reply::Reply;
use crate::model::{CommandOutcome, PlanState, ProjectKey, ProjectOutcome, RunId, RunKind};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText};
use crate::store::NewRun;
use crate::workflow::{RunError, RunOutput, StepError, StepFailure};

pub(super) async fn run(cx: &CommandCx<'_>, command: &VersionCommand) -> Result<Reply, JobError> {
    cx.start(vec![]).await?;
    // An interrupted attempt has changed nothing.
    forget_cut_off(cx.ctx, cx.ctx.store.run_list(cx.row.id).await?).await?;
    let wanted = if command.target.is_targeted() {
        Wanted::Named(&command.target)
    } else {
        Wanted::These(planned(cx).await?)
    };
    let work = match projects::select(cx, &wanted, Given::of(&command.target, &[])).await? {
        Selection::Work(work) => work,
        Selection::Refused(reply) => return Ok(reply),
    };
    if work.projects.is_empty() {
        return Ok(no_projects(cx));
    }
    let asked = work.projects.iter().map(|project| {
        let asking = Asking {
            cx,
            work: &work,
            project,
            verbose: command.verbose,
        };
        asking
            .report()
            .instrument(info_span!("version", project = %project.key))
    });
    let reports = join_all(asked).await;
    cx.abandoned()?;
    Ok(Reply::new(Body::Projects(
        reports.into_iter().collect::<Result<_, _>>()?,
    )))
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
    if cx.ctx.settings.silence_no_projects {
        return Reply::silent(CommandOutcome::Success);
    }
    let word = &cx.ctx.settings.executable;
    let hint = format!("Plan first, or name the project that is meant: `{word} version -d DIR`.");
    Reply::new(Body::NoProjects(Some(UserText::new(
        "No project of this pull request has a plan.",
        [hint],
    ))))
}

/// Request for the version of one project's program.
struct Asking<'a> {
    cx: &'a CommandCx<'a>,
    work: &'a Work,
    project: &'a Project,
    verbose: bool,
}

impl Asking<'_> {
    async fn report(self) -> Result<ProjectReport, JobError> {
        let (cx, key) = (self.cx, &self.project.key);
        let new = NewRun {
            command: cx.row.id,
            kind: RunKind::Version,
            pull: cx.pull.at.clone(),
            project: key.clone(),
        };
        let run = cx.ctx.store.run_create(&new).await?;
        let report = self.attempt(run).await?;
        let report = ProjectReport {
            log: super::log(cx.ctx, self.verbose, run).await?,
            ..report
        };
        if cx.abandoned().is_ok() {
            cx.finish_run(run, &report).await?;
        }
        Ok(report)
    }

    async fn attempt(&self, run: RunId) -> Result<ProjectReport, JobError> {
        let (cx, key) = (self.cx, &self.project.key);
        let report = ProjectReport {
            run_url: Some(cx.ctx.settings.run_url(run)),
            tool: self.work.distribution(cx, key),
            ..ProjectReport::new(key.clone(), ProjectOutcome::Failed)
        };
        if let Some(message) = permission::check_project(cx, Action::Version, key).await? {
            return Ok(ProjectReport {
                outcome: ProjectOutcome::Refused,
                message: Some(message),
                ..report
            });
        }
        let Ok(_place) = projects::place_in_pool(cx, RunKind::Version).await else {
            return stopped(cx, report).await;
        };
        cx.ctx.store.run_start(run).await?;
        cx.ctx.hub.announce(run);
        let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.hub.clone(), run);
        let told = self.work.version(cx, key, &output).await;
        if let Err(error) = &told {
            output.say(&describe_error(error)).await;
        }
        output.finish().await;
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
                let output = error.output().to_owned();
                Ok(ProjectReport {
                    message: Some(text),
                    output,
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
        .map_or_else(|| "the server was told to stop".to_owned(), |stop| stop.why);
    let message = Some(UserText::new(format!("{why}."), []));
    Ok(ProjectReport {
        outcome: ProjectOutcome::Cancelled,
        message,
        ..report
    })
}
