//! Implements gates in front of a forge. A rate limit of the forge stops all requests with the same credentials, not
//! only the request that met the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::clock::Clock;
use crate::model::{RateScope, Traffic};

/// Gates of one or more servers. Reads and writes have separate gates. Times are those of the caller's clock.
#[async_trait]
pub trait RateGates: Send + Sync + 'static {
    /// Returns the time until which a gate is closed, or `None` if it is open.
    async fn closed(
        &self,
        scope: &RateScope,
        traffic: Traffic,
    ) -> Result<Option<DateTime<Utc>>, GateError>;

    /// Reserves the next turn of a write and returns its time. Turns are at least `spacing` apart.
    async fn turn(&self, scope: &RateScope, spacing: Duration) -> Result<DateTime<Utc>, GateError>;

    /// Closes a gate until the given time, unless it is closed for longer.
    async fn close(
        &self,
        scope: &RateScope,
        traffic: Traffic,
        until: DateTime<Utc>,
    ) -> Result<(), GateError>;
}

/// Error of the database, which did not answer; the failure is temporary.
#[derive(Debug, thiserror::Error)]
#[error("cannot look up in the database whether the forge asked to wait")]
pub struct GateError(#[from] sqlx::Error);

/// Gates of this process alone.
pub struct LocalGates {
    clock: Arc<dyn Clock>,
    gates: Mutex<HashMap<(RateScope, Traffic), RequestGate>>,
}

#[derive(Default)]
struct RequestGate {
    closed_until: Option<DateTime<Utc>>,
    next_turn: Option<DateTime<Utc>>,
}

impl LocalGates {
    /// Creates gates that are open.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            gates: Mutex::default(),
        }
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<(RateScope, Traffic), RequestGate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl RateGates for LocalGates {
    async fn closed(
        &self,
        scope: &RateScope,
        traffic: Traffic,
    ) -> Result<Option<DateTime<Utc>>, GateError> {
        let now = self.clock.now();
        let until = self
            .gates()
            .get(&(scope.clone(), traffic))
            .and_then(|gate| gate.closed_until);
        Ok(until.filter(|until| *until > now))
    }

    async fn turn(&self, scope: &RateScope, spacing: Duration) -> Result<DateTime<Utc>, GateError> {
        let now = self.clock.now();
        let mut gates = self.gates();
        let gate = gates.entry((scope.clone(), Traffic::Write)).or_default();
        let turn = gate.next_turn.unwrap_or(now).max(now);
        gate.next_turn = Some(turn + spacing);
        Ok(turn)
    }

    async fn close(
        &self,
        scope: &RateScope,
        traffic: Traffic,
        until: DateTime<Utc>,
    ) -> Result<(), GateError> {
        let mut gates = self.gates();
        let gate = gates.entry((scope.clone(), traffic)).or_default();
        gate.closed_until = gate.closed_until.max(Some(until));
        Ok(())
    }
}
