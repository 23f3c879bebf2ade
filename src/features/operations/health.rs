//! Health checks for load balancers and monitors. Everybody may call them, so they say nothing that helps an attacker: the
//! version only to users who have signed in (the lesson of CVE-2025-58445), and of an error only that there is one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{Extensions, HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tracing::error;

use super::overview::repairs;
use crate::kit::web::auth::is_known;
use crate::kit::web::routes::{RouteAccess, Routes};
use crate::kit::web::{WebError, WebState};

/// Time limit for the database, shorter than the patience of a probe.
const PING_TIME: Duration = Duration::from_secs(5);

/// Returns the routes that everybody may call.
pub(crate) fn health_routes() -> Routes<Arc<WebState>> {
    Routes::new()
        .get("/healthz", RouteAccess::Everybody, healthz)
        .get("/readyz", RouteAccess::Everybody, readyz)
        .get("/status", RouteAccess::Everybody, status)
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<ReadinessChecks>,
}

impl Health {
    const OK: Self = Self {
        status: "ok",
        error: None,
        checks: None,
    };
}

/// Dependencies of a server that is ready. A forge that does not answer makes no server less ready: another server would
/// have the same problem, and the pages have to show it. The page of operations has the details.
#[derive(Serialize)]
struct ReadinessChecks {
    database: &'static str,
    /// `unknown` until a server has asked it.
    forge: &'static str,
}

#[derive(Deserialize)]
struct Probe {
    verbose: Option<String>,
}

/// Answers as long as the process runs.
async fn healthz() -> Json<Health> {
    Json(Health::OK)
}

/// Answers if the process and its database work; `?verbose` adds its dependencies.
async fn readyz(
    State(web): State<Arc<WebState>>,
    Query(probe): Query<Probe>,
) -> (StatusCode, Json<Health>) {
    let asked = async {
        web.store.ping().await?;
        match probe.verbose {
            Some(_) => Ok(Some(ReadinessChecks {
                database: "ok",
                forge: forge(&web).await?,
            })),
            None => Ok::<_, sqlx::Error>(None),
        }
    };
    let problem = match tokio::time::timeout(PING_TIME, asked).await {
        Ok(Ok(checks)) => {
            return (
                StatusCode::OK,
                Json(Health {
                    checks,
                    ..Health::OK
                }),
            );
        }
        Ok(Err(error)) => {
            error!(%error, "The database does not answer");
            "the database does not answer; the log of this replica has the reason"
        }
        Err(_) => {
            error!(
                timeout_s = PING_TIME.as_secs(),
                "The database does not answer in time"
            );
            "the database does not answer in time"
        }
    };
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(Health {
            status: "error",
            error: Some(problem),
            checks: None,
        }),
    )
}

/// Returns the state of the forge, from the last check of the running servers.
async fn forge(web: &WebState) -> Result<&'static str, sqlx::Error> {
    let repairs = repairs(web).await?;
    let look = repairs.iter().find(|repair| repair.what.name == "forge");
    Ok(match look {
        Some(look) if look.is_failing() => "failing",
        Some(look) if look.last().is_some() => "ok",
        Some(_) | None => "unknown",
    })
}

#[derive(Serialize)]
struct HealthStatus {
    shutting_down: bool,
    in_progress_operations: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

/// State that a rollout waits for (reference 11).
async fn status(
    State(web): State<Arc<WebState>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Json<HealthStatus>, WebError> {
    let known = is_known(&web, &extensions, &headers).await;
    Ok(Json(HealthStatus {
        shutting_down: web.shutting_down.is_cancelled(),
        in_progress_operations: web.store.command_count_running().await?,
        version: known.then(|| web.version.clone()),
    }))
}
