//! One lock: all facts about it, and the forms that release it or hand it over.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::actions::{Found, LockWish, find_seen_lock, give_lock, read_reason};
use super::dashboard::{LockLine, Notice};
use super::view::{LockFacts, MOST_WAITERS};
use crate::features::audit::event_words;
use crate::features::runs::plan_words;
use crate::handlers::authz::Resource;
use crate::handlers::locks::explain;
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::errors::in_quotes;
use crate::kit::web::extract::{Asked, Segment};
use crate::kit::web::reach::Sight;
use crate::kit::web::text::{PullName, Stamp, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{Failure, Web};
use crate::locks::WhyNot;
use crate::model::{Lock, LockEvent, LockId, PlanRecord, PullNumber, Waiter};

#[derive(Serialize)]
struct View {
    lock: LockLine,
    /// The classic text form.
    classic: String,
    plans: Vec<PlanLine>,
    /// Reason why it cannot be released without force, if there is one.
    obstacle: Option<Obstacle>,
    /// Number of queued pulls; not all of them are shown.
    waiting: usize,
    waiters: Vec<WaiterLine>,
    history: Vec<EventLine>,
}

/// Reason why the pull keeps the lock.
#[derive(Serialize)]
struct Obstacle {
    message: String,
    way_out: String,
    /// True if even force does not help.
    absolute: bool,
}

impl Obstacle {
    fn new(web: &Web, lock: &Lock, why: WhyNot) -> Self {
        let explained = explain(lock, why, &web.executable);
        Self {
            message: in_quotes(&explained.message),
            way_out: in_quotes(&explained.way_out),
            absolute: why == WhyNot::ApplyRunning,
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
    since: Stamp,
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
            asker: shown(&waiter.asker),
            since: Stamp::new(waiter.since, now),
            exactly: waiter.key == lock.key,
        }
    }
}

/// An event of the lock.
#[derive(Serialize)]
struct EventLine {
    what: &'static str,
    pull: Option<String>,
    who: String,
    way: &'static str,
    why: String,
    at: Stamp,
}

impl EventLine {
    fn new(kept: &LockEvent, now: DateTime<Utc>) -> Self {
        let (event, cause) = (&kept.event, &kept.event.cause);
        Self {
            what: event_words(event.kind),
            pull: kept.of_whom().map(|whom| shown(&whom)),
            who: shown(&cause.actor.login),
            way: cause.actor.origin.way(),
            why: shown(&cause.reason.replace('`', "")),
            at: Stamp::new(kept.at, now),
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
    made: Stamp,
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
            made: Stamp::new(plan.created_at, now),
        }
    }
}

/// `GET /locks/{id}`: by our identifier; a classic name leads there.
pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    sight: Sight,
    Segment(asked): Segment,
) -> Result<Response, Failure> {
    let Ok(id) = asked.parse::<LockId>() else {
        return lead_to(&web, &sight, &asked).await;
    };
    let lock = web
        .store
        .lock_get(id)
        .await?
        .ok_or_else(|| Failure::no_such_lock(&asked))?;
    sight.must_see(&Resource::Lock(&lock)).await?;
    let (now, plans) = (web.clock.now(), plans_under(&web, &lock).await?);
    let LockFacts {
        lock,
        standing,
        waiters,
        history,
    } = LockFacts::read(&web.store, lock).await?;
    let view = View {
        lock: LockLine::new(&lock, now),
        classic: lock.key.to_string(),
        plans: plans.iter().map(|plan| PlanLine::new(plan, now)).collect(),
        obstacle: WhyNot::of(&standing).map(|why| Obstacle::new(&web, &lock, why)),
        waiting: waiters.len(),
        waiters: waiters
            .iter()
            .take(MOST_WAITERS)
            .map(|waiter| WaiterLine::new(waiter, &lock, now))
            .collect(),
        history: history
            .iter()
            .map(|event| EventLine::new(event, now))
            .collect(),
    };
    visitor.page("lock.html", &view)
}

async fn plans_under(web: &Web, lock: &Lock) -> Result<Vec<PlanRecord>, Failure> {
    let mut plans = web.store.plan_list(&lock.pull).await?;
    plans.retain(|plan| {
        plan.project.dir == lock.key.dir && plan.project.workspace == lock.key.workspace
    });
    Ok(plans)
}

/// `?id=…`
#[derive(Default, Deserialize)]
pub(super) struct ById {
    id: Option<String>,
}

/// `GET /lock?id=…`, where Atlantis shows a lock.
pub(super) async fn by_query(
    State(web): State<Arc<Web>>,
    sight: Sight,
    Asked(by): Asked<ById>,
) -> Result<Response, Failure> {
    let asked = by.id.ok_or_else(|| Failure::query_wanted("id"))?;
    lead_to(&web, &sight, &asked).await
}

async fn lead_to(web: &Web, sight: &Sight, asked: &str) -> Result<Response, Failure> {
    let path = match find_seen_lock(web, sight, asked).await? {
        Found::One(lock) => format!("/locks/{}", lock.id),
        Found::Several => format!(
            "/?q={}",
            utf8_percent_encode(asked.trim_end_matches('/'), NON_ALPHANUMERIC)
        ),
        Found::None => return Err(Failure::no_such_lock(asked)),
    };
    Ok(Redirect::to(&web.link(&path)).into_response())
}

/// Form of a change: a release, unless `to` or `force` is given.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wish {
    to: String,
    force: String,
    reason: String,
}

/// `POST /locks/{id}`: takes the lock from its pull. Accepts only identifiers, so that nobody releases another lock than
/// the one on the page.
pub(super) async fn change(
    State(web): State<Arc<Web>>,
    Segment(asked): Segment,
    form: Confirmed<Wish>,
) -> Result<Redirect, Failure> {
    let id: LockId = asked.parse().map_err(|_| Failure::no_such_lock(&asked))?;
    let Wish { to, force, reason } = form.fields;
    let to = read_pull(&to)?;
    let wish = LockWish {
        to,
        force: force == "yes",
        reason: read_reason(&reason)?,
    };
    let notice = match (to, wish.force) {
        (Some(_), _) => Notice::HandedOver,
        (None, true) => Notice::TakenAway,
        (None, false) => Notice::Released,
    };
    give_lock(&web, id, &asked, &form.who.at_page(), wish).await?;
    Ok(back(&web, notice))
}

fn read_pull(text: &str) -> Result<Option<PullNumber>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| {
        Failure::unusable_field(
            "to",
            "it is not the number of a pull request",
            "Reload the page and try again.",
        )
    };
    text.parse()
        .map(|number| Some(PullNumber(number)))
        .map_err(wrong)
}

/// Redirects to the dashboard with a message.
fn back(web: &Web, notice: Notice) -> Redirect {
    Redirect::to(&web.link(&format!("/?notice={}", notice.code())))
}
