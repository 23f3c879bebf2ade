//! `POST /api/registry/verify`: recomputes the log and the state of every version.
//!
//! This reads all of the registry, so a server does it for one request at a time, and stops before the time of the request
//! is over. Packages are not read, because that takes as long as the store is large. It needs all processors, so a minute
//! passes between the beginnings of two of them. Requests in this minute get the answer of the last one, with its age: no
//! account keeps another one from an answer. The command line has none of these limits.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::time::timeout;
use tracing::error;

use super::super::service::RegistryError;
use super::super::view::verified_json;
use super::RegistryPages;
use crate::kit::web::answer::REQUEST_TIME;
use crate::kit::web::csrf::Script;
use crate::kit::web::text::seconds_text;
use crate::kit::web::{WebError, WebState};

/// Time limit of a verification. The rest of the time of a request is for the answer.
const VERIFY_TIME: Duration = REQUEST_TIME.saturating_sub(Duration::from_secs(5));

/// Last verification that this server has begun.
pub(super) struct LastVerification {
    begun_at: DateTime<Utc>,
    /// `None`: it has not come to its end, because the client left, it took too long, or the database failed.
    answer: Option<(StatusCode, Value)>,
}

impl LastVerification {
    /// Returns the answer to a request that comes before the next verification may begin. `None`: it may begin now.
    fn again(&self, now: DateTime<Utc>) -> Option<Response> {
        let seconds = seconds_left(self.begun_at, now)?;
        let Some((status, told)) = &self.answer else {
            return Some(too_soon(seconds));
        };
        let age = (now - self.begun_at).num_seconds();
        let age = [(header::AGE, HeaderValue::from(age))];
        Some((*status, age, Json(told)).into_response())
    }
}

/// Minimum time between the beginnings of two verifications. Accounts that only read may request one.
const VERIFY_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// Way out of all limits.
const ON_THE_MACHINE: &str = "Run `lockkeeper registry verify` on the machine of the server.";

/// `POST /api/registry/verify`: 409 with the first fault if there is one. It changes nothing. Only scripts send it, so no page
/// of somebody else can keep the server busy with it.
pub(super) async fn verify(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    pages: RegistryPages,
) -> Result<Response, Response> {
    let place = pages.0.verifying.try_lock();
    let mut last = place.map_err(|_| {
        let busy = WebError::not_read(
            (StatusCode::SERVICE_UNAVAILABLE, "The server is busy"),
            "busy",
            "The server verifies the registry for another request at this moment. Try again in a minute.",
            ON_THE_MACHINE,
        );
        busy.into_response()
    })?;
    let now = web.clock.now();
    if let Some(again) = last.as_ref().and_then(|last| last.again(now)) {
        return Ok(again);
    }
    // The client may leave before the end.
    *last = Some(LastVerification {
        begun_at: now,
        answer: None,
    });
    let verification = Box::pin(pages.0.registry.verify(false));
    let verified = within(VERIFY_TIME, verification).await;
    let verified = verified.map_err(WebError::into_response)?;
    let status = match &verified {
        Ok(_) => StatusCode::OK,
        Err(fault) => {
            error!(%fault, who = who.name, "The registry is damaged");
            StatusCode::CONFLICT
        }
    };
    let told = verified_json(&verified, false);
    *last = Some(LastVerification {
        begun_at: now,
        answer: Some((status, told.clone())),
    });
    Ok((status, Json(told)).into_response())
}

/// Returns the seconds until the next verification may begin. `None`: it may begin now.
fn seconds_left(last: DateTime<Utc>, now: DateTime<Utc>) -> Option<i64> {
    let since = now - last;
    // A clock that was set back keeps nobody waiting.
    let is_soon = since >= TimeDelta::zero() && since < VERIFY_INTERVAL;
    let left = VERIFY_INTERVAL - since + TimeDelta::milliseconds(999);
    is_soon.then(|| left.num_seconds())
}

fn too_soon(seconds: i64) -> Response {
    let failure = WebError::not_read(
        (StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
        "too_soon",
        &format!(
            "A verification began less than a minute ago and did not come to its end. Try again in {}.",
            seconds_text(seconds)
        ),
        ON_THE_MACHINE,
    );
    let wait = [(header::RETRY_AFTER, HeaderValue::from(seconds))];
    (wait, failure).into_response()
}

/// Gives a verification up that takes too long.
async fn within<T>(
    limit: Duration,
    verification: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, WebError> {
    match timeout(limit, verification).await {
        Ok(verified) => Ok(verified?),
        Err(_) => Err(WebError::not_read(
            (StatusCode::GATEWAY_TIMEOUT, "The log is too long"),
            "too_long",
            &format!(
                "The log could not be verified in {} seconds, which is the limit of a request, and no fault was found until \
                 then.",
                limit.as_secs()
            ),
            ON_THE_MACHINE,
        )),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_verification_begins_a_minute_after_the_last_one() {
        let last: DateTime<Utc> = "2026-03-02T10:00:00Z".parse().unwrap();
        for (milliseconds, left) in [
            (0, Some(60)),
            (1, Some(60)),
            (59_000, Some(1)),
            (59_999, Some(1)),
            (60_000, None),
            (-1, None),
        ] {
            let now = last + TimeDelta::milliseconds(milliseconds);
            assert_eq!(seconds_left(last, now), left, "{milliseconds}");
        }
    }

    #[test]
    fn a_verification_without_an_end_has_no_answer_for_others() {
        let begun_at: DateTime<Utc> = "2026-03-02T10:00:00Z".parse().unwrap();
        let last = LastVerification {
            begun_at,
            answer: None,
        };
        let again = last.again(begun_at + TimeDelta::seconds(20)).unwrap();
        assert_eq!(again.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(again.headers()[header::RETRY_AFTER], "40");
        assert!(last.again(begun_at + VERIFY_INTERVAL).is_none());
    }

    #[tokio::test]
    async fn a_verification_that_takes_too_long_names_the_command_line() {
        let endless = std::future::pending::<Result<(), RegistryError>>();
        let stopped = within(Duration::ZERO, endless).await.unwrap_err();
        assert_eq!(stopped.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_snapshot!(stopped.sentences(), @"The log could not be verified in 0 seconds, which is the limit of a request, and no fault was found until then. Run “lockkeeper registry verify” on the machine of the server.");
    }
}
