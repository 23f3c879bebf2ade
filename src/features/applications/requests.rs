//! Plans and applies applications, registered projects, on their branch without a pull request.
//!
//! A run of an application is a command like any other, in the same queue. Locks, plans, gate and crash rules make no
//! difference. Its number is Lockkeeper's own, where a pull request has the number of the forge
//! ([`crate::model::Subject::Application`]). Head and base are both the newest commit of its branch. Text that would be a
//! comment on a pull request is stored with the command.

use crate::command::{ApplyCommand, Command, CommandTarget, DirArgument, PlanCommand};
use crate::config::access::Action;
use crate::context::Ctx;
use crate::features::locks::KeptLockReason;
use crate::features::owners;
use crate::features::planning::{CommandSpec, RunCommand, cancelled_by};
use crate::forges::ForgeError;
use crate::model::{
    Actor, ApplicationId, BranchName, CommandId, CommandKind, OwnerName, PlanState, Pull, PullRef,
    PullState, RepoId,
};
use crate::queue::Job;
use crate::render::UserText;
use crate::store::{Application, CommandRow, NewCommand, Result, RunRequestOutcome, Store};
use crate::workflow::CheckoutError;

/// Action on an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationAction {
    /// Shows what would change.
    Plan,
    /// Carries out the last plan.
    Apply,
}

impl ApplicationAction {
    /// Returns the permission that the action requires.
    pub const fn action(self) -> Action {
        match self {
            Self::Plan => Action::Plan,
            Self::Apply => Action::Apply,
        }
    }

    const fn kind(self) -> CommandKind {
        match self {
            Self::Plan => CommandKind::Plan,
            Self::Apply => CommandKind::Apply,
        }
    }

    fn spec(self, application: &Application) -> CommandSpec {
        let spec = &application.spec;
        let dir = Some(DirArgument::Path(spec.dir.clone()));
        let target = CommandTarget::DirWorkspace {
            dir,
            workspace: Some(spec.workspace.clone()),
        };
        CommandSpec::Command(match self {
            Self::Plan => Command::Plan(PlanCommand {
                target,
                ..PlanCommand::default()
            }),
            Self::Apply => Command::Apply(ApplyCommand {
                target,
                ..ApplyCommand::default()
            }),
        })
    }
}

/// Requests a run of an application: any server takes it up. The caller has checked that the actor is permitted.
pub async fn request_run(
    store: &Store,
    id: ApplicationId,
    action: ApplicationAction,
    actor: &Actor,
) -> Result<RunRequestOutcome> {
    let make = |application: &Application, at: &PullRef| NewCommand {
        kind: action.kind(),
        pull: at.clone(),
        comment: None,
        delivery: None,
        actor: actor.clone(),
        spec: action.spec(application).to_json(),
    };
    let job = |command: CommandId, new: &NewCommand| {
        RunCommand {
            command,
            pull: new.pull.clone(),
            kind: new.kind,
        }
        .to_new()
    };
    store.application_request_run(id, make, job).await
}

/// Returns the queued command, or the reason why nothing was queued. `Err(None)`: there is no such application.
pub fn queued_or_reason(
    asked: RunRequestOutcome,
) -> std::result::Result<CommandId, Option<KeptLockReason>> {
    match asked {
        RunRequestOutcome::Queued(command) => Ok(command),
        RunRequestOutcome::NotFound => Err(None),
        RunRequestOutcome::NoRepository(application) => Err(Some(no_repository(&application))),
        RunRequestOutcome::Busy(application, command) => Err(Some(busy(&application, &command))),
        RunRequestOutcome::NoPlan(application, last) => Err(Some(no_plan(&application, last))),
    }
}

fn no_repository(application: &Application) -> KeptLockReason {
    KeptLockReason {
        field: None,
        code: "no_repository",
        message: format!(
            "`{}` is not the address of a repository on a forge.",
            application.spec.url
        ),
        way_out: "Change the address of the application.".to_owned(),
    }
}

/// Explains that another command works on the application.
pub fn busy(application: &Application, command: &CommandRow) -> KeptLockReason {
    KeptLockReason {
        field: None,
        code: "busy",
        message: format!(
            "A command of application {} is still running: `{}` by `{}` ({}).",
            application.spec.title(),
            command.kind,
            command.actor.login,
            command.id
        ),
        way_out: format!(
            "Wait until it ends, or cancel it: on the page of the application, with `POST /api/apps/{id}/cancel`, or \
             with `lockkeeper apps cancel {id}`.",
            id = application.id
        ),
    }
}

/// Explains that the run to be cancelled does not exist any more.
pub fn over(application: &Application) -> KeptLockReason {
    KeptLockReason {
        field: None,
        code: "over",
        message: format!(
            "Application {} has no such queued or running run: it has ended, or it never existed.",
            application.spec.title()
        ),
        way_out: format!(
            "The page of the application and `lockkeeper apps show {}` show the results of its runs.",
            application.id
        ),
    }
}

/// Explains that an apply is only interrupted by force.
pub fn apply_running(application: &Application, command: &CommandRow) -> KeptLockReason {
    KeptLockReason {
        field: Some("force"),
        code: "apply_running",
        message: format!(
            "The apply of application {} that `{}` requested is running, so it was not interrupted: an interrupted \
             apply can leave its changes incomplete.",
            application.spec.title(),
            command.actor.login
        ),
        way_out:
            "Wait until it ends, or interrupt it by force: with the button on the page of the application, with \
             `\"force\": true` in the API, or with `--force` on the command line."
                .to_owned(),
    }
}

/// Requests the end of the command that works on an application, for callers that cannot write its end: a server
/// does. Returns the command, or the reason why nothing was stopped. `Err(None)`: there is no such application. The
/// caller has checked that the actor is permitted.
pub async fn request_stop(
    store: &Store,
    id: ApplicationId,
    actor: &Actor,
    force: bool,
) -> Result<std::result::Result<CommandRow, Option<KeptLockReason>>> {
    let Some(application) = store.application_get(id).await? else {
        return Ok(Err(None));
    };
    let Some(busy) = store.application_busy(&application).await? else {
        return Ok(Err(Some(over(&application))));
    };
    let asked = store
        .command_stop(busy.id, &cancelled_by(actor), force)
        .await?;
    if !asked.interrupted.is_empty() {
        return Ok(Ok(busy));
    }
    let is_running = !asked.spared.is_empty();
    Ok(Err(Some(if is_running {
        apply_running(&application, &busy)
    } else {
        over(&application)
    })))
}

fn no_plan(application: &Application, last: Option<PlanState>) -> KeptLockReason {
    let why = match last {
        None => "there is none",
        Some(PlanState::NoChanges) => "the last one has no changes",
        Some(PlanState::Applied) => "the last one was applied",
        Some(PlanState::Discarded) => "the last one was discarded",
        Some(PlanState::Applying) => "the last one is being applied, or its apply was interrupted",
        Some(PlanState::Planned | PlanState::ApplyFailed) => "the last one is gone",
    };
    KeptLockReason {
        field: None,
        code: "no_plan",
        message: format!(
            "Application {} has no plan that could be applied: {why}.",
            application.spec.title()
        ),
        way_out: "Plan first, look at the plan, then apply it.".to_owned(),
    }
}

/// Reason why the current state of a pull request or an application is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownState {
    /// The forge did not answer.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The branch could not be fetched.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] sqlx::Error),
    /// The application cannot be worked on.
    #[error("{}", .1.message.trim_end_matches('.'))]
    Refused(&'static str, UserText),
}

/// Fetches the current state of a pull request from its forge. The state of an application is that of its branch.
pub(crate) async fn pull_now(ctx: &Ctx, at: &PullRef) -> std::result::Result<Pull, UnknownState> {
    if !at.subject.is_application() {
        return Ok(ctx.forges.of(&at.repo)?.pull(at).await?);
    }
    let application = registered(ctx, at).await?;
    let branch = &application.spec.branch;
    let facts = ctx.forges.of(&at.repo)?.repository(&at.repo).await?;
    if facts.at.repo != at.repo {
        let (what, repo) = (
            format!("the repository {}", at.repo.full_name()),
            Box::new(at.repo.clone()),
        );
        return Err(ForgeError::Moved {
            what,
            repo,
            message: "it was renamed".to_owned(),
        }
        .into());
    }
    if !application.spec.any_branch && facts.default_branch != *branch {
        return Err(UnknownState::Refused(
            "other_branch",
            other_branch(&application, at, &facts.default_branch),
        ));
    }
    let head = ctx.checkouts.fetch_tip(at, branch).await?.ok_or_else(|| {
        let message = format!("the branch `{branch}` is not in the repository.");
        UnknownState::Refused(
            "branch_gone",
            UserText::new(
                message,
                ["Create the branch, or change the application.".to_owned()],
            ),
        )
    })?;
    Ok(Pull {
        at: at.clone(),
        repo_id: Some(facts.at.id),
        archived: false,
        title: application.spec.title(),
        author: application.created_by,
        url: ctx.settings.application_url(application.id),
        head: head.clone(),
        head_branch: branch.clone(),
        head_repo: Some(at.repo.clone()),
        base_branch: branch.clone(),
        base: head,
        state: PullState::Open,
        draft: false,
        labels: Vec::new(),
    })
}

/// Explains that the branch is not the default branch: the application was registered for another one, or the
/// repository has got a new default branch since.
fn other_branch(application: &Application, at: &PullRef, default: &BranchName) -> UserText {
    let (id, branch) = (application.id, &application.spec.branch);
    let message = format!(
        "the application is registered for the branch `{branch}`, and the default branch of {} is `{default}` now. An \
         application uses the default branch, unless the account of the whole server allows another one.",
        at.repo
    );
    let hints = [
        format!(
            "Register it for the default branch: `lockkeeper apps change {id} --branch {default}`, or `POST /api/apps/{id}`."
        ),
        format!(
            "Or an administrator can allow this branch: `lockkeeper apps change {id} --any-branch true`, or \
             `\"any_branch\": true` in `POST /api/apps/{id}`."
        ),
    ];
    UserText::new(message, hints)
}

/// Asks the forge for the current default branch of a repository.
pub async fn default_branch(
    ctx: &Ctx,
    repo: &RepoId,
) -> std::result::Result<BranchName, ForgeError> {
    let facts = ctx.forges.of(repo)?.repository(repo).await?;
    if facts.at.repo == *repo {
        return Ok(facts.default_branch);
    }
    let (what, message) = (
        format!("the default branch of {repo}"),
        format!("it was renamed to {}", facts.at.repo),
    );
    Err(ForgeError::Rejected {
        what,
        host: repo.host().clone(),
        message,
    })
}

/// Returns the application, if this server works for its repository.
pub(crate) async fn registered(
    ctx: &Ctx,
    at: &PullRef,
) -> std::result::Result<Application, UnknownState> {
    let found = ctx
        .store
        .application_of(at.subject)
        .await?
        .filter(|found| found.at().as_ref() == Some(at));
    let application = found.ok_or_else(|| {
        UnknownState::Refused(
            "not_registered",
            UserText::new("the application is not registered any more.", []),
        )
    })?;
    if !ctx.forges.has(at.repo.host()) {
        let message = format!(
            "this server serves repositories on {}, and this one is on {}.",
            ctx.forges.names(),
            at.repo.host()
        );
        return Err(UnknownState::Refused(
            "other_forge",
            UserText::new(message, []),
        ));
    }
    if !ctx.settings.repos.allowlist.allows(&at.repo) {
        let message = format!(
            "this server does not serve `{}` (`--repo-allowlist`).",
            at.repo
        );
        let hint = "An administrator can add the repository to that list.".to_owned();
        return Err(UnknownState::Refused(
            "not_allowlisted",
            UserText::new(message, [hint]),
        ));
    }
    // An address can differ from the repository in letter case, and somebody else may have claimed the repository
    // itself. Only that owner decides about the commands and the credentials of the repository.
    let owner = ctx.store.claim_owner_of(&at.repo).await?;
    if owner.as_ref() != Some(&application.owner) {
        return Err(UnknownState::Refused(
            "not_the_owner",
            not_the_owner(&application, at, owner.as_ref()),
        ));
    }
    Ok(application)
}

fn not_the_owner(
    application: &Application,
    at: &PullRef,
    claimed_by: Option<&OwnerName>,
) -> UserText {
    let url = owners::claim_address(&at.repo);
    let (registered, owner) = (&application.spec.url, &application.owner);
    let whose = claimed_by.map_or_else(
        || "nobody has claimed".to_owned(),
        |other| format!("`{other}` has claimed"),
    );
    let message = format!(
        "{whose} the repository `{url}`, and this application was registered for `{owner}` with the address `{registered}`."
    );
    let who = claimed_by.map_or_else(String::new, |other| format!(" for `{other}`"));
    let hints = [
        format!("Remove the application and register it again{who} with the address `{url}`."),
        "On the machine of the server, run commands with the `--gh-hostname` of the server, so that they write \
         addresses in the same way."
            .to_owned(),
    ];
    UserText::new(message, hints)
}
