//! The routes by which Atlantis' page changes something. Ours has its own; these stay for scripts that call them with
//! the web password, and refuse browsers ([`Script`]).

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use crate::http::giving::{LockWish, give_lock, read_reason, the_lock};
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::Asked;
use crate::kit::web::reach::Sight;
use crate::kit::web::{Failure, Web};

const BY_A_SCRIPT: &str = "by a script";

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
