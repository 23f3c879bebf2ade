//! Caches a forge's answers about people: their teams, and their right to write.
//!
//! One comment leads to the same question several times, and a person often comments several times in a row. A
//! refusal of the forge to answer is never cached, so no decision depends on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use super::{Forge, ForgeError};
use crate::model::{HostName, RepoId};

/// Lifetime of an answer. A person who was just added to a team, or removed from it, waits no longer than this.
pub const KEPT: TimeDelta = TimeDelta::seconds(30);
/// Maximum number of cached answers of a kind; asking again costs a request.
const MOST: usize = 10_000;

/// Cached answers of forges about people.
#[derive(Debug, Default)]
pub struct Memberships {
    members: Answers<(OwnerKey, String, String), bool>,
    lists: Answers<OwnerKey, Vec<String>>,
    writers: Answers<(RepoId, String), bool>,
    public: Answers<RepoId, bool>,
}

/// Owner of a repository: teams belong to the owner.
type OwnerKey = (HostName, String);

fn owner(repo: &RepoId) -> OwnerKey {
    (repo.host().clone(), repo.owner().to_owned())
}

impl Memberships {
    /// Returns the cached result of [`Forge::team_has`].
    pub async fn has(
        &self,
        forge: &dyn Forge,
        now: DateTime<Utc>,
        repo: &RepoId,
        team: &str,
        login: &str,
    ) -> Result<bool, ForgeError> {
        let key = (owner(repo), team.to_lowercase(), login.to_lowercase());
        if let Some(known) = self.members.get(&key, now) {
            return Ok(known);
        }
        let answer = forge.team_has(repo, team, login).await?;
        self.members.put(key, answer, now);
        Ok(answer)
    }

    /// Returns the cached result of [`Forge::team_list`].
    pub async fn list(
        &self,
        forge: &dyn Forge,
        now: DateTime<Utc>,
        repo: &RepoId,
        most: usize,
    ) -> Result<Vec<String>, ForgeError> {
        let key = owner(repo);
        if let Some(known) = self.lists.get(&key, now) {
            return Ok(known);
        }
        let answer = forge.team_list(repo, most).await?;
        self.lists.put(key, answer.clone(), now);
        Ok(answer)
    }
}

impl Memberships {
    /// Returns the cached result of [`Forge::may_write`]. With `fresh` it always asks the forge.
    pub async fn may_write(
        &self,
        forge: &dyn Forge,
        now: DateTime<Utc>,
        repo: &RepoId,
        login: &str,
        fresh: bool,
    ) -> Result<bool, ForgeError> {
        let key = (repo.clone(), login.to_lowercase());
        if let Some(known) = self.writers.get(&key, now).filter(|_| !fresh) {
            return Ok(known);
        }
        let answer = forge.may_write(repo, login).await?;
        self.writers.put(key, answer, now);
        Ok(answer)
    }

    /// Returns the cached result of [`Forge::is_public`].
    pub async fn is_public(
        &self,
        forge: &dyn Forge,
        now: DateTime<Utc>,
        repo: &RepoId,
    ) -> Result<bool, ForgeError> {
        if let Some(known) = self.public.get(repo, now) {
            return Ok(known);
        }
        let answer = forge.is_public(repo).await?;
        self.public.put(repo.clone(), answer, now);
        Ok(answer)
    }
}

/// Answers, each with the time when it expires.
#[derive(Debug)]
struct Answers<K, V>(Mutex<HashMap<K, (V, DateTime<Utc>)>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> Answers<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, (V, DateTime<Utc>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &K, now: DateTime<Utc>) -> Option<V> {
        self.lock()
            .get(key)
            .filter(|(_, until)| now < *until)
            .map(|(answer, _)| answer.clone())
    }

    fn put(&self, key: K, answer: V, now: DateTime<Utc>) {
        let mut answers = self.lock();
        if answers.len() >= MOST {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, (answer, now + KEPT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_for_a_short_time_only() {
        let (answers, now) = (Answers::default(), DateTime::UNIX_EPOCH);
        answers.put("ops", true, now);
        assert_eq!(
            answers.get(&"ops", now + KEPT - TimeDelta::microseconds(1)),
            Some(true)
        );
        assert_eq!(answers.get(&"ops", now + KEPT), None);
        assert_eq!(answers.get(&"devs", now), None);
    }

    #[test]
    fn no_more_answers_are_kept_than_there_is_room_for() {
        let (answers, now) = (Answers::default(), DateTime::UNIX_EPOCH);
        (0..MOST * 2).for_each(|n| answers.put(n, true, now));
        assert!(answers.lock().len() <= MOST);
        assert_eq!(answers.get(&(MOST * 2 - 1), now), Some(true));
    }
}
