//! `/operations`: the health of Lockkeeper itself. Problems come first, in sentences; then servers, reconcilers, queue,
//! deliveries and audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::overview::Operations;
use super::repairs::ReconcilerFix;
use super::{FailedJob, JobStage, LaneRow, QueueLine};
use crate::context::{FileState, RefusedContent};
use crate::features::audit;
use crate::features::leases::{LeaseLine, notice};
use crate::kit::reconcile::Scope;
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::text::{Badge, PastTime, PullName, duration, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{LockEvent, Reason};
use crate::store::{DeliveryState, JobState, LockEventSeal, ReplicaRow, ReplicaState};

/// Age of the first job of a lane from which the lane counts as stuck.
const STUCK_AFTER: TimeDelta = TimeDelta::minutes(15);
/// Number of shown seals, the newest ones. There is one for each `audit prune`.
const SEALS: usize = 5;

/// `?notice=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OperationsQuery {
    notice: String,
}

#[derive(Serialize)]
struct OperationsPage {
    notice: Option<&'static str>,
    /// Problems, a sentence for each.
    troubles: Vec<String>,
    replicas: Vec<ReplicaLine>,
    more_replicas: usize,
    leases: Vec<LeaseLine>,
    more_leases: usize,
    leases_are_cut: bool,
    most_chars: usize,
    repairs: Vec<RepairLine>,
    queue: Vec<KindLine>,
    lanes: Vec<LaneLine>,
    failed: Vec<FailedLine>,
    failed_count: i64,
    deliveries: Vec<DeliveryLine>,
    locks: i64,
    waiters: i64,
    audit: AuditView,
    repo_config: Option<WatchedFileLine>,
    without_effect: Vec<String>,
    web_accounts: Option<AccountsView>,
}

/// State of the `--repo-config` or `--web-accounts-file` file.
#[derive(Serialize)]
struct WatchedFileLine {
    path: String,
    since: PastTime,
    badge: Badge,
    refused: Option<RefusedView>,
    /// Digest of `--repo-config`. The other file has none, because it would help somebody who tries passwords.
    digest: Option<String>,
}

#[derive(Serialize)]
struct AccountsView {
    accounts: usize,
    #[serde(flatten)]
    file: WatchedFileLine,
}

#[derive(Serialize)]
struct RefusedView {
    at: PastTime,
    error: String,
}

#[derive(Serialize)]
struct ReplicaLine {
    name: String,
    host: String,
    address: String,
    version: String,
    badge: Badge,
    since: PastTime,
    beat: PastTime,
}

#[derive(Serialize)]
struct RepairLine {
    name: &'static str,
    repairs: &'static str,
    every: String,
    scope: &'static str,
    badge: Badge,
    last: Option<LastCheck>,
    total: i64,
}

#[derive(Serialize)]
struct LastCheck {
    at: PastTime,
    replica: String,
    looked_at: i64,
    repaired: i64,
    failures: i64,
    error: Option<String>,
    succeeded: Option<PastTime>,
}

#[derive(Default, Serialize)]
struct KindLine {
    kind: String,
    running: i64,
    waiting: i64,
    delayed: i64,
    oldest: Option<PastTime>,
}

#[derive(Serialize)]
struct LaneLine {
    lane: String,
    jobs: i64,
    id: String,
    kind: String,
    badge: Badge,
    attempts: i64,
    since: PastTime,
    next: Option<String>,
    holder: Option<String>,
    error: Option<String>,
    is_stuck: bool,
}

#[derive(Serialize)]
struct FailedLine {
    id: String,
    kind: String,
    lane: String,
    attempts: i64,
    error: String,
    at: PastTime,
}

#[derive(Serialize)]
struct DeliveryLine {
    outcome: &'static str,
    count: i64,
}

#[derive(Serialize)]
struct AuditView {
    badge: Badge,
    events: i64,
    waiting: i64,
    newest_hash: Option<String>,
    checkpoint: Option<CheckpointLine>,
    verified: Option<PastTime>,
    unverified: i64,
    again: i64,
    broken: Option<String>,
    seals: Vec<SealLine>,
    more_seals: usize,
    newest: Vec<OperationLine>,
}

#[derive(Serialize)]
struct CheckpointLine {
    seq: i64,
    at: PastTime,
    key: String,
}

#[derive(Serialize)]
struct SealLine {
    events: i64,
    last_seq: i64,
    actor: String,
    at: PastTime,
}

#[derive(Serialize)]
struct OperationLine {
    seq: Option<i64>,
    at: PastTime,
    kind: &'static str,
    lock: Option<String>,
    pull: Option<PullName>,
    actor: String,
    origin: &'static str,
    reason: String,
}

/// Shows the page of operations.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    LenientQuery(params): LenientQuery<OperationsQuery>,
) -> Result<Response, WebError> {
    let view = OperationsPage {
        notice: notice(&params.notice),
        ..OperationsPage::new(&Operations::read(&web).await?)
    };
    visitor.page("operations.html", &view)
}

impl OperationsPage {
    fn new(all: &Operations) -> Self {
        let now = all.now;
        Self {
            notice: None,
            troubles: troubles(all),
            replicas: all
                .replicas
                .iter()
                .map(|row| ReplicaLine::new(row, now))
                .collect(),
            more_replicas: all.more_replicas,
            leases: all
                .leases
                .iter()
                .map(|row| LeaseLine::new(row, now))
                .collect(),
            more_leases: all.more_leases,
            leases_are_cut: all.leases_are_cut,
            most_chars: Reason::MAX_CHARS,
            repairs: all
                .repairs
                .iter()
                .map(|repair| RepairLine::new(repair, now))
                .collect(),
            queue: kinds(&all.queue, now),
            lanes: all
                .lanes
                .iter()
                .map(|row| LaneLine::new(row, now))
                .collect(),
            failed: all
                .failed
                .iter()
                .map(|job| FailedLine::new(job, now))
                .collect(),
            failed_count: all.failed_count,
            deliveries: all.deliveries.iter().map(DeliveryLine::new).collect(),
            locks: all.held.locks,
            waiters: all.held.waiters,
            audit: AuditView::new(&all.log, now),
            without_effect: all.without_effect.clone(),
            repo_config: all
                .repo_config
                .as_ref()
                .map(|state| WatchedFileLine::new(state, now).with_digest(state)),
            web_accounts: all
                .web_accounts
                .as_ref()
                .map(|(state, accounts)| AccountsView {
                    accounts: *accounts,
                    file: WatchedFileLine::new(state, now),
                }),
        }
    }
}

/// Returns the problems that an administrator should read first.
fn troubles(all: &Operations) -> Vec<String> {
    let mut troubles = Vec::new();
    if let Some(broken) = &all.log.broken {
        let audit::MismatchedEvent { seq, fault } = broken;
        troubles.push(format!("The audit log is broken: event {seq} {fault}."));
    }
    let accounts = all.web_accounts.as_ref().map(|(state, _)| state);
    for (flag, state) in [
        ("--repo-config", all.repo_config.as_ref()),
        ("--web-accounts-file", accounts),
    ] {
        if state.is_some_and(|state| state.refused.is_some()) {
            troubles.push(format!(
                "The file of {flag} is invalid; its previous content stays in effect."
            ));
        }
    }
    for repair in &all.repairs {
        match repair.last() {
            Some(last) if last.failures > 0 => {
                let times = if last.failures == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times in a row", last.failures)
                };
                let why = last
                    .error
                    .as_deref()
                    .map(|error| format!(": {error}"))
                    .unwrap_or_default();
                troubles.push(format!(
                    "The reconciler {} has failed {times}{why}.",
                    repair.what.name
                ));
            }
            Some(_) if repair.is_late => {
                troubles.push(format!(
                    "The reconciler {} has not run for three of its periods.",
                    repair.what.name
                ));
            }
            Some(_) | None => {}
        }
    }
    let stuck = all
        .lanes
        .iter()
        .filter(|lane| all.now - lane.created_at > STUCK_AFTER)
        .count();
    let gone = all
        .replicas
        .iter()
        .filter(|replica| replica.state == ReplicaState::Gone)
        .count();
    for (count, one, many) in [
        (
            stuck,
            "lane waits longer than it should",
            "lanes wait longer than they should",
        ),
        (
            gone,
            "server stopped responding",
            "servers stopped responding",
        ),
        (
            usize::try_from(all.failed_count).unwrap_or(0),
            "job failed in the last day",
            "jobs failed in the last day",
        ),
    ] {
        match count {
            0 => {}
            1 => troubles.push(format!("1 {one}.")),
            count => troubles.push(format!("{count} {many}.")),
        }
    }
    troubles
}

impl WatchedFileLine {
    /// Number of shown characters of a digest, enough to tell files apart.
    const DIGEST: usize = 12;

    fn new(state: &FileState, now: DateTime<Utc>) -> Self {
        let refused = |refused: &RefusedContent| RefusedView {
            at: PastTime::new(refused.at, now),
            error: refused.error.clone(),
        };
        Self {
            path: shown(&state.path().display().to_string()),
            since: PastTime::new(state.since, now),
            badge: match state.refused {
                Some(_) => Badge::new("bad", "refused"),
                None => Badge::new("good", "in effect"),
            },
            refused: state.refused.as_ref().map(refused),
            digest: None,
        }
    }

    fn with_digest(self, state: &FileState) -> Self {
        Self {
            digest: Some(state.digest().as_str().chars().take(Self::DIGEST).collect()),
            ..self
        }
    }
}

impl ReplicaLine {
    fn new(row: &ReplicaRow, now: DateTime<Utc>) -> Self {
        Self {
            name: shown(&row.id.name),
            host: shown(&row.id.host),
            address: shown(&row.id.address),
            version: shown(&row.id.version),
            badge: match row.state {
                ReplicaState::Alive => Badge::new("good", "alive"),
                ReplicaState::Stopping => Badge::new("busy", "stopping"),
                ReplicaState::Ended => Badge::new("idle", "ended"),
                ReplicaState::Gone => Badge::new("bad", "gone"),
            },
            since: PastTime::new(row.started_at, now),
            beat: PastTime::new(row.beat_at, now),
        }
    }
}

impl RepairLine {
    fn new(repair: &ReconcilerFix, now: DateTime<Utc>) -> Self {
        let badge = match repair.last() {
            None => Badge::new("idle", "not yet"),
            Some(last) if last.failures > 0 => Badge::new("bad", "failing"),
            Some(_) if repair.is_late => Badge::new("warn", "late"),
            Some(_) => Badge::new("good", "ok"),
        };
        Self {
            name: repair.what.name,
            repairs: repair.what.repairs,
            every: period(repair.every),
            scope: match repair.what.scope {
                Scope::EveryReplica => "on every server",
                Scope::OnePerGroup => "on one server",
            },
            badge,
            last: repair.last().map(|run| LastCheck {
                at: PastTime::new(run.finished_at, now),
                replica: shown(&run.replica),
                looked_at: run.looked_at,
                repaired: run.repaired,
                failures: run.failures,
                error: run.error.as_deref().map(shown),
                succeeded: run.succeeded_at.map(|at| PastTime::new(at, now)),
            }),
            total: repair.repaired_total(),
        }
    }
}

/// Formats a period, such as `5 min` or `1 h`.
fn period(time: std::time::Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Summarizes the lines by kind. They are sorted by kind.
fn kinds(lines: &[QueueLine], now: DateTime<Utc>) -> Vec<KindLine> {
    let mut kinds: Vec<KindLine> = Vec::new();
    let mut oldest_at = now;
    for line in lines {
        if kinds.last().is_none_or(|last| last.kind != line.kind) {
            kinds.push(KindLine {
                kind: shown(&line.kind),
                ..KindLine::default()
            });
            oldest_at = line.oldest_at;
        }
        oldest_at = oldest_at.min(line.oldest_at);
        let Some(kind) = kinds.last_mut() else {
            continue;
        };
        kind.oldest = Some(PastTime::new(oldest_at, now));
        match line.stage {
            JobStage::Running => kind.running = line.jobs,
            JobStage::Waiting => kind.waiting = line.jobs,
            JobStage::Delayed => kind.delayed = line.jobs,
        }
    }
    kinds
}

impl LaneLine {
    fn new(row: &LaneRow, now: DateTime<Utc>) -> Self {
        let is_delayed = row.state == JobState::Queued && row.run_after > now;
        Self {
            lane: shown(&row.lane),
            jobs: row.jobs,
            id: row.id.to_string(),
            kind: shown(&row.kind),
            badge: match row.state {
                JobState::Running => Badge::new("busy", "running"),
                JobState::Queued if is_delayed => Badge::new("warn", "delayed"),
                JobState::Queued => Badge::new("idle", "queued"),
                JobState::Done => Badge::new("good", "done"),
                JobState::Failed => Badge::new("bad", "failed"),
            },
            attempts: row.attempt,
            since: PastTime::new(row.created_at, now),
            next: is_delayed.then(|| duration(row.run_after - now)),
            holder: row.lease_holder.as_deref().map(shown),
            error: row.last_error.as_deref().map(shown),
            is_stuck: now - row.created_at > STUCK_AFTER,
        }
    }
}

impl FailedLine {
    fn new(job: &FailedJob, now: DateTime<Utc>) -> Self {
        Self {
            id: job.id.to_string(),
            kind: shown(&job.kind),
            lane: shown(&job.lane),
            attempts: job.attempt,
            error: shown(
                job.last_error
                    .as_deref()
                    .unwrap_or("no reason was recorded"),
            ),
            at: PastTime::new(job.finished_at, now),
        }
    }
}

impl DeliveryLine {
    fn new((state, count): &(DeliveryState, i64)) -> Self {
        let outcome = match state {
            DeliveryState::Received => "Not handled yet",
            DeliveryState::Handled => "Handled",
            DeliveryState::Ignored => "Ignored",
            DeliveryState::Refused => "Refused or failed",
        };
        Self {
            outcome,
            count: *count,
        }
    }
}

impl AuditView {
    fn new(log: &audit::AuditLog, now: DateTime<Utc>) -> Self {
        let badge = match (&log.broken, log.looked_at) {
            (Some(_), _) => Badge::new("bad", "broken"),
            (None, None) => Badge::new("idle", "not verified yet"),
            (None, Some(_)) => Badge::new("good", "intact"),
        };
        Self {
            badge,
            events: log.events,
            waiting: log.reach.waiting,
            newest_hash: log.newest_hash.as_ref().map(ToString::to_string),
            checkpoint: log.checkpoint.as_ref().map(|last| CheckpointLine {
                seq: last.seq,
                at: PastTime::new(last.signed_at, now),
                key: last.key.to_string(),
            }),
            verified: log.looked_at.map(|at| PastTime::new(at, now)),
            unverified: log.unverified(),
            again: log.again_seq,
            broken: log
                .broken
                .as_ref()
                .map(|broken| format!("event {} {}", broken.seq, shown(&broken.fault))),
            seals: log
                .seals
                .iter()
                .rev()
                .take(SEALS)
                .map(|seal| SealLine::new(seal, now))
                .collect(),
            more_seals: log.seals.len().saturating_sub(SEALS),
            newest: log
                .newest
                .iter()
                .map(|event| OperationLine::new(event, now))
                .collect(),
        }
    }
}

impl SealLine {
    fn new(seal: &LockEventSeal, now: DateTime<Utc>) -> Self {
        Self {
            events: seal.events,
            last_seq: seal.last_seq,
            actor: shown(&seal.actor),
            at: PastTime::new(seal.sealed_at, now),
        }
    }
}

impl OperationLine {
    fn new(kept: &LockEvent, now: DateTime<Utc>) -> Self {
        let cause = &kept.event.cause;
        Self {
            seq: kept.seq(),
            at: PastTime::new(kept.at, now),
            kind: kept.event.kind.as_str(),
            lock: kept
                .event
                .key
                .as_ref()
                .map(|key| shown(&format!("{}/{}", key.dir, key.workspace))),
            pull: kept.event.pull.as_ref().map(PullName::without_link),
            actor: shown(&kept.who().to_string()),
            origin: cause.actor.origin.as_str(),
            reason: shown(&cause.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_period_is_in_the_largest_unit_that_fits() {
        for (seconds, text) in [
            (2, "2 s"),
            (90, "90 s"),
            (300, "5 min"),
            (3600, "1 h"),
            (5400, "90 min"),
        ] {
            assert_eq!(period(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn stages_of_a_kind_are_one_line_with_the_oldest_of_them() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::hours(2);
        let line = |kind: &str, stage, jobs, minutes| QueueLine {
            kind: kind.to_owned(),
            stage,
            jobs,
            oldest_at: now - TimeDelta::minutes(minutes),
        };
        let lines = [
            line("a", JobStage::Delayed, 1, 3),
            line("a", JobStage::Waiting, 2, 7),
            line("b", JobStage::Running, 4, 1),
        ];
        let kinds: Vec<String> = kinds(&lines, now)
            .iter()
            .map(|kind| serde_json::to_string(kind).unwrap())
            .collect();
        assert!(
            kinds[0].starts_with(r#"{"kind":"a","running":0,"waiting":2,"delayed":1,"#),
            "{kinds:?}"
        );
        assert!(
            kinds[0].contains("7 min ago") && kinds[1].contains("1 min ago"),
            "{kinds:?}"
        );
    }
}
