//! What the credentials of the server allow, asked before anybody waits for a plan.
//!
//! An App is told its permissions and events by `GET /app`; a classic token its scopes in the header `X-OAuth-Scopes` of any
//! answer (GitHub REST: "Scopes for OAuth apps"). What a fine-grained token may do GitHub does not say.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::auth::Credentials;
use super::call::{Call, Failure};
use super::wire::Wire;
use crate::vcs::Uses;

/// How much of something an App may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// Levels that GitHub has beyond these allow more.
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

/// A permission of an App: its key, how GitHub's settings call it, and what it is for.
const NEEDED: [(&str, &str, Access, &str); 4] = [
    (
        "contents",
        "Contents",
        Access::Read,
        "to fetch repositories",
    ),
    ("issues", "Issues", Access::Write, "to comment"),
    (
        "pull_requests",
        "Pull requests",
        Access::Write,
        "to read pull requests and to comment on them",
    ),
    (
        "statuses",
        "Commit statuses",
        Access::Write,
        "to set statuses",
    ),
];
const MERGING: (&str, &str, Access, &str) = (
    "contents",
    "Contents",
    Access::Write,
    "to merge pull requests (--automerge)",
);
const TEAMS: (&str, &str, Access, &str) = (
    "members",
    "Members (of the organization)",
    Access::Read,
    "for --gh-team-allowlist",
);
/// Events without which nothing happens.
const EVENTS: [(&str, &str); 2] = [
    ("issue_comment", "Issue comment"),
    ("pull_request", "Pull request"),
];

/// What an App says of itself.
#[derive(Deserialize)]
pub(super) struct AppFacts {
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<String>,
}

impl AppFacts {
    fn missing(&self, uses: Uses) -> Vec<String> {
        let lacks = |(key, name, needed, why): &(&str, &str, Access, &str)| {
            let has = self.permissions.get(*key).map(|text| Access::of(text));
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
        // Without any, webhooks are set up at the repositories or the organization.
        let has_webhook = !self.events.is_empty();
        let unheard = EVENTS
            .iter()
            .filter(|(key, _)| has_webhook && !self.events.iter().any(|event| event == key));
        permissions
            .chain(unheard.map(|(_, name)| format!("the event {name}")))
            .collect()
    }
}

impl Credentials {
    /// What they lack that the server needs, in words that stand behind "lacks"; of a token that does not tell, nothing.
    /// An error: they are not taken at all, or nobody answers.
    pub async fn missing(&self, wire: &Wire, uses: Uses) -> Result<Vec<String>, Failure> {
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
                    // Taken, but not for this: tokens of Apps and of workflows have no account.
                    Err(failure) if failure.is_of_another_kind() => Ok(Vec::new()),
                    Err(failure) => Err(failure),
                }
            }
        }
    }
}

/// A scope includes those that are named with it.
fn missing_scopes(scopes: &str, teams: bool) -> Vec<String> {
    let has: Vec<&str> = scopes.split(',').map(str::trim).collect();
    let any = |of: &[&str]| of.iter().any(|scope| has.contains(scope));
    let repo = (!any(&["repo", "public_repo"])).then(|| "the scope `repo`".to_owned());
    let lacks_teams = teams && !any(&["read:org", "write:org", "admin:org"]);
    let org = lacks_teams.then(|| "the scope `read:org`, for --gh-team-allowlist".to_owned());
    repo.into_iter().chain(org).collect()
}
