//! Finds locks by the names that people give them.

use super::locks::{LockRow, OF_REPO};
use super::{Result, Store, on_pool};
use crate::model::{Lock, LockName, RepoId};

/// Selects the repositories with locks. It jumps from one to the next in the index, however many locks each of them
/// has.
const REPOS: &str = "WITH RECURSIVE each (repo) AS (SELECT MIN(repo) FROM locks UNION ALL \
     SELECT (SELECT MIN(l.repo) FROM locks l WHERE l.repo > each.repo) FROM each WHERE each.repo IS NOT NULL) \
     SELECT repo FROM each WHERE repo IS NOT NULL";

impl Store {
    /// Lists the held locks that a name matches, on any forge. Reads the repositories that the name can begin with,
    /// which are few, and then their locks.
    pub async fn lock_list_named(&self, name: &LockName) -> Result<Vec<Lock>> {
        let mut repos = on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(REPOS).fetch_all(db))?;
        repos.retain(|repo| name.may_be_of(repo));
        repos.sort();
        let mut found = Vec::new();
        for repo in &repos {
            let rows = on_pool!(self, db => sqlx::query_as::<_, LockRow>(OF_REPO).bind(repo).fetch_all(db))?;
            found.extend(
                rows.into_iter()
                    .map(Lock::from)
                    .filter(|lock| name.fit(lock).is_some()),
            );
        }
        Ok(found)
    }
}
