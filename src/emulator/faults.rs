//! Faults on order: what GitHub does on a bad day, at a route and as often as the test says.

use std::sync::Mutex;

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use crate::model::CommitSha;

/// What goes wrong.
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
    /// The secondary rate limit: `status` is 403 or 429, with `Retry-After` in seconds.
    SecondaryLimit {
        /// 403 or 429.
        status: u16,
        /// Seconds.
        retry_after: u64,
    },
    /// The primary rate limit: 403 with `X-RateLimit-Remaining: 0` and the time of the reset.
    PrimaryLimit {
        /// When requests are welcome again.
        reset: DateTime<Utc>,
    },
    /// Does what was asked and drops the connection before answering.
    LoseAnswer,
    /// Drops the connection without doing anything.
    DropConnection,
    /// Takes the request and answers nothing at all. When the faults are taken back it is carried out, if anybody still
    /// waits for it.
    Hang,
    /// Drops the connection, and does what was asked when the faults are taken back: the request was on its way all the
    /// time.
    Late,
    /// Something in front of git keeps old answers: where a reference is listed it has this commit.
    Lists {
        /// Its full name.
        reference: String,
        /// The commit it is said to have.
        id: CommitSha,
    },
}

/// Where and how often.
#[derive(Clone, Debug)]
struct Rule {
    route: Route,
    left: u32,
    fault: Fault,
}

/// `POST /repos/*/*/issues/*/comments`: a method or `*`, and a path in which a segment `*` or `{…}` stands for any.
#[derive(Clone, Debug)]
struct Route {
    method: String,
    segments: Vec<String>,
}

impl Route {
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

/// The faults that are still to come.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Mutex<Vec<Rule>>,
    /// Changes whenever the faults are taken back.
    taken_back: watch::Sender<()>,
    /// Requests that are answered nothing.
    hanging: watch::Sender<usize>,
}

impl Faults {
    /// Changes from now on whenever the faults are taken back.
    pub(super) fn taken_back(&self) -> watch::Receiver<()> {
        self.taken_back.subscribe()
    }

    /// Waits until the faults are taken back.
    pub(super) async fn hang(&self, mut taken_back: watch::Receiver<()>) {
        self.hanging.send_modify(|many| *many += 1);
        let _until_dropped = Hanging(&self.hanging);
        // The sender is ours.
        taken_back.changed().await.ok();
    }

    /// Waits until so many requests hang at once.
    pub(super) async fn hanging(&self, many: usize) {
        // The sender is ours.
        self.hanging
            .subscribe()
            .wait_for(|hanging| *hanging >= many)
            .await
            .ok();
    }

    /// Adds a fault for the next `times` requests of a route.
    pub(super) fn add(&self, route: &str, times: u32, fault: Fault) {
        self.rules().push(Rule {
            route: Route::parse(route),
            left: times,
            fault,
        });
    }

    /// The fault for this request, if one is due; the oldest rule first.
    pub(super) fn take(&self, method: &str, path: &str) -> Option<Fault> {
        let mut rules = self.rules();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.left > 0 && rule.route.matches(method, path))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    /// How many faults nobody has met yet.
    pub(super) fn left(&self) -> u32 {
        self.rules().iter().map(|rule| rule.left).sum()
    }

    /// Forgets those that are left.
    pub(super) fn clear(&self) {
        self.rules().clear();
        self.taken_back.send_replace(());
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules
            .lock()
            .expect("no code panics while it holds the rules")
    }
}

/// A request that hangs, until it is carried out or nobody waits for it any more.
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
