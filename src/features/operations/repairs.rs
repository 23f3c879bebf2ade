//! State of the reconcilers on all servers.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::config::server::Periods;
use crate::features;
use crate::kit::reconcile::{Reconciler, Scope};
use crate::store::{ReconcilerRow, ReplicaRow, Result, Store};

/// Number of periods after which a reconciler without a run is late.
const LATE_AFTER: i32 = 3;
/// Minimum time before a reconciler is late, because not every run without findings is recorded.
const NEVER_LATE_BEFORE: TimeDelta = TimeDelta::minutes(3);

/// A reconciler and its runs.
pub(super) struct ReconcilerFix {
    pub what: &'static Reconciler,
    /// Last run on each server, the newest first.
    pub runs: Vec<ReconcilerRow>,
    /// Run that shows the state: the newest one of a reconciler that runs once per group; otherwise a failed one on a running
    /// server, if there is any.
    telling: Option<usize>,
    /// Time between two runs.
    pub every: Duration,
    /// True if it should have run again by now.
    pub is_late: bool,
}

impl ReconcilerFix {
    /// Returns the run that shows the state. `None`: it has not run yet.
    pub fn last(&self) -> Option<&ReconcilerRow> {
        self.telling.and_then(|at| self.runs.get(at))
    }

    /// Returns true if its last run failed.
    pub fn is_failing(&self) -> bool {
        self.last().is_some_and(|run| run.failures > 0)
    }

    /// Returns the number of fixes by all known servers.
    pub fn repaired_total(&self) -> i64 {
        self.runs.iter().map(|run| run.repaired_total).sum()
    }

    fn new(
        what: &'static Reconciler,
        every: Duration,
        runs: Vec<ReconcilerRow>,
        there: &[&str],
        now: DateTime<Utc>,
    ) -> Self {
        let is_there = |run: &ReconcilerRow| there.contains(&run.replica.as_str());
        let failing = runs
            .iter()
            .position(|run| run.failures > 0 && is_there(run));
        let telling = match what.scope {
            Scope::EveryReplica => failing.or((!runs.is_empty()).then_some(0)),
            Scope::OnePerGroup => (!runs.is_empty()).then_some(0),
        };
        let patience = TimeDelta::from_std(every).unwrap_or(TimeDelta::days(1)) * LATE_AFTER;
        let last = runs.first().map(|run| run.finished_at);
        let is_late = last.is_some_and(|last| now - last > patience.max(NEVER_LATE_BEFORE));
        Self {
            what,
            runs,
            telling,
            every,
            is_late,
        }
    }
}

/// Reads the reconcilers, in the order of the registry.
pub(super) async fn read(
    store: &Store,
    periods: &Periods,
    replicas: &[ReplicaRow],
    now: DateTime<Utc>,
) -> Result<Vec<ReconcilerFix>> {
    let rows = store.reconciler_list().await?;
    let there = replicas.iter().filter(|replica| replica.state.is_there());
    let there: Vec<&str> = there.map(|replica| replica.id.name.as_str()).collect();
    let of = |what: &Reconciler| {
        rows.iter()
            .filter(|row| row.name == what.name)
            .cloned()
            .collect()
    };
    Ok(features::reconcilers()
        .map(|what| ReconcilerFix::new(what, what.every(periods), of(what), &there, now))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(replica: &str, minutes: i64, failures: i64) -> ReconcilerRow {
        let at = DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes);
        ReconcilerRow {
            name: String::new(),
            replica: replica.to_owned(),
            started_at: at,
            finished_at: at,
            succeeded_at: None,
            looked_at: 0,
            repaired: 1,
            repaired_total: 2,
            error: (failures > 0).then(|| "no".to_owned()),
            failures,
        }
    }

    fn repair(name: &str, runs: &[ReconcilerRow]) -> ReconcilerFix {
        let now = DateTime::UNIX_EPOCH + TimeDelta::minutes(100);
        let what = features::reconciler(name).unwrap();
        ReconcilerFix::new(what, what.period, runs.to_vec(), &["a", "b"], now)
    }

    #[test]
    fn what_one_per_group_does_stands_where_the_newest_look_left_it() {
        let made_good = repair("closed_pulls", &[run("a", 99, 0), run("b", 95, 3)]);
        assert!(!made_good.is_failing() && !made_good.is_late);
        assert_eq!(made_good.repaired_total(), 4);
        assert!(repair("closed_pulls", &[run("b", 99, 1), run("a", 95, 0)]).is_failing());
    }

    #[test]
    fn what_every_server_does_fails_if_it_fails_on_one_that_is_there() {
        let failing = repair("stops", &[run("a", 100, 0), run("b", 99, 3)]);
        assert_eq!(failing.last().unwrap().replica, "b");
        assert!(!repair("stops", &[run("a", 100, 0), run("gone", 99, 3)]).is_failing());
    }

    #[test]
    fn a_repair_that_is_not_heard_of_for_three_periods_is_late() {
        assert!(!repair("closed_pulls", &[run("a", 85, 0)]).is_late);
        assert!(repair("closed_pulls", &[run("a", 84, 0)]).is_late);
        assert!(!repair("stops", &[run("a", 97, 0)]).is_late);
        assert!(!repair("stops", &[]).is_late);
    }
}
