//! Lists of the versions that repositories have, for modules whose lists clients request.
//!
//! - *One reading*: any number of requests for the list of a module start one, in a task of its own. It goes on when its
//!   clients leave, so its outcome is kept also if the host answers late, or does not answer at all.
//! - *Kept*: the outcome counts for [`LIST_TIME`], also a failure. After a failure of the network, the list from before stays.
//! - *Nobody waits long* (R8): a client that gets versions in any case waits for at most
//!   [`MissLimits::list_wait`](crate::config::server::MissLimits), counted from the beginning of the reading.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_registry::names::GoPath;
use lockkeeper_registry::versions::GoVersion;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::kit::recent::RecentMap;

/// Time for which a list, or the failure to read it, counts.
const LIST_TIME: Duration = Duration::from_mins(1);
/// Rough limit in bytes of the lists that are kept. An eighth of it has all versions that a repository can have.
const LIST_BYTES: usize = 96 << 20;
/// Rough size of a version in a list, and of the rest of a list.
const VERSION_SIZE: usize = 100;
const SMALL_SIZE: usize = 500;

/// Versions of a module at its host. `None`: nobody could tell them.
pub(super) type ListedVersions = Option<Arc<Vec<GoVersion>>>;

/// Lists in memory, and those that are read at the moment.
pub(super) struct VersionLists {
    kept: Mutex<RecentMap<GoPath, (Instant, ListedVersions)>>,
    running: Mutex<HashMap<GoPath, RunningList>>,
}

/// A reading of a list.
#[derive(Clone)]
pub(super) struct RunningList {
    /// Time of its beginning.
    pub begun: Instant,
    /// Outcome, once it has ended.
    pub end: watch::Receiver<Option<ListedVersions>>,
}

/// A list that was read before.
pub(super) enum KeptList {
    /// The list is not older than [`LIST_TIME`], and counts.
    New(ListedVersions),
    /// The list is too old, or there is none.
    Old(ListedVersions),
}

impl VersionLists {
    pub fn new() -> Self {
        Self {
            kept: Mutex::new(RecentMap::new(LIST_BYTES)),
            running: Mutex::default(),
        }
    }

    /// Returns the list of a module that was read before.
    pub fn kept(&self, path: &GoPath) -> KeptList {
        let kept = lock(&self.kept).get(path);
        match kept {
            Some((at, versions)) if at.elapsed() < LIST_TIME => KeptList::New(versions),
            Some((_, versions)) => KeptList::Old(versions),
            None => KeptList::Old(None),
        }
    }

    /// Keeps a list that was read now.
    pub fn keep(&self, path: &GoPath, versions: ListedVersions) {
        let count = versions.as_ref().map_or(0, |versions| versions.len());
        let entry = (Instant::now(), versions);
        lock(&self.kept).insert(path.clone(), entry, SMALL_SIZE + VERSION_SIZE * count);
    }

    /// Returns the readings of lists.
    pub fn running(&self) -> MutexGuard<'_, HashMap<GoPath, RunningList>> {
        lock(&self.running)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
