//! Implements protected branches: required statuses and approvals.

use crate::EmulatorError;
use crate::model::{BranchName, MergeMethod, PullNumber};

use super::{EmulatedPull, EmulatedWorld, Repo, ReviewState, ShaStatus, StatusState};

/// Rules of a branch for pull requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    pub(crate) checks: Vec<String>,
    pub(crate) approvals: Option<u32>,
    pub(crate) conversations: bool,
}

impl Protection {
    /// Requires the statuses with these contexts to be a success.
    pub fn of_checks(contexts: &[&str]) -> Self {
        Self {
            checks: contexts.iter().map(|&context| context.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Requires approvals of `count` people who may write.
    #[must_use]
    pub fn with_approvals(self, count: u32) -> Self {
        Self {
            approvals: Some(count),
            ..self
        }
    }

    /// Requires every conversation to be resolved. The emulator has no conversations.
    #[must_use]
    pub fn with_conversations(self) -> Self {
        Self {
            conversations: true,
            ..self
        }
    }
}

impl EmulatedWorld {
    /// Protects a branch, or changes its protection.
    pub(crate) fn protect(
        &self,
        repo: &str,
        branch: &str,
        rules: Protection,
    ) -> Result<(), EmulatorError> {
        let branch = BranchName::new(branch)?;
        self.change(|world| {
            world.repo_mut(repo)?.protections.insert(branch, rules);
            Ok(())
        })
    }

    /// Allows only these methods to merge pull requests from now on.
    pub(crate) fn set_merge_methods(
        &self,
        repo: &str,
        methods: &[MergeMethod],
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            world.repo_mut(repo)?.merge_methods = methods.to_vec();
            Ok(())
        })
    }

    /// Replaces the labels of a pull request.
    pub(crate) fn set_labels(
        &self,
        repo: &str,
        number: PullNumber,
        labels: &[&str],
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            let pull = world.repo_mut(repo)?.pull_mut(number)?;
            pull.labels = labels.iter().map(|&label| label.to_owned()).collect();
            Ok(())
        })
    }

    /// Makes another branch the default branch in answers.
    pub(crate) fn set_default_branch(&self, repo: &str, branch: &str) -> Result<(), EmulatorError> {
        self.change(|world| {
            branch.clone_into(&mut world.repo_mut(repo)?.default_branch);
            Ok(())
        })
    }
}

/// Reason that a pull request may not be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MergeRefusal {
    /// The pull request is a draft.
    Draft,
    /// The pull request is not open, has conflicts, or is in an archived repository.
    NotMergeable,
    /// The repository does not allow this method.
    MethodNotAllowed(MergeMethod),
    /// Required statuses are not a success.
    ChecksMissing {
        /// Contexts of those statuses.
        contexts: Vec<String>,
        /// Number of all required statuses.
        required: usize,
    },
    /// Fewer people than this number approved, or somebody requested changes.
    ApprovalsMissing(u32),
}

impl Repo {
    /// Returns the reason that a pull request may not be merged by a method; `None` if it may.
    pub(super) fn refusal_to_merge(
        &self,
        pull: &EmulatedPull,
        method: MergeMethod,
    ) -> Option<MergeRefusal> {
        if pull.is_open() && pull.draft {
            return Some(MergeRefusal::Draft);
        }
        if !pull.is_open() || pull.merge_commit.is_none() || self.archived {
            return Some(MergeRefusal::NotMergeable);
        }
        if !self.merge_methods.contains(&method) {
            return Some(MergeRefusal::MethodNotAllowed(method));
        }
        let rules = self
            .protections
            .get(&pull.base_branch)
            .filter(|_| self.blocks(pull))?;
        let contexts: Vec<String> = rules
            .checks
            .iter()
            .filter(|context| !self.passed(pull, context))
            .cloned()
            .collect();
        if contexts.is_empty() {
            return Some(MergeRefusal::ApprovalsMissing(
                rules.approvals.unwrap_or_default(),
            ));
        }
        let required = rules.checks.len();
        Some(MergeRefusal::ChecksMissing { contexts, required })
    }

    fn passed(&self, pull: &EmulatedPull, context: &str) -> bool {
        let is_it = |status: &&ShaStatus| status.context.eq_ignore_ascii_case(context);
        self.statuses_of(&pull.head)
            .latest
            .iter()
            .find(is_it)
            .is_some_and(|it| it.state == StatusState::Success)
    }

    /// Returns true if the rules of the base branch prevent a merge.
    pub(crate) fn blocks(&self, pull: &EmulatedPull) -> bool {
        let Some(rules) = self.protections.get(&pull.base_branch) else {
            return false;
        };
        let passed = |context: &String| self.passed(pull, context);
        !rules.checks.iter().all(passed)
            || rules
                .approvals
                .is_some_and(|wanted| self.lacks_approvals(pull, wanted))
    }

    fn lacks_approvals(&self, pull: &EmulatedPull, wanted: u32) -> bool {
        let newest = |login: &str| {
            let own = pull
                .reviews
                .iter()
                .rev()
                .filter(|review| review.author == login);
            own.map(|review| review.state)
                .find(|state| *state != ReviewState::Commented)
        };
        let people: std::collections::BTreeSet<&str> = pull
            .reviews
            .iter()
            .map(|review| review.author.as_str())
            .filter(|login| self.lets_write(login))
            .collect();
        let count = |state| {
            people
                .iter()
                .filter(|login| newest(login) == Some(state))
                .count()
        };
        count(ReviewState::Approved) < wanted as usize || count(ReviewState::ChangesRequested) > 0
    }
}
