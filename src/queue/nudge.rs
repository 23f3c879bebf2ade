//! Nudges shorten the wait for the next look at the queue. They carry no data.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

/// Sender of nudges: wakes the workers of this process, because the queue may have work.
#[derive(Clone, Debug)]
pub struct WakeUp(Arc<watch::Sender<()>>);

/// Receiver of the nudges of this process. A nudge that arrives while nobody waits is kept for the next wait.
#[derive(Debug)]
pub struct WakeUps(watch::Receiver<()>);

impl Default for WakeUp {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl WakeUp {
    /// Wakes all workers that listen.
    pub fn nudge(&self) {
        self.0.send_replace(());
    }

    /// Returns a receiver of every nudge from now on.
    pub fn listen(&self) -> WakeUps {
        WakeUps(self.0.subscribe())
    }
}

impl WakeUps {
    /// Waits for a nudge, unless one arrived since the last call.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            // No sender is left that could nudge.
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_nudge_that_nobody_waits_for_is_heard_once_by_everybody() {
        let nudge = WakeUp::default();
        let (mut first, mut second) = (nudge.listen(), nudge.listen());
        nudge.nudge();
        nudge.nudge();
        for nudges in [&mut first, &mut second] {
            assert_eq!(nudges.heard().now_or_never(), Some(()));
            assert_eq!(nudges.heard().now_or_never(), None);
        }
    }
}
