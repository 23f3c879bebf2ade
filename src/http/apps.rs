//! Applications at work, for the pages and the API: asking for a plan or an apply, cancelling what works on one, and
//! throwing a plan away.

use serde::Deserialize;
use tracing::{info, warn};

use super::reach::Sight;
use super::{Cancelling, Failure, Web};
use crate::config::access::{Action, Asker};
use crate::handlers::applications::{self, Deed, apply_running, busy, over, queued_or_why};
use crate::handlers::authz::Resource;
use crate::model::{ApplicationId, Cause, CommandId, Lock};
use crate::store::{Application, ApplicationRuns, CommandRow, DiscardedPlan};

/// Commands of an application that are shown.
const SHOWN: i64 = 20;

/// Reads the identifier in an address.
pub(super) fn app_id(asked: &str) -> Result<ApplicationId, Failure> {
    asked.parse().map_err(|_| Failure::no_such_app())
}

/// The application of an identifier in an address.
pub(super) async fn the_app(web: &Web, asked: &str) -> Result<Application, Failure> {
    web.store.application_get(app_id(asked)?).await?.ok_or_else(Failure::no_such_app)
}

/// The application of an identifier in an address, for whoever may see it.
pub(super) async fn seen_app(web: &Web, sight: &Sight, asked: &str) -> Result<Application, Failure> {
    let app = web.store.application_get(app_id(asked)?).await?;
    sight.must_see(&Resource::of_owner(app.as_ref().map(|app| &app.owner))).await?;
    app.ok_or_else(Failure::no_such_app)
}

/// What there is to say of its runs.
pub(super) async fn runs_of(web: &Web, app: &Application) -> Result<ApplicationRuns, Failure> {
    match app.at() {
        Some(at) => Ok(web.store.application_runs(&at, SHOWN).await?),
        None => Ok(ApplicationRuns { commands: Vec::new(), plan: None, locks: Vec::new() }),
    }
}

async fn permit(web: &Web, app: &Application, who: &Asker, action: Action) -> Result<(), Failure> {
    match app.at() {
        Some(at) => web.permit(who, action, &Resource::Unseen { pull: &at, via: None, args: &[] }).await,
        None => web.permit(who, action, &Resource::Owner(&app.owner)).await,
    }
}

/// Puts a run into the queue for somebody who may ask for it.
pub(super) async fn ask(web: &Web, app: &Application, deed: Deed, who: &Asker) -> Result<CommandId, Failure> {
    permit(web, app, who, deed.action()).await?;
    let asked = applications::ask(&web.store, app.id, deed, &who.actor()).await?;
    let why = |why: Option<_>| why.map_or_else(Failure::no_such_app, |why| Failure::not_now(&why));
    let command = queued_or_why(asked).map_err(why)?;
    info!(who = who.name(), application = %app.id, %command, ?deed, "Somebody asked for a run of an application");
    Ok(command)
}

/// What is to be cancelled, and how.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stopping {
    /// Only this run; whatever works on the application if it is not there.
    pub run: Option<CommandId>,
    /// Also an apply that is under way.
    pub force: bool,
}

/// Cancels what works on an application, for somebody who may.
pub(super) async fn cancel(
    web: &Web,
    app: &Application,
    stopping: &Stopping,
    who: &Asker,
) -> Result<(CommandId, Cancelling), Failure> {
    let force = stopping.force;
    permit(web, app, who, if force { Action::CancelForce } else { Action::Cancel }).await?;
    let found = web.store.application_busy(app).await?;
    let is_meant = |command: &CommandRow| stopping.run.is_none_or(|run| run == command.id);
    let Some(command) = found.filter(is_meant) else { return Err(Failure::not_now(&over(app))) };
    let outcome = web.cancel.cancel(command.id, &who.actor(), force).await?;
    warn!(who = who.name(), application = %app.id, command = %command.id, force, ?outcome, "Somebody cancels a command");
    match outcome {
        Cancelling::Dropped | Cancelling::Interrupted => Ok((command.id, outcome)),
        Cancelling::ApplyRunning => Err(Failure::not_now(&apply_running(app, &command))),
        Cancelling::Over => Err(Failure::not_now(&over(app))),
    }
}

/// Throws the plan away for somebody who may; tells which locks went back.
pub(super) async fn discard(web: &Web, app: &Application, who: &Asker) -> Result<Vec<Lock>, Failure> {
    permit(web, app, who, Action::Discard).await?;
    let cause = Cause::new(who.actor(), "the plan of the application is thrown away").from_address(who.remote.clone());
    match web.store.application_discard(app.id, &cause).await? {
        DiscardedPlan::Done(locks) => {
            info!(who = who.name(), application = %app.id, locks = locks.len(), "The plan of an application is discarded");
            Ok(locks)
        }
        DiscardedPlan::NotThere => Err(Failure::no_such_app()),
        DiscardedPlan::Busy(app, command) => Err(Failure::not_now(&busy(&app, &command))),
    }
}
