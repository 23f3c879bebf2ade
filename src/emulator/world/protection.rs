//! Protected branches, by the classic rules.

use crate::emulator::EmulatorError;
use crate::model::{BranchName, MergeMethod, PullNumber};

use super::{Pull, Repo, ReviewState, Status, StatusState, World};

/// What a branch demands of pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    pub(in crate::emulator) checks: Vec<String>,
    pub(in crate::emulator) approvals: Option<u32>,
    pub(in crate::emulator) conversations: bool,
}

impl Protection {
    /// These statuses have to be a success.
    pub fn of_checks(contexts: &[&str]) -> Self {
        Self {
            checks: contexts.iter().map(|&context| context.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// So many people who may write have to approve.
    #[must_use]
    pub fn with_approvals(self, count: u32) -> Self {
        Self {
            approvals: Some(count),
            ..self
        }
    }

    /// Every conversation has to be resolved; here there are none.
    #[must_use]
    pub fn with_conversations(self) -> Self {
        Self {
            conversations: true,
            ..self
        }
    }
}

impl World {
    /// Protects a branch, or changes how it is protected.
    pub(in crate::emulator) fn protect(
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

    /// From now on pulls may be merged by these methods only.
    pub(in crate::emulator) fn set_merge_methods(
        &self,
        repo: &str,
        methods: &[MergeMethod],
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            world.repo_mut(repo)?.merge_methods = methods.to_vec();
            Ok(())
        })
    }

    /// From now on a pull has these labels.
    pub(in crate::emulator) fn set_labels(
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

    /// From now on another branch is the default one.
    pub(in crate::emulator) fn set_default_branch(
        &self,
        repo: &str,
        branch: &str,
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            branch.clone_into(&mut world.repo_mut(repo)?.default_branch);
            Ok(())
        })
    }

    /// The next so many reads of a pull come while it is found out whether it can be merged.
    pub(in crate::emulator) fn unsettle(
        &self,
        repo: &str,
        number: PullNumber,
        reads: u32,
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            world.repo_mut(repo)?.pull_mut(number)?.unsettled = reads;
            Ok(())
        })
    }

    /// Somebody has read a pull.
    pub(in crate::emulator) fn settle(
        &self,
        repo: &str,
        number: PullNumber,
    ) -> Result<(), EmulatorError> {
        if self.state().repo(repo)?.pull(number)?.unsettled == 0 {
            return Ok(());
        }
        self.change(|world| {
            world.repo_mut(repo)?.pull_mut(number)?.unsettled -= 1;
            Ok(())
        })
    }
}

impl Repo {
    /// Why a pull cannot be merged by a method, in GitHub's words.
    pub(super) fn refusal_to_merge(&self, pull: &Pull, method: MergeMethod) -> Option<String> {
        if pull.is_open() && pull.draft {
            return Some("Pull Request is still a draft".to_owned());
        }
        if !pull.is_open() || pull.merge_commit.is_none() || self.archived {
            return Some("Pull Request is not mergeable".to_owned());
        }
        if !self.merge_methods.contains(&method) {
            let what = match method {
                MergeMethod::Merge => "Merge commits",
                MergeMethod::Rebase => "Rebase merges",
                MergeMethod::Squash => "Squash merges",
            };
            return Some(format!("{what} are not allowed on this repository."));
        }
        let rules = self
            .protections
            .get(&pull.base_branch)
            .filter(|_| self.blocks(pull))?;
        let open: Vec<&String> = rules
            .checks
            .iter()
            .filter(|context| !self.passed(pull, context))
            .collect();
        Some(match open.as_slice() {
            [] => {
                let count = rules.approvals.unwrap_or_default();
                let noun = if count == 1 {
                    "review is"
                } else {
                    "reviews are"
                };
                format!(
                    "At least {count} approving {noun} required by reviewers with write access."
                )
            }
            [one] => format!("Required status check \"{one}\" is expected."),
            several => format!(
                "{} of {} required status checks are expected.",
                several.len(),
                rules.checks.len()
            ),
        })
    }

    fn passed(&self, pull: &Pull, context: &str) -> bool {
        let is_it = |status: &&Status| status.context.eq_ignore_ascii_case(context);
        self.statuses_of(&pull.head)
            .latest
            .iter()
            .find(is_it)
            .is_some_and(|it| it.state == StatusState::Success)
    }

    /// Whether the rules of its base branch keep a pull from being merged.
    pub(in crate::emulator) fn blocks(&self, pull: &Pull) -> bool {
        let Some(rules) = self.protections.get(&pull.base_branch) else {
            return false;
        };
        let passed = |context: &String| self.passed(pull, context);
        !rules.checks.iter().all(passed)
            || rules
                .approvals
                .is_some_and(|wanted| self.lacks_approvals(pull, wanted))
    }

    fn lacks_approvals(&self, pull: &Pull, wanted: u32) -> bool {
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
