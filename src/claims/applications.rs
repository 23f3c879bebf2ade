//! Adds, changes and removes applications together with the claims on their repositories, each in one transaction.

use super::{no_owner, owned_by, unclaimed};
use crate::model::{
    ApplicationChange, ApplicationId, ApplicationSpec, Cause, LockEventKind, NewLockEvent,
    OwnerName, RepoUrl, Rights,
};
use crate::store::{
    Acquired, Application, ApplicationUse, ClaimUse, Result, Store, Tx, application_count_in_tx,
    application_delete_in_tx, application_hold_in_tx, application_is_taken_in_tx,
    application_use_in_tx, claim_refer_in_tx, owner_event, owner_share_named_in_tx,
};

/// Result of adding or changing an application.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationSaved {
    Saved(Application),
    /// Another owner has claimed the repository; nothing was changed.
    OwnedBy(RepoUrl, OwnerName),
    /// Nobody has claimed the repository, and the requester may not make the first claim; nothing was changed.
    Unclaimed(RepoUrl),
    /// Another application is the same; nothing was changed.
    AlreadyThere(Box<Application>),
    /// No owner has this name.
    NoOwner(OwnerName),
    /// The owner has the maximum number of applications; nothing was changed.
    TooMany(OwnerName),
    /// No application has this identifier.
    NotFound(ApplicationId),
    /// The application has a lock or a run; nothing was changed.
    InUse(Box<Application>, ApplicationUse),
}

impl ApplicationSaved {
    /// Returns the application, or sentences that explain why nothing was changed.
    pub fn or_why(self) -> Result<Application, String> {
        match self {
            Self::Saved(application) => Ok(application),
            Self::OwnedBy(url, owner) => Err(owned_by(&url, &owner)),
            Self::Unclaimed(url) => Err(unclaimed(&url)),
            Self::AlreadyThere(there) => Err(format!(
                "An application for {} already exists: {} of `{}`. Change that one, or remove it first.",
                there.spec, there.id, there.owner
            )),
            Self::NoOwner(name) => Err(no_owner(&name)),
            Self::TooMany(name) => Err(too_many(&name)),
            Self::NotFound(id) => Err(no_application(id)),
            Self::InUse(application, busy) => Err(in_use(&application, &busy)),
        }
    }
}

/// Explains why an owner can have no more applications, and what to do: sentences.
fn too_many(owner: &OwnerName) -> String {
    format!(
        "`{owner}` has {most} applications, which is the maximum. Remove applications that are no longer needed (`lockkeeper \
         apps list --owner {owner}`, `lockkeeper apps remove ID`), or add another owner for some of the repositories.",
        most = Store::MAX_APPLICATIONS
    )
}

fn no_application(id: ApplicationId) -> String {
    format!(
        "There is no application {id}. `lockkeeper apps list` lists all applications with their ids."
    )
}

/// Explains why an application is neither changed nor removed, and what to do first: sentences.
fn in_use(application: &Application, busy: &ApplicationUse) -> String {
    let (id, title) = (application.id, application.spec.title());
    match busy {
        ApplicationUse::Command(command) => format!(
            "Application {title} has a run (`{command}`), so it cannot be changed or removed now. Wait until the run has \
             ended, or cancel it: `lockkeeper apps cancel {id}`, or `POST /api/apps/{id}/cancel`."
        ),
        ApplicationUse::Lock(lock) => format!(
            "Application {title} holds the lock of {} since {}, for {}. Apply its plan, or discard it, which releases the \
             lock: `lockkeeper apps discard {id}`, or `POST /api/apps/{id}/discard`.",
            lock.project,
            lock.taken_at.format("%Y-%m-%d %H:%M UTC"),
            lock.holder.login
        ),
    }
}

/// Result of removing an application.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationRemoved {
    /// The application was removed.
    Removed(Box<Application>),
    /// No application has this identifier.
    NotFound(ApplicationId),
    /// The application has a lock or a run; nothing was changed.
    InUse(Box<Application>, ApplicationUse),
}

impl ApplicationRemoved {
    /// Returns the removed application, or sentences that explain why nothing was removed.
    pub fn or_why(self) -> Result<Application, String> {
        match self {
            Self::Removed(application) => Ok(*application),
            Self::NotFound(id) => Err(no_application(id)),
            Self::InUse(application, busy) => Err(in_use(&application, &busy)),
        }
    }
}

/// Maximum number of attempts. Each fails only if a conflicting application was removed before it could be named.
const TRIES: usize = 100;

/// Registers a project for an owner, and claims its repository for the owner if the requester has the right to.
pub async fn application_add(
    store: &Store,
    owner: &OwnerName,
    spec: &ApplicationSpec,
    by: (Rights, &Cause),
) -> Result<ApplicationSaved> {
    for _ in 0..TRIES {
        if let Some(saved) = try_add(store, owner, spec, by).await? {
            return Ok(saved);
        }
    }
    Err(sqlx::Error::Protocol(format!(
        "gave up after {TRIES} attempts: applications that conflict with {spec} kept changing"
    )))
}

/// Changes an application. Its repository is claimed first, even if it does not change. A different one moves the
/// reference, and the old claim ends if nothing else refers to it.
///
/// The permission for a branch other than the default one belongs to the old application. If the requester may not
/// grant it, any change revokes it.
pub async fn application_change(
    store: &Store,
    id: ApplicationId,
    change: &ApplicationChange,
    by: (Rights, &Cause),
) -> Result<ApplicationSaved> {
    for _ in 0..TRIES {
        if let Some(saved) = try_change(store, id, change, by).await? {
            return Ok(saved);
        }
    }
    Err(sqlx::Error::Protocol(format!(
        "gave up after {TRIES} attempts: applications that conflict with a change of {id} kept changing"
    )))
}

async fn try_add(
    store: &Store,
    owner: &OwnerName,
    spec: &ApplicationSpec,
    by @ (rights, cause): (Rights, &Cause),
) -> Result<Option<ApplicationSaved>> {
    let spec = &within(rights, spec.clone());
    let mut tx = store.begin().await?;
    let Some(owner) = owner_share_named_in_tx(&mut tx, owner).await? else {
        return Ok(Some(ApplicationSaved::NoOwner(owner.clone())));
    };
    let (acquired, mut events) = store
        .claim_acquire_in_tx(&mut tx, owner.id, &spec.url, by)
        .await?;
    let claim = match acquired {
        Acquired::Claimed(claim) => claim,
        Acquired::OwnedBy(other) => {
            return Ok(Some(ApplicationSaved::OwnedBy(spec.url.clone(), other)));
        }
        Acquired::Unclaimed => return Ok(Some(ApplicationSaved::Unclaimed(spec.url.clone()))),
    };
    let inserted = store
        .application_insert_in_tx(&mut tx, (owner.id, &owner.name), spec, cause)
        .await?;
    let Some(application) = inserted else {
        return there_is(store, tx, spec).await;
    };
    if application_count_in_tx(&mut tx, owner.id).await? > Store::MAX_APPLICATIONS {
        return Ok(Some(ApplicationSaved::TooMany(owner.name)));
    }
    claim_refer_in_tx(&mut tx, ClaimUse::Application(application.id), claim).await?;
    store.application_open_in_tx(&mut tx, &application).await?;
    events.push(event(LockEventKind::Registered, &application, cause));
    store.lock_events_in_tx(&mut tx, events).await?;
    tx.commit()
        .await
        .map(|()| Some(ApplicationSaved::Saved(application)))
}

async fn try_change(
    store: &Store,
    id: ApplicationId,
    change: &ApplicationChange,
    by @ (rights, cause): (Rights, &Cause),
) -> Result<Option<ApplicationSaved>> {
    let mut tx = store.begin().await?;
    let Some(before) = application_hold_in_tx(&mut tx, id).await? else {
        return Ok(Some(ApplicationSaved::NotFound(id)));
    };
    let (old, wanted) = (before.spec.url.clone(), change.of(&before.spec));
    let spec = if wanted == before.spec {
        wanted
    } else {
        within(rights, wanted)
    };
    if spec != before.spec {
        if let Some(busy) = application_use_in_tx(&mut tx, &before).await? {
            return Ok(Some(ApplicationSaved::InUse(Box::new(before), busy)));
        }
        store.application_close_in_tx(&mut tx, &before).await?;
    }
    let (acquired, mut events) = if spec.url == old {
        store
            .claim_acquire_in_tx(&mut tx, before.owner_id, &old, by)
            .await?
    } else {
        store
            .claim_exchange_in_tx(&mut tx, before.owner_id, (&old, &spec.url), by)
            .await?
    };
    let claim = match acquired {
        Acquired::Claimed(claim) => claim,
        Acquired::OwnedBy(other) => return Ok(Some(ApplicationSaved::OwnedBy(spec.url, other))),
        Acquired::Unclaimed => return Ok(Some(ApplicationSaved::Unclaimed(spec.url))),
    };
    if application_is_taken_in_tx(&mut tx, id, &spec).await? {
        return there_is(store, tx, &spec).await;
    }
    let after = Application {
        spec: spec.clone(),
        ..before
    };
    let Some(application) = store.application_update_in_tx(&mut tx, after).await? else {
        return there_is(store, tx, &spec).await;
    };
    claim_refer_in_tx(&mut tx, ClaimUse::Application(id), claim).await?;
    store.application_open_in_tx(&mut tx, &application).await?;
    if spec.url != old {
        events.extend(store.claim_collect_in_tx(&mut tx, &old, cause).await?);
    }
    events.push(event(LockEventKind::Registered, &application, cause));
    store.lock_events_in_tx(&mut tx, events).await?;
    tx.commit()
        .await
        .map(|()| Some(ApplicationSaved::Saved(application)))
}

/// Limits the requested application to these rights.
fn within(rights: Rights, spec: ApplicationSpec) -> ApplicationSpec {
    ApplicationSpec {
        any_branch: spec.any_branch && rights == Rights::Whole,
        ..spec
    }
}

/// Removes an application and its reference, and ends the claim if nothing else refers to it.
pub async fn application_remove(
    store: &Store,
    id: ApplicationId,
    cause: &Cause,
) -> Result<ApplicationRemoved> {
    let mut tx = store.begin().await?;
    let Some(application) = application_hold_in_tx(&mut tx, id).await? else {
        return Ok(ApplicationRemoved::NotFound(id));
    };
    if let Some(busy) = application_use_in_tx(&mut tx, &application).await? {
        return Ok(ApplicationRemoved::InUse(Box::new(application), busy));
    }
    store.application_close_in_tx(&mut tx, &application).await?;
    let url = &application.spec.url;
    let ended = store
        .claim_let_go_in_tx(&mut tx, ClaimUse::Application(id), url, cause)
        .await?;
    application_delete_in_tx(&mut tx, id).await?;
    let mut events = vec![event(LockEventKind::Unregistered, &application, cause)];
    events.extend(ended);
    store.lock_events_in_tx(&mut tx, events).await?;
    tx.commit()
        .await
        .map(|()| ApplicationRemoved::Removed(Box::new(application)))
}

/// Returns the application that was there first. `None`: it was removed in the meantime.
async fn there_is(
    store: &Store,
    tx: Tx,
    spec: &ApplicationSpec,
) -> Result<Option<ApplicationSaved>> {
    drop(tx);
    let there = store.application_find(spec).await?;
    Ok(there.map(|there| ApplicationSaved::AlreadyThere(Box::new(there))))
}

fn event(kind: LockEventKind, application: &Application, cause: &Cause) -> NewLockEvent {
    let what = format!(
        "application {} of {}, {}",
        application.id, application.owner, application.spec
    );
    owner_event(kind, cause, &application.owner, &what)
}
