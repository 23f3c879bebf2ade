//! Decides about people of the forge by their teams, if `--gh-team-allowlist` has an entry (reference 1.8).

use super::{AuthzError, Decision, Denial, Resource, listed, not_from_the_forge};
use crate::config::access::{Action, Grantees, Identity};
use crate::context::Ctx;
use crate::forges::{ForgeError, KEPT};
use crate::model::{RepoId, code_span};

/// Decides by the allowlist entries for the teams of this person.
pub(super) async fn by_teams(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    let rules = &ctx.settings.permissions.teams;
    let Some(at) = on.repo() else {
        return Ok(not_from_the_forge(who, action));
    };
    let Grantees::Teams(giving) = rules.grantees(action) else {
        return Ok(Decision::Granted);
    };
    for team in &giving {
        if is_in(ctx, at, team, who).await? {
            return Ok(Decision::Granted);
        }
    }
    let own = others(ctx, at, &giving, who).await;
    Ok(Decision::Denied(Box::new(denial(
        who, action, at, &giving, &own,
    ))))
}

/// Lists the other teams on the list that this person is in, as far as the forge says. They only explain the denial,
/// which stands without them.
async fn others<'a>(ctx: &'a Ctx, at: &RepoId, giving: &[&str], who: &Identity) -> Vec<&'a str> {
    let mut own = Vec::new();
    for team in ctx
        .settings
        .permissions
        .teams
        .teams()
        .into_iter()
        .filter(|team| !giving.contains(team))
    {
        match is_in(ctx, at, team, who).await {
            Ok(true) => own.push(team),
            Ok(false) => {}
            Err(_) => break,
        }
    }
    own
}

async fn is_in(ctx: &Ctx, at: &RepoId, team: &str, who: &Identity) -> Result<bool, ForgeError> {
    is_member(ctx, at, team, who.name()).await
}

/// Returns true if an account of the forge is in a team, written as `team` or `organization/team`. Only teams of the
/// organization that owns the repository are known.
pub async fn is_member(
    ctx: &Ctx,
    at: &RepoId,
    team: &str,
    login: &str,
) -> Result<bool, ForgeError> {
    let slug = match team.rsplit_once('/') {
        Some((organization, slug)) if organization.eq_ignore_ascii_case(at.owner()) => slug,
        Some(_) => return Ok(false),
        None => team,
    };
    ctx.memberships
        .has(ctx.forges.of(at)?, ctx.clock.now(), at, slug, login)
        .await
}

/// Names the teams that the list permits, and the teams that this person is in.
fn denial(who: &Identity, action: Action, repo: &RepoId, giving: &[&str], own: &[&str]) -> Denial {
    let (name, org) = (code_span(who.name()), code_span(repo.owner()));
    let rule = match giving {
        [] => format!("`--gh-team-allowlist` allows `{action}` for no team"),
        [team] => format!(
            "`--gh-team-allowlist` allows `{action}` only for the team {} of {org}",
            code_span(team)
        ),
        teams => format!(
            "`--gh-team-allowlist` allows `{action}` only for the teams {} of {org}",
            listed(teams, "and")
        ),
    };
    let actual = match (giving, own) {
        ([], []) => format!("{name} is in none of the teams that it names"),
        ([], own) => format!("{name} is in {}", listed(own, "and")),
        ([_], []) => format!("{name} is not in it"),
        ([_], own) => format!("{name} is not in it, but in {}", listed(own, "and")),
        (_, []) => format!("{name} is in none of them"),
        (_, own) => format!("{name} is in none of them, but in {}", listed(own, "and")),
    };
    Denial {
        who: who.clone(),
        action,
        rule,
        actual,
        who_can: ways_out(action, &name, &org, giving),
    }
}

fn ways_out(action: Action, name: &str, org: &str, giving: &[&str]) -> Vec<String> {
    if giving.is_empty() {
        return vec![format!("An administrator can allow `{action}` for a team.")];
    }
    let (teams, kept) = (listed(giving, "or"), KEPT.num_seconds());
    vec![
        format!("A member of {teams} can comment the command."),
        format!(
            "Or a maintainer of {teams} can add {name}. Run the command again {kept} seconds later."
        ),
        format!(
            "Or an administrator can change the list. A team counts as empty if {org} does not have it, or if the \
             account of Lockkeeper may not see it."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_rule_what_is_the_case_and_who_can() {
        let told = |giving: &[&str], own: &[&str]| {
            let repo = "github.com/acme/infra".parse().unwrap();
            denial(
                &Identity::Commenter("mallory".into()),
                Action::Apply,
                &repo,
                giving,
                own,
            )
            .message()
        };
        let all = [
            told(&[], &[]),
            told(&[], &["devs"]),
            told(&["ops"], &[]),
            told(&["ops"], &["devs", "qa"]),
            told(&["ops", "sre"], &[]),
            told(&["ops", "sre", "leads"], &["devs"]),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` for no team, and `mallory` is in none of the teams that it names.
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` for no team, and `mallory` is in `devs`.
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` only for the team `ops` of `acme`, and `mallory` is not in it.
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` only for the team `ops` of `acme`, and `mallory` is not in it, but in `devs` and `qa`.
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` only for the teams `ops` and `sre` of `acme`, and `mallory` is in none of them.
        `mallory` may not apply: `--gh-team-allowlist` allows `apply` only for the teams `ops`, `sre` and `leads` of `acme`, and `mallory` is in none of them, but in `devs`.
        ");
    }
}
