//! One lock: all facts about it, and the forms that release it or hand it over.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use lockkeeper_accounts::refs::ChangeNumber;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::actions::{LockAction, LockLookup, find_seen_lock, hand_over_lock, read_reason};
use super::dashboard::{LockLine, Notice};
use super::errors::no_such_lock;
use super::explain;
use super::view::{LockDetails, MOST_WAITERS};
use crate::authz::Resource;
use crate::features::audit::event_words;
use crate::features::runs::plan_words;
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::errors::in_quotes;
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{PastTime, PullName, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::locks::KeptReason;
use crate::model::{Lock, LockEvent, LockId, PlanRecord, Subject, Waiter};

#[derive(Serialize)]
struct LockPage {
    lock: LockLine,
    /// The classic text form.
    classic: String,
    /// Number by which accounts star the pull request or application.
    change: Option<u32>,
    plans: Vec<PlanLine>,
    /// Reason why it cannot be released without force, if there is one.
    obstacle: Option<ReleaseObstacle>,
    /// Number of queued pulls; not all of them are shown.
    waiting: usize,
    waiters: Vec<WaiterLine>,
    history: Vec<LockEventLine>,
}

/// Reason why the pull keeps the lock.
#[derive(Serialize)]
struct ReleaseObstacle {
    message: String,
    way_out: String,
    /// True if even force does not help.
    absolute: bool,
}

impl ReleaseObstacle {
    fn new(web: &WebState, lock: &Lock, why: KeptReason) -> Self {
        let explained = explain(lock, why, &web.executable);
        Self {
            message: in_quotes(&explained.message),
            way_out: in_quotes(&explained.way_out),
            absolute: why == KeptReason::ApplyRunning,
        }
    }
}

/// A pull in the queue.
#[derive(Serialize)]
struct WaiterLine {
    pull: PullName,
    /// Name of the project that it waits for, if that is not all that the lock covers.
    name: Option<String>,
    asker: String,
    since: PastTime,
    /// True if it waits for exactly this lock.
    exactly: bool,
}

impl WaiterLine {
    fn new(waiter: &Waiter, lock: &Lock, now: DateTime<Utc>) -> Self {
        Self {
            pull: PullName::new(&waiter.pull, &waiter.pull_url),
            name: waiter
                .project
                .name
                .as_ref()
                .map(|name| shown(name.as_str())),
            asker: shown(&waiter.asker.to_string()),
            since: PastTime::new(waiter.since, now),
            exactly: waiter.key == lock.key,
        }
    }
}

/// An event of the lock.
#[derive(Serialize)]
struct LockEventLine {
    what: &'static str,
    pull: Option<String>,
    who: String,
    way: &'static str,
    why: String,
    at: PastTime,
}

impl LockEventLine {
    fn new(kept: &LockEvent, now: DateTime<Utc>) -> Self {
        let (event, cause) = (&kept.event, &kept.event.cause);
        Self {
            what: event_words(event.kind),
            pull: kept.of_whom().map(|whom| shown(&whom)),
            who: shown(&kept.who().to_string()),
            way: cause.actor.origin.way(),
            why: shown(&cause.reason.replace('`', "")),
            at: PastTime::new(kept.at, now),
        }
    }
}

#[derive(Serialize)]
struct PlanLine {
    run: String,
    project: Option<String>,
    state: &'static str,
    summary: String,
    head: String,
    base_branch: String,
    tool: String,
    made: PastTime,
}

impl PlanLine {
    fn new(plan: &PlanRecord, now: DateTime<Utc>) -> Self {
        Self {
            run: plan.run.to_string(),
            project: plan.project.name.as_ref().map(|name| shown(name.as_str())),
            state: plan_words(plan.state),
            summary: if plan.counts.is_empty() {
                "No changes.".to_owned()
            } else {
                plan.counts.to_string()
            },
            head: plan.head.short().to_owned(),
            base_branch: shown(plan.base_branch.as_str()),
            tool: format!("{} {}", plan.distribution.title(), plan.tool_version),
            made: PastTime::new(plan.created_at, now),
        }
    }
}

/// `GET /locks/{id}`: by our identifier; a classic name leads there.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    let Ok(id) = asked.parse::<LockId>() else {
        return lead_to(&web, &visible, &asked).await;
    };
    let lock = web
        .store
        .lock_get(id)
        .await?
        .ok_or_else(|| no_such_lock(&asked))?;
    visible.require_access(&Resource::Lock(&lock)).await?;
    let now = web.clock.now();
    let LockDetails {
        lock,
        change,
        plans,
        lock_use,
        waiters,
        history,
    } = LockDetails::read(&web.store, lock).await?;
    let view = LockPage {
        lock: LockLine::new(&lock, now),
        classic: lock.key.to_string(),
        change: change.map(ChangeNumber::get),
        plans: plans.iter().map(|plan| PlanLine::new(plan, now)).collect(),
        obstacle: KeptReason::of(&lock_use).map(|why| ReleaseObstacle::new(&web, &lock, why)),
        waiting: waiters.len(),
        waiters: waiters
            .iter()
            .take(MOST_WAITERS)
            .map(|waiter| WaiterLine::new(waiter, &lock, now))
            .collect(),
        history: history
            .iter()
            .map(|event| LockEventLine::new(event, now))
            .collect(),
    };
    visitor.page("lock.html", &view)
}

/// `?id=…`
#[derive(Default, Deserialize)]
pub(super) struct ById {
    id: Option<String>,
}

/// `GET /lock?id=…`, where Atlantis shows a lock.
pub(super) async fn by_query(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(by): LenientQuery<ById>,
) -> Result<Response, WebError> {
    let asked = by.id.ok_or_else(|| WebError::query_wanted("id"))?;
    lead_to(&web, &visible, &asked).await
}

async fn lead_to(
    web: &WebState,
    visible: &VisibleScope,
    asked: &str,
) -> Result<Response, WebError> {
    let path = match find_seen_lock(web, visible, asked).await? {
        LockLookup::One(lock) => format!("/locks/{}", lock.id),
        LockLookup::Several => format!(
            "/?q={}",
            utf8_percent_encode(asked.trim_end_matches('/'), NON_ALPHANUMERIC)
        ),
        LockLookup::None => return Err(no_such_lock(asked)),
    };
    Ok(Redirect::to(&web.link(&path)).into_response())
}

/// Form of a change: a release, unless `to` or `force` is given.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LockForm {
    to: String,
    force: String,
    reason: String,
}

/// `POST /locks/{id}`: takes the lock from its pull. Accepts only identifiers, so that nobody releases another lock than
/// the one on the page.
pub(super) async fn change(
    State(web): State<Arc<WebState>>,
    Segment(asked): Segment,
    form: Confirmed<LockForm>,
) -> Result<Redirect, WebError> {
    let id: LockId = asked.parse().map_err(|_| no_such_lock(&asked))?;
    let LockForm { to, force, reason } = form.fields;
    let to = read_pull(&to)?;
    let action = LockAction {
        to,
        force: force == "yes",
        reason: read_reason(&reason)?,
    };
    let notice = match (to, action.force) {
        (Some(_), _) => Notice::HandedOver,
        (None, true) => Notice::TakenAway,
        (None, false) => Notice::Released,
    };
    hand_over_lock(&web, id, &asked, &form.who.at_page(), action).await?;
    Ok(back(&web, notice))
}

fn read_pull(text: &str) -> Result<Option<Subject>, WebError> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        WebError::unusable_field(
            "to",
            "it is not the number of a pull request",
            "Reload the page and try again.",
        )
    })?;
    Ok(Some(Subject::pull(number)))
}

/// Redirects to the dashboard with a message.
fn back(web: &WebState, notice: Notice) -> Redirect {
    Redirect::to(&web.link(&format!("/?notice={}", notice.code())))
}
