//! Wake-ups shorten the wait for the next look at the queue. They carry no data.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

/// Sender of wake-ups: wakes the workers of this process, because the queue may have work.
#[derive(Clone, Debug)]
pub struct WakeUp(Arc<watch::Sender<()>>);

/// Receiver of the wake-ups of this process. A wake-up that arrives while nobody waits is kept for the next wait.
#[derive(Debug)]
pub struct WakeUps(watch::Receiver<()>);

impl Default for WakeUp {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl WakeUp {
    /// Wakes all workers that listen.
    pub fn send(&self) {
        self.0.send_replace(());
    }

    /// Returns a receiver of every wake-up from now on.
    pub fn listen(&self) -> WakeUps {
        WakeUps(self.0.subscribe())
    }
}

impl WakeUps {
    /// Waits for a wake-up, unless one arrived since the last call.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // No sender is left that could send a wake-up.
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_wake_up_that_nobody_waits_for_is_heard_once_by_everybody() {
        let wake_up = WakeUp::default();
        let (mut first, mut second) = (wake_up.listen(), wake_up.listen());
        wake_up.send();
        wake_up.send();
        for wake_ups in [&mut first, &mut second] {
            assert_eq!(wake_ups.wait().now_or_never(), Some(()));
            assert_eq!(wake_ups.wait().now_or_never(), None);
        }
    }
}
