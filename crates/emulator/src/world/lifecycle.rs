//! Implements the life of a pull request: open, close, reopen, merge, mark as ready, change its base.

use std::sync::Arc;

use crate::EmulatorError;
use crate::model::{BranchName, CommitSha, MergeMethod, PullNumber, PullState};

use super::pushes::PullRefs;
use super::{
    BaseChange, EmulatedPull, EmulatedWorld, MergeRefusal, NewPull, PullSnapshot, RepoHandle,
    WorldChange, WorldEvent, WorldState,
};

/// Reason that a pull request is not merged.
#[derive(Debug)]
pub(crate) enum MergeError {
    /// A rule is not met.
    NotAllowed(MergeRefusal),
    /// The head of the pull request is not the requested one.
    HeadModified,
    /// The world refused the merge.
    Other(EmulatorError),
}

impl From<EmulatorError> for MergeError {
    fn from(error: EmulatorError) -> Self {
        Self::Other(error)
    }
}

impl EmulatedWorld {
    /// Opens a pull request.
    pub(crate) async fn open_pull(
        &self,
        name: &str,
        new: &NewPull,
    ) -> Result<(PullNumber, Vec<WorldEvent>), EmulatorError> {
        let _gate = self.gate.lock().await;
        let repo = self.repo_handle(name)?;
        let from = self.repo_handle(new.head_repo.as_deref().unwrap_or(name))?;
        let (branch, base) = (BranchName::new(&new.branch)?, BranchName::new(&new.base)?);
        let head = from.git.resolve(&format!("refs/heads/{branch}")).await?;
        let head =
            head.ok_or_else(|| EmulatorError::NoBranch(from.key.clone(), branch.to_string()))?;
        let number = self.number_for(&repo, &from, &branch, &base)?;
        self.take_head(&repo.key, number, &from, &head).await?;
        let refs = self.try_merge(&repo.key, number, &base, &head).await?;
        if refs.diff.commits == 0 {
            return Err(EmulatorError::Refused(format!(
                "no commits between {base} and {branch}"
            )));
        }
        let event = self.opened(&repo.key, number, new, &from.key, (branch, base), refs)?;
        Ok((number, vec![event]))
    }

    fn number_for(
        &self,
        repo: &RepoHandle,
        from: &RepoHandle,
        branch: &BranchName,
        base: &BranchName,
    ) -> Result<PullNumber, EmulatorError> {
        let state = self.state();
        let repo = state.repo(&repo.key)?;
        let same =
            |pull: &EmulatedPull| pull.comes_from(&from.key, branch) && pull.base_branch == *base;
        match repo.open_pulls().find(|pull| same(pull)) {
            Some(pull) => Err(EmulatorError::Refused(format!(
                "#{} from {branch} into {base} is already open",
                pull.number
            ))),
            None => Ok(repo.next_number()),
        }
    }

    fn opened(
        &self,
        repo: &str,
        number: PullNumber,
        new: &NewPull,
        head_repo: &str,
        (head_branch, base_branch): (BranchName, BranchName),
        refs: PullRefs,
    ) -> Result<WorldEvent, EmulatorError> {
        let now = self.now();
        self.change(|state| {
            let id = state.next_id();
            let pull = EmulatedPull {
                id,
                number,
                title: new.title.clone(),
                body: new.body.clone(),
                author: new.author.clone(),
                state: PullState::Open,
                draft: new.draft,
                labels: new.labels.clone(),
                head_repo: head_repo.to_owned(),
                head_branch,
                head: refs.head,
                base_branch,
                base: refs.base,
                merge_commit: refs.merge,
                merged_by: None,
                created_at: now,
                updated_at: now,
                closed_at: None,
                diff: refs.diff,
                comments: Vec::new(),
                reviews: Vec::new(),
                base_changes: Vec::new(),
            };
            state.repo_mut(repo)?.pulls.insert(number, Arc::new(pull));
            state.pull_event(repo, number, &new.author, WorldChange::PullOpened)
        })
    }

    /// Closes a pull request without merging.
    pub(crate) async fn close(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let _gate = self.gate.lock().await;
        self.must_be(repo, number, PullState::Open)?;
        Ok(vec![self.closed_in_records(repo, number, by)?])
    }

    /// Reopens a closed pull request, with the commits that were pushed meanwhile.
    pub(crate) async fn reopen(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let _gate = self.gate.lock().await;
        let pull = self.must_be(repo, number, PullState::Closed)?;
        let from = self.repo_handle(&pull.head_repo)?;
        let head = from
            .git
            .resolve(&format!("refs/heads/{}", pull.head_branch))
            .await?;
        let head = head.ok_or_else(|| {
            EmulatorError::NoBranch(from.key.clone(), pull.head_branch.to_string())
        })?;
        self.take_head(repo, number, &from, &head).await?;
        let refs = self
            .try_merge(repo, number, &pull.base_branch, &head)
            .await?;
        let reopen = |pull: &mut EmulatedPull| {
            refs.record(pull);
            (pull.state, pull.closed_at) = (PullState::Open, None);
        };
        let event = self.change_pull(repo, number, by, reopen, WorldChange::PullReopened)?;
        Ok(vec![event])
    }

    /// Merges with a merge commit on the base branch, regardless of the rules of the branch, and returns the merge
    /// commit.
    pub(crate) async fn merge(
        &self,
        name: &str,
        number: PullNumber,
        by: &str,
    ) -> Result<(CommitSha, Vec<WorldEvent>), EmulatorError> {
        let _gate = self.gate.lock().await;
        let pull = self.must_be(name, number, PullState::Open)?;
        if pull.draft {
            return Err(EmulatorError::Refused(format!("#{number} is a draft")));
        }
        self.join(name, &pull, by, MergeMethod::Merge).await
    }

    /// Merges by a method if all rules are met, and if the head is the expected one. Returns the new tip of the base
    /// branch.
    pub(crate) async fn merge_if_allowed(
        &self,
        name: &str,
        number: PullNumber,
        by: &str,
        method: MergeMethod,
        expected_head: Option<&CommitSha>,
    ) -> Result<(CommitSha, Vec<WorldEvent>), MergeError> {
        let _gate = self.gate.lock().await;
        let (pull, refusal) = {
            let state = self.state();
            let repo = state.repo(name)?;
            let pull = repo.pull(number)?;
            (Arc::clone(pull), repo.refusal_to_merge(pull, method))
        };
        if let Some(refusal) = refusal {
            return Err(MergeError::NotAllowed(refusal));
        }
        if expected_head.is_some_and(|sha| *sha != pull.head) {
            return Err(MergeError::HeadModified);
        }
        match self.join(name, &pull, by, method).await {
            Err(EmulatorError::Conflict(..)) => {
                Err(MergeError::NotAllowed(MergeRefusal::NotMergeable))
            }
            joined => Ok(joined?),
        }
    }

    /// Adds the commits of a pull request to its base branch. A rebase creates a single commit here.
    async fn join(
        &self,
        name: &str,
        pull: &EmulatedPull,
        by: &str,
        method: MergeMethod,
    ) -> Result<(CommitSha, Vec<WorldEvent>), EmulatorError> {
        let number = pull.number;
        let repo = self.repo_handle(name)?;
        let before = repo.git.branches().await?;
        let tip = before.get(&pull.base_branch);
        let tip = tip.ok_or_else(|| {
            EmulatorError::NoBranch(name.to_owned(), pull.base_branch.to_string())
        })?;
        let (by_whom, title) = (self.signature(by), format!("{} (#{number})", pull.title));
        let merged = match method {
            MergeMethod::Merge => {
                repo.git
                    .merge(tip, &pull.head, &by_whom, &merge_message(pull))
                    .await?
            }
            MergeMethod::Rebase | MergeMethod::Squash => {
                repo.git.squash(tip, &pull.head, &by_whom, &title).await?
            }
        };
        let merged = merged.ok_or_else(|| EmulatorError::Conflict(name.to_owned(), number))?;
        repo.git
            .update_ref(&format!("refs/heads/{}", pull.base_branch), &merged)
            .await?;
        repo.git.delete_ref(&self.pull_ref(number, "merge")).await?;
        let closed = self.merged(&repo.key, number, by, &merged)?;
        let mut events = vec![closed];
        events.extend(self.after_push(&repo, &before, by).await?);
        Ok((merged, events))
    }

    fn merged(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        commit: &CommitSha,
    ) -> Result<WorldEvent, EmulatorError> {
        let now = self.now();
        let merge = |pull: &mut EmulatedPull| {
            (pull.state, pull.closed_at) = (PullState::Merged, Some(now));
            pull.merged_by = Some(by.to_owned());
            pull.merge_commit = Some(commit.clone());
        };
        self.change_pull(repo, number, by, merge, WorldChange::PullClosed)
    }

    /// Converts a draft to a pull request that is ready, or the reverse.
    pub(crate) fn set_draft(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        draft: bool,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        if self.must_be(repo, number, PullState::Open)?.draft == draft {
            let word = if draft { "a draft" } else { "ready for review" };
            return Err(EmulatorError::Refused(format!(
                "#{number} is {word} already"
            )));
        }
        let marked = if draft {
            WorldChange::PullMarkedDraft
        } else {
            WorldChange::PullMarkedReady
        };
        let mark = |pull: &mut EmulatedPull| pull.draft = draft;
        Ok(vec![self.change_pull(repo, number, by, mark, marked)?])
    }

    /// Changes the base branch of the pull request.
    pub(crate) async fn change_base(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        base: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let _gate = self.gate.lock().await;
        let pull = self.must_be(repo, number, PullState::Open)?;
        let base = BranchName::new(base)?;
        let refs = self.try_merge(repo, number, &base, &pull.head).await?;
        let (old_branch, old_base) = (pull.base_branch.clone(), pull.base.clone());
        let change = BaseChange {
            id: self.change(WorldState::next_id),
            by: by.to_owned(),
            at: self.now(),
        };
        let change_base = |pull: &mut EmulatedPull| {
            refs.record(pull);
            pull.base_branch = base;
            pull.base_changes.push(change);
        };
        let changed = |pull| WorldChange::PullBaseChanged {
            pull,
            old_branch,
            old_base,
        };
        let event = self.change_pull(repo, number, by, change_base, changed)?;
        Ok(vec![event])
    }

    fn must_be(
        &self,
        repo: &str,
        number: PullNumber,
        state: PullState,
    ) -> Result<Arc<EmulatedPull>, EmulatorError> {
        let pull = Arc::clone(self.state().repo(repo)?.pull(number)?);
        if pull.state == state {
            return Ok(pull);
        }
        Err(EmulatorError::Refused(format!(
            "#{number} is {}, not {state}",
            pull.state
        )))
    }

    /// Changes a pull request and returns the event of the change.
    pub(super) fn change_pull(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        change: impl FnOnce(&mut EmulatedPull),
        event: impl FnOnce(PullSnapshot) -> WorldChange,
    ) -> Result<WorldEvent, EmulatorError> {
        let now = self.now();
        self.change(|state| {
            let pull = state.repo_mut(repo)?.pull_mut(number)?;
            change(pull);
            pull.updated_at = now;
            state.pull_event(repo, number, by, event)
        })
    }
}

fn merge_message(pull: &EmulatedPull) -> String {
    let owner = pull.head_repo.split('/').next().unwrap_or_default();
    format!(
        "Merge pull request #{} from {owner}/{}\n\n{}",
        pull.number, pull.head_branch, pull.title
    )
}
