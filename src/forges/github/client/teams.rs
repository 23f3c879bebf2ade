//! Reads the teams of the organisation that owns a repository (GitHub REST: "Team members", "Teams"). An App needs
//! the permission to read members; the scope of a token is `read:org`.

use serde::Deserialize;

use super::call::{Call, RequestFailure};
use super::pages::Pages;
use super::{GitHub, segment};
use crate::forges::ForgeError;
use crate::model::RepoId;

/// Returns true if the account is a member. GitHub counts the members of child teams. It answers 404 for everybody
/// else, and for teams that the credentials may not see.
pub(super) async fn has(
    github: &GitHub,
    repo: &RepoId,
    team: &str,
    login: &str,
) -> Result<bool, RequestFailure> {
    #[derive(Deserialize)]
    struct Membership {
        state: String,
    }
    let owner = repo.owner();
    let path = format!(
        "/orgs/{}/teams/{}/memberships/{}",
        segment(owner),
        segment(team),
        segment(login)
    );
    let call = Call::get(
        path,
        format!("the membership of `{login}` in the team `{owner}/{team}`"),
    );
    match github.credentials.send(&github.wire, repo, &call).await {
        Ok(answer) => Ok(answer
            .json::<Membership>(&github.wire.host, &call.what)?
            .state
            == "active"),
        Err(failure) => none_if_not_found(failure, false),
    }
}

/// Returns all teams, and fails if there are more than `most`.
pub(super) async fn list(
    github: &GitHub,
    repo: &RepoId,
    most: usize,
) -> Result<Vec<String>, RequestFailure> {
    #[derive(Deserialize)]
    struct TeamPayload {
        slug: String,
    }
    let what = format!("the teams of `{}`", repo.owner());
    let path = format!("/orgs/{}/teams", segment(repo.owner()));
    let mut pages = Pages::new(github, repo, &path, "", what.clone());
    let mut slugs = Vec::new();
    loop {
        match pages.next::<TeamPayload>().await {
            Ok(Some(page)) => slugs.extend(page.into_iter().map(|team| team.slug)),
            Ok(None) => return Ok(slugs),
            Err(failure) => return none_if_not_found(failure, Vec::new()),
        }
        if slugs.len() > most {
            let message = format!(
                "there are more than {most}, too many to check one by one. List the teams that matter in --gh-team-allowlist"
            );
            return Err(RequestFailure::rejected(&github.wire.host, &what, &message));
        }
    }
}

/// Returns `none` for an owner that is a person, who has no teams.
fn none_if_not_found<T>(failure: RequestFailure, none: T) -> Result<T, RequestFailure> {
    if matches!(failure.error, ForgeError::NotFound { .. }) {
        Ok(none)
    } else {
        Err(failure)
    }
}
