//! Records the panics of this process. Code that catches a panic continues with its next piece of work, so without
//! this record only the log would show the panic.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};

use crate::clock::Clock;

/// Maximum number of panics that are kept. The oldest ones are dropped first.
const KEPT: usize = 100;

/// A panic of this process. Its message may contain anything, so it is only in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    pub at: DateTime<Utc>,
    /// Place in the source, such as `src/queue/worker.rs:120`.
    pub place: String,
}

/// Panics of a process since it started.
pub struct Panics {
    clock: Arc<dyn Clock>,
    seen: Mutex<Vec<Panic>>,
}

impl Panics {
    /// Creates an empty record. No panic is recorded before [`Self::watch`].
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            seen: Mutex::default(),
        })
    }

    /// Records every panic of the process from now on, before the previous panic hook runs.
    pub fn watch(self: &Arc<Self>) {
        let (panics, before) = (Arc::clone(self), take_hook());
        set_hook(Box::new(move |info| {
            panics.note(&place(info));
            before(info);
        }));
    }

    /// Records a panic with its place in the source.
    pub fn note(&self, place: &str) {
        let panic = Panic {
            at: self.clock.now(),
            place: place.to_owned(),
        };
        // A panic in this function would end the process.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() == KEPT {
            seen.remove(0);
        }
        seen.push(panic);
    }

    /// Returns the panics since a time, the oldest first.
    pub fn since(&self, time: DateTime<Utc>) -> Vec<Panic> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .filter(|panic| panic.at >= time)
            .cloned()
            .collect()
    }
}

fn place(info: &PanicHookInfo<'_>) -> String {
    info.location().map_or_else(
        || "an unknown location".to_owned(),
        |at| format!("{}:{}", at.file(), at.line()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    /// The assertion tolerates more panics, because other tests of the process may panic, too.
    #[test]
    fn a_panic_that_is_caught_is_noticed() {
        let panics = Panics::new(Arc::new(SystemClock));
        panics.watch();
        let line = line!() + 1;
        let caught = std::panic::catch_unwind(|| panic!("on purpose"));
        assert!(caught.is_err());
        let place = format!("{}:{line}", file!());
        assert!(
            panics
                .since(DateTime::UNIX_EPOCH)
                .iter()
                .any(|panic| panic.place == place)
        );
        assert_eq!(
            panics.since(SystemClock.now() + chrono::TimeDelta::days(1)),
            []
        );
    }
}
