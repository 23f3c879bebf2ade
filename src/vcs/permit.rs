//! The right to write to a forge, looked at when everything else is ready.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;

/// The right of a piece of work to write to a forge. To fetch a token or to wait for a turn may take minutes, and
/// somebody else may have the work by then.
#[async_trait]
pub trait Permit: Send + Sync + 'static {
    /// Looks whether the work still has the right. Called immediately before the request leaves.
    async fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// A permit that goes with a request.
pub type WritePermit = Arc<dyn Permit>;
