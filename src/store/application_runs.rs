//! Runs of applications, and the locks that applications hold.
//!
//! A request for a run locks the row of the application, and so does a change or a removal. So an application does
//! not change while a command works on it, and no command begins on an application that is being removed.

use super::applications::{Application, application_hold_in_tx};
use super::commands::{CommandColumns, select_sql};
use super::plans::{PlanRow, plans_close_in_tx, plans_discard_in_tx};
use super::{
    CommandRow, CreateCommand, LockChange, NewCommand, NewJob, Result, Store, Tx, execute,
    free_text, on_pool, on_tx,
};
use crate::model::{
    ApplicationId, Cause, CommandId, Lock, LockEventKind, PlanRecord, PlanState, PullRef, PullState,
};

const OF_NUMBER: &str =
    select_sql!("WHERE c.repo = $1 AND c.pull = $2 ORDER BY c.created_at DESC, c.id DESC LIMIT $3");
const UNFINISHED: &str = select_sql!(
    "WHERE c.repo = $1 AND c.pull = $2 AND c.state <> 'finished' ORDER BY c.created_at, c.id LIMIT 1"
);
const LAST_PLAN: &str = "SELECT id, repo, pull, dir, workspace, name, run, head, base_branch, base, distribution, \
     tool_version, workflow, order_group, digest, counts, blocked, state, created_at FROM plans WHERE repo = $1 AND pull = $2 \
     ORDER BY created_at DESC, id DESC LIMIT 1";

/// Outcome of a request for a run.
#[must_use]
#[derive(Clone, Debug)]
pub enum RunRequestOutcome {
    /// The command is queued.
    Queued(CommandId),
    /// No application has this identifier.
    NotFound,
    /// The application's address names no repository that a forge could have.
    NoRepository(Box<Application>),
    /// Another command works on the application, or waits to.
    Busy(Box<Application>, Box<CommandRow>),
    /// No plan can be applied. Holds the state of the last plan, if there was one.
    NoPlan(Box<Application>, Option<PlanState>),
}

/// Reason why an application can be neither changed nor removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationUse {
    /// A command works on the application, or waits to.
    Command(CommandId),
    /// The application holds a lock.
    Lock(Box<Lock>),
}

/// Outcome of discarding the plan of an application.
#[must_use]
#[derive(Clone, Debug)]
pub enum DiscardOutcome {
    /// No plan is left to apply, and these locks were released.
    Done(Vec<Lock>),
    /// No application has this identifier.
    NotFound,
    /// A command works on the application, or waits to.
    Busy(Box<Application>, Box<CommandRow>),
}

/// Recent commands, newest plan and locks of an application.
#[derive(Clone, Debug)]
pub struct ApplicationRuns {
    /// Newest commands, the newest first.
    pub commands: Vec<CommandRow>,
    /// Newest plan, in any state.
    pub plan: Option<PlanRecord>,
    /// Locks that the application holds.
    pub locks: Vec<Lock>,
}

impl Store {
    /// Queues a run of an application. `make` receives the application and the reference that stands for it among the
    /// pulls. Refuses while another command is unfinished, and refuses an apply without a plan to apply.
    pub async fn application_request_run(
        &self,
        id: ApplicationId,
        make: impl FnOnce(&Application, &PullRef) -> NewCommand,
        job: impl FnOnce(CommandId, &NewCommand) -> NewJob,
    ) -> Result<RunRequestOutcome> {
        let mut tx = self.begin().await?;
        let Some(application) = application_hold_in_tx(&mut tx, id).await? else {
            return Ok(RunRequestOutcome::NotFound);
        };
        let application = Box::new(application);
        let Some(at) = application.at() else {
            return Ok(RunRequestOutcome::NoRepository(application));
        };
        if let Some(busy) = unfinished_in_tx(&mut tx, &at).await? {
            return Ok(RunRequestOutcome::Busy(application, Box::new(busy)));
        }
        let new = make(&application, &at);
        if new.kind.changes() {
            let last = on_tx!(&mut tx, db => sqlx::query_as::<_, PlanRow>(LAST_PLAN)
                .bind(&at.repo).bind(at.subject).fetch_optional(db))?;
            let state = last.map(|row| PlanRecord::from(row).state);
            if !matches!(state, Some(PlanState::Planned | PlanState::ApplyFailed)) {
                return Ok(RunRequestOutcome::NoPlan(application, state));
            }
        }
        let created = self
            .command_create_in_tx(&mut tx, &new, |command| vec![job(command, &new)])
            .await?;
        tx.commit().await?;
        match created {
            CreateCommand::Created(command) => Ok(RunRequestOutcome::Queued(command)),
            CreateCommand::Known => Err(sqlx::Error::Protocol(
                "a new command existed already".to_owned(),
            )),
        }
    }

    /// Discards the plan of an application and releases its locks.
    pub async fn application_discard(
        &self,
        id: ApplicationId,
        cause: &Cause,
    ) -> Result<DiscardOutcome> {
        let Some(application) = self.application_get(id).await? else {
            return Ok(DiscardOutcome::NotFound);
        };
        let Some(at) = application.at() else {
            return Ok(DiscardOutcome::Done(Vec::new()));
        };
        let (mut change, _) = LockChange::begin(self, &at, cause).await?;
        if let Some(busy) = unfinished_in_tx(&mut change.tx, &at).await? {
            return Ok(DiscardOutcome::Busy(Box::new(application), Box::new(busy)));
        }
        // A command that begins from now on finds its lock gone when it stores a plan under it, as after any release.
        let freed = change.free_all(&at, LockEventKind::Released).await?;
        plans_discard_in_tx(&mut change.tx, &at).await?;
        change.commit().await.map(|()| DiscardOutcome::Done(freed))
    }

    /// Returns the newest commands (at most `most`), the newest plan and the locks of an application.
    pub async fn application_runs(&self, at: &PullRef, most: i64) -> Result<ApplicationRuns> {
        let commands = on_pool!(self, db => sqlx::query_as::<_, CommandColumns>(OF_NUMBER)
            .bind(&at.repo).bind(at.subject).bind(most).fetch_all(db))?;
        let plan = on_pool!(self, db => sqlx::query_as::<_, PlanRow>(LAST_PLAN)
            .bind(&at.repo).bind(at.subject).fetch_optional(db))?;
        Ok(ApplicationRuns {
            commands: commands.into_iter().map(CommandRow::from).collect(),
            plan: plan.map(PlanRecord::from),
            locks: self.lock_list_of_pull(at).await?,
        })
    }

    /// Returns the command that works on an application or waits to. There is at most one.
    pub async fn application_busy(&self, application: &Application) -> Result<Option<CommandRow>> {
        let Some(at) = application.at() else {
            return Ok(None);
        };
        on_pool!(self, db => sqlx::query_as::<_, CommandColumns>(UNFINISHED).bind(&at.repo).bind(at.subject).fetch_optional(db))
            .map(|row| row.map(CommandRow::from))
    }

    /// Returns the result of a command of an application, once the command has ended.
    pub async fn command_result(&self, id: CommandId) -> Result<Option<String>> {
        on_pool!(self, db => sqlx::query_scalar::<_, Option<String>>("SELECT result FROM commands WHERE id = $1")
            .bind(id).fetch_optional(db))
        .map(Option::flatten)
    }

    /// Allows an application to take locks from now on, and stores its title.
    pub(crate) async fn application_open_in_tx(
        &self,
        tx: &mut Tx,
        application: &Application,
    ) -> Result<()> {
        let Some(at) = application.at() else {
            return Ok(());
        };
        self.application_note_in_tx(tx, &at, PullState::Open, &application.spec.title())
            .await
    }

    /// Discards the plans of an application and lets it take no more locks in its repository. It must not be in use.
    pub(crate) async fn application_close_in_tx(
        &self,
        tx: &mut Tx,
        application: &Application,
    ) -> Result<()> {
        let Some(at) = application.at() else {
            return Ok(());
        };
        plans_close_in_tx(tx, &at).await?;
        self.application_note_in_tx(tx, &at, PullState::Closed, &application.spec.title())
            .await
    }

    async fn application_note_in_tx(
        &self,
        tx: &mut Tx,
        at: &PullRef,
        state: PullState,
        title: &str,
    ) -> Result<()> {
        execute!(
            tx,
            "INSERT INTO pulls (repo, number, state, url, title, updated_at) VALUES ($1, $2, $3, '', $4, $5) \
             ON CONFLICT (repo, number) DO UPDATE SET state = excluded.state, title = excluded.title, \
             updated_at = excluded.updated_at",
            &at.repo,
            at.subject,
            state,
            free_text(title),
            self.now(),
        )
        .map(drop)
    }
}

/// Returns the command or the lock that prevents a change or removal of an application. The caller holds its row.
pub(crate) async fn application_use_in_tx(
    tx: &mut Tx,
    application: &Application,
) -> Result<Option<ApplicationUse>> {
    let Some(at) = application.at() else {
        return Ok(None);
    };
    if let Some(busy) = unfinished_in_tx(tx, &at).await? {
        return Ok(Some(ApplicationUse::Command(busy.id)));
    }
    Ok(super::locks::lock_of_pull_in_tx(tx, &at)
        .await?
        .map(|lock| ApplicationUse::Lock(Box::new(lock))))
}

async fn unfinished_in_tx(tx: &mut Tx, at: &PullRef) -> Result<Option<CommandRow>> {
    on_tx!(tx, db => sqlx::query_as::<_, CommandColumns>(UNFINISHED).bind(&at.repo).bind(at.subject).fetch_optional(db))
        .map(|row| row.map(CommandRow::from))
}
