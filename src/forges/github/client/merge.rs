//! Merges pulls (GitHub REST: "Merge a pull request", "Get a repository").

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::call::{Call, RequestFailure};
use super::{GitHub, repo_path, short};
use crate::forges::{ForgeError, MergeAnswer, WritePermit};
use crate::model::{CommitSha, MergeMethod, PullRef, RepoId};

/// Part of `GET /repos/{owner}/{repo}`. GitHub leaves the methods out where the credentials may not write.
#[derive(Deserialize)]
struct MethodsAnswer {
    #[serde(default, rename = "allow_merge_commit")]
    merge: Option<bool>,
    #[serde(default, rename = "allow_rebase_merge")]
    rebase: Option<bool>,
    #[serde(default, rename = "allow_squash_merge")]
    squash: Option<bool>,
}

/// Returns the merge methods that a repository allows. A method that GitHub does not mention counts as allowed: the
/// merge request decides then.
pub(super) async fn methods(
    github: &GitHub,
    repo: &RepoId,
) -> Result<Vec<MergeMethod>, RequestFailure> {
    let call = Call::get(
        repo_path(repo),
        format!("the merge methods of {}", repo.full_name()),
    );
    let answer = github.credentials.send(&github.wire, repo, &call).await?;
    let answer: MethodsAnswer = answer.json(&github.wire.host, &call.what)?;
    let is_allowed = |method: &MergeMethod| match method {
        MergeMethod::Merge => answer.merge,
        MergeMethod::Rebase => answer.rebase,
        MergeMethod::Squash => answer.squash,
    };
    Ok(MergeMethod::ALL
        .into_iter()
        .filter(|method| is_allowed(method) != Some(false))
        .collect())
}

pub(super) async fn merge(
    github: &GitHub,
    at: &PullRef,
    (head, method): (&CommitSha, MergeMethod),
    permit: &WritePermit,
) -> Result<MergeAnswer, RequestFailure> {
    let path = format!("{}/pulls/{}/merge", repo_path(&at.repo), at.subject);
    let body = json!({ "sha": head, "merge_method": method });
    let call = Call::put(path, body, format!("the merge of {}", short(at))).with_permit(permit);
    match github.credentials.send(&github.wire, &at.repo, &call).await {
        Ok(_) => Ok(MergeAnswer::Merged),
        Err(RequestFailure {
            status: Some(StatusCode::METHOD_NOT_ALLOWED),
            error: ForgeError::Rejected { message, .. },
            ..
        }) => Ok(MergeAnswer::NotNow(message)),
        Err(RequestFailure {
            status: Some(StatusCode::CONFLICT),
            ..
        }) => Ok(MergeAnswer::HeadMoved),
        Err(failure) => Err(failure),
    }
}
