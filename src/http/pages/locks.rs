//! One lock: everything about it, and the way to give it back.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::apply_switch::back;
use super::home::{LockLine, Notice};
use super::text::{Stamp, shown};
use super::visitor::Visitor;
use crate::config::access::{Action, Identity};
use crate::handlers::authz::Resource;
use crate::http::csrf::Confirmed;
use crate::http::extract::{Asked, Segment};
use crate::http::{Failure, Web};
use crate::model::{Lock, LockId, LockName, PlanRecord, PlanState};

#[derive(Serialize)]
struct View {
    lock: LockLine,
    /// The classic text form.
    classic: String,
    plans: Vec<PlanLine>,
    /// An apply is running under it.
    applying: bool,
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
            state: state_words(plan.state),
            summary: if plan.counts.is_empty() { "No changes.".to_owned() } else { plan.counts.to_string() },
            head: plan.head.short().to_owned(),
            base_branch: shown(plan.base_branch.as_str()),
            tool: format!("{} {}", plan.distribution.title(), plan.tool_version),
            made: Stamp::new(plan.created_at, now),
        }
    }
}

const fn state_words(state: PlanState) -> &'static str {
    match state {
        PlanState::Planned => "waiting to be applied",
        PlanState::NoChanges => "nothing to apply",
        PlanState::Applying => "being applied",
        PlanState::Applied => "applied",
        PlanState::ApplyFailed => "apply failed",
        PlanState::Discarded => "discarded",
    }
}

/// `GET /locks/{id}`: by our identifier; a classic name leads there.
pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Segment(asked): Segment,
) -> Result<Response, Failure> {
    let Ok(id) = asked.parse::<LockId>() else {
        return lead_to(&web, &asked).await;
    };
    let lock = web.store.lock_get(id).await?.ok_or_else(|| Failure::no_such_lock(&asked))?;
    let (now, plans) = (web.clock.now(), plans_under(&web, &lock).await?);
    let view = View {
        lock: LockLine::new(&lock, now),
        classic: lock.key.to_string(),
        applying: plans.iter().any(|plan| plan.state == PlanState::Applying),
        plans: plans.iter().map(|plan| PlanLine::new(plan, now)).collect(),
    };
    visitor.page("lock.html", &view)
}

async fn plans_under(web: &Web, lock: &Lock) -> Result<Vec<PlanRecord>, Failure> {
    let mut plans = web.store.plan_list(&lock.pull).await?;
    plans.retain(|plan| plan.project.dir == lock.key.dir && plan.project.workspace == lock.key.workspace);
    Ok(plans)
}

/// `?id=…`
#[derive(Default, Deserialize)]
pub(super) struct ById {
    id: Option<String>,
}

/// `GET /lock?id=…`, where Atlantis shows a lock.
pub(super) async fn by_query(State(web): State<Arc<Web>>, Asked(by): Asked<ById>) -> Result<Response, Failure> {
    let asked = by.id.ok_or_else(|| Failure::query_wanted("id"))?;
    lead_to(&web, &asked).await
}

async fn lead_to(web: &Web, asked: &str) -> Result<Response, Failure> {
    let path = match find_lock(web, asked).await? {
        Found::One(lock) => format!("/locks/{}", lock.id),
        Found::Several => format!("/?q={}", utf8_percent_encode(asked.trim_end_matches('/'), NON_ALPHANUMERIC)),
        Found::None => return Err(Failure::no_such_lock(asked)),
    };
    Ok(Redirect::to(&web.link(&path)).into_response())
}

/// Which lock a text means.
pub(in crate::http) enum Found {
    One(Box<Lock>),
    /// Locks of the same classic name: on several hosts, or with a path and a project that read alike.
    Several,
    None,
}

/// Looks for a lock by identifier or classic name (see [`LockName`]); with the host before it, a name means one lock.
pub(in crate::http) async fn find_lock(web: &Web, asked: &str) -> Result<Found, Failure> {
    if let Ok(id) = asked.parse::<LockId>() {
        let lock = web.store.lock_get(id).await?;
        return Ok(lock.map_or(Found::None, |lock| Found::One(Box::new(lock))));
    }
    let Ok(name) = asked.parse::<LockName>() else { return Ok(Found::None) };
    Ok(match name.choose(web.store.lock_list_called(&name).await?) {
        Ok(None) => Found::None,
        Ok(Some(lock)) => Found::One(Box::new(lock)),
        Err(_) => Found::Several,
    })
}

/// No fields but the token.
#[derive(Deserialize)]
pub(super) struct Nothing {}

/// `POST /locks/{id}`: discards the plans and gives the lock back. Takes identifiers only, so that nobody gives back
/// another lock than the one that was shown.
pub(super) async fn discard(
    State(web): State<Arc<Web>>,
    Segment(asked): Segment,
    form: Confirmed<Nothing>,
) -> Result<Redirect, Failure> {
    let id: LockId = asked.parse().map_err(|_| Failure::no_such_lock(&asked))?;
    match discard_lock(&web, id, &form.who.at_page()).await? {
        Discarding::Done => Ok(back(&web, Notice::Discarded)),
        Discarding::NotHeld => Err(Failure::no_such_lock(&asked)),
        Discarding::ApplyRunning => Err(Failure::apply_is_running()),
    }
}

/// What came of giving back a lock.
#[must_use]
pub(in crate::http) enum Discarding {
    Done,
    /// Nobody holds it any more.
    NotHeld,
    /// It is still held, because an apply is running under it.
    ApplyRunning,
}

/// Gives back a lock for somebody who may.
pub(in crate::http) async fn discard_lock(web: &Web, id: LockId, who: &Identity) -> Result<Discarding, Failure> {
    let Some(lock) = web.store.lock_get(id).await? else { return Ok(Discarding::NotHeld) };
    web.permit(who, Action::Discard, &Resource::Lock(&lock)).await?;
    if let Some(lock) = web.discard.discard(id, who.name()).await? {
        warn!(who = who.name(), lock = %lock.key, pull = %lock.pull, "A lock was discarded");
        return Ok(Discarding::Done);
    }
    Ok(match web.store.lock_get(id).await? {
        Some(_) => Discarding::ApplyRunning,
        None => Discarding::NotHeld,
    })
}
