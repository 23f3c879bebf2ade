//! Which packages of the store are needed right now. All that makes, links or removes packages happens while this is
//! locked, so that nothing is removed between a look at it and a link to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::store::PackagePath;

/// The packages that sessions of this process have links to, and when links to others were made.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// How many sessions have a link to it.
    held: HashMap<PackagePath, usize>,
    /// During which look-around, by its number, somebody was led to it last.
    led_to: HashMap<PackagePath, u64>,
    /// Number of the newest look-around.
    look: u64,
}

/// Shared by all that work on one store.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Uses>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uses {
    /// Somebody has a link to it for a while; [`Held`] gives it back.
    pub fn hold(&mut self, package: &PackagePath) {
        *self.held.entry(package.clone()).or_default() += 1;
    }

    /// A project gets a link to it, which a look-around that began before may have missed.
    pub fn lead_to(&mut self, package: &PackagePath) {
        self.led_to.insert(package.clone(), self.look);
    }

    /// Begins a look at who links to what.
    pub fn look_around(&mut self) -> u64 {
        self.look += 1;
        self.look
    }

    /// Whether a session has a link to it, or a project got one since a look-around began.
    pub fn is_needed(&self, package: &PackagePath, since: u64) -> bool {
        self.held.contains_key(package)
            || self.led_to.get(package).is_some_and(|look| *look >= since)
    }

    fn give_back(&mut self, package: &PackagePath) {
        if let Some(count) = self.held.get_mut(package) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(package);
            }
        }
    }
}

/// The packages that one session has links to, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub uses: Shared,
    pub packages: Vec<PackagePath>,
}

impl Held {
    /// One more package, which need not be there yet.
    pub fn add(&mut self, package: &PackagePath) {
        self.uses.lock().hold(package);
        self.packages.push(package.clone());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut uses = self.uses.lock();
        self.packages
            .iter()
            .for_each(|package| uses.give_back(package));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_needed_while_a_session_has_it_and_when_a_project_got_it_meanwhile() {
        let (shared, package) = (
            Shared::default(),
            PackagePath::of("a/b/c/1.0.0/linux_amd64"),
        );
        let look = shared.lock().look_around();
        assert!(!shared.lock().is_needed(&package, look));
        let held = |packages| Held {
            uses: shared.clone(),
            packages,
        };
        shared.lock().hold(&package);
        shared.lock().hold(&package);
        let (first, second) = (held(vec![package.clone()]), held(vec![package.clone()]));
        drop(first);
        assert!(shared.lock().is_needed(&package, look));
        drop(second);
        assert!(!shared.lock().is_needed(&package, look));
        shared.lock().lead_to(&package);
        assert!(shared.lock().is_needed(&package, look));
        let next = shared.lock().look_around();
        assert!(
            !shared.lock().is_needed(&package, next),
            "the link is seen by now"
        );
    }
}
