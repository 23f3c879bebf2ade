//! Builds the refusals that do not depend on a project. Each names its rule, the actual value, and the way out (P10).

use super::report::{Refusal, UserText};
use crate::model::RepoId;

impl Refusal {
    /// Refuses a repository that is not in the allowlist of this server.
    pub fn not_allowlisted(repo: &RepoId) -> Self {
        refusal(
            "not_allowlisted",
            format!(
                "this server does not work for `{repo}`: no entry of its `--repo-allowlist` fits."
            ),
            [format!(
                "Whoever operates the server can add `{repo}` to the list."
            )],
        )
    }

    /// Refuses a repository that nobody has claimed, because the server works only for claimed ones.
    pub fn unclaimed(repo: &RepoId, url: &str, page: &str) -> Self {
        refusal(
            "unclaimed",
            format!(
                "nobody has claimed `{repo}` on this server, and it only works for repositories that have an owner (`--require-claims`)."
            ),
            [
                format!(
                    "Whoever has the account of the whole server can claim it for a team, with the first application or \
                     credential of it: `{page}` shows which team owns what."
                ),
                format!(
                    "Whoever operates the server can do it for them: `lockkeeper credentials add --owner TEAM --url {url}`, \
                     or `lockkeeper apps add`."
                ),
            ],
        )
    }

    /// Refuses a draft pull request.
    pub fn draft() -> Self {
        refusal(
            "draft",
            "this pull request is a draft, and the server leaves drafts alone.".to_owned(),
            [
                "Mark the pull request as ready for review; that plans it at once.".to_owned(),
                "Or whoever operates the server can allow drafts with `--allow-draft-prs`."
                    .to_owned(),
            ],
        )
    }

    /// Refuses a pull request from another repository; `None` if that repository was deleted.
    pub fn fork(head_repo: Option<&RepoId>) -> Self {
        let from = head_repo.map_or_else(
            || "a repository that is gone".to_owned(),
            |repo| format!("the fork `{repo}`"),
        );
        refusal(
            "fork",
            format!("this pull request comes from {from}, and the server does not run code from forks."),
            [
                "Somebody who may push to this repository can bring the branch here and open a pull request from it."
                    .to_owned(),
                "Or whoever operates the server can allow forks with `--allow-fork-prs`.".to_owned(),
            ],
        )
    }

    /// Refuses a command that is known, but not part of this version.
    pub fn not_available(word: &str, available: &[&str]) -> Self {
        let quoted: Vec<String> = available.iter().map(|word| format!("`{word}`")).collect();
        refusal(
            "not_available",
            format!(
                "`{}` is not part of this version of Lockkeeper.",
                word.replace('`', "'")
            ),
            [format!("It understands {}.", quoted.join(", "))],
        )
    }
}

pub(crate) fn refusal<const N: usize>(
    reason: &'static str,
    message: String,
    hints: [String; N],
) -> Refusal {
    Refusal {
        reason,
        text: UserText::new(message, hints),
    }
}
