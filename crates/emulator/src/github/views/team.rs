//! Builds the JSON of teams and memberships.

use serde_json::{Value, json};

use crate::github::GitHubWire;
use crate::world::{MembershipState, Team, user_id};

use super::{merged, node_id};

/// Builds the JSON of a team in a list.
pub(in crate::github) fn team(github: &GitHubWire, team: &Team, parent: Option<&Team>) -> Value {
    let parent = parent.map(|parent| simple(github, parent));
    let permissions =
        json!({ "pull": true, "triage": false, "push": false, "maintain": false, "admin": false });
    merged(
        simple(github, team),
        json!({ "permissions": permissions, "parent": parent }),
    )
}

fn simple(github: &GitHubWire, team: &Team) -> Value {
    let own = address(github, team);
    json!({
        "id": team.id,
        "node_id": node_id("Team", team.id),
        "url": own,
        "html_url": github.html(&format!("/orgs/{}/teams/{}", team.org, team.slug)),
        "name": team.name,
        "slug": team.slug,
        "description": null,
        "privacy": "closed",
        "notification_setting": "notifications_enabled",
        "permission": "pull",
        "members_url": format!("{own}/members{{/member}}"),
        "repositories_url": format!("{own}/repos"),
        "type": "organization",
        "organization_id": org_id(team),
    })
}

/// Builds the JSON of a membership in a team.
pub(in crate::github) fn membership(
    github: &GitHubWire,
    team: &Team,
    login: &str,
    state: MembershipState,
) -> Value {
    let state = match state {
        MembershipState::Active => "active",
        MembershipState::Pending => "pending",
    };
    // The brackets of a bot's login are not allowed in a URL.
    let segment = login.replace('[', "%5B").replace(']', "%5D");
    json!({ "url": format!("{}/memberships/{segment}", address(github, team)), "role": "member", "state": state })
}

fn address(github: &GitHubWire, team: &Team) -> String {
    github.api(&format!("/organizations/{}/team/{}", org_id(team), team.id))
}

fn org_id(team: &Team) -> u64 {
    user_id(&team.org)
}
