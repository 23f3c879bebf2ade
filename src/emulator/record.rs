//! What went over the wire, kept for tests to look at.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::faults::Fault;

/// A request and its answer. Credentials are not kept.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path without the `/api/v3` of the REST API; that of git and pages as it is.
    pub path: String,
    /// Query without `?`.
    pub query: String,
    /// Whether it was the REST API; bodies are kept of that only.
    pub is_api: bool,
    /// Body of the request as text.
    pub request_body: String,
    /// Status of the answer, also of one that was then lost.
    pub status: u16,
    /// Headers of the answer that clients read: `link`, `location`, `retry-after`, `content-type`.
    pub headers: Vec<(String, String)>,
    /// Body of the answer as text.
    pub response_body: String,
    /// The fault that struck, if one did.
    pub fault: Option<Fault>,
}

/// The newest exchanges.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<VecDeque<Exchange>>);

impl Log {
    /// How many are kept; older ones are forgotten.
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
