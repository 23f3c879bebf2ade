//! Decides about owners of policy sets. Security teams often have read access only, so owning a set is enough for
//! `approve_policies`. The command itself checks that the person owns the violated set, and that the plan of the project
//! is checked.

use lockkeeper_policy::sets::MAX_OWNER_TEAMS;

use super::teams::is_member;
use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::model::RepoId;

/// Returns true if a person of the forge owns a policy set, and plans in the repository may be checked.
pub(super) async fn owns_a_set(ctx: &Ctx, at: &RepoId, login: &str) -> Result<bool, ForgeError> {
    if !ctx.settings.rules(at).may_check_policies() {
        return Ok(false);
    }
    let sets = ctx.settings.repo_rules.repos.policies().sets;
    if sets.iter().any(|set| set.owners.has(login, &[])) {
        return Ok(true);
    }
    for team in teams(ctx).iter().take(MAX_OWNER_TEAMS) {
        if is_member(ctx, at, team, login).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the sentence about teams whose members were not looked up; `None` if there are none.
pub(super) fn left_out(ctx: &Ctx) -> Option<String> {
    let all = teams(ctx).len();
    (all > MAX_OWNER_TEAMS).then(|| {
        format!(
            "Only {MAX_OWNER_TEAMS} of the {all} teams that own policy sets were looked up. An administrator can put the owners \
             into fewer teams, or name them as `users`."
        )
    })
}

/// Lists the teams that own policy sets, each once, in the order in which they are looked up.
fn teams(ctx: &Ctx) -> Vec<String> {
    let sets = ctx.settings.repo_rules.repos.policies().sets;
    let mut teams: Vec<String> = sets.into_iter().flat_map(|set| set.owners.teams).collect();
    teams.sort_by_key(|team| team.to_ascii_lowercase());
    teams.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
    teams
}
