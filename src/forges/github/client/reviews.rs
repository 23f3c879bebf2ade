//! Determines who approves a pull (GitHub REST: "List reviews for a pull request", "Get repository permissions for a
//! user"). An App needs the permission to read pull requests. The permission that every App has suffices to read who
//! may write.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::answers::UserAnswer;
use super::call::{Call, RequestFailure};
use super::pages::Pages;
use super::{GitHub, repo_path, segment, short};
use crate::forges::ForgeError;
use crate::model::{Approval, CommitSha, PullRef, RepoId};

/// Maximum number of people whose right to write is checked: foreign reviewers must not cause requests without limit.
const MAX_ASKED: usize = 50;

/// Entry of `GET /repos/{owner}/{repo}/pulls/{number}/reviews`.
#[derive(Deserialize)]
struct ReviewAnswer {
    /// Account of the reviewer; `null` once it is deleted.
    #[serde(default)]
    user: Option<UserAnswer>,
    state: String,
    /// Commit that was reviewed. It stays the same when others are pushed.
    #[serde(default)]
    commit_id: Option<String>,
}

impl ReviewAnswer {
    /// Returns the reviewed commit. An invalid one counts as none, because it is not the head commit either.
    fn commit(&self) -> Option<CommitSha> {
        self.commit_id
            .as_deref()
            .and_then(|commit| CommitSha::new(commit).ok())
    }
}

/// Latest judgement of a reviewer about the pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReviewVerdict {
    Approves,
    AsksForChanges,
    Dismissed,
}

impl ReviewVerdict {
    /// Parses the state of a review. A comment does not change an earlier judgement. An unknown state approves
    /// nothing (P6).
    fn of(state: &str) -> Option<Self> {
        match state {
            "COMMENTED" | "PENDING" => None,
            "APPROVED" => Some(Self::Approves),
            "CHANGES_REQUESTED" => Some(Self::AsksForChanges),
            _ => Some(Self::Dismissed),
        }
    }
}

/// Returns the approval of a pull. In a public repository everybody may approve, so only people who may write count,
/// as in GitHub's own rules.
pub(super) async fn approval(github: &GitHub, at: &PullRef) -> Result<Approval, RequestFailure> {
    let pull = github.pull_answer(at).await?;
    let all = said(github, at, pull.author()).await?;
    if pull.is_public() {
        only_writers(github, &at.repo, all).await
    } else {
        Ok(all)
    }
}

/// Returns the approval of a pull by people who may write to the repository.
pub(super) async fn approval_of_writers(
    github: &GitHub,
    at: &PullRef,
    author: Option<&str>,
) -> Result<Approval, RequestFailure> {
    let all = said(github, at, author).await?;
    only_writers(github, &at.repo, all).await
}

/// Returns the approval by all reviewers, from the latest review of each. GitHub lists reviews in the order of time.
async fn said(
    github: &GitHub,
    at: &PullRef,
    author: Option<&str>,
) -> Result<Approval, RequestFailure> {
    let path = format!("{}/pulls/{}/reviews", repo_path(&at.repo), at.subject);
    let mut pages = Pages::new(
        github,
        &at.repo,
        &path,
        "",
        format!("the reviews of {}", short(at)),
    );
    let mut newest: BTreeMap<String, (ReviewVerdict, Option<CommitSha>)> = BTreeMap::new();
    while let Some(page) = pages.next::<ReviewAnswer>().await? {
        for review in page {
            let commit = review.commit();
            if let (Some(user), Some(word)) = (review.user, ReviewVerdict::of(&review.state)) {
                newest.insert(user.login, (word, commit));
            }
        }
    }
    newest.retain(|login, _| author.is_none_or(|author| !author.eq_ignore_ascii_case(login)));
    if !newest.is_empty() {
        // Code that runs beside the server may obtain its token and review with it.
        let own = github.own_logins(&at.repo).await?;
        newest.retain(|login, _| own.iter().all(|own| !own.eq_ignore_ascii_case(login)));
    }
    let of = |wanted| {
        newest
            .iter()
            .filter(|(_, (word, _))| *word == wanted)
            .map(|(login, _)| login.clone())
            .collect()
    };
    let approving = newest
        .iter()
        .filter(|(_, (word, _))| *word == ReviewVerdict::Approves);
    Ok(Approval {
        by: approving
            .map(|(login, (_, commit))| (login.clone(), commit.clone()))
            .collect(),
        asking: of(ReviewVerdict::AsksForChanges),
        dismissed: of(ReviewVerdict::Dismissed),
        onlookers: BTreeSet::new(),
    })
}

async fn only_writers(
    github: &GitHub,
    repo: &RepoId,
    mut approval: Approval,
) -> Result<Approval, RequestFailure> {
    let what = format!("the people with write access to {}", repo.full_name());
    if approval.by.len() + approval.asking.len() > MAX_ASKED {
        let message =
            format!("more than {MAX_ASKED} people have reviewed, too many to check one by one");
        return Err(RequestFailure::rejected(&github.wire.host, &what, &message));
    }
    for (login, commit) in std::mem::take(&mut approval.by) {
        if may_write(github, repo, &login).await? {
            approval.by.insert(login, commit);
        } else {
            approval.onlookers.insert(login);
        }
    }
    for login in std::mem::take(&mut approval.asking) {
        if may_write(github, repo, &login).await? {
            approval.asking.insert(login);
        }
    }
    Ok(approval)
}

/// Returns true if the account may write. GitHub reports `write` also for people who may maintain, and `none` or 404
/// for people without access.
pub(super) async fn may_write(
    github: &GitHub,
    repo: &RepoId,
    login: &str,
) -> Result<bool, RequestFailure> {
    #[derive(Deserialize)]
    struct Permission {
        permission: String,
    }
    let path = format!(
        "{}/collaborators/{}/permission",
        repo_path(repo),
        segment(login)
    );
    let call = Call::get(
        path,
        format!("the permissions of `{login}` in {}", repo.full_name()),
    );
    match github.credentials.send(&github.wire, repo, &call).await {
        Ok(answer) => {
            let answer: Permission = answer.json(&github.wire.host, &call.what)?;
            Ok(matches!(
                answer.permission.as_str(),
                "admin" | "maintain" | "write"
            ))
        }
        Err(failure) if matches!(failure.error, ForgeError::NotFound { .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}
