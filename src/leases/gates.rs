//! Rate-limit gates in front of a forge, shared by all servers on one database.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::forges::{GateError, RateGates};
use crate::model::{RateScope, Traffic};
use crate::store::Store;

/// Rate-limit gates that are stored in the database.
pub struct SharedGates(Store);

impl SharedGates {
    /// Returns the gates of all servers on this database.
    pub fn new(store: Store) -> Self {
        Self(store)
    }
}

#[async_trait]
impl RateGates for SharedGates {
    async fn closed(
        &self,
        scope: &RateScope,
        traffic: Traffic,
    ) -> Result<Option<DateTime<Utc>>, GateError> {
        Ok(self.0.rate_gate_closed(scope, traffic).await?)
    }

    async fn turn(&self, scope: &RateScope, spacing: Duration) -> Result<DateTime<Utc>, GateError> {
        Ok(self.0.rate_gate_turn(scope, spacing).await?)
    }

    async fn close(
        &self,
        scope: &RateScope,
        traffic: Traffic,
        until: DateTime<Utc>,
    ) -> Result<(), GateError> {
        Ok(self.0.rate_gate_close(scope, traffic, until).await?)
    }
}
