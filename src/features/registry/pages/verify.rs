//! `POST /api/registry/verify`: recomputes the log and the state of every version.
//!
//! This reads all of the registry, so a server does it for one request at a time, and stops before the time of the request
//! is over. Packages are not read, because that takes as long as the store is large. The command line has neither limit.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use serde_json::Value;
use tokio::time::timeout;
use tracing::error;

use super::super::service::RegistryError;
use super::super::view::verified_json;
use super::RegistryPages;
use crate::kit::web::WebError;
use crate::kit::web::answer::REQUEST_TIME;
use crate::kit::web::csrf::Script;

/// Time limit of a verification. The rest of the time of a request is for the answer.
const VERIFY_TIME: Duration = REQUEST_TIME.saturating_sub(Duration::from_secs(5));

/// Way out of both limits.
const ON_THE_MACHINE: &str = "Run `lockkeeper registry verify` on the machine of the server.";

/// `POST /api/registry/verify`: 409 with the first fault if there is one. It changes nothing. Only scripts send it, so no page
/// of somebody else can keep the server busy with it.
pub(super) async fn verify(
    Script(who): Script,
    pages: RegistryPages,
) -> Result<(StatusCode, Json<Value>), WebError> {
    let place = pages.0.verifying.try_acquire();
    let _place = place.map_err(|_| {
        WebError::not_read(
            (StatusCode::SERVICE_UNAVAILABLE, "The server is busy"),
            "busy",
            "The server verifies the registry for another request at this moment. Try again in half a minute.",
            ON_THE_MACHINE,
        )
    })?;
    let verification = Box::pin(pages.0.registry.verify(false));
    let verified = within(VERIFY_TIME, verification).await?;
    let status = match &verified {
        Ok(_) => StatusCode::OK,
        Err(fault) => {
            error!(%fault, who = who.name, "The registry is damaged");
            StatusCode::CONFLICT
        }
    };
    Ok((status, Json(verified_json(&verified, false))))
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

    #[tokio::test]
    async fn a_verification_that_takes_too_long_names_the_command_line() {
        let endless = std::future::pending::<Result<(), RegistryError>>();
        let stopped = within(Duration::ZERO, endless).await.unwrap_err();
        assert_eq!(stopped.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_snapshot!(stopped.sentences(), @"The log could not be verified in 0 seconds, which is the limit of a request, and no fault was found until then. Run “lockkeeper registry verify” on the machine of the server.");
    }
}
