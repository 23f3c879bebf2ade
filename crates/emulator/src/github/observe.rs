//! Implements the outermost layer: records exchanges, injects ordered faults, and adds the headers of every answer.

use std::sync::atomic::Ordering;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::Utc;

use crate::lines::ConnectionHandle;
use crate::{Exchange, Fault};

use super::errors::ApiError;
use super::paging::RequestedUri;
use super::{Cx, ENTERPRISE_VERSION};

/// Maximum size of a request in bytes. A push of a demo or a test is far smaller.
const MAX_REQUEST: usize = 64 << 20;

/// Headers that are recorded with an exchange.
const KEPT_HEADERS: [&str; 4] = ["content-type", "link", "location", "retry-after"];

pub(super) async fn observe(
    State(cx): State<Cx>,
    ConnectInfo(line): ConnectInfo<ConnectionHandle>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(RequestedUri(parts.uri.clone()));
    let Ok(body) = to_bytes(body, MAX_REQUEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let mut exchange = started(&parts, &body);
    let taken_back = cx.faults.taken_back();
    exchange.fault = cx.faults.take(&exchange.method, &exchange.path);
    if exchange.fault == Some(Fault::Late) {
        line.cut();
        tokio::spawn(async move {
            cx.faults.hang(taken_back).await;
            let (head, body) = next
                .run(Request::from_parts(parts, Body::from(body)))
                .await
                .into_parts();
            finish(
                &mut exchange,
                head.status,
                &head.headers,
                &to_bytes(body, usize::MAX).await.unwrap_or_default(),
            );
            cx.log.add(exchange);
        });
        return ApiError::BadGateway.into_response();
    }
    if exchange.fault == Some(Fault::Hang) {
        cx.faults.hang(taken_back).await;
    }
    let response = match exchange.fault.as_ref().and_then(answer_of) {
        None => next.run(Request::from_parts(parts, Body::from(body))).await,
        Some(answer) => answer,
    };
    if matches!(
        exchange.fault,
        Some(Fault::LoseAnswer | Fault::DropConnection)
    ) {
        line.cut();
    }
    let number = cx.github.answers.fetch_add(1, Ordering::Relaxed) + 1;
    let (mut head, body) = response.into_parts();
    decorate(&mut head.headers, number);
    let mut body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    if let Some(Fault::Lists { reference, id }) = &exchange.fault {
        body = listed(&body, reference, id.as_str()).into();
        head.headers.remove(CONTENT_LENGTH);
    }
    finish(&mut exchange, head.status, &head.headers, &body);
    cx.log.add(exchange);
    Response::from_parts(head, Body::from(body))
}

fn started(parts: &axum::http::request::Parts, body: &Bytes) -> Exchange {
    let path = parts.uri.path();
    let api = path
        .strip_prefix("/api/v3")
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    Exchange {
        method: parts.method.to_string(),
        path: api.unwrap_or(path).to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        is_api: api.is_some(),
        request_body: if api.is_some() {
            text(body)
        } else {
            String::new()
        },
        status: 0,
        headers: Vec::new(),
        response_body: String::new(),
        fault: None,
    }
}

fn finish(exchange: &mut Exchange, status: StatusCode, headers: &HeaderMap, body: &Bytes) {
    exchange.status = status.as_u16();
    let kept = KEPT_HEADERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), headers.get(*name)?)));
    exchange.headers = kept
        .map(|(name, value)| (name, text(value.as_bytes())))
        .collect();
    if exchange.is_api {
        exchange.response_body = text(body);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn decorate(headers: &mut HeaderMap, number: u64) {
    let id = format!("{number:04X}:{:04X}:{number:06X}", number % 0xFFFF);
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-github-request-id", id);
    }
    headers.insert(
        "x-github-enterprise-version",
        HeaderValue::from_static(ENTERPRISE_VERSION),
    );
    headers.insert("server", HeaderValue::from_static("GitHub.com"));
}

/// Replaces the id of one reference in a list of references by another id of the same length.
fn listed(body: &[u8], reference: &str, id: &str) -> Vec<u8> {
    let (mut body, name) = (body.to_vec(), format!(" {reference}\n").into_bytes());
    let at = body.windows(name.len()).position(|window| window == name);
    if let Some(place) = at.and_then(|at| body.get_mut(at.checked_sub(id.len())?..at)) {
        place.copy_from_slice(id.as_bytes());
    }
    body
}

/// Returns the answer of a fault that prevents the request; `None` if the request is executed.
fn answer_of(fault: &Fault) -> Option<Response> {
    Some(match fault {
        Fault::Unauthorized => ApiError::BadCredentials.into_response(),
        Fault::Forbidden => ApiError::NotForIntegrations.into_response(),
        Fault::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Fault::NotFound => ApiError::NotFound.into_response(),
        Fault::SecondaryLimit {
            status,
            retry_after,
        } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::FORBIDDEN);
            let mut answer = ApiError::SecondaryLimit(status).into_response();
            answer
                .headers_mut()
                .insert("retry-after", HeaderValue::from(*retry_after));
            answer
        }
        Fault::PrimaryLimit { reset } => super::limits::exceeded(reset.with_timezone(&Utc)),
        Fault::BadGateway | Fault::DropConnection => ApiError::BadGateway.into_response(),
        Fault::LoseAnswer | Fault::Hang | Fault::Late | Fault::Lists { .. } => return None,
    })
}
