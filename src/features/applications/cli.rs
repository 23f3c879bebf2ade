//! `lockkeeper apps (add | change | list | remove)`: registered projects.

mod runs;

use anyhow::Context as _;
use serde_json::json;

use super::ApplicationAction;
use super::view::ApplicationView;
use crate::claims::{application_add, application_change, application_remove};
use crate::features::owners::{
    AdminFlags, AdminSession, LIST_PART, OwnerFlag, cli_cause, may_go_on,
};
use crate::kit::term::{
    ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, block_on, safe,
};
use crate::model::{ApplicationFields, ApplicationId, ApplicationProblem, OwnerName, Rights};
use crate::store::Application;

/// Register, change, show, plan, apply, cancel and remove projects of owners
#[derive(clap::Parser)]
pub(super) enum ApplicationsArgs {
    /// Register a project, and claim its repository for its owner
    ///
    /// Exit code 1: another owner has claimed the repository, the same project is already registered, or the owner has
    /// too many. The message says which, and nothing was changed.
    Add {
        /// Owner of the project
        #[arg(long, value_name = "NAME")]
        owner: OwnerName,
        /// Address of the repository, in any form
        #[arg(long)]
        url: String,
        /// Branch that is planned and applied
        #[arg(long, value_name = "NAME")]
        branch: String,
        #[command(flatten)]
        fields: ApplicationFlags,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
    /// Change a registered project; values that are not given stay unchanged
    Change {
        /// Address of the repository, in any form
        #[arg(long)]
        url: Option<String>,
        /// Branch that is planned and applied
        #[arg(long, value_name = "NAME")]
        branch: Option<String>,
        #[command(flatten)]
        fields: ApplicationFlags,
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Show the registered projects
    List {
        #[command(flatten)]
        filter: OwnerFlag,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
    /// Show a registered project and its newest runs
    Show {
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Plan a registered project, as it is on its branch
    ///
    /// Queues a plan of the project, which a running server starts. `show` shows the result.
    ///
    /// Exit code 1: nothing was queued; the message says why.
    Plan {
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Apply the last plan of a registered project
    ///
    /// Queues an apply of exactly the last plan, which a running server starts. If the branch has changed since the
    /// plan, nothing is applied. `show` shows the result.
    ///
    /// Exit code 1: nothing was queued; the message says why.
    Apply {
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Cancel the queued or running run of a registered project
    ///
    /// Asks the run of the project to stop. A running server ends it: a queued run does not begin, and a running plan is
    /// interrupted. A running apply is only interrupted with --force, because that can leave the infrastructure half
    /// changed. `show` shows the result.
    ///
    /// Exit code 1: nothing was changed; the message says why.
    Cancel {
        /// Also interrupt a running apply
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Discard the last plan of a registered project, and release its lock
    Discard {
        #[command(flatten)]
        app: ApplicationArg,
    },
    /// Remove a registered project, and the claim on its repository if nothing else needs it
    Remove {
        #[command(flatten)]
        app: ApplicationArg,
    },
}

/// Registered project that a subcommand is about, with the flags of every such subcommand.
#[derive(clap::Args)]
pub(super) struct ApplicationArg {
    /// Identifier, as `list` shows it
    id: ApplicationId,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    server: AdminFlags,
}

/// Fields of a registered project that are never required.
#[derive(clap::Args)]
pub(super) struct ApplicationFlags {
    /// Directory; the default is the root
    #[arg(long, value_name = "PATH")]
    dir: Option<String>,
    /// Workspace; the default is `default`
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,
    /// Name of the project; empty for none
    #[arg(long)]
    name: Option<String>,
    /// Allow a branch that is not the default branch of the repository
    #[arg(long, value_name = "BOOL")]
    any_branch: Option<bool>,
}

impl ApplicationFlags {
    fn with<'a>(
        &'a self,
        url: Option<&'a String>,
        branch: Option<&'a String>,
    ) -> ApplicationFields<'a> {
        ApplicationFields {
            url: url.map(String::as_str),
            branch: branch.map(String::as_str),
            dir: self.dir.as_deref(),
            workspace: self.workspace.as_deref(),
            name: self.name.as_deref(),
            any_branch: self.any_branch,
        }
    }
}

impl SubcommandArgs for ApplicationsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::Add {
                    owner,
                    url,
                    branch,
                    fields,
                    format,
                    server,
                } => {
                    let fields = fields.with(Some(&url), Some(&branch));
                    add(&server.open().await?, &owner, fields, format, terminal).await
                }
                Self::Change {
                    url,
                    branch,
                    fields,
                    app,
                } => {
                    let fields = fields.with(url.as_ref(), branch.as_ref());
                    change(&app.server.open().await?, &app, fields, terminal).await
                }
                Self::List {
                    filter,
                    format,
                    server,
                } => list(&server.open().await?, &filter, format, terminal).await,
                Self::Show { app } => runs::show(&app.server.open().await?, &app, terminal).await,
                Self::Plan { app } => {
                    let (session, action) = (app.server.open().await?, ApplicationAction::Plan);
                    runs::request_run(&session, action, &app, terminal).await
                }
                Self::Apply { app } => {
                    let (session, action) = (app.server.open().await?, ApplicationAction::Apply);
                    runs::request_run(&session, action, &app, terminal).await
                }
                Self::Cancel { force, app } => {
                    runs::cancel(&app.server.open().await?, &app, force, terminal).await
                }
                Self::Discard { app } => {
                    runs::discard(&app.server.open().await?, &app, terminal).await
                }
                Self::Remove { app } => remove(&app.server.open().await?, &app, terminal).await,
            }
        })?
    }
}

async fn add(
    session: &AdminSession,
    owner: &OwnerName,
    fields: ApplicationFields<'_>,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let spec = match fields.spec(&session.forges) {
        Ok(spec) => spec,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_add(&session.store, owner, &spec, (Rights::Whole, &cli_cause())).await;
    let saved = saved.context("the application could not be added")?;
    ended(saved.or_why(), format, terminal)
}

async fn change(
    session: &AdminSession,
    app: &ApplicationArg,
    fields: ApplicationFields<'_>,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let change = match fields.change(&session.forges) {
        Ok(change) => change,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let rights = (Rights::Whole, &cli_cause());
    let saved = application_change(&session.store, app.id, &change, rights).await;
    let saved = saved.context("the application could not be changed")?;
    ended(saved.or_why(), app.format, terminal)
}

async fn list(
    session: &AdminSession,
    filter: &OwnerFlag,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let owner = filter.find(session).await?;
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part = session
            .store
            .application_list(owner, after, LIST_PART)
            .await
            .context("the applications could not be read")?;
        for app in &part {
            show(app, format, terminal)?;
        }
        is_empty &= part.is_empty();
        if !may_go_on(&part) {
            break;
        }
        after = part.last().map(|app| app.id);
    }
    if is_empty && !format.is_json() {
        terminal.line("No projects are registered.")?;
    }
    Ok(ExitStatus::Success)
}

async fn remove(
    session: &AdminSession,
    app: &ApplicationArg,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let removed = application_remove(&session.store, app.id, &cli_cause()).await;
    let removed = removed.context("the application could not be removed")?;
    ended(removed.or_why(), app.format, terminal)
}

fn ended(
    saved: Result<Application, String>,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match saved {
        Ok(app) => show(&app, format, terminal).map(|()| ExitStatus::Success),
        Err(why) => {
            terminal.note(safe(&format!("error: nothing was changed. {why}")));
            Ok(ExitStatus::Failure)
        }
    }
}

fn wrong(problems: &[ApplicationProblem]) -> String {
    let lines = problems
        .iter()
        .map(|problem| format!("error: --{}: {}\n", problem.field, problem.text));
    lines.collect::<Vec<_>>().concat()
}

fn show(
    app: &Application,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> anyhow::Result<()> {
    Ok(format.print(
        terminal,
        || json!(ApplicationView::from(app)),
        || as_text(app),
    )?)
}

pub(super) fn as_text(app: &Application) -> String {
    safe(&format!("{} {}: {}", app.id, app.owner, app.spec))
}
