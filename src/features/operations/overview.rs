//! State of servers, queue, reconcilers, audit log and deliveries, for the page and for `GET /api/operations`. Every list
//! is limited.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};

use super::repairs::{self, ReconcilerFix};
use super::{FailedJob, LaneRow, QueueLine, StoredCounts, view};
use crate::context::FileState;
use crate::features::audit::AuditLog;
use crate::kit::web::{WebError, WebState};
use crate::store::{DeliveryState, LeaseRow, ReplicaRow, Store};

/// Period for the shown deliveries and failures.
pub(super) const LATELY: TimeDelta = TimeDelta::days(1);
/// Maximum number of shown lanes, failed jobs and servers.
const SHOWN: usize = 20;
/// Maximum number of shown leases: as many as servers usually have at once.
const LEASES: usize = 50;
/// Number of shown events of the audit log, the newest ones.
const EVENTS: i64 = 20;

/// All facts of the page.
pub(super) struct Operations {
    pub now: DateTime<Utc>,
    /// Servers: running ones first, then the youngest.
    pub replicas: Vec<ReplicaRow>,
    /// Number of known servers that are not shown.
    pub more_replicas: usize,
    /// Shown leases, by key.
    pub leases: Vec<LeaseRow>,
    /// Number of leases that were read and are not shown.
    pub more_leases: usize,
    /// True if there may be more leases, which were not read.
    pub leases_are_cut: bool,
    pub queue: Vec<QueueLine>,
    /// Lanes that have waited longest.
    pub lanes: Vec<LaneRow>,
    /// Failed jobs, newest first.
    pub failed: Vec<FailedJob>,
    pub failed_count: i64,
    pub repairs: Vec<ReconcilerFix>,
    pub log: AuditLog,
    pub deliveries: Vec<(DeliveryState, i64)>,
    pub held: StoredCounts,
    /// State of the `--repo-config` file on this server. `None`: there is no such file.
    pub repo_config: Option<FileState>,
    /// Accepted settings that have no effect, a sentence for each.
    pub without_effect: Vec<String>,
    /// State of the `--web-accounts-file` file, and its number of accounts.
    pub web_accounts: Option<(FileState, usize)>,
}

/// Returns the state of the reconcilers.
pub(super) async fn repairs(web: &WebState) -> Result<Vec<ReconcilerFix>, sqlx::Error> {
    let replicas = web.store.replica_list().await?;
    repairs::read(&web.store, &web.periods, &replicas, web.clock.now()).await
}

impl Operations {
    /// Reads all facts from the database.
    pub async fn read(web: &WebState) -> Result<Self, WebError> {
        let (store, now) = (&web.store, web.clock.now());
        let mut replicas = store.replica_list().await?;
        replicas.sort_by_key(|replica| !replica.state.is_there());
        let more_replicas = replicas.len().saturating_sub(SHOWN);
        let repairs = repairs::read(store, &web.periods, &replicas, now).await?;
        replicas.truncate(SHOWN);
        let mut leases = store.lease_list().await?;
        let more_leases = leases.len().saturating_sub(LEASES);
        let leases_are_cut = leases.len() >= usize::from(Store::LEASES_LISTED);
        leases.truncate(LEASES);
        let shown = i64::try_from(SHOWN).unwrap_or(i64::MAX);
        let (failed, failed_count) = store.job_list_failed_since(now - LATELY, shown).await?;
        Ok(Self {
            now,
            replicas,
            more_replicas,
            leases,
            more_leases,
            leases_are_cut,
            queue: store.queue_lines().await?,
            lanes: store.lane_list(shown).await?,
            failed,
            failed_count,
            repairs,
            log: AuditLog::read(store, EVENTS).await?,
            deliveries: store.delivery_count_since(now - LATELY).await?,
            held: store.held().await?,
            repo_config: (web.repo_config)(),
            without_effect: (web.without_effect)(),
            web_accounts: web
                .accounts
                .file()
                .map(|state| (state, web.accounts.now().limited().len())),
        })
    }
}

/// `GET /api/operations`
pub(super) async fn answer(
    State(web): State<Arc<WebState>>,
) -> Result<Json<serde_json::Value>, WebError> {
    let operations = Operations::read(&web).await?;
    Ok(Json(view::of(&operations, &web.version)))
}
