//! `/apps/{id}`: an application, its plan, its lock and its runs, with buttons to plan, to apply the plan, to cancel a run
//! and to discard the plan.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Redirect, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::ApplicationAction;
use super::actions::{CancelRequest, ask, cancel, discard, runs_of, seen_app, the_app};
use crate::config::access::NOBODY;
use crate::features::runs::{RunLink, plan_words, run_links};
use crate::kit::web::csrf::{Confirmed, EmptyForm};
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, duration, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{CommandId, Lock, PlanRecord, PlanState};
use crate::store::{Application, ApplicationRuns, CommandRow, CommandState};

#[derive(Serialize)]
struct ApplicationsPage {
    id: String,
    title: String,
    notice: Option<&'static str>,
    owner: String,
    url: String,
    branch: String,
    any_branch: bool,
    dir: String,
    workspace: String,
    name: Option<String>,
    by: String,
    since: PastTime,
    plan: Option<PlanView>,
    locks: Vec<LockView>,
    runs: Vec<CommandView>,
    /// Current run. No other run can be requested until it ends.
    busy: Option<BusyView>,
    /// True if there is a plan that can be applied.
    can_apply: bool,
    /// True if there is a plan or a lock that can be given up.
    can_discard: bool,
}

#[derive(Serialize)]
struct PlanView {
    run: String,
    state: &'static str,
    summary: String,
    commit: String,
    tool: String,
    made: PastTime,
}

impl PlanView {
    fn new(plan: &PlanRecord, now: DateTime<Utc>) -> Self {
        Self {
            run: plan.run.to_string(),
            state: plan_words(plan.state),
            summary: if plan.counts.is_empty() {
                "No changes.".to_owned()
            } else {
                plan.counts.to_string()
            },
            commit: plan.head.to_string(),
            tool: format!("{} {}", plan.distribution.title(), plan.tool_version),
            made: PastTime::new(plan.created_at, now),
        }
    }
}

#[derive(Serialize)]
struct LockView {
    id: String,
    dir: String,
    holder: String,
    reason: String,
    since: PastTime,
}

impl LockView {
    fn new(lock: &Lock, now: DateTime<Utc>) -> Self {
        Self {
            id: lock.id.to_string(),
            dir: shown(lock.key.dir.as_str()),
            holder: shown(&lock.holder.to_string()),
            reason: shown(&lock.reason),
            since: PastTime::new(lock.taken_at, now),
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

#[derive(Serialize)]
struct CommandView {
    kind: &'static str,
    by: String,
    way: &'static str,
    asked: PastTime,
    took: Option<String>,
    commit: Option<String>,
    badge: Badge,
    runs: Vec<RunLink>,
    /// Result, as the text of a comment on a pull request.
    result: Option<String>,
}

impl CommandView {
    async fn read(
        web: &WebState,
        command: &CommandRow,
        now: DateTime<Utc>,
    ) -> Result<Self, WebError> {
        let runs = web.store.run_list(command.id).await?;
        Ok(Self {
            kind: command.kind.as_str(),
            by: shown(&command.asker().to_string()),
            // If nobody signs in, the name already says the way.
            way: if command.actor.login == NOBODY {
                ""
            } else {
                command.actor.origin.way()
            },
            asked: PastTime::new(command.created_at, now),
            took: command
                .finished_at
                .map(|end| duration(end - command.created_at)),
            commit: command.head.as_ref().map(|head| head.short().to_owned()),
            badge: Badge::of_command(command.state, command.outcome),
            runs: run_links(&runs),
            result: web.store.command_result(command.id).await?,
        })
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
    sight: VisibleScope,
    Segment(asked): Segment,
    LenientQuery(params): LenientQuery<ApplicationsQuery>,
) -> Result<Response, WebError> {
    let app = seen_app(&web, &sight, &asked).await?;
    let found = runs_of(&web, &app).await?;
    let mut runs = Vec::new();
    for command in &found.commands {
        runs.push(CommandView::read(&web, command, web.clock.now()).await?);
    }
    visitor.page(
        "app.html",
        &ApplicationsPage {
            notice: notice(&params.notice),
            ..ApplicationsPage::new(&app, &found, runs, web.clock.now())
        },
    )
}

impl ApplicationsPage {
    fn new(
        app: &Application,
        found: &ApplicationRuns,
        runs: Vec<CommandView>,
        now: DateTime<Utc>,
    ) -> Self {
        let spec = &app.spec;
        let state = found.plan.as_ref().map(|plan| plan.state);
        let can_apply = matches!(state, Some(PlanState::Planned | PlanState::ApplyFailed));
        Self {
            id: app.id.to_string(),
            title: shown(&spec.title()),
            notice: None,
            owner: app.owner.to_string(),
            url: shown(spec.url.as_str()),
            branch: shown(spec.branch.as_str()),
            any_branch: spec.any_branch,
            dir: shown(spec.dir.as_str()),
            workspace: shown(spec.workspace.as_str()),
            name: spec.name.as_ref().map(|name| shown(name.as_str())),
            by: shown(&app.created_by),
            since: PastTime::new(app.created_at, now),
            plan: found.plan.as_ref().map(|plan| PlanView::new(plan, now)),
            locks: found
                .locks
                .iter()
                .map(|lock| LockView::new(lock, now))
                .collect(),
            busy: found
                .commands
                .iter()
                .find(|command| command.state != CommandState::Finished)
                .map(BusyView::new),
            can_apply,
            can_discard: can_apply || !found.locks.is_empty(),
            runs,
        }
    }
}

/// `POST /apps/{id}/{deed}`
pub(super) async fn act(
    State(web): State<Arc<WebState>>,
    Segment((asked, deed)): Segment<(String, String)>,
    form: Confirmed<EmptyForm>,
) -> Result<Redirect, WebError> {
    let who = form.who.at_page();
    match deed.as_str() {
        "plan" => ask(
            &web,
            &the_app(&web, &asked).await?,
            ApplicationAction::Plan,
            &who,
        )
        .await
        .map(drop)?,
        "apply" => ask(
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
        &web.link(&format!("/apps/{asked}?notice={deed}")),
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
