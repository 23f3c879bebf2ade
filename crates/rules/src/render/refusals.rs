//! Builds the refusals that do not depend on a project. Each names its rule, the actual value, and the way out (P10).

use super::report::{CommandRefusal, UserText};
use crate::model::{RepoId, code_span};

impl CommandRefusal {
    /// Creates a refusal. `reason` is its name for programs, in the hidden last line of a comment.
    pub fn new<const N: usize>(reason: &'static str, message: String, hints: [String; N]) -> Self {
        Self {
            reason,
            text: UserText::new(message, hints),
        }
    }

    /// Refuses a repository that is not in the allowlist of this server.
    pub fn not_allowlisted(repo: &RepoId) -> Self {
        Self::new(
            "not_allowlisted",
            format!(
                "this server does not serve `{repo}`: no entry of its `--repo-allowlist` matches."
            ),
            [format!("An administrator can add `{repo}` to the list.")],
        )
    }

    /// Refuses a repository that nobody has claimed, because the server works only for claimed ones.
    pub fn unclaimed(repo: &RepoId, url: &str, page: &str) -> Self {
        Self::new(
            "unclaimed",
            format!(
                "`{repo}` has no owner on this server, and the server only serves claimed repositories \
                 (`--require-claims`)."
            ),
            [
                format!(
                    "The account of the whole server can claim it for a team by adding its first application or \
                     credential. `{page}` shows which team owns which repository."
                ),
                format!(
                    "Or an administrator can claim it: `lockkeeper credentials add --owner TEAM --url {url}`, or \
                     `lockkeeper apps add`."
                ),
            ],
        )
    }

    /// Refuses a draft pull request.
    pub fn draft() -> Self {
        Self::new(
            "draft",
            "this pull request is a draft, and the server ignores drafts.".to_owned(),
            [
                "Mark the pull request as ready for review. It is then planned automatically."
                    .to_owned(),
                "Or an administrator can allow drafts with `--allow-draft-prs`.".to_owned(),
            ],
        )
    }

    /// Refuses a pull request from another repository; `None` if that repository was deleted.
    pub fn fork(head_repo: Option<&RepoId>) -> Self {
        let from = head_repo.map_or_else(
            || "a deleted repository".to_owned(),
            |repo| format!("the fork `{repo}`"),
        );
        Self::new(
            "fork",
            format!("this pull request comes from {from}, and the server does not run code from forks."),
            [
                "Somebody with write access can push the branch to this repository and open a pull request from it."
                    .to_owned(),
                "Or an administrator can allow forks with `--allow-fork-prs`.".to_owned(),
            ],
        )
    }

    /// Refuses a command that is known, but not part of this version.
    pub fn not_available(word: &str, available: &[&str]) -> Self {
        let quoted: Vec<String> = available.iter().map(|word| format!("`{word}`")).collect();
        Self::new(
            "not_available",
            format!(
                "this version of Lockkeeper does not support {}.",
                code_span(word)
            ),
            [format!("It supports {}.", quoted.join(", "))],
        )
    }
}
