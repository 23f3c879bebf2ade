//! Provides the environment variables that describe the pull request to commands of the administrator (reference 6.5
//! and 6.9). All values are data, even those that a pull request chose; none is ever part of a shell's source.

use std::ffi::OsString;

use super::steps::escaped;
use crate::model::{BranchName, CommitSha, Pull, RepoId, Subject};

/// Description of the pull request for commands of the administrator.
#[derive(Clone, Debug)]
pub struct PullFacts {
    base_branch: BranchName,
    base_repo: RepoId,
    head_branch: BranchName,
    head_commit: CommitSha,
    head_repo: Option<RepoId>,
    author: String,
    number: Subject,
    url: String,
    user: String,
    comment_args: OsString,
    /// True if the pull request has an approval of somebody who may approve; `None` until that was checked.
    pub approved: Option<bool>,
    /// True if the forge considers the pull request mergeable; `None` until that was checked.
    pub mergeable: Option<bool>,
}

impl PullFacts {
    /// Describes a pull request for a command that `user` gave with these arguments.
    pub fn of(pull: &Pull, user: &str, arguments: &[String]) -> Self {
        Self {
            base_branch: pull.base_branch.clone(),
            base_repo: pull.at.repo.clone(),
            head_branch: pull.head_branch.clone(),
            head_commit: pull.head.clone(),
            head_repo: pull.head_repo.clone(),
            author: pull.author.clone(),
            number: pull.at.subject,
            url: pull.url.clone(),
            user: user.to_owned(),
            comment_args: escaped(arguments),
            approved: None,
            mergeable: None,
        }
    }

    /// Returns the commit of the pull request that the run is about.
    pub(super) fn head_commit(&self) -> &CommitSha {
        &self.head_commit
    }

    /// Returns the variables that steps and hooks have in common, and those of the forge's answers.
    pub(super) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let head_repo = self.head_repo.as_ref();
        let text = |text: &str| OsString::from(without_nul(text));
        let mut all = vec![
            ("BASE_BRANCH_NAME", text(self.base_branch.as_str())),
            ("BASE_REPO_NAME", text(self.base_repo.name())),
            ("BASE_REPO_OWNER", text(self.base_repo.owner())),
            ("COMMENT_ARGS", self.comment_args.clone()),
            ("HEAD_BRANCH_NAME", text(self.head_branch.as_str())),
            ("HEAD_COMMIT", text(self.head_commit.as_str())),
            ("HEAD_REPO_NAME", text(head_repo.map_or("", RepoId::name))),
            ("HEAD_REPO_OWNER", text(head_repo.map_or("", RepoId::owner))),
            ("PULL_AUTHOR", text(&self.author)),
            ("PULL_NUM", text(&pull_number(self.number))),
            ("PULL_URL", text(&self.url)),
            ("USER_NAME", text(&self.user)),
        ];
        for (name, answer) in [
            ("ATLANTIS_PR_APPROVED", self.approved),
            ("ATLANTIS_PR_MERGEABLE", self.mergeable),
        ] {
            all.extend(answer.map(|answer| (name, text(&answer.to_string()))));
        }
        all
    }
}

/// Formats the number of a pull request. Without a pull request the number is 0, as in Atlantis' API plans.
fn pull_number(number: Subject) -> String {
    match number {
        Subject::Pull(number) => number.to_string(),
        Subject::Application(_) => "0".to_owned(),
    }
}

/// Removes NUL, which an environment cannot hold. A run must not become impossible because a forge sends one.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}
