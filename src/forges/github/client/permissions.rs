//! Checks the permissions of the server's credentials before anybody waits for a plan.
//!
//! `GET /app` returns the permissions and events of an App. A classic token gets its scopes in the header
//! `X-OAuth-Scopes` of any answer (GitHub REST: "Scopes for OAuth apps"). GitHub does not report the permissions of a
//! fine-grained token.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::auth::ClientCredentials;
use super::call::{Call, RequestFailure};
use super::wire::Wire;
use crate::forges::ForgeFeatures;

/// Level of an App's permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PermissionLevel {
    Read,
    Write,
}

impl PermissionLevel {
    /// Parses a level. GitHub's other levels allow more than these.
    fn of(text: &str) -> Self {
        if text == "read" {
            Self::Read
        } else {
            Self::Write
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Read => "read-only",
            Self::Write => "read and write",
        }
    }
}

/// Required permissions of an App: key, name in GitHub's settings, level and purpose.
const NEEDED: [(&str, &str, PermissionLevel, &str); 4] = [
    (
        "contents",
        "Contents",
        PermissionLevel::Read,
        "to fetch repositories",
    ),
    ("issues", "Issues", PermissionLevel::Write, "to comment"),
    (
        "pull_requests",
        "Pull requests",
        PermissionLevel::Write,
        "to read pull requests and to comment on them",
    ),
    (
        "statuses",
        "Commit statuses",
        PermissionLevel::Write,
        "to set statuses",
    ),
];
const MERGING: (&str, &str, PermissionLevel, &str) = (
    "contents",
    "Contents",
    PermissionLevel::Write,
    "to merge pull requests (--automerge)",
);
const TEAMS: (&str, &str, PermissionLevel, &str) = (
    "members",
    "Members (of the organization)",
    PermissionLevel::Read,
    "for --gh-team-allowlist",
);
/// Events without which Lockkeeper does nothing.
const EVENTS: [(&str, &str); 2] = [
    ("issue_comment", "Issue comment"),
    ("pull_request", "Pull request"),
];

/// Facts that GitHub returns about an App.
#[derive(Deserialize)]
pub(super) struct AppFacts {
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<String>,
}

impl AppFacts {
    fn missing(&self, uses: ForgeFeatures) -> Vec<String> {
        let lacks = |(key, name, needed, why): &(&str, &str, PermissionLevel, &str)| {
            let has = self
                .permissions
                .get(*key)
                .map(|text| PermissionLevel::of(text));
            let says = || match has {
                None => format!("the permission {name}: {}, {why}", needed.words()),
                Some(has) => format!(
                    "the permission {name}: {}, {why} (it has {})",
                    needed.words(),
                    has.words()
                ),
            };
            has.is_none_or(|has| has < *needed).then(says)
        };
        let permissions = NEEDED
            .iter()
            .chain(uses.merging.then_some(&MERGING))
            .chain(uses.teams.then_some(&TEAMS))
            .filter_map(lacks);
        // An App without events has no webhook; webhooks are then set up at the repositories or the organization.
        let has_webhook = !self.events.is_empty();
        let unheard = EVENTS
            .iter()
            .filter(|(key, _)| has_webhook && !self.events.iter().any(|event| event == key));
        permissions
            .chain(unheard.map(|(_, name)| format!("the event {name}")))
            .collect()
    }
}

impl ClientCredentials {
    /// Returns the rights that the server needs and the credentials lack, in words that follow "lacks". Returns none
    /// for a token that does not report its scopes. An error means that GitHub refuses the credentials or does not
    /// answer.
    pub async fn missing(
        &self,
        wire: &Wire,
        uses: ForgeFeatures,
    ) -> Result<Vec<String>, RequestFailure> {
        match self {
            Self::App(app) => Ok(app.facts(wire).await?.missing(uses)),
            Self::Token { token, .. } => {
                let call = Call::get("/user".to_owned(), "the account of the token");
                match wire
                    .send(&call, &super::auth::pass_of(wire, token).await?)
                    .await
                {
                    Ok(answer) => {
                        let scopes = answer
                            .headers
                            .get("x-oauth-scopes")
                            .map(|value| value.to_str().unwrap_or_default());
                        Ok(scopes
                            .map(|scopes| missing_scopes(scopes, uses.teams))
                            .unwrap_or_default())
                    }
                    // GitHub accepts the token but not this request: tokens of Apps and of workflows have no account.
                    Err(failure) if failure.is_of_another_kind() => Ok(Vec::new()),
                    Err(failure) => Err(failure),
                }
            }
        }
    }
}

/// Returns the missing scopes. Some scopes include others, which are listed with them.
fn missing_scopes(scopes: &str, teams: bool) -> Vec<String> {
    let has: Vec<&str> = scopes.split(',').map(str::trim).collect();
    let any = |of: &[&str]| of.iter().any(|scope| has.contains(scope));
    let repo = (!any(&["repo", "public_repo"])).then(|| "the scope `repo`".to_owned());
    let lacks_teams = teams && !any(&["read:org", "write:org", "admin:org"]);
    let org = lacks_teams.then(|| "the scope `read:org`, for --gh-team-allowlist".to_owned());
    repo.into_iter().chain(org).collect()
}
