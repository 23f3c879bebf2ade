//! Builds the JSON of accounts.

use serde_json::{Value, json};

use crate::github::GitHubWire;
use crate::world::{User, UserKind, user_id};

use super::{merged, node_id};

/// Returns the account with this login: of an app if the login ends in `[bot]`, else of a person.
pub(super) fn account_of(login: &str) -> User {
    let kind = if login.ends_with("[bot]") {
        UserKind::Bot
    } else {
        UserKind::Person
    };
    User {
        login: login.to_owned(),
        kind,
    }
}

/// Returns the mail address of an account in commits. Its host is fixed, because commit ids must not depend on the
/// port.
pub(in crate::github) fn email(login: &str) -> String {
    format!("{}+{login}@users.noreply.github.com", user_id(login))
}

/// Returns GitHub's word for the kind of an account.
pub(super) fn account_type(kind: UserKind) -> &'static str {
    match kind {
        UserKind::Person => "User",
        UserKind::Bot => "Bot",
        UserKind::Organization => "Organization",
    }
}

/// Builds the short form of an account, which is part of many answers.
pub(super) fn user(github: &GitHubWire, login: &str) -> Value {
    account(github, &account_of(login))
}

/// Builds the short form of an account of a known kind.
pub(super) fn account(github: &GitHubWire, user: &User) -> Value {
    let (login, id) = (&user.login, user.id());
    // The brackets of a bot's login are not allowed in a URL.
    let segment = login.replace('[', "%5B").replace(']', "%5D");
    let api = |rest: &str| github.api(&format!("/users/{segment}{rest}"));
    json!({
        "login": login,
        "id": id,
        "node_id": node_id("User", id),
        "avatar_url": github.html(&format!("/avatars/u/{id}?")),
        "gravatar_id": "",
        "url": api(""),
        "html_url": page(github, user),
        "followers_url": api("/followers"),
        "following_url": api("/following{/other_user}"),
        "gists_url": api("/gists{/gist_id}"),
        "starred_url": api("/starred{/owner}{/repo}"),
        "subscriptions_url": api("/subscriptions"),
        "organizations_url": api("/orgs"),
        "repos_url": api("/repos"),
        "events_url": api("/events{/privacy}"),
        "received_events_url": api("/received_events"),
        "type": account_type(user.kind),
        "site_admin": false,
    })
}

fn page(github: &GitHubWire, user: &User) -> String {
    match user.kind {
        UserKind::Bot => github.html(&format!("/apps/{}", user.login.trim_end_matches("[bot]"))),
        UserKind::Person | UserKind::Organization => github.html(&format!("/{}", user.login)),
    }
}

/// Builds the answer to `GET /user`.
pub(in crate::github) fn public_user(github: &GitHubWire, login: &str) -> Value {
    let more = json!({
        "name": null,
        "company": null,
        "blog": "",
        "location": null,
        "email": null,
        "hireable": null,
        "bio": null,
        "twitter_username": null,
        "public_repos": 0,
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
        "user_view_type": "public",
    });
    merged(user(github, login), more)
}

/// Builds the organisation of an event, if the owner of the repository is one.
pub(super) fn organization(github: &GitHubWire, owner: &User) -> Option<Value> {
    if owner.kind != UserKind::Organization {
        return None;
    }
    let (login, id) = (&owner.login, owner.id());
    let api = |rest: &str| github.api(&format!("/orgs/{login}{rest}"));
    Some(json!({
        "login": login,
        "id": id,
        "node_id": node_id("Organization", id),
        "url": api(""),
        "repos_url": api("/repos"),
        "events_url": api("/events"),
        "hooks_url": api("/hooks"),
        "issues_url": api("/issues"),
        "members_url": api("/members{/member}"),
        "public_members_url": api("/public_members{/member}"),
        "avatar_url": github.html(&format!("/avatars/u/{id}?")),
        "description": "",
    }))
}
