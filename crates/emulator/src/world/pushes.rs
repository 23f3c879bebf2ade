//! Updates the records when branches move: sends a push event, and updates the pull requests from or into those
//! branches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::EmulatorError;
use crate::git::{Comparison, EmulatedGit};
use crate::model::{BranchName, CommitSha, PullNumber, PullState};

use super::state::DEFAULT_BRANCH;
use super::{BranchPush, EmulatedWorld, RepoHandle, WorldChange, WorldEvent};

/// A branch that moved.
pub(super) struct MovedBranch {
    pub(super) branch: BranchName,
    pub(super) before: Option<CommitSha>,
    pub(super) after: Option<CommitSha>,
}

/// Head, base, trial merge and diff of a pull request after a ref moved.
pub(super) struct PullRefs {
    pub(super) head: CommitSha,
    pub(super) base: CommitSha,
    pub(super) merge: Option<CommitSha>,
    pub(super) diff: Comparison,
}

impl EmulatedWorld {
    /// Compares the branches with their former tips and updates the records. The gate must be held.
    pub(super) async fn after_push(
        &self,
        repo: &RepoHandle,
        before: &BTreeMap<BranchName, CommitSha>,
        pusher: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let after = repo.git.branches().await?;
        let mut events = Vec::new();
        for moved in moved(before, &after) {
            events.push(self.push_happened(repo, &moved, pusher).await?);
            for (base, number) in self.pulls_from(&repo.key, &moved.branch) {
                events.push(
                    self.head_moved(repo, (&base, number), &moved, pusher)
                        .await?,
                );
            }
            self.base_moved(repo, &moved.branch).await?;
        }
        Ok(events)
    }

    /// Serves a client's push with exclusive access to the refs. Returns the events of the branches that moved.
    pub(crate) async fn receive<T>(
        &self,
        repo: &RepoHandle,
        pusher: &str,
        receive: impl AsyncFnOnce(&EmulatedGit) -> T,
    ) -> Result<(T, Vec<WorldEvent>), EmulatorError> {
        let _gate = self.gate.lock().await;
        let before = repo.git.branches().await?;
        let answer = receive(&repo.git).await;
        let events = self.after_push(repo, &before, pusher).await?;
        Ok((answer, events))
    }

    /// Deletes a branch. Succeeds if the branch does not exist.
    pub(crate) async fn delete_branch(
        &self,
        repo: &str,
        branch: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let (repo, name) = (self.repo_handle(repo)?, format!("refs/heads/{branch}"));
        let (deleted, events) = self
            .receive(&repo, &self.developer, async |git: &EmulatedGit| {
                git.delete_ref(&name).await
            })
            .await?;
        deleted?;
        Ok(events)
    }

    /// Sets a tag to a commit.
    pub(crate) async fn tag(
        &self,
        repo: &str,
        tag: &str,
        commit: &CommitSha,
    ) -> Result<(), EmulatorError> {
        let _gate = self.gate.lock().await;
        let (repo, name) = (self.repo_handle(repo)?, format!("refs/tags/{tag}"));
        Ok(repo.git.update_ref(&name, commit).await?)
    }

    async fn push_happened(
        &self,
        repo: &RepoHandle,
        moved: &MovedBranch,
        pusher: &str,
    ) -> Result<WorldEvent, EmulatorError> {
        let (mut commits, mut head, mut forced) = (Vec::new(), None, false);
        if let Some(after) = &moved.after {
            // A new branch adds the commits that the default branch lacks. The default branch itself adds all of its
            // commits.
            let main = repo
                .git
                .resolve(&format!("refs/heads/{DEFAULT_BRANCH}"))
                .await?;
            let known = moved.before.as_ref().or(main
                .as_ref()
                .filter(|_| moved.branch.as_str() != DEFAULT_BRANCH));
            commits = repo.git.log(known, after).await?;
            // The head commit is the newest of the new commits; it is read separately if there are none.
            head = match commits.last() {
                Some(newest) => Some(newest.clone()),
                None => Some(repo.git.commit(after.as_str()).await?),
            };
            if let Some(before) = &moved.before {
                forced = !repo.git.is_ancestor(before, after).await?;
            }
        }
        let now = self.now();
        self.change(|state| {
            state.repo_mut(&repo.key)?.pushed_at = now;
            let push = BranchPush {
                branch: moved.branch.clone(),
                before: moved.before.clone(),
                after: moved.after.clone(),
                forced,
                commits,
                head,
            };
            state.repository_event(&repo.key, pusher, WorldChange::Pushed(push))
        })
    }

    fn pulls_from(&self, repo: &str, branch: &BranchName) -> Vec<(String, PullNumber)> {
        let state = self.state();
        let of_repo = |(key, base): (&String, &Arc<super::Repo>)| -> Vec<(String, PullNumber)> {
            let from = base
                .open_pulls()
                .filter(|pull| pull.comes_from(repo, branch));
            from.map(|pull| (key.clone(), pull.number)).collect()
        };
        state.repos.iter().flat_map(of_repo).collect()
    }

    /// Updates the head of a pull request, or closes the pull request if the branch was deleted.
    async fn head_moved(
        &self,
        from: &RepoHandle,
        (base, number): (&str, PullNumber),
        moved: &MovedBranch,
        by: &str,
    ) -> Result<WorldEvent, EmulatorError> {
        let (Some(before), Some(after)) = (&moved.before, &moved.after) else {
            return self.closed_in_records(base, number, by);
        };
        let branch = self.state().repo(base)?.pull(number)?.base_branch.clone();
        self.take_head(base, number, from, after).await?;
        let refs = self.try_merge(base, number, &branch, after).await?;
        let (before, after) = (before.clone(), after.clone());
        let updated = |pull| WorldChange::PullUpdated {
            pull,
            before,
            after,
        };
        self.change_pull(base, number, by, |pull| refs.record(pull), updated)
    }

    /// Updates the trial merges of the pull requests into a branch. That is no event.
    async fn base_moved(
        &self,
        repo: &RepoHandle,
        branch: &BranchName,
    ) -> Result<(), EmulatorError> {
        let into: Vec<(PullNumber, CommitSha)> = {
            let state = self.state();
            let pulls = state
                .repo(&repo.key)?
                .open_pulls()
                .filter(|pull| pull.base_branch == *branch);
            pulls.map(|pull| (pull.number, pull.head.clone())).collect()
        };
        for (number, head) in into {
            // If the base branch was deleted, the pull request stays unchanged.
            if repo
                .git
                .resolve(&format!("refs/heads/{branch}"))
                .await?
                .is_none()
            {
                return Ok(());
            }
            let refs = self.try_merge(&repo.key, number, branch, &head).await?;
            self.change(|state| {
                state
                    .repo_mut(&repo.key)?
                    .pull_mut(number)
                    .map(|pull| refs.record(pull))
            })?;
        }
        Ok(())
    }

    /// Copies the head of a pull request from its repository to a ref of the pull request.
    pub(super) async fn take_head(
        &self,
        repo: &str,
        number: PullNumber,
        from: &RepoHandle,
        head: &CommitSha,
    ) -> Result<(), EmulatorError> {
        let into = self.pull_ref(number, "head");
        Ok(self
            .repo_handle(repo)?
            .git
            .fetch(&from.git, head, &into)
            .await?)
    }

    /// Tries the merge of a copied head, for another ref of the pull request, and compares head and base.
    pub(super) async fn try_merge(
        &self,
        repo: &str,
        number: PullNumber,
        base_branch: &BranchName,
        head: &CommitSha,
    ) -> Result<PullRefs, EmulatorError> {
        let git = self.repo_handle(repo)?.git;
        let base = git.resolve(&format!("refs/heads/{base_branch}")).await?;
        let base =
            base.ok_or_else(|| EmulatorError::NoBranch(repo.to_owned(), base_branch.to_string()))?;
        let by = self.signature(&self.developer);
        let merge = git
            .merge(&base, head, &by, &format!("Merge {head} into {base}"))
            .await?;
        let trial = self.pull_ref(number, "merge");
        match &merge {
            Some(merge) => git.update_ref(&trial, merge).await?,
            None => git.delete_ref(&trial).await?,
        }
        let diff = git.compare(&base, head).await?;
        Ok(PullRefs {
            head: head.clone(),
            base,
            merge,
            diff,
        })
    }

    /// Closes a pull request without merging. The gate must be held.
    pub(super) fn closed_in_records(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<WorldEvent, EmulatorError> {
        let now = self.now();
        let close = |pull: &mut super::EmulatedPull| {
            (pull.state, pull.closed_at) = (PullState::Closed, Some(now));
        };
        self.change_pull(repo, number, by, close, WorldChange::PullClosed)
    }
}

impl PullRefs {
    pub(super) fn record(&self, pull: &mut super::EmulatedPull) {
        pull.head = self.head.clone();
        pull.base = self.base.clone();
        pull.merge_commit.clone_from(&self.merge);
        pull.diff = self.diff.clone();
    }
}

fn moved(
    before: &BTreeMap<BranchName, CommitSha>,
    after: &BTreeMap<BranchName, CommitSha>,
) -> Vec<MovedBranch> {
    let mut names: Vec<&BranchName> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let changed = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let moved = |name: &BranchName| MovedBranch {
        branch: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    changed.map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_that_came_went_or_moved_are_told_apart_from_those_that_stayed() {
        let sha = |c: &str| CommitSha::new(&c.repeat(40)).unwrap();
        let branches = |list: &[(&str, &str)]| -> BTreeMap<_, _> {
            list.iter()
                .map(|(name, c)| (BranchName::new(name).unwrap(), sha(c)))
                .collect()
        };
        let before = branches(&[("gone", "a"), ("main", "a"), ("moved", "a")]);
        let after = branches(&[("main", "a"), ("moved", "b"), ("new", "c")]);
        let seen: Vec<_> = moved(&before, &after)
            .iter()
            .map(|m| (m.branch.to_string(), m.before.is_some(), m.after.is_some()))
            .collect();
        let expected = [
            ("gone", true, false),
            ("moved", true, true),
            ("new", false, true),
        ];
        assert_eq!(
            seen,
            expected.map(|(name, was, is)| (name.to_owned(), was, is))
        );
    }
}
