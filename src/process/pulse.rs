//! The right to let programs run, as far as this process can know it by itself.
//!
//! A run may go on only while the lease of its work is renewed. A server that is paused cannot stop anything, and one
//! that is cut off from the database does not learn that its work was taken over. So the server hands every renewal on
//! to the supervisors of its runs, a byte on the leash; a supervisor that gets none for as long as a lease lasts ends
//! its program. Time is that of the machine's monotonic clock: nobody else's clock is involved.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Renewals of a server, seen by everything that runs for it.
#[derive(Clone, Debug)]
pub struct Pulse {
    /// How long a renewal lasts; `None`: nobody could take the work over, so nothing has to be renewed.
    lasts: Option<Duration>,
    beats: watch::Sender<Option<Instant>>,
}

/// The moment before a renewal was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Beat(Instant);

impl Pulse {
    /// Work that can be taken over when it is not renewed for so long.
    pub fn every(lasts: Duration) -> Self {
        Self {
            lasts: Some(lasts),
            beats: watch::Sender::new(None),
        }
    }

    /// Work that nobody else could take over.
    pub fn unneeded() -> Self {
        Self {
            lasts: None,
            beats: watch::Sender::new(None),
        }
    }

    /// A renewal is going to be asked for.
    pub fn prepare(&self) -> Beat {
        Beat(Instant::now())
    }

    /// It was granted.
    pub fn beat(&self, beat: Beat) {
        self.beats.send_replace(Some(beat.0));
    }

    /// How long the last renewal lasts from now on; `None`: it has run out. Before the first one nothing runs out.
    pub(super) fn left(&self) -> Option<Duration> {
        match (self.lasts, *self.beats.borrow()) {
            (Some(lasts), Some(beat)) => lasts
                .checked_sub(beat.elapsed())
                .filter(|left| !left.is_zero()),
            (Some(lasts), None) => Some(lasts),
            // Longer than anything runs, and short enough for a timer.
            (None, _) => Some(Duration::from_hours(24 * 365)),
        }
    }

    /// What a supervisor is told: so many seconds are left, rounded up, so that a server which is able to stop a run is
    /// first to do so. `None`: it need not wait for renewals.
    pub(super) fn seconds_left(&self) -> Option<u8> {
        self.lasts.and(*self.beats.borrow())?;
        Some(self.left().map_or(0, |left| {
            u8::try_from(left.as_secs() + 1).unwrap_or(u8::MAX)
        }))
    }

    /// Waits until the last renewal has run out.
    pub async fn ran_out(&self) {
        let mut beats = self.listen();
        while let Some(left) = self.left() {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = beats.changed() => {}
            }
        }
    }

    /// Waits until there is a renewal that has not run out.
    pub async fn came_back(&self) {
        let mut beats = self.listen();
        while !self.is_alive() && beats.changed().await.is_ok() {}
    }

    /// Whether the last renewal has not run out.
    pub fn is_alive(&self) -> bool {
        self.left().is_some()
    }

    /// Hears of renewals.
    pub(super) fn listen(&self) -> watch::Receiver<Option<Instant>> {
        self.beats.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_runs_out_and_the_next_one_counts_anew() {
        let pulse = Pulse::every(Duration::from_secs(45));
        assert!(pulse.is_alive(), "nothing was renewed yet");
        let old = Instant::now()
            .checked_sub(Duration::from_secs(46))
            .expect("the machine is up for a minute");
        pulse.beat(Beat(old));
        assert!(!pulse.is_alive());
        pulse.beat(pulse.prepare());
        assert!(pulse.is_alive());
        Pulse::unneeded().beat(Beat(old));
        assert!(Pulse::unneeded().is_alive());
    }
}
