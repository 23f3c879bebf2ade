//! Determines who approves a pull (GitHub REST: "List reviews for a pull request", "List issue events", "Get repository
//! permissions for a user"). An App needs the permissions to read pull requests and issues. The permission that every
//! App has suffices to read who may write.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
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
    #[serde(default)]
    submitted_at: Option<DateTime<Utc>>,
}

impl ReviewAnswer {
    /// Returns the reviewed commit. An invalid one counts as none, because it is not the head commit either.
    fn commit(&self) -> Option<CommitSha> {
        self.commit_id
            .as_deref()
            .and_then(|commit| CommitSha::new(commit).ok())
    }
}

/// Entry of `GET /repos/{owner}/{repo}/issues/{number}/events`.
#[derive(Deserialize)]
struct EventAnswer {
    event: String,
    #[serde(default)]
    created_at: Option<DateTime<Utc>>,
}

impl EventAnswer {
    /// Returns true if the pull got another base branch: from a person, or from GitHub because the old one was deleted.
    fn changes_base(&self) -> bool {
        matches!(
            self.event.as_str(),
            "base_ref_changed" | "automatic_base_change_succeeded"
        )
    }
}

/// Newest review of a person that is more than a comment.
struct NewestReview {
    verdict: ReviewVerdict,
    commit: Option<CommitSha>,
    submitted_at: Option<DateTime<Utc>>,
}

/// Latest verdict of a reviewer about the pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReviewVerdict {
    Approves,
    AsksForChanges,
    Dismissed,
}

impl ReviewVerdict {
    /// Parses the state of a review. A comment does not change an earlier verdict. An unknown state approves
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
/// as in GitHub's own rules. The author can change the base branch after a review and choose one with any code, so
/// older approvals do not count.
pub(super) async fn approval(github: &GitHub, at: &PullRef) -> Result<Approval, RequestFailure> {
    let (pull, newest) = tokio::try_join!(github.pull_answer(at), newest_reviews(github, at))?;
    let newest = of_others(github, at, newest, pull.author()).await?;
    let mut approval = approval_of(&newest);
    if pull.is_public() {
        approval = only_writers(github, &at.repo, approval).await?;
    }
    if !approval.by.is_empty()
        && let Some(changed_at) = base_changed_at(github, at).await?
    {
        let is_newer = |login: &str| {
            newest
                .get(login)
                .and_then(|review| review.submitted_at)
                // GitHub stores whole seconds, so with equal times the review may have come first.
                .is_some_and(|submitted_at| submitted_at > changed_at)
        };
        let (newer, older): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut approval.by)
            .into_iter()
            .partition(|(login, _)| is_newer(login));
        approval.by = newer;
        approval.before_base = older.into_keys().collect();
    }
    Ok(approval)
}

/// Returns the approval of a pull by people who may write to the repository, as GitHub's own rules count it: also
/// from before a change of the base branch.
pub(super) async fn approval_of_writers(
    github: &GitHub,
    at: &PullRef,
    author: Option<&str>,
) -> Result<Approval, RequestFailure> {
    let newest = newest_reviews(github, at).await?;
    let newest = of_others(github, at, newest, author).await?;
    only_writers(github, &at.repo, approval_of(&newest)).await
}

/// Returns the time of the last change of the base branch, if there was one.
async fn base_changed_at(
    github: &GitHub,
    at: &PullRef,
) -> Result<Option<DateTime<Utc>>, RequestFailure> {
    let path = format!("{}/issues/{}/events", repo_path(&at.repo), at.subject);
    let what = format!("the last change of the base branch of {}", short(at));
    let mut pages = Pages::new(github, &at.repo, &path, "", what.clone());
    let mut newest: Option<DateTime<Utc>> = None;
    while let Some(page) = pages.next::<EventAnswer>().await? {
        for change in page.iter().filter(|event| event.changes_base()) {
            let Some(time) = change.created_at else {
                let message = "it has no time, so approvals cannot be compared with it";
                return Err(RequestFailure::rejected(&github.wire.host, &what, message));
            };
            newest = newest.max(Some(time));
        }
    }
    Ok(newest)
}

/// Newest review of each person by login.
type NewestReviews = BTreeMap<String, NewestReview>;

/// Returns the newest review of each person. GitHub lists reviews in the order of time.
async fn newest_reviews(github: &GitHub, at: &PullRef) -> Result<NewestReviews, RequestFailure> {
    let path = format!("{}/pulls/{}/reviews", repo_path(&at.repo), at.subject);
    let mut pages = Pages::new(
        github,
        &at.repo,
        &path,
        "",
        format!("the reviews of {}", short(at)),
    );
    let mut newest = NewestReviews::new();
    while let Some(page) = pages.next::<ReviewAnswer>().await? {
        for review in page {
            let (commit, submitted_at) = (review.commit(), review.submitted_at);
            if let (Some(user), Some(verdict)) = (review.user, ReviewVerdict::of(&review.state)) {
                newest.insert(
                    user.login,
                    NewestReview {
                        verdict,
                        commit,
                        submitted_at,
                    },
                );
            }
        }
    }
    Ok(newest)
}

/// Leaves out the reviews of the author and of Lockkeeper itself.
async fn of_others(
    github: &GitHub,
    at: &PullRef,
    mut newest: NewestReviews,
    author: Option<&str>,
) -> Result<NewestReviews, RequestFailure> {
    newest.retain(|login, _| author.is_none_or(|author| !author.eq_ignore_ascii_case(login)));
    if !newest.is_empty() {
        // Code that runs beside the server may obtain its token and review with it.
        let own = github.own_logins(&at.repo).await?;
        newest.retain(|login, _| own.iter().all(|own| !own.eq_ignore_ascii_case(login)));
    }
    Ok(newest)
}

/// Sorts the reviewers by their verdicts.
fn approval_of(newest: &NewestReviews) -> Approval {
    let of = |wanted: ReviewVerdict| {
        newest
            .iter()
            .filter(move |(_, review)| review.verdict == wanted)
    };
    let logins = |wanted| of(wanted).map(|(login, _)| login.clone()).collect();
    Approval {
        by: of(ReviewVerdict::Approves)
            .map(|(login, review)| (login.clone(), review.commit.clone()))
            .collect(),
        asking: logins(ReviewVerdict::AsksForChanges),
        dismissed: logins(ReviewVerdict::Dismissed),
        onlookers: BTreeSet::new(),
        before_base: BTreeSet::new(),
    }
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
