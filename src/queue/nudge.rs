//! A nudge shortens the wait for the next look at the queue; it carries no data.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

/// Tells the workers of this process that there may be something to do.
#[derive(Clone, Debug)]
pub struct Nudge(Arc<watch::Sender<()>>);

/// Hears the nudges of this process. One that comes while nobody waits is heard by the next who does.
#[derive(Debug)]
pub struct Nudges(watch::Receiver<()>);

impl Default for Nudge {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl Nudge {
    /// There may be something to do.
    pub fn nudge(&self) {
        self.0.send_replace(());
    }

    /// Hears every nudge from now on.
    pub fn listen(&self) -> Nudges {
        Nudges(self.0.subscribe())
    }
}

impl Nudges {
    /// Waits for a nudge, unless there was one since the last.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left who could nudge.
            pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_nudge_that_nobody_waits_for_is_heard_once_by_everybody() {
        let nudge = Nudge::default();
        let (mut first, mut second) = (nudge.listen(), nudge.listen());
        nudge.nudge();
        nudge.nudge();
        for nudges in [&mut first, &mut second] {
            assert_eq!(nudges.heard().now_or_never(), Some(()));
            assert_eq!(nudges.heard().now_or_never(), None);
        }
    }
}
