//! The routes by which Atlantis' page changes something. Ours has its own; these stay for scripts that call them with
//! the web password, and refuse browsers ([`Script`]).

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use crate::http::apply_locks::{Stopping, allow_all, stop};
use crate::http::csrf::Script;
use crate::http::extract::Asked;
use crate::http::giving::{LockWish, give_lock, read_reason, the_lock};
use crate::http::reach::Sight;
use crate::http::{Failure, Web};
use crate::model::ApplyLockFields;

/// Says why when nobody else does.
const REASON: &str = "stopped by a script, without a reason";
const BY_A_SCRIPT: &str = "by a script";

/// `POST /apply/lock`
pub(super) async fn stop_applies(
    State(web): State<Arc<Web>>,
    Script(who): Script,
) -> Result<&'static str, Failure> {
    let wish = ApplyLockFields {
        reason: REASON,
        ..ApplyLockFields::default()
    }
    .wish();
    match stop(&web, wish, &who.by_script()).await? {
        Stopping::Set(_) => Ok("All applies are stopped.\n"),
        Stopping::AlreadySet(_) => Ok("All applies were stopped before.\n"),
        Stopping::Wrong(problems) => Err(Failure::wrong_fields(&problems)),
    }
}

/// `DELETE /apply/unlock`
pub(super) async fn allow_applies(
    State(web): State<Arc<Web>>,
    Script(who): Script,
) -> Result<&'static str, Failure> {
    let ended = allow_all(&web, &who.by_script()).await?;
    Ok(if ended.is_some() {
        "Applies are allowed again.\n"
    } else {
        "Applies were not stopped.\n"
    })
}

/// The lock that is meant: its identifier or its classic text.
#[derive(Default, Deserialize)]
pub(super) struct WhichLock {
    id: Option<String>,
}

/// `DELETE /locks?id=…`: by force, as Atlantis does it.
pub(super) async fn discard(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    sight: Sight,
    Asked(which): Asked<WhichLock>,
) -> Result<&'static str, Failure> {
    let asked = which.id.ok_or_else(|| Failure::query_wanted("id"))?;
    let lock = the_lock(&web, &sight, &asked).await?;
    let wish = LockWish {
        to: None,
        force: true,
        reason: read_reason(BY_A_SCRIPT)?,
    };
    give_lock(&web, lock.id, &asked, &who.by_script(), wish).await?;
    Ok("The lock is given back and its plans are discarded.\n")
}
