//! The facts of the page as JSON. Times are RFC 3339 in UTC; unknown values are `null`.

use serde_json::{Value, json};

use super::overview::{LATELY, Operations};
use super::repairs::ReconcilerFix;
use super::{FailedJob, LaneRow, QueueLine};
use crate::context::{FileState, RefusedContent};
use crate::features::audit::{self, AuditLog};
use crate::features::leases;
use crate::kit::reconcile::Scope;
use crate::store::{ReconcilerRow, ReplicaRow};

/// Renders all facts as JSON.
pub(super) fn of(all: &Operations, version: &str) -> Value {
    let deliveries = all
        .deliveries
        .iter()
        .map(|(state, count)| (state.to_string(), json!(count)));
    json!({
        "version": version,
        "now": all.now,
        "since": all.now - LATELY,
        "replicas": all.replicas.iter().map(replica).collect::<Value>(),
        "leases": all.leases.iter().map(leases::view).collect::<Value>(),
        "queue": {
            "jobs": all.queue.iter().map(queue).collect::<Value>(),
            "lanes": all.lanes.iter().map(lane).collect::<Value>(),
            "failed": { "count": all.failed_count, "newest": all.failed.iter().map(failed).collect::<Value>() },
        },
        "reconcilers": all.repairs.iter().map(repair).collect::<Value>(),
        "audit": audit(&all.log),
        "deliveries": Value::Object(deliveries.collect()),
        "held": {
            "locks": all.held.locks, "lock_waiters": all.held.waiters, "apply_locks": all.held.apply_locks,
        },
        "repo_config": all.repo_config.as_ref().map(repo_config),
        "without_effect": all.without_effect,
        "web_accounts": all.web_accounts.as_ref().map(web_accounts),
    })
}

fn repo_config(state: &FileState) -> Value {
    let refused = |refused: &RefusedContent| json!({ "at": refused.at, "digest": refused.digest, "error": refused.error });
    json!({
        "file": state.path(), "sha256": state.digest(), "since": state.since,
        "refused": state.refused.as_ref().map(refused),
    })
}

/// Renders the file without its digest, because that would help somebody who tries passwords.
fn web_accounts((state, accounts): &(FileState, usize)) -> Value {
    let refused = |refused: &RefusedContent| json!({ "at": refused.at, "error": refused.error });
    json!({
        "file": state.path(), "accounts": accounts, "since": state.since,
        "refused": state.refused.as_ref().map(refused),
    })
}

fn replica(row: &ReplicaRow) -> Value {
    json!({
        "name": row.id.name, "host": row.id.host, "address": row.id.address, "version": row.id.version,
        "state": row.state.as_str(), "started_at": row.started_at, "beat_at": row.beat_at,
    })
}

fn queue(line: &QueueLine) -> Value {
    json!({ "kind": line.kind, "state": line.stage, "jobs": line.jobs, "oldest_at": line.oldest_at })
}

fn lane(row: &LaneRow) -> Value {
    json!({
        "lane": row.lane, "jobs": row.jobs,
        "first": {
            "id": row.id, "kind": row.kind, "state": row.state, "attempts": row.attempt, "created_at": row.created_at,
            "run_after": row.run_after, "replica": row.lease_holder, "error": row.last_error,
        },
    })
}

fn failed(job: &FailedJob) -> Value {
    json!({
        "id": job.id, "kind": job.kind, "lane": job.lane, "attempts": job.attempt, "error": job.last_error,
        "finished_at": job.finished_at,
    })
}

fn repair(repair: &ReconcilerFix) -> Value {
    let scope = match repair.what.scope {
        Scope::EveryReplica => "every_replica",
        Scope::OnePerGroup => "one_per_group",
    };
    json!({
        "name": repair.what.name, "repairs": repair.what.repairs, "period_seconds": repair.every.as_secs(),
        "scope": scope, "failing": repair.is_failing(), "late": repair.is_late,
        "repaired_total": repair.repaired_total(), "runs": repair.runs.iter().map(run).collect::<Value>(),
    })
}

fn run(row: &ReconcilerRow) -> Value {
    json!({
        "replica": row.replica, "started_at": row.started_at, "finished_at": row.finished_at,
        "succeeded_at": row.succeeded_at, "looked_at": row.looked_at, "repaired": row.repaired,
        "repaired_total": row.repaired_total, "error": row.error, "failures": row.failures,
    })
}

fn audit(log: &AuditLog) -> Value {
    json!({
        "events": log.events,
        "waiting": log.reach.waiting,
        "newest_hash": log.newest_hash,
        "checkpoint": log.checkpoint.as_ref().map(|last| json!({
            "seq": last.seq, "hash": last.hash, "signed_at": last.signed_at, "key": last.key, "signature": last.signature,
        })),
        "broken": log.broken.as_ref().map(|broken| json!({ "seq": broken.seq, "fault": broken.fault })),
        "verified_seq": log.verified_seq, "unverified": log.unverified(), "verified_at": log.looked_at,
        "again_seq": log.again_seq,
        "seals": log.seals.iter().rev().map(|seal| json!({
            "last_seq": seal.last_seq, "last_at": seal.last_at, "events": seal.events, "hash": seal.last_hash,
            "actor": seal.actor, "sealed_at": seal.sealed_at,
        })).collect::<Value>(),
        "newest": log.newest.iter().map(audit::view).collect::<Value>(),
    })
}
