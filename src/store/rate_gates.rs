//! Rate gates of forges, which all servers share. Stored times are those of the deadline clock (see `store::time`).
//! Parameters and results are times of the caller's own clock.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Result, Store, Tx, execute, on_pool, on_tx};
use crate::model::{RateScope, Traffic};

/// Maximum wait of a write for its turn. If the clock of the database was wrong for a while, writes must not wait
/// until that time.
const LONGEST_TURN: TimeDelta = TimeDelta::minutes(1);

const CLOSED: &str = "SELECT until FROM rate_gates WHERE host = $1 AND credential = $2 AND traffic = $3 AND until > $4";
/// Selects the row of a gate, locked until the transaction ends. SQLite has only one writing transaction anyway.
const TURN: [&str; 2] = [
    "SELECT next_at FROM rate_gates WHERE host = $1 AND credential = $2 AND traffic = $3",
    "SELECT next_at FROM rate_gates WHERE host = $1 AND credential = $2 AND traffic = $3 FOR UPDATE",
];

impl Store {
    /// Returns the time until which a gate is closed; `None`: it is open.
    pub async fn rate_gate_closed(
        &self,
        scope: &RateScope,
        traffic: Traffic,
    ) -> Result<Option<DateTime<Utc>>> {
        let offset = self.clock_offset().await?;
        let until = on_pool!(self, db => sqlx::query_scalar::<_, DateTime<Utc>>(CLOSED)
            .bind(&scope.host).bind(&scope.credential).bind(traffic).bind(offset.of(self.now())).fetch_optional(db))?;
        Ok(until.map(|until| offset.back(until)))
    }

    /// Reserves the next turn of a write, so that writes leave at least `spacing` apart, and returns its time.
    pub async fn rate_gate_turn(
        &self,
        scope: &RateScope,
        spacing: Duration,
    ) -> Result<DateTime<Utc>> {
        let mut tx = self.begin_shared().await?;
        execute!(
            &mut tx,
            "INSERT INTO rate_gates (host, credential, traffic) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            &scope.host,
            &scope.credential,
            Traffic::Write,
        )?;
        let sql = match tx {
            Tx::Sqlite(_) => TURN[0],
            Tx::Postgres(_) => TURN[1],
        };
        let next = on_tx!(&mut tx, db => sqlx::query_scalar::<_, Option<DateTime<Utc>>>(sql)
            .bind(&scope.host).bind(&scope.credential).bind(Traffic::Write).fetch_one(db))?;
        // Others may have held the row for a while, so the current time is read only now.
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let now = offset.of(self.now());
        let turn = next.unwrap_or(now).clamp(now, now + LONGEST_TURN);
        execute!(
            &mut tx,
            "UPDATE rate_gates SET next_at = $1 WHERE host = $2 AND credential = $3 AND traffic = $4",
            turn + spacing,
            &scope.host,
            &scope.credential,
            Traffic::Write,
        )?;
        tx.commit().await.map(|()| offset.back(turn))
    }

    /// Closes a gate until the given time, unless it is closed for longer.
    pub async fn rate_gate_close(
        &self,
        scope: &RateScope,
        traffic: Traffic,
        until: DateTime<Utc>,
    ) -> Result<()> {
        let mut tx = self.begin_shared().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        execute!(
            &mut tx,
            "INSERT INTO rate_gates (host, credential, traffic, until) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (host, credential, traffic) DO UPDATE SET until = \
             CASE WHEN rate_gates.until > excluded.until THEN rate_gates.until ELSE excluded.until END",
            &scope.host,
            &scope.credential,
            traffic,
            offset.of(until),
        )?;
        tx.commit().await
    }

    /// Deletes gates that nobody has used since the given time.
    pub async fn rate_gate_prune(&self, before: DateTime<Utc>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let before = self.clock_offset_in_tx(&mut tx).await?.of(before);
        let sql = "DELETE FROM rate_gates WHERE COALESCE(until, $1) <= $1 AND COALESCE(next_at, $1) <= $1";
        let rows = execute!(&mut tx, sql, before)?;
        tx.commit().await.map(|()| rows)
    }
}
