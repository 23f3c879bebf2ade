//! Decides who may do what, in one place for comments, pushes, pages, the API and the command line.
//!
//! The teams of people on the forge decide about them (`--gh-team-allowlist`), or a program of the administrator
//! (`team_authz`, which then replaces the list). If there is neither, people who may write to the repository have
//! permission (`--allow-commenters`), and owners of policy sets may approve policies. `--web-allow` is the rule for the
//! pages and the API. Accounts that are limited to owners (`--web-accounts-file`) reach the repositories that their
//! owners have claimed. Everybody with a shell on the server, and Lockkeeper itself, may do everything.
//!
//! An unknown fact never grants anything (P6): it is an error, and the caller retries or gives up. A denial names the
//! rule that forbids the action, the value found, and who can do it (P10).

mod owners;
mod policies;
mod program;
mod resource;
mod teams;
mod web;
mod writers;

use tracing::warn;

pub use owners::{OutsideScope, within};
pub use resource::{PullCommand, Reserved, ReservedAction, Resource};
pub use teams::is_member;
pub use web::{by_web, offers as web_offers};

use crate::config::access::{Action, Identity};
use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::model::{Cause, LockEventKind, NewLockEvent, RepoId, code_span};
use crate::queue::JobError;

/// Decision about one action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// The action is permitted.
    Granted,
    /// The action is forbidden.
    Denied(Box<Denial>),
}

/// Reason why somebody may not do something (P10). Plain text; pairs of backticks mark code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Identity that requested the action.
    pub who: Identity,
    pub action: Action,
    /// Rule as a clause: "`--gh-team-allowlist` allows `apply` only for the team `ops` of `acme`".
    pub rule: String,
    /// Value found, as a clause: "`mallory` is not in it".
    pub actual: String,
    /// People who can do it, or change the rule, as sentences.
    pub who_can: Vec<String>,
}

impl Denial {
    /// Returns one sentence with everything but the ways out.
    pub fn message(&self) -> String {
        let (who, verb) = (code_span(self.who.name()), self.action.verb());
        format!("{who} may not {verb}: {}, and {}.", self.rule, self.actual)
    }
}

/// Reason why a permission could not be determined.
#[derive(Debug, thiserror::Error)]
pub enum AuthzError {
    /// The forge did not name the members of a team.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// A denial could not be recorded.
    #[error("the database did not store the audit event: {0}")]
    Store(#[from] sqlx::Error),
}

impl From<AuthzError> for JobError {
    fn from(error: AuthzError) -> Self {
        match error {
            AuthzError::Forge(error) => error.into(),
            AuthzError::Store(error) => error.into(),
        }
    }
}

/// Decides whether somebody may do something, and records a denial.
pub async fn check(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    check_from(ctx, who, None, action, on).await
}

/// Decides as [`check`], for somebody who asks over the network, from this address.
pub async fn check_from(
    ctx: &Ctx,
    who: &Identity,
    remote: Option<&str>,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    let decision = decide(ctx, who, action, on).await?;
    record(ctx, who, remote, action, on, &decision).await?;
    Ok(decision)
}

/// Asks the forge about the author of a comment, so that [`check`] finds the answer cached. It decides nothing. What
/// needs the newest answer, or is not decided by the permission in the repository, waits for [`check`].
pub async fn ask_early(ctx: &Ctx, who: &Identity, action: Action, at: &RepoId) {
    if matches!(who, Identity::Commenter(_)) && !has_rules(ctx) {
        writers::ask_early(ctx, who, action, at).await;
    }
}

/// Records a denial in the audit log.
async fn record(
    ctx: &Ctx,
    who: &Identity,
    remote: Option<&str>,
    action: Action,
    on: &Resource<'_>,
    decision: &Decision,
) -> Result<(), AuthzError> {
    if let Decision::Denied(denial) = decision {
        let origin = who.actor().origin;
        warn!(who = who.name(), %origin, remote, %action, %on, rule = denial.rule, actual = denial.actual, "Denied");
        ctx.store
            .lock_event_append(denied(who, remote, action, on, denial))
            .await?;
    }
    Ok(())
}

fn denied(
    who: &Identity,
    remote: Option<&str>,
    action: Action,
    on: &Resource<'_>,
    denial: &Denial,
) -> NewLockEvent {
    let reason = format!("{action}: {}, and {}", denial.rule, denial.actual);
    NewLockEvent {
        kind: LockEventKind::Denied,
        key: on.lock_key(),
        scope: on.apply_scope(),
        pull: on.pull(),
        concern: on.concern(),
        cause: Cause::new(who.actor(), reason).from_address(remote.map(str::to_owned)),
    }
}

/// Decides whether code of a pull request may run although nobody with permission requested it. The people behind the
/// pull request decide it. If a list of teams or a program decides about requests, this check always grants.
pub async fn check_fork(
    ctx: &Ctx,
    who: &Identity,
    asked: PullCommand<'_>,
) -> Result<Decision, AuthzError> {
    if has_rules(ctx) {
        return Ok(Decision::Granted);
    }
    let decision = writers::by_authors(ctx, who, asked.pull).await?;
    record(
        ctx,
        who,
        None,
        Action::Plan,
        &Resource::Pull(asked),
        &decision,
    )
    .await?;
    Ok(decision)
}

/// Returns true if the administrator has rules for people of the forge. If not, the forge decides.
pub fn has_rules(ctx: &Ctx) -> bool {
    ctx.settings.repo_rules.repos.team_authz.is_some() || !ctx.settings.permissions.teams.is_empty()
}

/// Returns whether the pages should offer an action. Unlike [`check`], it is about people in general, and records
/// nothing.
pub fn offers(ctx: &Ctx, who: &Identity, action: Action) -> bool {
    match who {
        Identity::Web(user) | Identity::Api(user) => web::offers(
            &ctx.settings.permissions.web,
            &ctx.settings.web_accounts.now(),
            &user.login,
            action,
        ),
        Identity::Commenter(_) | Identity::Pusher(_) | Identity::Cli(_) | Identity::System(_) => {
            true
        }
    }
}

async fn decide(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    match (who, &ctx.settings.repo_rules.repos.team_authz) {
        (Identity::Cli(_) | Identity::System(_), _) => Ok(Decision::Granted),
        (Identity::Web(_) | Identity::Api(_), _) => {
            let (rules, accounts) = (
                &ctx.settings.permissions.web,
                ctx.settings.web_accounts.now(),
            );
            web::by_web(&ctx.store, rules, &accounts, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), Some(program)) => {
            program::by_program(ctx, program, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), None)
            if ctx.settings.permissions.teams.is_empty() =>
        {
            writers::by_permission(ctx, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), None) => {
            teams::by_teams(ctx, who, action, on).await
        }
    }
}

/// Returns the denial of an action on the whole server, to which nobody on the forge is known to have a right.
fn not_from_the_forge(who: &Identity, action: Action) -> Decision {
    Decision::Denied(Box::new(Denial {
        who: who.clone(),
        action,
        rule: "this requires the pages, the API or the command line".to_owned(),
        actual: "this request was a comment".to_owned(),
        who_can: vec!["Somebody who may use the pages of this server can do it there.".to_owned()],
    }))
}

/// Formats a list: `` `a`, `b` and `c` ``.
fn listed(names: &[impl AsRef<str>], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| code_span(name.as_ref())).collect();
    match quoted.split_last() {
        Some((last_name, [])) => last_name.clone(),
        Some((last_name, rest)) => format!("{} {last} {last_name}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_people_do() {
        for (names, expected) in [
            (vec![], ""),
            (vec!["a"], "`a`"),
            (vec!["a", "b"], "`a` or `b`"),
            (vec!["a", "`b", "c"], "`a`, `'b` or `c`"),
        ] {
            assert_eq!(listed(&names, "or"), expected);
        }
    }
}
