//! Defines the right to write to a forge, which is checked right before the request.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;

/// Right of a job to write to a forge. Fetching a token or waiting for a turn may take minutes, and another server
/// may have the job by then.
#[async_trait]
pub trait Permit: Send + Sync + 'static {
    /// Checks that the job still has the right. Called immediately before the request leaves.
    async fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Permit that accompanies a request.
pub type WritePermit = Arc<dyn Permit>;
