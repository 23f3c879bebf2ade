//! The person who requests a page: the user, and the cookie and token of the forms.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{AppendHeaders, IntoResponse, Response};
use serde::Serialize;

use super::csrf::BrowserSession;
use super::text::PastTime;
use super::{WebError, WebState, WebUser};
use crate::config::access::{AccessScope, Action};

/// A person who looks at a page.
pub(crate) struct Visitor {
    web: Arc<WebState>,
    user: WebUser,
    session: BrowserSession,
    is_new: bool,
}

#[derive(Serialize)]
struct VisitorPage<'a, V> {
    /// Token for the hidden field of every form.
    token: String,
    /// Actions that the person may perform here.
    may: AllowedButtons,
    /// True if people sign in to this server.
    signed_in: bool,
    /// Owners that the account is limited to. Empty: the whole server.
    limited_to: Vec<String>,
    now: PastTime,
    #[serde(flatten)]
    view: &'a V,
}

/// Buttons of the page. A button is only shown to people who may press it.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a button of its own")]
struct AllowedButtons {
    plan: bool,
    apply: bool,
    discard: bool,
    unlock_any: bool,
    apply_lock: bool,
    lease: bool,
    sync: bool,
    cancel: bool,
    cancel_force: bool,
    owners: bool,
    /// True if the actions may also concern the whole server.
    whole_server: bool,
}

impl FromRequestParts<Arc<WebState>> for Visitor {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<WebState>) -> Result<Self, WebError> {
        let user = WebUser::from_request_parts(parts, web).await?;
        let known = BrowserSession::of(&parts.headers, &web.public_url);
        let is_new = known.is_none();
        Ok(Self {
            web: Arc::clone(web),
            user,
            session: known.unwrap_or_else(BrowserSession::fresh),
            is_new,
        })
    }
}

impl Visitor {
    /// Returns the owners that the account is limited to. `None`: the whole server.
    fn limited_to(&self) -> Option<Vec<String>> {
        match self.web.accounts.now().scope_of(&self.user.name) {
            AccessScope::Whole => None,
            AccessScope::Limited(account) => {
                Some(account.owners.iter().map(ToString::to_string).collect())
            }
            AccessScope::Unknown => Some(Vec::new()),
        }
    }

    /// Returns true if the person has signed in with a password.
    pub fn has_signed_in(&self) -> bool {
        self.web.auth.is_some()
    }

    fn may(&self) -> AllowedButtons {
        let may = |action| self.web.authority.offers(&self.user.at_page().who, action);
        AllowedButtons {
            plan: may(Action::Plan),
            apply: may(Action::Apply),
            discard: may(Action::Discard),
            unlock_any: may(Action::UnlockAny),
            apply_lock: may(Action::ApplyLock),
            lease: may(Action::Lease),
            sync: may(Action::Sync),
            cancel: may(Action::Cancel),
            cancel_force: may(Action::CancelForce),
            owners: may(Action::Owners),
            whole_server: self.limited_to().is_none(),
        }
    }

    /// Renders a page for this person.
    pub fn page<V: Serialize>(&self, template: &str, view: &V) -> Result<Response, WebError> {
        let now = self.web.clock.now();
        let token = self.web.parts.csrf.token(&self.session, &self.user);
        let limited_to = self.limited_to().unwrap_or_default();
        let page = VisitorPage {
            token,
            may: self.may(),
            signed_in: self.has_signed_in(),
            limited_to,
            now: PastTime::new(now, now),
            view,
        };
        let html = self.web.parts.templates.render(template, &page)?;
        let cookie = self.is_new.then(|| {
            (
                header::SET_COOKIE,
                self.session.set_cookie(&self.web.public_url),
            )
        });
        Ok((AppendHeaders(cookie), html).into_response())
    }
}
