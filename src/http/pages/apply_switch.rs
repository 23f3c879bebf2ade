//! The switch of the first page, which stops every apply.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::apply_locks::{Nothing, Typed, set_or_ask_again};
use super::home::Notice;
use super::visitor::Visitor;
use crate::http::apply_locks::allow_all;
use crate::http::csrf::Confirmed;
use crate::http::reach::Sight;
use crate::http::{Failure, Web};

/// Why.
#[derive(Deserialize)]
pub(super) struct Stop {
    #[serde(default)]
    reason: String,
}

/// `POST /apply-lock/stop`
pub(super) async fn stop(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    sight: Sight,
    form: Confirmed<Stop>,
) -> Result<Response, Failure> {
    let Confirmed { who, fields } = form;
    let form = Confirmed {
        who,
        fields: Typed::everywhere(fields.reason),
    };
    Ok(
        match set_or_ask_again(&web, (&visitor, &sight), form).await? {
            Ok(_) => back(&web, Notice::Stopped).into_response(),
            Err(again) => again,
        },
    )
}

/// `POST /apply-lock/allow`
pub(super) async fn allow(
    State(web): State<Arc<Web>>,
    form: Confirmed<Nothing>,
) -> Result<Redirect, Failure> {
    let ended = allow_all(&web, &form.who.at_page()).await?;
    Ok(back(
        &web,
        if ended.is_some() {
            Notice::Allowed
        } else {
            Notice::AlreadyAllowed
        },
    ))
}

/// To the first page, with a notice.
pub(super) fn back(web: &Web, notice: Notice) -> Redirect {
    Redirect::to(&web.link(&format!("/?notice={}", notice.code())))
}
