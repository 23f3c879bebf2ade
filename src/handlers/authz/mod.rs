//! The one place that decides who may do what, for comments, pushes, pages, the API and the command line alike.
//!
//! People of the forge are judged by the teams they are in (`--gh-team-allowlist`), or by a program of the operator
//! (`team_authz`, which then stands in place of the list), and where there is neither, by whether they may write to the
//! repository (`--allow-commenters`); the pages and the API by `--web-allow`, and those of their
//! accounts that are limited to owners (`--web-accounts-file`) by who has claimed the repository; whoever has a shell on
//! the server, and Lockkeeper itself, may do everything. What cannot be found out lets nothing through (P6): it is
//! an error, on which the caller tries again or gives up, never a grant. A denial says which rule forbids it, what is
//! the case, and who can (P10).

mod owners;
mod program;
mod resource;
mod teams;
mod web;
mod writers;

use tracing::warn;

pub use owners::{Outside, within};
pub use resource::{Asked, Reserved, ReservedDeed, Resource};
pub use web::{by_web, offers as web_offers};

use crate::config::access::{Action, Identity};
use crate::context::Ctx;
use crate::model::{Cause, LockEventKind, NewLockEvent};
use crate::queue::JobError;
use crate::vcs::ForgeError;

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// It may be done.
    Granted,
    /// It may not.
    Denied(Box<Denial>),
}

/// Why somebody may not do something (P10). Plain text; pairs of backticks mark code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who wanted it.
    pub who: Identity,
    /// What.
    pub action: Action,
    /// The rule, a clause: "`--gh-team-allowlist` gives `apply` to the team `ops` of `acme`".
    pub rule: String,
    /// What is the case, a clause: "`mallory` is not in it".
    pub actual: String,
    /// Who can do it, or change the rule: sentences.
    pub who_can: Vec<String>,
}

impl Denial {
    /// One sentence with all but the ways out.
    pub fn message(&self) -> String {
        let (who, deed) = (quoted(self.who.name()), self.action.deed());
        format!("{who} may not {deed}: {}, and {}.", self.rule, self.actual)
    }
}

/// Why it could not be found out whether something may be done.
#[derive(Debug, thiserror::Error)]
pub enum AuthzError {
    /// The forge did not say who is in which team.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// A denial could not be put on record.
    #[error("the database did not take what was to be put on record: {0}")]
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

/// Whether somebody may do something. A denial is put on record here, whoever asked.
pub async fn check(
    ctx: &Ctx,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    check_from(ctx, who, None, action, on).await
}

/// The same for somebody who asks over the network, from this address.
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

/// Puts a denial on record.
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

/// Whether code of a pull may be run that nobody who may give commands has asked for: the people behind it are asked about
/// then. Where a list of teams or a program decides, it decides who may ask, and this is left alone.
pub async fn check_fork(
    ctx: &Ctx,
    who: &Identity,
    asked: Asked<'_>,
) -> Result<Decision, AuthzError> {
    if has_rules(ctx) {
        return Ok(Decision::Granted);
    }
    let decision = writers::by_authors(ctx, who, asked.pull, asked.via).await?;
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

/// Whether the operator says who of the forge may do what; if not, the forge does.
pub fn has_rules(ctx: &Ctx) -> bool {
    ctx.settings.team_authz.is_some() || !ctx.settings.team_rules.is_empty()
}

/// Whether the pages should offer it: as [`check`], but about people in general, and nothing is put on record.
pub fn offers(ctx: &Ctx, who: &Identity, action: Action) -> bool {
    match who {
        Identity::Web(name) | Identity::Api(name) => web::offers(
            &ctx.settings.web_rules,
            &ctx.settings.web_accounts.now(),
            name,
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
    match (who, &ctx.settings.team_authz) {
        (Identity::Cli(_) | Identity::System(_), _) => Ok(Decision::Granted),
        (Identity::Web(_) | Identity::Api(_), _) => {
            let (rules, accounts) = (&ctx.settings.web_rules, ctx.settings.web_accounts.now());
            web::by_web(&ctx.store, rules, &accounts, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), Some(program)) => {
            program::by_program(ctx, program, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), None)
            if ctx.settings.team_rules.is_empty() =>
        {
            writers::by_permission(ctx, who, action, on).await
        }
        (Identity::Commenter(_) | Identity::Pusher(_), None) => {
            teams::by_teams(ctx, who, action, on).await
        }
    }
}

/// Nobody on the forge is known to have a say over the whole server.
fn not_from_the_forge(who: &Identity, action: Action) -> Decision {
    Decision::Denied(Box::new(Denial {
        who: who.clone(),
        action,
        rule: "this is done on the pages, by the API or on the command line".to_owned(),
        actual: "what came was a comment".to_owned(),
        who_can: vec!["Somebody who may use the pages of this server can do it there.".to_owned()],
    }))
}

/// Text of others as code.
fn quoted(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// `` `a`, `b` and `c` ``.
fn listed(names: &[impl AsRef<str>], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quoted(name.as_ref())).collect();
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
