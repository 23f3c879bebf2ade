//! Decides about people of the forge by their permission in the repository: `--allow-commenters`. It applies if there
//! is neither a list of teams nor a program.

use super::{AuthzError, Decision, Denial, Resource, not_from_the_forge, policies};
use crate::config::access::{Action, Identity};
use crate::config::server::Commenters;
use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::model::{Pull, RepoId, code_span};

/// Decides by the permission that the forge reports for this person.
pub(super) async fn by_permission(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    let Some(at) = on.repo() else {
        return Ok(not_from_the_forge(who, action));
    };
    if let (Identity::Pusher(_), Some(pull)) = (who, on.seen()) {
        return by_authors(ctx, who, pull).await;
    }
    if everybody_may(ctx, at).await? {
        return Ok(Decision::Granted);
    }
    if action == Action::ApprovePolicies
        && matches!(who, Identity::Commenter(_))
        && policies::owns_a_set(ctx, at, who.name()).await?
    {
        return Ok(Decision::Granted);
    }
    let answer = permission_on_forge(ctx, at, who.name(), is_asked_fresh(action)).await?;
    Ok(if answer == PermissionAnswer::Yes {
        Decision::Granted
    } else {
        Decision::Denied(Box::new(denial(ctx, who, action, at, &answer)))
    })
}

/// Asks for the answer that [`by_permission`] will need, so that it is cached. If the forge does not answer, the
/// decision asks again.
pub(super) async fn ask_early(ctx: &Ctx, who: &Identity, action: Action, at: &RepoId) {
    if ctx.settings.permissions.commenters == Commenters::Writers && !is_asked_fresh(action) {
        permission_on_forge(ctx, at, who.name(), false).await.ok();
    }
}

/// Decides whether the code of a pull request may be planned although nobody with write access requested it. Only
/// people with write access push to a branch of the repository itself. For a fork, everybody who can have pushed must
/// have write access: the author of the pull request, the owner of the fork, and the reported pusher.
pub(super) async fn by_authors(
    ctx: &Ctx,
    who: &Identity,
    pull: &Pull,
) -> Result<Decision, AuthzError> {
    let at = &pull.at.repo;
    if !pull.is_fork() || everybody_may(ctx, at).await? {
        return Ok(Decision::Granted);
    }
    let owner = pull.head_repo.as_ref().map(RepoId::owner);
    let pusher = matches!(who, Identity::Pusher(_)).then(|| who.name());
    let mut people: Vec<&str> = Vec::new();
    for login in [Some(pull.author.as_str()), owner, pusher]
        .into_iter()
        .flatten()
    {
        if people
            .iter()
            .all(|known| !known.eq_ignore_ascii_case(login))
        {
            people.push(login);
        }
    }
    for login in people {
        let answer = permission_on_forge(ctx, at, login, false).await?;
        if answer != PermissionAnswer::Yes {
            return Ok(Decision::Denied(Box::new(denial_of_fork(
                ctx, at, login, &answer,
            ))));
        }
    }
    Ok(Decision::Granted)
}

/// Answer of the forge about one person.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PermissionAnswer {
    Yes,
    No,
    /// The forge refuses to answer, with this message.
    Refused(String),
}

/// Asks the forge. Temporary errors go to the caller, which waits or gives up.
async fn permission_on_forge(
    ctx: &Ctx,
    at: &RepoId,
    login: &str,
    fresh: bool,
) -> Result<PermissionAnswer, ForgeError> {
    let asked = async {
        let forge = ctx.forges.of(at)?;
        ctx.memberships
            .may_write(forge, ctx.clock.now(), at, login, fresh)
            .await
    };
    match asked.await {
        Ok(true) => Ok(PermissionAnswer::Yes),
        Ok(false) => Ok(PermissionAnswer::No),
        Err(
            error @ (ForgeError::Denied { .. }
            | ForgeError::NotConfigured { .. }
            | ForgeError::Rejected { .. }
            | ForgeError::NotFound { .. }),
        ) => Ok(PermissionAnswer::Refused(error.to_string())),
        Err(
            error @ (ForgeError::Moved { .. }
            | ForgeError::Unavailable { .. }
            | ForgeError::RateLimited { .. }),
        ) => Err(error),
    }
}

async fn is_public(ctx: &Ctx, at: &RepoId) -> Result<bool, ForgeError> {
    let forge = ctx.forges.of(at)?;
    ctx.memberships.is_public(forge, ctx.clock.now(), at).await
}

/// Returns true if everybody may give commands. `--allow-commenters=everyone` is never in effect if the whole world
/// can comment. A repository of unknown visibility counts as public.
async fn everybody_may(ctx: &Ctx, at: &RepoId) -> Result<bool, ForgeError> {
    match ctx.settings.permissions.commenters {
        Commenters::Writers => Ok(false),
        Commenters::Everyone => match is_public(ctx, at).await {
            Ok(public) => Ok(!public),
            Err(
                ForgeError::Denied { .. }
                | ForgeError::NotConfigured { .. }
                | ForgeError::Rejected { .. }
                | ForgeError::NotFound { .. },
            ) => Ok(false),
            Err(
                error @ (ForgeError::Moved { .. }
                | ForgeError::Unavailable { .. }
                | ForgeError::RateLimited { .. }),
            ) => Err(error),
        },
    }
}

/// Returns true if an action changes more than a plan does. It then needs the current permission, not an answer up to
/// half a minute old.
fn is_asked_fresh(action: Action) -> bool {
    !matches!(action, Action::Plan | Action::Version | Action::Cancel)
}

fn denial(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    repo: &RepoId,
    answer: &PermissionAnswer,
) -> Denial {
    let name = code_span(who.name());
    Denial {
        who: who.clone(),
        action,
        rule: rule(
            ctx.settings.permissions.commenters,
            &format!("`{action}`"),
            repo,
        ),
        actual: actual(&name, answer),
        who_can: own_ways_out(ctx, action)
            .into_iter()
            .chain(ways_out(&name, answer))
            .collect(),
    }
}

/// Returns the ways out that only some actions have.
fn own_ways_out(ctx: &Ctx, action: Action) -> Vec<String> {
    if action != Action::ApprovePolicies {
        return Vec::new();
    }
    let owner = "An owner of the policy set can comment the command.".to_owned();
    [owner].into_iter().chain(policies::left_out(ctx)).collect()
}

fn denial_of_fork(ctx: &Ctx, repo: &RepoId, login: &str, answer: &PermissionAnswer) -> Denial {
    let executable = ctx.settings.comments.executable();
    let mut who_can = vec![format!(
        "Somebody with write access to the repository can review the code and comment `{executable} plan`."
    )];
    who_can.extend(ways_out(&code_span(login), answer).into_iter().skip(1));
    Denial {
        who: Identity::Pusher(login.into()),
        action: Action::Plan,
        rule: rule(
            ctx.settings.permissions.commenters,
            "plans of code from a fork",
            repo,
        ),
        actual: actual(&code_span(login), answer),
        who_can,
    }
}

fn rule(commenters: Commenters, what: &str, repo: &RepoId) -> String {
    let name = code_span(repo.full_name());
    match commenters {
        Commenters::Writers => {
            format!(
                "`--allow-commenters=writers` allows {what} only for people with write access to {name}"
            )
        }
        Commenters::Everyone => format!(
            "`--allow-commenters=everyone` has no effect in a public repository, so only people with write access to \
             {name} are allowed {what}"
        ),
    }
}

fn actual(name: &str, answer: &PermissionAnswer) -> String {
    match answer {
        PermissionAnswer::Yes | PermissionAnswer::No => format!("{name} has no write access"),
        PermissionAnswer::Refused(why) => {
            format!(
                "the permissions of {name} cannot be determined: {}",
                why.trim_end_matches('.')
            )
        }
    }
}

fn ways_out(name: &str, answer: &PermissionAnswer) -> Vec<String> {
    match answer {
        PermissionAnswer::Yes | PermissionAnswer::No => vec![
            "Somebody with write access to the repository can comment the command.".to_owned(),
            format!("Or an administrator of the repository can give {name} the role `Write`."),
            "Or an administrator of the server can give permissions to teams with `--gh-team-allowlist`.".to_owned(),
        ],
        PermissionAnswer::Refused(_) => vec![
            "Run the command again in a moment.".to_owned(),
            "If this happens again, the account of Lockkeeper needs write access to the repository, or, as a GitHub \
             App, the permission `Metadata: read`."
                .to_owned(),
            "Or an administrator of the server can give permissions to teams with `--gh-team-allowlist`.".to_owned(),
        ],
    }
}
