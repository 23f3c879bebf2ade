//! Builds the JSON of teams and memberships.

use serde_json::{Value, json};

use crate::emulator::world::{EmulatedWorld, MembershipState, Team, User, UserKind};

use super::{WireView, merged, node_id};

/// Builds the JSON of a team in a list.
pub(in crate::emulator::github) fn team(view: &WireView<'_>, team: &Team) -> Value {
    let parent = team
        .parent
        .as_deref()
        .and_then(|slug| view.state.team(&team.org, slug));
    let parent = parent.map(|parent| simple(view.world, parent));
    let permissions =
        json!({ "pull": true, "triage": false, "push": false, "maintain": false, "admin": false });
    merged(
        simple(view.world, team),
        json!({ "permissions": permissions, "parent": parent }),
    )
}

fn simple(world: &EmulatedWorld, team: &Team) -> Value {
    let own = address(world, team);
    json!({
        "id": team.id,
        "node_id": node_id("Team", team.id),
        "url": own,
        "html_url": world.html(&format!("/orgs/{}/teams/{}", team.org, team.slug)),
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
pub(in crate::emulator::github) fn membership(
    world: &EmulatedWorld,
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
    json!({ "url": format!("{}/memberships/{segment}", address(world, team)), "role": "member", "state": state })
}

fn address(world: &EmulatedWorld, team: &Team) -> String {
    world.api(&format!("/organizations/{}/team/{}", org_id(team), team.id))
}

fn org_id(team: &Team) -> u64 {
    User {
        login: team.org.clone(),
        kind: UserKind::Organization,
    }
    .id()
}
