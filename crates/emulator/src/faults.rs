//! Injects faults on request: the behaviour of GitHub on a bad day, at a given route and a given number of times.

use std::sync::Mutex;

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use crate::model::CommitSha;

/// Kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers 502 and does nothing.
    BadGateway,
    /// Answers 401 and does nothing, as if the token were revoked.
    Unauthorized,
    /// Answers 403 and does nothing, as if the App lacked a permission.
    Forbidden,
    /// Answers 503 and does nothing.
    ServiceUnavailable,
    /// Answers 404 and does nothing, as GitHub does for a moment after something was created.
    NotFound,
    /// Answers with the secondary rate limit: `status` is 403 or 429, with `Retry-After` in seconds.
    SecondaryLimit {
        /// Status of the answer: 403 or 429.
        status: u16,
        /// Time until a retry is allowed, in seconds.
        retry_after: u64,
    },
    /// Answers with the primary rate limit: 403 with `X-RateLimit-Remaining: 0` and the time of the reset.
    PrimaryLimit {
        /// Time from which requests are accepted again.
        reset: DateTime<Utc>,
    },
    /// Executes the request and drops the connection before answering.
    LoseAnswer,
    /// Drops the connection without doing anything.
    DropConnection,
    /// Accepts the request and does not answer. When the faults are withdrawn, the request is executed if the client
    /// still waits.
    Hang,
    /// Drops the connection, and executes the request when the faults are withdrawn: the request was on its way all
    /// the time.
    Late,
    /// Answers like a proxy in front of git with old answers: a list of references has this commit for the reference.
    Lists {
        /// Full name of the reference.
        reference: String,
        /// Commit in the list.
        id: CommitSha,
    },
}

/// A fault with its route and the number of times that are left.
#[derive(Clone, Debug)]
struct FaultRule {
    route: FaultRoute,
    left: u32,
    fault: Fault,
}

/// Method or `*`, and a path in which a segment `*` or `{…}` stands for any: `POST /repos/*/*/issues/*/comments`.
#[derive(Clone, Debug)]
struct FaultRoute {
    method: String,
    segments: Vec<String>,
}

impl FaultRoute {
    fn parse(text: &str) -> Self {
        let (method, path) = text.trim().split_once(' ').unwrap_or(("*", text));
        let segments = path
            .trim()
            .trim_start_matches('/')
            .split('/')
            .map(str::to_owned)
            .collect();
        Self {
            method: method.to_ascii_uppercase(),
            segments,
        }
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        let path: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let same = |(pattern, segment): (&String, &&str)| {
            pattern == "*" || pattern.starts_with('{') || pattern.eq_ignore_ascii_case(segment)
        };
        (self.method == "*" || self.method == method)
            && self.segments.len() == path.len()
            && self.segments.iter().zip(&path).all(same)
    }
}

/// Faults that have not occurred yet.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Mutex<Vec<FaultRule>>,
    /// Signal that is sent when the faults are withdrawn.
    taken_back: watch::Sender<()>,
    /// Number of requests that hang.
    hanging: watch::Sender<usize>,
}

impl Faults {
    /// Subscribes to the signal that the faults are withdrawn.
    pub(super) fn taken_back(&self) -> watch::Receiver<()> {
        self.taken_back.subscribe()
    }

    /// Waits until the faults are withdrawn.
    pub(super) async fn hang(&self, mut taken_back: watch::Receiver<()>) {
        self.hanging.send_modify(|many| *many += 1);
        let _until_dropped = Hanging(&self.hanging);
        // No error is possible, because `self` owns the sender.
        taken_back.changed().await.ok();
    }

    /// Waits until `many` requests hang at once.
    pub(super) async fn hanging(&self, many: usize) {
        // No error is possible, because `self` owns the sender.
        self.hanging
            .subscribe()
            .wait_for(|hanging| *hanging >= many)
            .await
            .ok();
    }

    /// Adds a fault for the next `times` requests of a route.
    pub(super) fn add(&self, route: &str, times: u32, fault: Fault) {
        self.rules().push(FaultRule {
            route: FaultRoute::parse(route),
            left: times,
            fault,
        });
    }

    /// Returns the fault for this request, if one is due; the oldest rule first.
    pub(super) fn take(&self, method: &str, path: &str) -> Option<Fault> {
        let mut rules = self.rules();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.left > 0 && rule.route.matches(method, path))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    /// Returns the number of faults that have not occurred yet.
    pub(super) fn left(&self) -> u32 {
        self.rules().iter().map(|rule| rule.left).sum()
    }

    /// Withdraws the faults that are left.
    pub(super) fn clear(&self) {
        self.rules().clear();
        self.taken_back.send_replace(());
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<FaultRule>> {
        self.rules
            .lock()
            .expect("no code panics while it holds the rules")
    }
}

/// A request that hangs, until it is executed or the client is gone.
struct Hanging<'a>(&'a watch::Sender<usize>);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|many| *many -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_its_route_and_only_as_often_as_told() {
        let faults = Faults::default();
        faults.add(
            "POST /repos/{owner}/{repo}/issues/*/comments",
            1,
            Fault::BadGateway,
        );
        assert_eq!(
            faults.take("GET", "/repos/acme/infra/issues/1/comments"),
            None
        );
        assert_eq!(faults.take("POST", "/repos/acme/infra/issues/1"), None);
        assert_eq!(
            faults.take("POST", "/repos/acme/infra/issues/1/comments"),
            Some(Fault::BadGateway)
        );
        assert_eq!(
            faults.take("POST", "/repos/acme/infra/issues/1/comments"),
            None
        );
        assert_eq!(faults.left(), 0);
    }

    #[test]
    fn faults_of_one_route_strike_in_the_order_they_were_ordered() {
        let faults = Faults::default();
        faults.add("* /user", 1, Fault::LoseAnswer);
        faults.add("GET /user", 1, Fault::NotFound);
        assert_eq!(faults.take("GET", "/user"), Some(Fault::LoseAnswer));
        assert_eq!(faults.take("GET", "/user"), Some(Fault::NotFound));
    }
}
