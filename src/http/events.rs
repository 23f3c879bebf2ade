//! The webhook endpoint: `POST /events`. It limits, verifies, reads and stores a delivery, and then answers (P1, P2).
//!
//! It is the same for all forges: [`Webhooks`](crate::forges::Webhooks) knows their headers, signatures and payloads, and
//! [`crate::features::events`] decides what a delivery leads to.
//!
//! All checks of the headers come before the first byte of the body is read. A sender without a well-formed signature
//! therefore costs only the connection.
//!
//! | answer | when |
//! |---|---|
//! | 200 | the delivery is stored, now or earlier |
//! | 400 | no configured forge sends it, or it cannot be read; the log says where |
//! | 401 | the signature is missing or wrong |
//! | 403 | the repository is not on the allow-list; stored nevertheless |
//! | 408 | the body did not arrive in time |
//! | 413 | the body is larger than [`MAX_BODY_BYTES`](super::intake::MAX_BODY_BYTES) |
//! | 503 | the database did not store it, or too many large bodies arrive at once; the forge may send it again |

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracing::{info, warn};

use super::intake::{BodyReader, BodyRefusal, DeliveryLimits, ReceivedBody};
use crate::context::Ctx;
use crate::features::events::{self, DeliveryReceipt};
use crate::forges::{DeliveryHeader, SenderCheck, WebhookError};
use crate::store::{Accepted, NewDelivery};
use crate::telemetry::Metric;

type WebhookResponse = (StatusCode, String);

/// Seconds after which a sender may try again if there was no room.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("30");

/// State of the webhook endpoint.
pub(super) struct WebhookInput {
    ctx: Ctx,
    intake: BodyReader,
}

impl WebhookInput {
    /// Creates an endpoint with its own limits for bodies.
    pub fn new(ctx: Ctx, limits: DeliveryLimits) -> Self {
        let intake = BodyReader::new(limits, ctx.metrics.clone());
        Self { ctx, intake }
    }
}

/// Receives and stores a delivery.
pub(super) async fn receive(State(input): State<Arc<WebhookInput>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (ctx, headers) = (&input.ctx, &parts.headers);
    let (source, delivery) = match ctx.webhooks.recognise(headers) {
        Ok(recognised) => recognised,
        Err(error) => {
            count(ctx, "unreadable");
            return closing(refuse(StatusCode::BAD_REQUEST, &error.to_string()));
        }
    };
    let mut check = match source.begin_check(headers) {
        Ok(check) => check,
        Err(error) => return closing(bad_signature(ctx, &delivery, &error)),
    };
    let received = input.intake.receive(body, check.as_deref_mut()).await;
    // The memory for the body stays reserved until the delivery is stored.
    let ReceivedBody { bytes, room: _room } = match received {
        Ok(received) => received,
        Err(error) => return not_received(ctx, &delivery, error),
    };
    let sender = match check.map(SenderCheck::finish).transpose() {
        Ok(sender) => sender,
        Err(error) => return bad_signature(ctx, &delivery, &error).into_response(),
    };
    let parsed = match source.parse(&delivery, headers, &bytes, sender.as_ref()) {
        Ok(parsed) => parsed,
        Err(error) => {
            warn!(delivery = delivery.id, event = delivery.event, %error, "Refused a delivery that cannot be read");
            count(ctx, "unreadable");
            let why = format!("the payload cannot be read: {error}");
            return refuse(StatusCode::BAD_REQUEST, &why).into_response();
        }
    };
    let new = NewDelivery {
        host: source.host().clone(),
        forge_delivery: delivery.id,
        event: delivery.event,
        content_type: text_header(headers, &header::CONTENT_TYPE),
        body: bytes,
    };
    match events::accept(ctx, &new, parsed).await {
        Ok(receipt) => stored(ctx, &new, receipt),
        Err(error) => {
            warn!(%error, forge.delivery = new.forge_delivery, "Cannot store a delivery");
            count(ctx, "not_kept");
            refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the delivery could not be stored; send it again",
            )
        }
    }
    .into_response()
}

fn bad_signature(ctx: &Ctx, delivery: &DeliveryHeader, error: &WebhookError) -> WebhookResponse {
    warn!(delivery = delivery.id, event = delivery.event, %error, "Refused a delivery with a missing or wrong signature");
    count(ctx, "bad_signature");
    refuse(
        StatusCode::UNAUTHORIZED,
        "the signature of this delivery is missing or wrong",
    )
}

fn not_received(ctx: &Ctx, delivery: &DeliveryHeader, error: BodyRefusal) -> Response {
    warn!(delivery = delivery.id, event = delivery.event, %error, "Refused a delivery whose body was not received");
    let (outcome, status) = match error {
        BodyRefusal::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
        BodyRefusal::TooSlow => ("too_slow", StatusCode::REQUEST_TIMEOUT),
        BodyRefusal::NoRoom => ("no_room", StatusCode::SERVICE_UNAVAILABLE),
        BodyRefusal::Broken => ("broken_off", StatusCode::BAD_REQUEST),
    };
    count(ctx, outcome);
    let mut response = closing(refuse(status, &error.to_string()));
    if error == BodyRefusal::NoRoom {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

fn stored(ctx: &Ctx, new: &NewDelivery, receipt: DeliveryReceipt) -> WebhookResponse {
    let is_new = match receipt.stored {
        Accepted::New(id) => {
            info!(delivery = %id, forge.delivery = new.forge_delivery, event = new.event, "Accepted a delivery");
            true
        }
        Accepted::Duplicate => {
            count(ctx, "duplicate");
            false
        }
    };
    if !receipt.is_allowed {
        return refuse(
            StatusCode::FORBIDDEN,
            "this repository is not on the allow-list (--repo-allowlist) of this server",
        );
    }
    let text = if is_new {
        "accepted\n"
    } else {
        "this delivery was already accepted\n"
    };
    (StatusCode::OK, text.to_owned())
}

/// Closes the connection, because its next request would come after the rest of the body.
fn closing(answer: WebhookResponse) -> Response {
    ([(header::CONNECTION, "close")], answer).into_response()
}

fn refuse(status: StatusCode, why: &str) -> WebhookResponse {
    (status, format!("{why}\n"))
}

fn count(ctx: &Ctx, outcome: &str) {
    ctx.metrics.count(Metric::Deliveries, &[outcome]);
}

fn text_header(headers: &HeaderMap, name: &header::HeaderName) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}
