//! Enforces the primary rate limit: 5000 requests an hour, counted in windows as on GitHub.

use std::sync::Mutex;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};

/// Maximum number of requests in an hour.
const LIMIT: u64 = 5000;

/// Rate limit with its current window.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Mutex<Option<Window>>);

/// Number of used requests in a window, and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    used: u64,
    reset: DateTime<Utc>,
}

impl RateLimit {
    /// Counts a request and returns the current window.
    pub(super) fn count(&self, now: DateTime<Utc>) -> Window {
        let mut window = self.lock();
        let current = window.filter(|window| now < window.reset);
        let current = current.unwrap_or(Window {
            used: 0,
            reset: now + TimeDelta::hours(1),
        });
        *window.insert(Window {
            used: current.used + 1,
            ..current
        })
    }
}

impl RateLimit {
    /// Removes a counted request from the count again.
    pub(super) fn take_back(&self, counted: Window) -> Window {
        let mut window = self.lock();
        if let Some(current) = window
            .as_mut()
            .filter(|current| current.reset == counted.reset)
        {
            current.used = current.used.saturating_sub(1);
        }
        Window {
            used: counted.used.saturating_sub(1),
            ..counted
        }
    }

    /// Returns the number of requests that are left in the current window.
    pub(crate) fn left(&self) -> u64 {
        LIMIT.saturating_sub(self.lock().map_or(0, |window| window.used))
    }

    /// Sets the number of requests that are left in the current window.
    pub(crate) fn leave(&self, now: DateTime<Utc>, left: u64) {
        let Window { reset, .. } = self.count(now);
        *self.lock() = Some(Window {
            used: LIMIT.saturating_sub(left),
            reset,
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Window>> {
        self.0
            .lock()
            .expect("no code panics while it holds the window")
    }
}

impl Window {
    /// Returns true if the request exceeds the limit.
    pub(super) fn is_exceeded(self) -> bool {
        self.used > LIMIT
    }

    /// Returns the time at which the next window begins.
    pub(super) fn reset(self) -> DateTime<Utc> {
        self.reset
    }

    /// Adds the rate limit headers to an answer.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        write(headers, self.used.min(LIMIT), self.reset);
    }
}

fn write(headers: &mut HeaderMap, used: u64, reset: DateTime<Utc>) {
    headers.insert("x-ratelimit-limit", HeaderValue::from(LIMIT));
    headers.insert("x-ratelimit-remaining", HeaderValue::from(LIMIT - used));
    headers.insert("x-ratelimit-used", HeaderValue::from(used));
    headers.insert("x-ratelimit-reset", HeaderValue::from(reset.timestamp()));
    headers.insert("x-ratelimit-resource", HeaderValue::from_static("core"));
}

/// Builds the answer to a request above the limit.
pub(super) fn exceeded(reset: DateTime<Utc>) -> Response {
    let body = serde_json::json!({
        "message": "API rate limit exceeded.",
        "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
        "status": "403",
    });
    let mut answer = (StatusCode::FORBIDDEN, axum::Json(body)).into_response();
    write(answer.headers_mut(), LIMIT, reset);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_starts_again_after_an_hour() {
        let (limit, start) = (RateLimit::default(), DateTime::UNIX_EPOCH);
        for _ in 0..LIMIT {
            assert!(!limit.count(start).is_exceeded());
        }
        assert!(limit.count(start + TimeDelta::minutes(59)).is_exceeded());
        assert!(!limit.count(start + TimeDelta::minutes(60)).is_exceeded());
    }
}
