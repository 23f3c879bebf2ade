//! Builds the JSON of accounts.

use serde_json::{Value, json};

use crate::emulator::world::{EmulatedWorld, User, UserKind};

use super::{merged, node_id};

/// Builds the short form of an account, which is part of many answers.
pub(super) fn user(world: &EmulatedWorld, login: &str) -> Value {
    account(world, &User::new(login))
}

/// Builds the short form of an account of a known kind.
pub(super) fn account(world: &EmulatedWorld, user: &User) -> Value {
    let (login, id) = (&user.login, user.id());
    // The brackets of a bot's login are not allowed in a URL.
    let segment = login.replace('[', "%5B").replace(']', "%5D");
    let api = |rest: &str| world.api(&format!("/users/{segment}{rest}"));
    json!({
        "login": login,
        "id": id,
        "node_id": node_id("User", id),
        "avatar_url": world.html(&format!("/avatars/u/{id}?")),
        "gravatar_id": "",
        "url": api(""),
        "html_url": page(world, user),
        "followers_url": api("/followers"),
        "following_url": api("/following{/other_user}"),
        "gists_url": api("/gists{/gist_id}"),
        "starred_url": api("/starred{/owner}{/repo}"),
        "subscriptions_url": api("/subscriptions"),
        "organizations_url": api("/orgs"),
        "repos_url": api("/repos"),
        "events_url": api("/events{/privacy}"),
        "received_events_url": api("/received_events"),
        "type": user.kind.as_str(),
        "site_admin": false,
    })
}

fn page(world: &EmulatedWorld, user: &User) -> String {
    match user.kind {
        UserKind::Bot => world.html(&format!("/apps/{}", user.login.trim_end_matches("[bot]"))),
        UserKind::User | UserKind::Organization => world.html(&format!("/{}", user.login)),
    }
}

/// Builds the answer to `GET /user`.
pub(in crate::emulator::github) fn public_user(world: &EmulatedWorld, login: &str) -> Value {
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
    merged(user(world, login), more)
}

/// Builds the organisation of an event, if the owner of the repository is one.
pub(super) fn organization(world: &EmulatedWorld, owner: &User) -> Option<Value> {
    if owner.kind != UserKind::Organization {
        return None;
    }
    let (login, id) = (&owner.login, owner.id());
    let api = |rest: &str| world.api(&format!("/orgs/{login}{rest}"));
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
        "avatar_url": world.html(&format!("/avatars/u/{id}?")),
        "description": "",
    }))
}
