//! The switch that stops every apply.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Redirect;
use serde::Deserialize;
use tracing::warn;

use super::home::Notice;
use crate::config::access::Action;
use crate::handlers::authz::Resource;
use crate::http::csrf::Confirmed;
use crate::http::{Failure, Web};
use crate::store::SetApplyLock;

/// Longest reason.
const REASON_CHARS: usize = 300;

/// Why.
#[derive(Deserialize)]
pub(super) struct Stop {
    #[serde(default)]
    reason: String,
}

/// `POST /apply-lock/stop`
pub(super) async fn stop(State(web): State<Arc<Web>>, form: Confirmed<Stop>) -> Result<Redirect, Failure> {
    web.permit(&form.who.at_page(), Action::ApplyLock, &Resource::Server).await?;
    let reason: String = form.fields.reason.trim().chars().take(REASON_CHARS).collect();
    if reason.is_empty() {
        return Err(Failure::reason_wanted());
    }
    let notice = match web.store.apply_lock_set(&form.who.0, &reason).await? {
        SetApplyLock::Set => Notice::Stopped,
        SetApplyLock::AlreadySet => Notice::AlreadyStopped,
    };
    warn!(who = form.who.0, reason, outcome = notice.code(), "All applies are stopped");
    Ok(back(&web, notice))
}

/// No fields but the token.
#[derive(Deserialize)]
pub(super) struct Nothing {}

/// `POST /apply-lock/allow`
pub(super) async fn allow(State(web): State<Arc<Web>>, form: Confirmed<Nothing>) -> Result<Redirect, Failure> {
    web.permit(&form.who.at_page(), Action::ApplyLock, &Resource::Server).await?;
    let notice = if web.store.apply_lock_clear().await? { Notice::Allowed } else { Notice::AlreadyAllowed };
    warn!(who = form.who.0, outcome = notice.code(), "Applies are allowed again");
    Ok(back(&web, notice))
}

/// To the first page, with a notice.
pub(super) fn back(web: &Web, notice: Notice) -> Redirect {
    Redirect::to(&web.link(&format!("/?notice={}", notice.code())))
}
