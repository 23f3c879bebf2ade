//! Reads rows that the product itself never needs, but tests do.

use std::time::Duration;

use lockkeeper::model::{PlanId, PlanState};
use lockkeeper::store::{DatabaseUrl, DeliveryState, Lease, LeaseRow, RunRow, Store};
use sqlx::ConnectOptions;
use sqlx_sqlite::SqliteConnectOptions;

/// Runs an expression with its own connection to a database of either kind.
macro_rules! connected {
    ($url:expr, $connection:ident => $query:expr) => {
        match $url {
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_secs(20));
                let mut $connection = options.connect().await.expect("the file can be opened");
                $query.await
            }
            DatabaseUrl::Postgres(options) => {
                let mut $connection = options.connect().await.expect("PostgreSQL runs");
                $query.await
            }
        }
    };
}

/// A stored delivery without its body.
#[derive(sqlx::FromRow)]
pub struct DeliveryRow {
    pub id: String,
    pub host: String,
    pub forge_delivery: String,
    pub event: String,
    pub state: DeliveryState,
    pub note: Option<String>,
}

/// Returns all deliveries, newest first.
pub async fn deliveries(url: &DatabaseUrl) -> Vec<DeliveryRow> {
    let sql = "SELECT CAST(id AS TEXT) AS id, host, forge_delivery, event, state, note FROM deliveries d \
               ORDER BY received_at DESC, d.id DESC";
    connected!(url, db => sqlx::query_as::<_, DeliveryRow>(sql).fetch_all(&mut db))
        .expect("the deliveries can be listed")
}

/// Returns the state of a plan, discarded or not. `None` if there is no such plan.
pub async fn plan_state(url: &DatabaseUrl, plan: PlanId) -> Option<PlanState> {
    let sql = "SELECT state FROM plans WHERE id = $1";
    connected!(url, db => sqlx::query_scalar::<_, PlanState>(sql).bind(plan).fetch_optional(&mut db))
        .expect("the plan can be read")
}

/// Returns the number of stored git objects of accounts.
pub async fn account_objects(url: &DatabaseUrl) -> i64 {
    let sql = "SELECT COUNT(*) FROM account_objects";
    connected!(url, db => sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut db))
        .expect("the objects can be counted")
}

/// Returns the newest runs of the newest 1,000 commands.
pub async fn recent_runs(store: &Store, limit: i64) -> Vec<RunRow> {
    let commands = store.command_list(1_000).await;
    let commands: Vec<_> = commands
        .expect("the commands can be listed")
        .iter()
        .map(|command| command.id)
        .collect();
    store
        .run_list_of_commands(&commands, limit)
        .await
        .expect("the runs can be listed")
}

/// Returns a lease that has not ended and whose holder is alive.
pub async fn live_lease(store: &Store, key: &str) -> Option<Lease> {
    let rows = store.lease_list().await.unwrap();
    let is_there = |row: &LeaseRow| {
        row.replica
            .as_ref()
            .is_none_or(|(_, state)| state.is_there())
    };
    rows.into_iter()
        .find(|row| row.lease.key == key && is_there(row))
        .map(|row| row.lease)
}
