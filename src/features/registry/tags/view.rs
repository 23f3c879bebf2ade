//! Repositories with their tags, as the command line and the API show them.

use std::collections::BTreeMap;

use lockkeeper_registry::tags::TagName;
use serde_json::{Value, json};

use super::store::{ListedTag, TagRefusal, TagState, TaggedRepo};
use crate::kit::term::time;
use crate::model::{CommitSha, RepoId};
use crate::store::{Result, Store};

/// A repository whose tags are read, with the numbers of its tags.
pub(in crate::features::registry) struct CountedRepo {
    pub known: TaggedRepo,
    /// Number of tags that are done although a version of theirs was not published.
    pub unpublished: i64,
    counts: BTreeMap<TagState, i64>,
}

impl CountedRepo {
    /// Reads all repositories with the number of their tags in each state.
    pub async fn all(store: &Store) -> Result<Vec<Self>> {
        let repos = store.registry_tag_repos().await?;
        let mut counts: BTreeMap<RepoId, BTreeMap<TagState, i64>> = BTreeMap::new();
        for (repo, state, count) in store.registry_tag_counts().await? {
            counts.entry(repo).or_default().insert(state, count);
        }
        let unpublished = store.registry_tags_unpublished().await?.into_iter();
        let unpublished: BTreeMap<RepoId, i64> = unpublished.collect();
        let counted = repos.into_iter().map(|known| Self {
            unpublished: unpublished.get(&known.repo).copied().unwrap_or(0),
            counts: counts.remove(&known.repo).unwrap_or_default(),
            known,
        });
        Ok(counted.collect())
    }

    /// Returns the number of tags in a state.
    pub fn of(&self, state: TagState) -> i64 {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    pub fn json(&self) -> Value {
        let known = &self.known;
        let states = TagState::ALL.iter();
        let tags: BTreeMap<&str, i64> = states
            .map(|state| (state.as_str(), self.of(*state)))
            .collect();
        json!({
            "repo": known.repo,
            "tags": tags,
            "not_fully_published": self.unpublished,
            "looked_at": known.looked_at.map(time),
            "next_look_at": time(known.due_at),
            "failures": known.failures,
            "failure": known.failure,
        })
    }
}

/// A tag of a repository, with its versions that were not published.
pub(in crate::features::registry) struct ShownTag {
    pub tag: ListedTag,
    pub refusals: Vec<TagRefusal>,
}

impl ShownTag {
    /// Reads all tags of a repository.
    pub async fn all_of(store: &Store, repo: &RepoId) -> Result<Vec<Self>> {
        let tags = store.registry_tags_of(repo).await?;
        let mut refusals: BTreeMap<(TagName, CommitSha), Vec<TagRefusal>> = BTreeMap::new();
        for refusal in store.registry_tag_refusals(repo).await? {
            let place = (refusal.tag.clone(), refusal.commit.clone());
            refusals.entry(place).or_default().push(refusal);
        }
        let shown = tags.into_iter().map(|tag| {
            let place = (tag.tag.clone(), tag.commit_sha.clone());
            Self {
                refusals: refusals.remove(&place).unwrap_or_default(),
                tag,
            }
        });
        Ok(shown.collect())
    }

    pub fn json(&self) -> Value {
        let tag = &self.tag;
        let versions = self.refusals.iter().map(|refusal| {
            let version = &refusal.version;
            json!({
                "version": version.key.to_string(),
                "outcome": version.outcome,
                "reason": version.reason,
            })
        });
        let is_waiting = tag.state == TagState::Waiting;
        json!({
            "tag": tag.tag,
            "commit": tag.commit_sha,
            "state": tag.state,
            "reason": tag.reason,
            "failures": tag.failures,
            "next_attempt_at": is_waiting.then(|| time(tag.due_at)),
            "not_published": versions.collect::<Vec<_>>(),
        })
    }
}
