//! A nudge shortens the wait for the next tick; it carries no data and may be lost.

use std::sync::Arc;

use tokio::sync::Notify;

/// Tells the workers of this process that there may be something to do.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// There may be something to do.
    pub fn nudge(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }

    /// Waits for the next nudge.
    pub async fn nudged(&self) {
        self.0.notified().await;
    }
}
