//! Records the exchanges with clients, for tests.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::faults::Fault;

/// A request and its answer, without credentials.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Method of the request, such as `GET` or `POST`.
    pub method: String,
    /// Path without the `/api/v3` of the REST API. Paths of git and pages are unchanged.
    pub path: String,
    /// Query string without the `?`.
    pub query: String,
    /// True for the REST API. Only its bodies are recorded.
    pub is_api: bool,
    /// Body of the request as text.
    pub request_body: String,
    /// Status of the answer, even if the answer was then lost.
    pub status: u16,
    /// Headers of the answer that clients read: `link`, `location`, `retry-after`, `content-type`.
    pub headers: Vec<(String, String)>,
    /// Body of the answer as text.
    pub response_body: String,
    /// Fault that occurred, if any.
    pub fault: Option<Fault>,
}

/// Ring buffer of the newest exchanges.
#[derive(Debug, Default)]
pub(super) struct ExchangeLog(Mutex<VecDeque<Exchange>>);

impl ExchangeLog {
    /// Maximum number of exchanges. Older ones are dropped.
    pub(super) const KEPT: usize = 4096;

    pub(super) fn add(&self, exchange: Exchange) {
        let mut log = self.lock();
        if log.len() == Self::KEPT {
            log.pop_front();
        }
        log.push_back(exchange);
    }

    pub(super) fn all(&self) -> Vec<Exchange> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Exchange>> {
        self.0
            .lock()
            .expect("no code panics while it holds the log")
    }
}
