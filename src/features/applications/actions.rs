//! Applications for the pages and the API: registering and changing them, requesting a plan or an apply, cancelling a run,
//! and discarding a plan.

use axum::http::StatusCode;
use serde::Deserialize;
use tracing::{info, warn};

use super::requests::{self, ApplicationAction, apply_running, busy, over, queued_or_reason};
use crate::authz::{Reserved, ReservedAction, Resource};
use crate::claims::{self, ApplicationSaved, application_add, application_change};
use crate::config::access::{Action, NetworkRequester};
use crate::features::locks::KeptLockReason;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{Cancelling, WebError, WebState, shown};
use crate::model::{
    ApplicationChange, ApplicationId, ApplicationProblem, ApplicationSpec, Cause, CommandId, Lock,
    OwnerName, RepoUrl, Rights,
};
use crate::store::{Application, CommandRow, DiscardOutcome};

/// Failure for an application with invalid fields.
pub(crate) fn invalid_application(problems: &[ApplicationProblem]) -> WebError {
    WebError::wrong_fields(
        problems
            .iter()
            .map(|problem| (problem.field.as_str(), problem.text.as_str())),
    )
}

/// Reads the identifier in the path.
pub(super) fn app_id(asked: &str) -> Result<ApplicationId, WebError> {
    asked.parse().map_err(|_| WebError::no_such_app())
}

/// Returns the application of an identifier in the path.
pub(super) async fn the_app(web: &WebState, asked: &str) -> Result<Application, WebError> {
    web.store
        .application_get(app_id(asked)?)
        .await?
        .ok_or_else(WebError::no_such_app)
}

/// Returns the application of an identifier in the path, if the user may see it.
pub(super) async fn seen_app(
    web: &WebState,
    visible: &VisibleScope,
    asked: &str,
) -> Result<Application, WebError> {
    let app = web.store.application_get(app_id(asked)?).await?;
    visible
        .require_access(&Resource::of_owner(app.as_ref().map(|app| &app.owner)))
        .await?;
    app.ok_or_else(WebError::no_such_app)
}

async fn permit(
    web: &WebState,
    app: &Application,
    who: &NetworkRequester,
    action: Action,
) -> Result<(), WebError> {
    match app.at() {
        Some(at) => {
            web.permit(
                who,
                action,
                &Resource::Unseen {
                    pull: &at,
                    args: &[],
                },
            )
            .await
        }
        None => web.permit(who, action, &Resource::Owner(&app.owner)).await,
    }
}

/// Registers an application if the user may change data of the owner.
pub(crate) async fn register(
    web: &WebState,
    owner: &OwnerName,
    spec: &ApplicationSpec,
    (who, cause): (&NetworkRequester, &Cause),
) -> Result<Application, WebError> {
    let rights = web.rights(who).await?;
    if rights == Rights::Limited {
        permit_branch(web, who, owner, spec).await?;
    }
    let saved = application_add(&web.store, owner, spec, (rights, cause)).await?;
    saved_or_why(web, who, owner, saved).await
}

/// Changes an application if the user may change data of its owner.
pub(super) async fn change(
    web: &WebState,
    app: &Application,
    change: &ApplicationChange,
    (who, cause): (&NetworkRequester, &Cause),
) -> Result<Application, WebError> {
    let (rights, spec) = (web.rights(who).await?, change.of(&app.spec));
    if rights == Rights::Limited && spec != app.spec {
        permit_branch(web, who, &app.owner, &spec).await?;
    }
    let saved = application_change(&web.store, app.id, change, (rights, cause)).await?;
    saved_or_why(web, who, &app.owner, saved).await
}

/// Checks if a limited account may register this branch. The owner of the repository is checked first, so that nothing
/// about the repositories of other owners is requested or revealed.
async fn permit_branch(
    web: &WebState,
    who: &NetworkRequester,
    owner: &OwnerName,
    spec: &ApplicationSpec,
) -> Result<(), WebError> {
    let reserved = |default| {
        let what = ReservedAction::OtherBranch(&spec.branch, default);
        Resource::Reserved(Reserved {
            owner,
            url: &spec.url,
            what,
        })
    };
    if web.store.claim_owner(&spec.url).await?.as_ref() != Some(owner) {
        return Ok(());
    }
    if spec.any_branch {
        web.permit(who, Action::Owners, &reserved(None)).await?;
    }
    // Lockkeeper never works on a repository that is not on a forge.
    let Some(repo) = spec.url.repo_id() else {
        return Ok(());
    };
    let default = web.authority.default_branch(&repo).await?;
    if default == spec.branch {
        Ok(())
    } else {
        web.permit(who, Action::Owners, &reserved(Some(&default)))
            .await
    }
}

/// Returns the saved application, or why it was not saved.
async fn saved_or_why(
    web: &WebState,
    who: &NetworkRequester,
    owner: &OwnerName,
    saved: ApplicationSaved,
) -> Result<Application, WebError> {
    match saved {
        ApplicationSaved::Saved(app) => Ok(app),
        ApplicationSaved::OwnedBy(url, owner) => {
            let why = claims::owned_by(&url, &owner);
            Err(WebError::owned_by(&why, owner.as_str()))
        }
        ApplicationSaved::Unclaimed(url) => Err(unclaimed(web, who, owner, &url).await),
        ApplicationSaved::NoOwner(name) => Err(WebError::no_such_owner(name.as_str())),
        ApplicationSaved::NotFound(_) => Err(WebError::no_such_app()),
        busy @ ApplicationSaved::InUse(..) => Err(WebError::conflict(
            "Application in use",
            &busy.or_why().err().unwrap_or_default(),
        )),
        there @ ApplicationSaved::AlreadyThere(_) => {
            let why = there.or_why().err().unwrap_or_default();
            Err(WebError::conflict("Already registered", &why))
        }
        many @ ApplicationSaved::TooMany(_) => Err(WebError::conflict(
            "Too many applications",
            &many.or_why().err().unwrap_or_default(),
        )),
    }
}

/// Returns the refusal of a first claim, which is recorded in the audit log. If the account is limited no more by now, the
/// user only has to try again.
pub(crate) async fn unclaimed(
    web: &WebState,
    who: &NetworkRequester,
    owner: &OwnerName,
    url: &RepoUrl,
) -> WebError {
    let claim = Resource::Reserved(Reserved {
        owner,
        url,
        what: ReservedAction::FirstClaim,
    });
    let denied = web.permit(who, Action::Owners, &claim).await;
    denied
        .err()
        .unwrap_or_else(|| WebError::conflict("Repository not claimed", &claims::unclaimed(url)))
}

/// Queues a run if the user may request it.
pub(super) async fn request_run(
    web: &WebState,
    app: &Application,
    action: ApplicationAction,
    who: &NetworkRequester,
) -> Result<CommandId, WebError> {
    permit(web, app, who, action.action()).await?;
    let asked = requests::request_run(&web.store, app.id, action, &who.actor()).await?;
    let why = |why: Option<_>| why.map_or_else(WebError::no_such_app, |why| not_now(&why));
    let command = queued_or_reason(asked).map_err(why)?;
    info!(who = who.name(), application = %app.id, %command, ?action, "Somebody requested a run of an application");
    Ok(command)
}

/// Request to cancel a run.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CancelRequest {
    /// Run to cancel. `None`: the current run of the application.
    pub run: Option<CommandId>,
    /// True if an apply that is under way is interrupted too.
    pub force: bool,
}

/// Cancels the current run of an application if the user may.
pub(super) async fn cancel(
    web: &WebState,
    app: &Application,
    stopping: &CancelRequest,
    who: &NetworkRequester,
) -> Result<(CommandId, Cancelling), WebError> {
    let force = stopping.force;
    permit(
        web,
        app,
        who,
        if force {
            Action::CancelForce
        } else {
            Action::Cancel
        },
    )
    .await?;
    let found = web.store.application_busy(app).await?;
    let is_meant = |command: &CommandRow| stopping.run.is_none_or(|run| run == command.id);
    let Some(command) = found.filter(is_meant) else {
        return Err(not_now(&over(app)));
    };
    let outcome = web.cancel.cancel(command.id, &who.actor(), force).await?;
    warn!(who = who.name(), application = %app.id, command = %command.id, force, ?outcome, "Somebody cancelled a command");
    match outcome {
        Cancelling::Dropped | Cancelling::Interrupted => Ok((command.id, outcome)),
        Cancelling::ApplyRunning => Err(not_now(&apply_running(app, &command))),
        Cancelling::Over => Err(not_now(&over(app))),
    }
}

/// Discards the plan if the user may. Returns the released locks.
pub(super) async fn discard(
    web: &WebState,
    app: &Application,
    who: &NetworkRequester,
) -> Result<Vec<Lock>, WebError> {
    permit(web, app, who, Action::Discard).await?;
    let cause = Cause::new(who.actor(), "the plan of the application is discarded")
        .from_address(who.remote.clone());
    match web.store.application_discard(app.id, &cause).await? {
        DiscardOutcome::Done(locks) => {
            info!(who = who.name(), application = %app.id, locks = locks.len(), "Somebody discarded the plan of an application");
            Ok(locks)
        }
        DiscardOutcome::NotFound => Err(WebError::no_such_app()),
        DiscardOutcome::Busy(app, command) => Err(not_now(&busy(&app, &command))),
    }
}

/// Failure for something that is not possible now.
fn not_now(explained: &KeptLockReason) -> WebError {
    WebError::nothing_changed(
        (StatusCode::CONFLICT, "Not possible now"),
        explained.field,
        explained.code,
        &shown(&explained.message),
        &shown(&explained.way_out),
    )
}
