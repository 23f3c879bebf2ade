//! `/apps/{id}`: an application, its plan, its lock and its runs, with buttons to plan, to apply the plan, to cancel a run
//! and to discard the plan.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Redirect, Response};
use serde::{Deserialize, Serialize};

use super::ApplicationAction;
use super::actions::{CancelRequest, cancel, discard, request_run, seen_app, the_app};
use super::view::{ApplicationDetails, ApplicationView, CommandDetails, CommandView, PlanView};
use crate::config::access::NOBODY;
use crate::features::locks::LockJson;
use crate::features::runs::{RunLink, plan_words, run_links};
use crate::kit::web::csrf::{Confirmed, EmptyForm};
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, duration, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{CommandId, Lock, PlanRecord, PlanState};
use crate::store::{CommandRow, CommandState};

#[derive(Serialize)]
struct ApplicationsPage {
    #[serde(flatten)]
    app: ApplicationView,
    title: String,
    notice: Option<&'static str>,
    plan: Option<ApplicationPlanEntry>,
    locks: Vec<ApplicationLockEntry>,
    runs: Vec<ApplicationCommandEntry>,
    /// Current run. No other run can be requested until it ends.
    busy: Option<BusyView>,
    /// True if there is a plan that can be applied.
    can_apply: bool,
    /// True if there is a plan or a lock that can be given up.
    can_discard: bool,
}

/// The last plan, for the template.
#[derive(Serialize)]
struct ApplicationPlanEntry {
    #[serde(flatten)]
    plan: PlanView,
    /// State in words, such as `waiting to be applied`.
    words: &'static str,
    summary: String,
    /// Program that made the plan, with its version.
    tool: String,
}

impl From<&PlanRecord> for ApplicationPlanEntry {
    fn from(plan: &PlanRecord) -> Self {
        Self {
            plan: plan.into(),
            words: plan_words(plan.state),
            summary: if plan.counts.is_empty() {
                "No changes.".to_owned()
            } else {
                plan.counts.to_string()
            },
            tool: format!("{} {}", plan.distribution.title(), plan.tool_version),
        }
    }
}

/// A lock of the application, for the template.
#[derive(Serialize)]
struct ApplicationLockEntry {
    #[serde(flatten)]
    lock: LockJson,
    /// Holder with name and status.
    who: String,
}

impl From<&Lock> for ApplicationLockEntry {
    fn from(lock: &Lock) -> Self {
        Self {
            lock: lock.into(),
            who: lock.holder.to_string(),
        }
    }
}

#[derive(Serialize)]
struct BusyView {
    run: String,
    kind: &'static str,
    by: String,
    /// True for a running apply, which only a user who may interrupt applies may cancel.
    needs_force: bool,
    /// Reason why it is being stopped.
    stopping: Option<String>,
}

impl BusyView {
    fn new(command: &CommandRow) -> Self {
        Self {
            run: command.id.to_string(),
            kind: command.kind.as_str(),
            by: shown(&command.asker().to_string()),
            needs_force: command.kind.changes() && command.state == CommandState::Running,
            stopping: command
                .stop
                .as_ref()
                .map(|stop| shown(&stop.why.replace('`', ""))),
        }
    }
}

/// A command, for the template.
#[derive(Serialize)]
struct ApplicationCommandEntry {
    #[serde(flatten)]
    command: CommandView,
    /// Person who requested it, with name and status.
    who: String,
    way: &'static str,
    took: Option<String>,
    /// Commit in its short form.
    head: Option<String>,
    badge: Badge,
    runs: Vec<RunLink>,
}

impl From<&CommandDetails> for ApplicationCommandEntry {
    fn from(details: &CommandDetails) -> Self {
        let command = &details.command;
        Self {
            command: details.into(),
            who: command.asker().to_string(),
            // If nobody signs in, the name already says the way.
            way: if command.actor.login == NOBODY {
                ""
            } else {
                command.actor.origin.way()
            },
            took: command
                .finished_at
                .map(|end| duration(end - command.created_at)),
            head: command.head.as_ref().map(|head| head.short().to_owned()),
            badge: Badge::of_command(command.state, command.outcome),
            runs: run_links(&details.runs),
        }
    }
}

/// `?notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ApplicationsQuery {
    notice: String,
}

fn notice(code: &str) -> Option<&'static str> {
    match code {
        "plan" => Some("Plan queued. Reload this page to see its progress."),
        "apply" => Some("Apply queued. Reload this page to see its progress."),
        "cancel" => Some(
            "The run was cancelled. If it was running, it stops in a moment. Reload this page to see its progress.",
        ),
        "discard" => Some("The plan was discarded, and the lock was released."),
        _ => None,
    }
}

/// `GET /apps/{id}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
    LenientQuery(params): LenientQuery<ApplicationsQuery>,
) -> Result<Response, WebError> {
    let app = seen_app(&web, &visible, &asked).await?;
    let details = ApplicationDetails::read(&web.store, app).await?;
    let page = ApplicationsPage::new(&details, notice(&params.notice));
    visitor.page("app.html", &page)
}

impl ApplicationsPage {
    fn new(details: &ApplicationDetails, notice: Option<&'static str>) -> Self {
        let ApplicationDetails {
            app,
            plan,
            locks,
            commands,
        } = details;
        let state = plan.as_ref().map(|plan| plan.state);
        let can_apply = matches!(state, Some(PlanState::Planned | PlanState::ApplyFailed));
        Self {
            app: app.into(),
            title: shown(&app.spec.title()),
            notice,
            plan: plan.as_ref().map(ApplicationPlanEntry::from),
            locks: locks.iter().map(ApplicationLockEntry::from).collect(),
            runs: commands.iter().map(ApplicationCommandEntry::from).collect(),
            busy: commands
                .iter()
                .map(|details| &details.command)
                .find(|command| command.state != CommandState::Finished)
                .map(BusyView::new),
            can_apply,
            can_discard: can_apply || !locks.is_empty(),
        }
    }
}

/// `POST /apps/{id}/{action}`
pub(super) async fn act(
    State(web): State<Arc<WebState>>,
    Segment((asked, action)): Segment<(String, String)>,
    form: Confirmed<EmptyForm>,
) -> Result<Redirect, WebError> {
    let who = form.who.at_page();
    match action.as_str() {
        "plan" => request_run(
            &web,
            &the_app(&web, &asked).await?,
            ApplicationAction::Plan,
            &who,
        )
        .await
        .map(drop)?,
        "apply" => request_run(
            &web,
            &the_app(&web, &asked).await?,
            ApplicationAction::Apply,
            &who,
        )
        .await
        .map(drop)?,
        "discard" => discard(&web, &the_app(&web, &asked).await?, &who)
            .await
            .map(drop)?,
        _ => return Err(WebError::no_such_page()),
    }
    Ok(Redirect::to(
        &web.link(&format!("/apps/{asked}?notice={action}")),
    ))
}

/// Run to cancel, and if an apply may be interrupted.
#[derive(Deserialize)]
pub(super) struct StopForm {
    #[serde(default)]
    run: Option<CommandId>,
    #[serde(default)]
    force: String,
}

/// `POST /apps/{id}/cancel`: cancels the run that the page shows.
pub(super) async fn stop(
    State(web): State<Arc<WebState>>,
    Segment(asked): Segment,
    form: Confirmed<StopForm>,
) -> Result<Redirect, WebError> {
    let stopping = CancelRequest {
        run: form.fields.run,
        force: form.fields.force == "yes",
    };
    let app = the_app(&web, &asked).await?;
    cancel(&web, &app, &stopping, &form.who.at_page())
        .await
        .map(drop)?;
    Ok(Redirect::to(
        &web.link(&format!("/apps/{asked}?notice=cancel")),
    ))
}
