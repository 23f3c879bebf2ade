//! `GET /metrics` for Prometheus, behind the same password as the pages. Atlantis requires it there too, and the numbers
//! tell an outsider how busy a company is.
//!
//! Numbers from the database are read on request, and not again for some seconds. Every replica answers with them, so do
//! not add up the values of different replicas. Add up only what a replica counts itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use tracing::warn;

use super::QueueLine;
use crate::features;
use crate::features::audit::AuditLog;
use crate::features::registry::{Peer, PeerState};
use crate::kit::web::WebState;
use crate::store::{ReplicaState, Store};
use crate::telemetry::{Metric, Metrics};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Time between two reads, so that several scrapers cost the database no more than one.
const FRESH_FOR: TimeDelta = TimeDelta::seconds(5);

/// `GET /metrics`. Its numbers and labels name no repository and no person, so it is as open as the pages are.
pub(super) async fn show(State(web): State<Arc<WebState>>) -> Response {
    refresh(&web).await;
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], web.metrics.render()).into_response()
}

/// Reads the numbers from the database. If it does not answer, the numbers of this server are shown anyway.
async fn refresh(web: &WebState) {
    let mut read_at = web.parts.metrics_read_at.lock().await;
    let now = web.clock.now();
    if read_at.is_some_and(|at| now - at < FRESH_FOR) {
        return;
    }
    *read_at = Some(now);
    let (metrics, version) = (&web.metrics, web.version.as_str());
    metrics.set(Metric::Info, &[version], 1.0);
    let read = read(&web.store, metrics, now).await;
    metrics.set(Metric::DatabaseUp, &[], f64::from(u8::from(read.is_ok())));
    if let Err(error) = read {
        warn!(%error, "Cannot read the metrics from the database");
    }
}

async fn read(store: &Store, metrics: &Metrics, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    queue(metrics, &store.queue_lines().await?, now);
    let held = store.held().await?;
    metrics.set(Metric::Locks, &[], number(held.locks));
    metrics.set(Metric::LockWaiters, &[], number(held.waiters));
    metrics.set(Metric::ApplyLocks, &[], number(held.apply_locks));
    replicas(store, metrics).await?;
    reconcilers(store, metrics).await?;
    registry_peers(store, metrics, now).await?;
    let log = AuditLog::read(store, 0).await?;
    metrics.set(Metric::AuditEvents, &[], number(log.events));
    metrics.set(Metric::AuditVerified, &[], number(log.verified_seq));
    metrics.set(
        Metric::AuditBroken,
        &[],
        f64::from(u8::from(log.broken.is_some())),
    );
    Ok(())
}

/// Counts other deployments of the registry, and versions from elsewhere.
///
/// Names of deployments are no labels: others choose them, and visitors who did not sign in may see the metrics of a server
/// without passwords, but no other deployments. So the lag is that of all of them. `/registry/peers`, the API and the
/// command line show that of each.
async fn registry_peers(
    store: &Store,
    metrics: &Metrics,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let of = |count: u64| number(i64::try_from(count).unwrap_or(i64::MAX));
    let peers = store.registry_peers().await?;
    for state in PeerState::ALL {
        let count = peers.iter().filter(|peer| peer.state == *state).count();
        metrics.set(Metric::RegistryPeers, &[state.as_str()], of(count as u64));
    }
    let joined = || peers.iter().filter(|peer| peer.state == PeerState::Joined);
    let failing = joined().filter(|peer| peer.is_failing()).count();
    let limited = peers.iter().filter(|peer| peer.limited > 0).count();
    // Peers choose the sizes of their logs.
    let lag = joined().map(Peer::lag_records);
    let lag = lag.fold(0, u64::saturating_add);
    let longest = joined().map(|peer| peer.lag_seconds(now)).max();
    let wrong: u64 = peers.iter().map(|peer| peer.wrong_packages).sum();
    metrics.set(Metric::RegistryPeersFailing, &[], of(failing as u64));
    metrics.set(Metric::RegistryPeersLimited, &[], of(limited as u64));
    metrics.set(Metric::RegistryLagRecords, &[], of(lag));
    metrics.set(Metric::RegistryLagSeconds, &[], of(longest.unwrap_or(0)));
    metrics.set(Metric::RegistryWrongPackages, &[], of(wrong));
    let given_up: u64 = peers.iter().map(|peer| peer.pushes.given_up).sum();
    metrics.set(Metric::RegistryPushesGivenUp, &[], of(given_up));
    let downloads = store.registry_download_count().await?;
    metrics.set(Metric::RegistryDownloads, &[], number(downloads));
    let conflicts = store.registry_conflict_count().await?;
    metrics.set(Metric::RegistryConflicts, &[], number(conflicts));
    let cache = store.registry_cache().await?;
    metrics.set(Metric::RegistryCacheBytes, &[], of(cache.bytes));
    metrics.set(Metric::RegistryCacheVersions, &[], of(cache.versions));
    Ok(())
}

fn queue(metrics: &Metrics, lines: &[QueueLine], now: DateTime<Utc>) {
    let jobs = lines.iter().map(|line| {
        (
            vec![line.kind.clone(), line.stage.to_string()],
            number(line.jobs),
        )
    });
    metrics.set_all(Metric::QueueJobs, &jobs.collect::<Vec<_>>());
    let mut oldest: Vec<(Vec<String>, f64)> = Vec::new();
    for line in lines {
        let age = number((now - line.oldest_at).num_seconds().max(0));
        match oldest
            .last_mut()
            .filter(|(labels, _)| labels[0] == line.kind)
        {
            Some((_, oldest)) => *oldest = oldest.max(age),
            None => oldest.push((vec![line.kind.clone()], age)),
        }
    }
    metrics.set_all(Metric::QueueOldest, &oldest);
}

async fn replicas(store: &Store, metrics: &Metrics) -> Result<(), sqlx::Error> {
    let all = store.replica_list().await?;
    for state in [
        ReplicaState::Alive,
        ReplicaState::Stopping,
        ReplicaState::Ended,
        ReplicaState::Gone,
    ] {
        let count = all.iter().filter(|replica| replica.state == state).count();
        metrics.set(
            Metric::Replicas,
            &[state.as_str()],
            number(i64::try_from(count).unwrap_or(i64::MAX)),
        );
    }
    Ok(())
}

async fn reconcilers(store: &Store, metrics: &Metrics) -> Result<(), sqlx::Error> {
    let rows = store.reconciler_list().await?;
    for reconciler in features::reconcilers() {
        let of_it = rows.iter().filter(|row| row.name == reconciler.name);
        let last = of_it.filter_map(|row| row.succeeded_at).max();
        let last = last.map_or(0, |at| at.timestamp());
        metrics.set(
            Metric::ReconcilerLastSuccess,
            &[reconciler.name],
            number(last),
        );
    }
    Ok(())
}

/// Converts a count exactly up to 2^53, which no number here comes near.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and seconds are far below 2^53"
)]
fn number(count: i64) -> f64 {
    count as f64
}
