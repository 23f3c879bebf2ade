//! The switch of the dashboard, which stops every apply.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::actions::allow_all;
use super::page::{ApplyLockForm, set_or_show_form};
use super::view::ApplyLockEntry;
use crate::kit::web::csrf::{Confirmed, EmptyForm};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{ApplyLock, ApplyScope};

/// Form that stops every apply.
#[derive(Deserialize)]
pub(super) struct ApplyLockSwitch {
    #[serde(default)]
    reason: String,
}

/// `POST /apply-lock/stop`
pub(super) async fn stop(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    form: Confirmed<ApplyLockSwitch>,
) -> Result<Response, WebError> {
    let Confirmed { who, fields } = form;
    let form = Confirmed {
        who,
        fields: ApplyLockForm::everywhere(fields.reason),
    };
    Ok(
        match set_or_show_form(&web, (&visitor, &visible), form).await? {
            Ok(_) => to_dashboard(&web, "stopped").into_response(),
            Err(again) => again,
        },
    )
}

/// `POST /apply-lock/allow`
pub(super) async fn allow(
    State(web): State<Arc<WebState>>,
    form: Confirmed<EmptyForm>,
) -> Result<Redirect, WebError> {
    let ended = allow_all(&web, &form.who.at_page()).await?;
    let notice = if ended.is_some() {
        "allowed"
    } else {
        "already-allowed"
    };
    Ok(to_dashboard(&web, notice))
}

fn to_dashboard(web: &WebState, notice: &str) -> Redirect {
    Redirect::to(&web.link(&format!("/?notice={notice}")))
}

/// Message of the dashboard after the switch was used.
pub(crate) fn notice(code: &str) -> Option<&'static str> {
    match code {
        "stopped" => Some("All applies are stopped. Running applies continue to their end."),
        "allowed" => Some("Applies are allowed again."),
        "already-allowed" => Some("Applies were already allowed."),
        _ => None,
    }
}

/// Returns the lock that stops every apply, and the number of other locks. A lock with an unknown scope stops everything
/// too, but is ended on the page of apply locks.
pub(crate) fn of_dashboard(locks: &[ApplyLock]) -> (Option<ApplyLockEntry>, usize) {
    let find = |is_meant: fn(&ApplyScope) -> bool| locks.iter().find(|lock| is_meant(&lock.scope));
    let everything = find(|scope| *scope == ApplyScope::Server)
        .or_else(|| find(|scope| matches!(scope, ApplyScope::Unknown(_))));
    let others = locks.len() - usize::from(everything.is_some());
    (everything.map(ApplyLockEntry::from), others)
}
