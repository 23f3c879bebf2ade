//! The layer of every answer: the log, metrics, the guard of host names, deadlines, failures and headers.
//!
//! All of them are one function and not a layer each, because axum clones all inner layers of a route at each layer and
//! allocates a box and a future for each, which costs more than routing a short answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tracing::Instrument as _;

use super::count::CountedRequest;
use super::errors::{self, FailureForm};
use super::trace::RequestLog;
use super::{WebError, WebState, headers, hosts};

/// Usual time limit of an answer.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Differences between the answers of the parts of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerRules {
    /// Time limit of an answer. For streams it ends with the first byte. `None`: handlers have limits of their own.
    pub limit: Option<Duration>,
    /// True if requests for host names of others are answered as well.
    pub for_all_hosts: bool,
}

/// State of the layer.
#[derive(Clone)]
struct Answering {
    web: Arc<WebState>,
    rules: AnswerRules,
}

/// Adds the layer of every answer to the routes of a router.
pub(crate) fn with_answers<S>(
    router: Router<S>,
    web: Arc<WebState>,
    rules: AnswerRules,
) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    router.layer(from_fn_with_state(Answering { web, rules }, answer))
}

async fn answer(
    State(Answering { web, rules }): State<Answering>,
    request: Request,
    next: Next,
) -> Response {
    let log = RequestLog::start(&web, &request);
    let span = log.span(&request);
    let form = (FailureForm::of(&request), request.method().is_safe());
    let counted = CountedRequest::of(&request);
    async {
        let mut response = survive_panic(admit(&web, rules, request, next)).await;
        errors::render(&web, form, log.reference(), &mut response);
        headers::secure(&mut response);
        counted.answered(&web.metrics, &response);
        log.end(&web, &response);
        response
    }
    .instrument(span)
    .await
}

/// Answers within the time limit. Requests for host names of others are refused, unless the rules admit all hosts.
async fn admit(web: &WebState, rules: AnswerRules, request: Request, next: Next) -> Response {
    if !rules.for_all_hosts
        && let Err(failure) = hosts::check(web, &request)
    {
        return failure.into_response();
    }
    match rules.limit {
        Some(limit) => within(limit, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Layer of answers to runs of this server: like that of all other answers, without the log and metrics.
pub(crate) async fn unlogged_answer(request: Request, next: Next) -> Response {
    let mut response = survive_panic(within(REQUEST_TIME, next.run(request))).await;
    headers::secure(&mut response);
    response
}

/// Turns a panic into a failure, so that only its request notices.
async fn survive_panic(answer: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(cause) => errors::after_panic(&*cause),
    }
}

/// Gives an answer up that takes too long.
async fn within(limit: Duration, answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(limit, answer)
        .await
        .unwrap_or_else(|_| WebError::too_slow().into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_takes_too_long_is_given_up() {
        let answer = within(Duration::ZERO, std::future::pending()).await;
        assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_of_its_request() {
        let answer = survive_panic(async { panic!("on purpose") }).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
