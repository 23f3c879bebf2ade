//! Decides about owners of policy sets. Security teams often have read access only, so owning a set is enough for
//! `approve_policies`. The command itself checks that the person owns the violated set.

use super::teams::is_member;
use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::model::{ProjectKey, RepoId, RepoPath};

/// Maximum number of teams of all sets whose members are looked up.
const MOST_TEAMS: usize = 30;

/// Returns true if a person of the forge owns a policy set, and plans in the repository are checked.
pub(super) async fn owns_a_set(ctx: &Ctx, at: &RepoId, login: &str) -> Result<bool, ForgeError> {
    let root = ProjectKey::of_dir(RepoPath::root());
    if ctx.settings.rules(at).policies(None, &root).is_none() {
        return Ok(false);
    }
    let sets = ctx.settings.repo_rules.repos.policies().sets;
    if sets.iter().any(|set| set.owners.has(login, &[])) {
        return Ok(true);
    }
    let mut teams: Vec<String> = sets.into_iter().flat_map(|set| set.owners.teams).collect();
    teams.sort();
    teams.dedup();
    teams.truncate(MOST_TEAMS);
    for team in &teams {
        if is_member(ctx, at, team, login).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
