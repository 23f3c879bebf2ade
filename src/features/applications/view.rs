//! An application as pages, the API and the command line show it: its project, its last plan, its locks and its newest
//! commands.

use serde::Serialize;

use crate::features::locks::LockJson;
use crate::kit::web::text::rfc3339;
use crate::model::{
    CommandKind, CommandOutcome, Lock, NamedAccount, Origin, PlanCounts, PlanRecord, PlanState,
    ProjectOutcome, RunKind,
};
use crate::store::{
    Application, ApplicationRuns, CommandRow, CommandState, Result, RunRow, RunState, Store,
};

/// Maximum number of shown commands of an application.
const SHOWN: i64 = 20;

/// An application with its last plan, its locks and its newest commands.
pub(super) struct ApplicationDetails {
    pub app: Application,
    /// Newest plan, in any state.
    pub plan: Option<PlanRecord>,
    /// Locks that the application holds.
    pub locks: Vec<Lock>,
    /// Newest commands, the newest first.
    pub commands: Vec<CommandDetails>,
}

/// A command with its runs and its result.
pub(super) struct CommandDetails {
    pub command: CommandRow,
    pub runs: Vec<RunRow>,
    /// Result, as the text of a comment on a pull request.
    pub result: Option<String>,
}

impl ApplicationDetails {
    /// Reads everything from the database.
    pub async fn read(store: &Store, app: Application) -> Result<Self> {
        let found = match app.at() {
            Some(at) => store.application_runs(&at, SHOWN).await?,
            None => ApplicationRuns {
                commands: Vec::new(),
                plan: None,
                locks: Vec::new(),
            },
        };
        let mut commands = Vec::new();
        for command in found.commands {
            commands.push(CommandDetails {
                runs: store.run_list(command.id).await?,
                result: store.command_result(command.id).await?,
                command,
            });
        }
        Ok(Self {
            app,
            plan: found.plan,
            locks: found.locks,
            commands,
        })
    }
}

/// One application. Texts are unescaped: pages and terminals escape them.
#[derive(Serialize)]
pub(crate) struct ApplicationView {
    id: String,
    owner: String,
    url: String,
    branch: String,
    dir: String,
    workspace: String,
    name: Option<String>,
    /// True if the branch may be another than the default one.
    any_branch: bool,
    created_by: String,
    created_at: String,
    updated_at: String,
}

impl From<&Application> for ApplicationView {
    fn from(app: &Application) -> Self {
        let spec = &app.spec;
        Self {
            id: app.id.to_string(),
            owner: app.owner.to_string(),
            url: spec.url.to_string(),
            branch: spec.branch.to_string(),
            dir: spec.dir.to_string(),
            workspace: spec.workspace.to_string(),
            name: spec.name.as_ref().map(ToString::to_string),
            any_branch: spec.any_branch,
            created_by: app.created_by.clone(),
            created_at: rfc3339(app.created_at),
            updated_at: rfc3339(app.updated_at),
        }
    }
}

/// An application with its last plan, its locks and its newest commands.
#[derive(Serialize)]
pub(super) struct ApplicationDetailsView {
    #[serde(flatten)]
    app: ApplicationView,
    plan: Option<PlanView>,
    locks: Vec<LockJson>,
    runs: Vec<CommandView>,
}

impl From<&ApplicationDetails> for ApplicationDetailsView {
    fn from(details: &ApplicationDetails) -> Self {
        Self {
            app: (&details.app).into(),
            plan: details.plan.as_ref().map(PlanView::from),
            locks: details.locks.iter().map(LockJson::from).collect(),
            runs: details.commands.iter().map(CommandView::from).collect(),
        }
    }
}

/// The last plan of an application.
#[derive(Serialize)]
pub(super) struct PlanView {
    state: PlanState,
    commit: String,
    counts: PlanCounts,
    /// Run that made the plan.
    run: String,
    made_at: String,
    /// Path of the page with the output.
    url_path: String,
}

impl From<&PlanRecord> for PlanView {
    fn from(plan: &PlanRecord) -> Self {
        Self {
            state: plan.state,
            commit: plan.head.to_string(),
            counts: plan.counts,
            run: plan.run.to_string(),
            made_at: rfc3339(plan.created_at),
            url_path: format!("/jobs/{}", plan.run),
        }
    }
}

/// A command of an application, which people know as a run.
#[derive(Serialize)]
pub(super) struct CommandView {
    id: String,
    kind: CommandKind,
    state: CommandState,
    outcome: Option<CommandOutcome>,
    /// Code of the refusal, if it was refused.
    reason: Option<String>,
    commit: Option<String>,
    /// Login of the person who requested it.
    by: String,
    account: Option<NamedAccount>,
    origin: Origin,
    asked_at: String,
    ended_at: Option<String>,
    /// Result, as the text of a comment on a pull request.
    result: Option<String>,
    jobs: Vec<CommandRunView>,
}

/// Work of a command on one project, with a page of its own.
#[derive(Serialize)]
struct CommandRunView {
    id: String,
    kind: RunKind,
    state: RunState,
    outcome: Option<ProjectOutcome>,
    message: Option<String>,
    url_path: String,
}

impl From<&CommandDetails> for CommandView {
    fn from(details: &CommandDetails) -> Self {
        let command = &details.command;
        Self {
            id: command.id.to_string(),
            kind: command.kind,
            state: command.state,
            outcome: command.outcome,
            reason: command.reason.clone(),
            commit: command.head.as_ref().map(ToString::to_string),
            by: command.actor.login.clone(),
            account: command.account.clone(),
            origin: command.actor.origin,
            asked_at: rfc3339(command.created_at),
            ended_at: command.finished_at.map(rfc3339),
            result: details.result.clone(),
            jobs: details.runs.iter().map(CommandRunView::from).collect(),
        }
    }
}

impl From<&RunRow> for CommandRunView {
    fn from(run: &RunRow) -> Self {
        Self {
            id: run.id.to_string(),
            kind: run.kind,
            state: run.state,
            outcome: run.outcome,
            message: run.message.clone(),
            url_path: format!("/jobs/{}", run.id),
        }
    }
}

/// Answer to the request to discard a plan.
#[derive(Serialize)]
pub(super) struct DiscardedView {
    released: Vec<LockJson>,
}

impl DiscardedView {
    /// Takes the locks that were released.
    pub fn new(released: &[Lock]) -> Self {
        Self {
            released: released.iter().map(LockJson::from).collect(),
        }
    }
}
