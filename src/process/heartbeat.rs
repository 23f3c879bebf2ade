//! Tracks the right to let programs run, as far as this process can know it.
//!
//! A run may go on only while the lease of its work is renewed. A paused server cannot stop anything. A server
//! without access to the database does not learn that another server took over its work. So the server passes every
//! renewal on to the supervisors of its runs, as a byte on the lifeline. A supervisor that gets none for the length of
//! a lease ends its program. Times come from the machine's monotonic clock; no other clock is involved.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Renewals of a server, visible to all its runs.
#[derive(Clone, Debug)]
pub struct LeaseHeartbeat {
    /// Duration of a renewal. `None` means that no other server could take the work over, so nothing needs renewal.
    lasts: Option<Duration>,
    beats: watch::Sender<Option<Instant>>,
}

/// Moment before a renewal was requested.
#[derive(Clone, Copy, Debug)]
pub struct RenewalTime(Instant);

impl LeaseHeartbeat {
    /// Creates the heartbeat for work that another server can take over after `lasts` without a renewal.
    pub fn every(lasts: Duration) -> Self {
        Self {
            lasts: Some(lasts),
            beats: watch::Sender::new(None),
        }
    }

    /// Creates the heartbeat for work that no other server can take over.
    pub fn unneeded() -> Self {
        Self {
            lasts: None,
            beats: watch::Sender::new(None),
        }
    }

    /// Records the moment before a renewal is requested.
    pub fn prepare(&self) -> RenewalTime {
        RenewalTime(Instant::now())
    }

    /// Records that the renewal was granted.
    pub fn beat(&self, beat: RenewalTime) {
        self.beats.send_replace(Some(beat.0));
    }

    /// Returns the remaining time of the last renewal, or `None` if it has expired. Before the first renewal nothing
    /// expires.
    pub(super) fn left(&self) -> Option<Duration> {
        match (self.lasts, *self.beats.borrow()) {
            (Some(lasts), Some(beat)) => lasts
                .checked_sub(beat.elapsed())
                .filter(|left| !left.is_zero()),
            (Some(lasts), None) => Some(lasts),
            // The value is longer than any run, and short enough for a timer.
            (None, _) => Some(Duration::from_hours(24 * 365)),
        }
    }

    /// Returns the number of seconds left, which is sent to a supervisor. The number is rounded up, so that a working
    /// server stops a run before its supervisor does. `None` means that the supervisor need not wait for renewals.
    pub(super) fn seconds_left(&self) -> Option<u8> {
        self.lasts.and(*self.beats.borrow())?;
        Some(self.left().map_or(0, |left| {
            u8::try_from(left.as_secs() + 1).unwrap_or(u8::MAX)
        }))
    }

    /// Waits until the last renewal has expired.
    pub async fn ran_out(&self) {
        let mut beats = self.listen();
        while let Some(left) = self.left() {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = beats.changed() => {}
            }
        }
    }

    /// Waits for a renewal that has not expired.
    pub async fn came_back(&self) {
        let mut beats = self.listen();
        while !self.is_alive() && beats.changed().await.is_ok() {}
    }

    /// Returns true if the last renewal has not expired.
    pub fn is_alive(&self) -> bool {
        self.left().is_some()
    }

    /// Returns a receiver of renewals.
    pub(super) fn listen(&self) -> watch::Receiver<Option<Instant>> {
        self.beats.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_runs_out_and_the_next_one_counts_anew() {
        let heartbeat = LeaseHeartbeat::every(Duration::from_secs(45));
        assert!(heartbeat.is_alive(), "nothing was renewed yet");
        let old = Instant::now()
            .checked_sub(Duration::from_secs(46))
            .expect("the machine is up for a minute");
        heartbeat.beat(RenewalTime(old));
        assert!(!heartbeat.is_alive());
        heartbeat.beat(heartbeat.prepare());
        assert!(heartbeat.is_alive());
        LeaseHeartbeat::unneeded().beat(RenewalTime(old));
        assert!(LeaseHeartbeat::unneeded().is_alive());
    }
}
