//! Tracks the packages of the store that are in use. Packages are created, linked and removed only while [`LinkUses`] is
//! locked, so that nothing is removed between a check and a new link.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::store::PackagePath;

/// Packages that sessions of this process have links to, and the searches during which projects got links.
#[derive(Debug, Default)]
pub(super) struct LinkUses {
    /// Number of sessions with a link to the package.
    held: HashMap<PackagePath, usize>,
    /// Number of the search during which a project last got a link to the package.
    led_to: HashMap<PackagePath, u64>,
    /// Number of the newest search for links.
    look: u64,
}

/// The [`LinkUses`] of one store, shared by all of its users.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedUses(Arc<Mutex<LinkUses>>);

impl SharedUses {
    pub fn lock(&self) -> MutexGuard<'_, LinkUses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkUses {
    /// Counts a session's link to the package, until [`LinkedPackages`] is dropped.
    pub fn hold(&mut self, package: &PackagePath) {
        *self.held.entry(package.clone()).or_default() += 1;
    }

    /// Notes that a project gets a link to the package, which a search that began before may have missed.
    pub fn lead_to(&mut self, package: &PackagePath) {
        self.led_to.insert(package.clone(), self.look);
    }

    /// Begins a search for links and returns its number.
    pub fn begin_scan(&mut self) -> u64 {
        self.look += 1;
        self.look
    }

    /// Returns true if a session has a link to the package, or a project got one since the search began.
    pub fn is_needed(&self, package: &PackagePath, since: u64) -> bool {
        self.held.contains_key(package)
            || self.led_to.get(package).is_some_and(|look| *look >= since)
    }

    fn release(&mut self, package: &PackagePath) {
        if let Some(count) = self.held.get_mut(package) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(package);
            }
        }
    }
}

/// Packages that one session has links to. The links count until this is dropped.
#[derive(Debug)]
pub(super) struct LinkedPackages {
    pub uses: SharedUses,
    pub packages: Vec<PackagePath>,
}

impl LinkedPackages {
    /// Adds a package, even one that does not exist yet.
    pub fn add(&mut self, package: &PackagePath) {
        self.uses.lock().hold(package);
        self.packages.push(package.clone());
    }
}

impl Drop for LinkedPackages {
    fn drop(&mut self) {
        let mut uses = self.uses.lock();
        self.packages
            .iter()
            .for_each(|package| uses.release(package));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_needed_while_a_session_has_it_and_when_a_project_got_it_meanwhile() {
        let (shared, package) = (
            SharedUses::default(),
            PackagePath::of("a/b/c/1.0.0/linux_amd64"),
        );
        let look = shared.lock().begin_scan();
        assert!(!shared.lock().is_needed(&package, look));
        let held = |packages| LinkedPackages {
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
        let next = shared.lock().begin_scan();
        assert!(
            !shared.lock().is_needed(&package, next),
            "the link is seen by now"
        );
    }
}
