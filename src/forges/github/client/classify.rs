//! Classifies answers that are not a success (GitHub REST: "Troubleshooting the REST API", "Rate limits").

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::call::{RequestFailure, one_line};
use crate::forges::ForgeError;
use crate::model::HostName;

/// Wait when GitHub limits requests without naming a time: its documentation asks for at least a minute.
const UNSAID_WAIT: TimeDelta = TimeDelta::minutes(1);
/// Maximum accepted wait. GitHub's windows last an hour, so a longer wait is a mistake of a clock or a proxy.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(24);
/// Minimum wait, for answers that arrive after the time they name.
const SHORTEST_WAIT: TimeDelta = TimeDelta::seconds(1);

/// Answer with a status that is not a success.
pub(super) struct ErrorResponse<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    /// Body of the answer, possibly cut.
    pub body: &'a [u8],
}

/// Error body in GitHub's format.
#[derive(Deserialize, Default)]
struct ErrorBody {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    errors: Option<Value>,
}

/// Sorts a refusal into the classes on which callers act.
pub(super) fn classify(
    refusal: &ErrorResponse<'_>,
    host: &HostName,
    what: &str,
    now: DateTime<Utc>,
) -> RequestFailure {
    let (what, host, message) = (what.to_owned(), host.clone(), message(refusal));
    let exhausted = used_up_until(refusal.headers).is_some();
    let error = match refusal.status.as_u16() {
        403 | 429 if let Some(until) = limited_until(refusal, &message, now) => {
            ForgeError::RateLimited { what, host, until }
        }
        401 | 403 => ForgeError::Denied {
            what,
            host,
            message: with_needed_permission(refusal, message),
        },
        404 | 410 => ForgeError::NotFound { what, host },
        408 | 500..=599 => ForgeError::Unavailable {
            what,
            host,
            message,
        },
        300..=399 => ForgeError::Rejected {
            what,
            host,
            message: moved(refusal),
        },
        _ => ForgeError::Rejected {
            what,
            host,
            message,
        },
    };
    RequestFailure {
        status: Some(refusal.status),
        exhausted,
        error,
    }
}

/// Returns the time until which a primary or secondary limit lasts. A plain 403 is a missing permission and no limit.
fn limited_until(
    refusal: &ErrorResponse<'_>,
    message: &str,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let limited = refusal.status == StatusCode::TOO_MANY_REQUESTS
        || message.to_lowercase().contains("rate limit");
    let until = retry_after(refusal.headers, now)
        .or_else(|| used_up_until(refusal.headers))
        .or_else(|| limited.then(|| now + UNSAID_WAIT))?;
    Some(until.clamp(now + SHORTEST_WAIT, now + LONGEST_WAIT))
}

/// Parses `Retry-After`: seconds or an HTTP date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let text = text(headers, RETRY_AFTER.as_str())?;
    match text.parse::<u32>() {
        Ok(seconds) => Some(now + TimeDelta::seconds(i64::from(seconds))),
        Err(_) => DateTime::parse_from_rfc2822(text).ok().map(Into::into),
    }
}

fn used_up_until(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    if text(headers, "x-ratelimit-remaining")? != "0" {
        return None;
    }
    DateTime::from_timestamp(text(headers, "x-ratelimit-reset")?.parse().ok()?, 0)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Returns GitHub's message and the details of a failed validation, or the status if another server answered.
fn message(refusal: &ErrorResponse<'_>) -> String {
    let body: ErrorBody = serde_json::from_slice(refusal.body).unwrap_or_default();
    let Some(message) = body.message else {
        return format!("HTTP status {}", refusal.status);
    };
    let details: Vec<String> = match body.errors {
        Some(Value::Array(errors)) => errors.iter().filter_map(detail).collect(),
        Some(other) => detail(&other).into_iter().collect(),
        None => Vec::new(),
    };
    one_line(&if details.is_empty() {
        message
    } else {
        format!("{message}: {}", details.join("; "))
    })
}

/// Formats one entry of `errors`: a text, or an object that names the wrong field and the error.
fn detail(error: &Value) -> Option<String> {
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let said = error
        .as_str()
        .or_else(|| field("message"))
        .or_else(|| field("code"))?;
    Some(field("field").map_or_else(|| said.to_owned(), |name| format!("`{name}` {said}")))
}

/// Adds the sufficient permission, which GitHub names, because the administrator needs to know it.
fn with_needed_permission(refusal: &ErrorResponse<'_>, message: String) -> String {
    match text(refusal.headers, "x-accepted-github-permissions").filter(|needed| !needed.is_empty())
    {
        Some(needed) => one_line(&format!("{message} (permission needed: {needed})")),
        None => message,
    }
}

fn moved(refusal: &ErrorResponse<'_>) -> String {
    format!(
        "it has moved (HTTP status {}): was the repository renamed or transferred?",
        refusal.status
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_750_000_000, 0).unwrap()
    }

    fn told(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let refusal = ErrorResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
            body: body.as_bytes(),
        };
        let failure = classify(
            &refusal,
            &HostName::new("github.com").unwrap(),
            "a comment",
            now(),
        );
        format!("{failure:?}")
            .split_once("error: ")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
            + ": "
            + &failure.error.to_string()
    }

    #[test]
    fn classes_of_refusals() {
        let message = r#"{"message": "Bad\n credentials", "documentation_url": "x"}"#;
        insta::assert_snapshot!(
            told(401, &[], message),
            @"Denied: github.com refused the credentials for a comment: Bad credentials"
        );
        insta::assert_snapshot!(
            told(403, &[("x-ratelimit-remaining", "12")], message),
            @"Denied: github.com refused the credentials for a comment: Bad credentials"
        );
        let needs = [("x-accepted-github-permissions", "statuses=write")];
        insta::assert_snapshot!(
            told(403, &needs, r#"{"message": "Resource not accessible by integration"}"#),
            @"Denied: github.com refused the credentials for a comment: Resource not accessible by integration (permission needed: statuses=write)"
        );
        insta::assert_snapshot!(
            told(404, &[], message),
            @"NotFound: a comment was not found on github.com, or the credentials of Lockkeeper may not see it"
        );
        insta::assert_snapshot!(
            told(410, &[], ""),
            @"NotFound: a comment was not found on github.com, or the credentials of Lockkeeper may not see it"
        );
        insta::assert_snapshot!(
            told(301, &[("location", "https://evil.example")], ""),
            @"Rejected: github.com rejected a comment: it has moved (HTTP status 301 Moved Permanently): was the repository renamed or transferred?"
        );
        insta::assert_snapshot!(
            told(502, &[], "<html>Bad gateway</html>"),
            @"Unavailable: github.com could not be reached for a comment: HTTP status 502 Bad Gateway"
        );
        insta::assert_snapshot!(
            told(400, &[], "not json"),
            @"Rejected: github.com rejected a comment: HTTP status 400 Bad Request"
        );
        let invalid = r#"{"message": "Validation Failed", "errors": [{"resource": "Status", "field": "description",
            "code": "too_long"}, "Body is empty", {"field": "sha", "message": "is unknown"}, 7]}"#;
        insta::assert_snapshot!(
            told(422, &[], invalid),
            @"Rejected: github.com rejected a comment: Validation Failed: `description` too_long; Body is empty; `sha` is unknown"
        );
        insta::assert_snapshot!(
            told(422, &[], r#"{"message": "No", "errors": "Why not"}"#),
            @"Rejected: github.com rejected a comment: No: Why not"
        );
    }

    #[test]
    fn limits_say_when_to_come_back() {
        let reset = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1750000600"),
        ];
        let both = [
            ("retry-after", "5"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1750000600"),
        ];
        for (status, headers, body, seconds) in [
            (403, &[("retry-after", "60")][..], "", 60),
            (
                429,
                &[("retry-after", "Sun, 15 Jun 2025 15:11:40 GMT")],
                "",
                300,
            ),
            (403, &reset, "", 600),
            (429, &both, "", 5),
            (429, &[], "", 60),
            (
                403,
                &[],
                r#"{"message": "You have exceeded a secondary rate limit. Please wait"}"#,
                60,
            ),
            (403, &[("retry-after", "4294967295")], "", 86_400),
            (
                429,
                &[("retry-after", "Sun, 15 Jun 2024 15:08:20 GMT")],
                "",
                60,
            ),
            (
                403,
                &[("retry-after", "Sat, 15 Jun 2024 15:08:20 GMT")],
                "",
                1,
            ),
            (
                429,
                &[
                    ("retry-after", "-1"),
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "never"),
                ],
                "",
                60,
            ),
        ] {
            let until = now() + TimeDelta::seconds(seconds);
            let expected =
                format!("RateLimited: github.com asks to wait until {until} before a comment");
            assert_eq!(
                told(status, headers, body),
                expected,
                "{status} {headers:?} {body}"
            );
        }
    }
}
