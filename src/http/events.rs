//! The webhook endpoint: `POST /events`. It limits, verifies, reads and stores a delivery, and then answers (P1, P2).
//!
//! All checks of the headers come before the first byte of the body is read. A sender without a well-formed signature
//! therefore costs only the connection.
//!
//! | answer | when |
//! |---|---|
//! | 200 | the delivery is stored, now or earlier |
//! | 400 | it cannot be read; the log says where |
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
use crate::handlers::claimed::{self, Service};
use crate::handlers::identity;
use crate::jobs::{ReadDelivery, SettleRepository};
use crate::model::{DeliveryId, Event, ForgeRepo, RepoId, RepositoryNews};
use crate::queue::Job;
use crate::store::{Accepted, DeliveryState, NewDelivery};
use crate::telemetry::Metric;
use crate::vcs::github::webhook::{self, BadSignature, DeliveryHeader, SignatureCheck};

/// The note of a delivery about repositories that are not served.
const NOT_SERVED: &str = "the repository is not on the allow-list (--repo-allowlist)";

type WebhookResponse = (StatusCode, String);

/// Seconds after which a sender may try again if there was no room.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("30");

/// State of the webhook endpoint.
pub(super) struct WebhookInput {
    ctx: Arc<Ctx>,
    intake: BodyReader,
}

impl WebhookInput {
    /// Creates an endpoint with its own limits for bodies.
    pub fn new(ctx: Arc<Ctx>, limits: DeliveryLimits) -> Self {
        let intake = BodyReader::new(limits, ctx.metrics.clone());
        Self { ctx, intake }
    }
}

/// Receives and stores a delivery.
pub(super) async fn receive(State(door): State<Arc<WebhookInput>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (ctx, headers) = (&*door.ctx, &parts.headers);
    let (delivery, mut check) = match begin(ctx, headers) {
        Ok(begun) => begun,
        Err(answer) => return closing(answer),
    };
    let ReceivedBody { bytes, room } = match door.intake.receive(body, check.as_mut()).await {
        Ok(received) => received,
        Err(error) => return not_taken(ctx, &delivery, error),
    };
    let answer = match understand(ctx, headers, &bytes, &delivery, check) {
        Ok(event) => {
            let told = webhook::identities(headers, &bytes, ctx.forge.host());
            store(ctx, headers, bytes, delivery, (event, told)).await
        }
        Err(answer) => answer,
    };
    drop(room);
    answer.into_response()
}

/// Checks everything that does not need the body.
fn begin(
    ctx: &Ctx,
    headers: &HeaderMap,
) -> Result<(DeliveryHeader, Option<SignatureCheck>), WebhookResponse> {
    let delivery = webhook::delivery(headers).map_err(|error| {
        count(ctx, "unreadable");
        refuse(StatusCode::BAD_REQUEST, &error.to_string())
    })?;
    let secrets = &ctx.settings.webhooks.secrets;
    if secrets.is_empty() {
        return Ok((delivery, None));
    }
    match SignatureCheck::begin(headers, secrets) {
        Ok(check) => Ok((delivery, Some(check))),
        Err(error) => Err(bad_signature(ctx, &delivery, error)),
    }
}

fn bad_signature(ctx: &Ctx, delivery: &DeliveryHeader, error: BadSignature) -> WebhookResponse {
    warn!(delivery = delivery.id, event = delivery.event, %error, "Refused a delivery with a missing or wrong signature");
    count(ctx, "bad_signature");
    refuse(
        StatusCode::UNAUTHORIZED,
        "the signature of this delivery is missing or wrong",
    )
}

fn not_taken(ctx: &Ctx, delivery: &DeliveryHeader, error: BodyRefusal) -> Response {
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

/// Closes the connection, because its next request would come after the rest of the body.
fn closing(answer: WebhookResponse) -> Response {
    ([(header::CONNECTION, "close")], answer).into_response()
}

/// Checks everything that does not need the database.
fn understand(
    ctx: &Ctx,
    headers: &HeaderMap,
    body: &[u8],
    delivery: &DeliveryHeader,
    check: Option<SignatureCheck>,
) -> Result<Event, WebhookResponse> {
    if let Some(check) = check {
        check
            .finish()
            .map_err(|error| bad_signature(ctx, delivery, error))?;
    }
    webhook::parse(headers, body, ctx.forge.host()).map_err(|error| {
        warn!(delivery = delivery.id, event = delivery.event, %error, "Refused a delivery that cannot be read");
        count(ctx, "unreadable");
        refuse(StatusCode::BAD_REQUEST, &format!("the payload cannot be read: {error}"))
    })
}

fn refuse(status: StatusCode, why: &str) -> WebhookResponse {
    (status, format!("{why}\n"))
}

/// A parsed delivery: its event, and the repositories that it names by their identifiers.
type ParsedDelivery = (Event, Vec<ForgeRepo>);

async fn store(
    ctx: &Ctx,
    headers: &HeaderMap,
    body: Vec<u8>,
    delivery: DeliveryHeader,
    (event, told): ParsedDelivery,
) -> WebhookResponse {
    let new = NewDelivery {
        host: ctx.forge.host().clone(),
        forge_delivery: delivery.id,
        event: delivery.event,
        content_type: text_header(headers, &header::CONTENT_TYPE),
        body,
    };
    let (news, is_allowed) = (event.news(), |repo: &RepoId| {
        ctx.settings.repos.allowlist.allows(repo)
    });
    // An app may see repositories that this server does not serve.
    let allowed = if news.is_empty() {
        event.repo().is_none_or(is_allowed)
    } else {
        news.iter().any(|news| is_allowed(&news.repo))
    };
    match keep(ctx, &new, event, told).await {
        Ok(Accepted::New(id)) => {
            info!(delivery = %id, forge.delivery = new.forge_delivery, event = new.event, "Accepted a delivery");
            ctx.nudge.nudge();
            ctx.mirror_nudge.nudge();
            answer(allowed)
        }
        Ok(Accepted::Duplicate) => {
            count(ctx, "duplicate");
            if allowed {
                (
                    StatusCode::OK,
                    "this delivery was already accepted\n".to_owned(),
                )
            } else {
                answer(allowed)
            }
        }
        Err(error) => {
            warn!(%error, forge.delivery = new.forge_delivery, "Cannot store a delivery");
            count(ctx, "not_kept");
            refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the delivery could not be stored; send it again",
            )
        }
    }
}

/// Stores a delivery, so that every server finds it. News about repositories that are not served is dropped. News about a
/// repository that seems to have been renamed waits until the rename is settled.
async fn keep(
    ctx: &Ctx,
    new: &NewDelivery,
    event: Event,
    told: Vec<ForgeRepo>,
) -> Result<Accepted, sqlx::Error> {
    let of_pull = told.first().cloned();
    let unsettled = identity::unsettled(ctx, told).await?;
    let is_settled = |news: &RepositoryNews| unsettled.iter().all(|told| told.repo != news.repo);
    let (news, unserved) =
        served(ctx, event.news().into_iter().filter(is_settled).collect()).await?;
    match event {
        Event::Repositories { .. } if news.is_empty() && unsettled.is_empty() => {
            ctx.store.delivery_ignore(new, unserved).await
        }
        event @ Event::Repositories { .. } => {
            let installation = event.installation();
            let jobs = unsettled
                .into_iter()
                .map(|told| SettleRepository { told, installation }.to_new());
            ctx.store
                .delivery_note(new, &news, &jobs.collect::<Vec<_>>())
                .await
        }
        Event::Ignored { reason } => {
            let accepted = ctx.store.delivery_ignore(new, &reason).await;
            if let Ok(Accepted::New(_)) = accepted {
                count(ctx, DeliveryState::Ignored.as_str());
            }
            accepted
        }
        event @ (Event::Pull(_) | Event::Comment(_)) => {
            let job = |delivery: DeliveryId| {
                ReadDelivery {
                    delivery,
                    event,
                    told: of_pull,
                }
                .to_new()
            };
            ctx.store.delivery_accept(new, &news, job).await
        }
    }
}

/// Returns the news about served repositories. If there is none, also returns the reason.
async fn served(
    ctx: &Ctx,
    news: Vec<RepositoryNews>,
) -> Result<(Vec<RepositoryNews>, &'static str), sqlx::Error> {
    let (mut kept, mut unserved) = (Vec::new(), NOT_SERVED);
    for news in news {
        match claimed::service(ctx, &news.repo).await? {
            Service::Served => kept.push(news),
            Service::Unclaimed => unserved = claimed::UNCLAIMED,
            Service::NotAllowlisted => {}
        }
    }
    Ok((kept, unserved))
}

fn count(ctx: &Ctx, outcome: &str) {
    ctx.metrics.count(Metric::Deliveries, &[outcome]);
}

fn answer(allowed: bool) -> WebhookResponse {
    if allowed {
        (StatusCode::OK, "accepted\n".to_owned())
    } else {
        refuse(
            StatusCode::FORBIDDEN,
            "this repository is not on the allow-list (--repo-allowlist) of this server",
        )
    }
}

fn text_header(headers: &HeaderMap, name: &header::HeaderName) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}
