//! Puts what a caller may read into a repository that git serves. Hiding refs would not be enough: a client could fetch
//! any object by its id, and push a directory that names it. So each account has a repository with nothing
//! but its own objects.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, TreeRefIter};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::AllUsersRef;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::timeout;

use super::super::all_users::{AccountsError, AllUsers};
use super::super::sign_in::AccountCaller;
use crate::git::{GitSettings, ServeError, ServedPlace, ServedPlaces, ServedRepo};

/// Directory of the repositories that git serves, in the data directory.
pub(crate) const ACCOUNTS_DIR: &str = "all-users";
/// Maximum number of objects that are read from the database at once.
const AT_ONCE: i64 = 1_000;
/// Time in which a repository is made again at most once.
const AGAIN_AFTER: Duration = Duration::from_mins(1);
/// Longest wait for the requests that use a repository which is to be removed.
const ALONE_WITHIN: Duration = Duration::from_secs(10);

/// Repositories for callers, below the data directory. All of them can be removed at any time.
pub(super) struct Views {
    settings: GitSettings,
    dir: PathBuf,
    places: Arc<ServedPlaces>,
}

/// The part of `All-Users` that a caller may read. The repository stays as long as this value does.
pub(super) struct View {
    pub repo: ServedRepo,
    /// All readable refs by name.
    pub refs: Vec<(String, ObjectId)>,
    _used: OwnedRwLockReadGuard<()>,
}

/// A repository could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum ViewError {
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A ref leads to an object that is not here.
    #[error("an object is missing in the copy of All-Users")]
    Incomplete,
    #[error("the copy of All-Users is damaged, and other requests still use it")]
    InUse,
    #[error("the file {} cannot be used", .0.display())]
    File(PathBuf, #[source] std::io::Error),
}

impl From<sqlx::Error> for ViewError {
    fn from(error: sqlx::Error) -> Self {
        Self::Accounts(error.into())
    }
}

impl Views {
    pub(super) fn new(settings: &GitSettings, places: &Arc<ServedPlaces>) -> Self {
        Self {
            settings: settings.clone(),
            dir: settings.data_dir.join(ACCOUNTS_DIR),
            places: Arc::clone(places),
        }
    }

    /// Returns the directory for pushes that are judged.
    pub(super) fn quarantine(&self) -> PathBuf {
        self.dir.join("pushed")
    }

    /// Brings the repository of a caller up to date.
    pub(super) async fn of(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
    ) -> Result<View, ViewError> {
        let place = self.place(caller);
        let mut made = place.turn.lock().await;
        let used = Arc::clone(&place.users).read_owned().await;
        match self.up_to_date(users, caller, used).await {
            Err(ViewError::Incomplete) => {}
            view => return view,
        }
        let used = self.remove(&place, caller).await?;
        *made = Some(Instant::now());
        self.up_to_date(users, caller, used).await
    }

    /// Removes the repository of a caller, and makes it again. `None` if that was done a moment ago, so that no client can
    /// keep the server busy with it.
    pub(super) async fn anew(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
    ) -> Result<Option<View>, ViewError> {
        let place = self.place(caller);
        let mut made = place.turn.lock().await;
        if made.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return Ok(None);
        }
        let used = self.remove(&place, caller).await?;
        *made = Some(Instant::now());
        self.up_to_date(users, caller, used).await.map(Some)
    }

    fn place(&self, caller: &AccountCaller) -> Arc<ServedPlace> {
        self.places.of(&caller.view_name())
    }

    async fn remove(
        &self,
        place: &ServedPlace,
        caller: &AccountCaller,
    ) -> Result<OwnedRwLockReadGuard<()>, ViewError> {
        let alone = timeout(ALONE_WITHIN, Arc::clone(&place.users).write_owned());
        let alone = alone.await.map_err(|_| ViewError::InUse)?;
        let dir = self.dir.join(caller.view_name());
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ViewError::File(dir, error))
            }
            _ => Ok(alone.downgrade()),
        }
    }

    async fn up_to_date(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
        used: OwnedRwLockReadGuard<()>,
    ) -> Result<View, ViewError> {
        let repo = ServedRepo::open(&self.settings, self.dir.join(caller.view_name()))?;
        let refs = readable(users, caller).await?;
        match caller {
            AccountCaller::Administrator(_) => add_all(users, &repo).await?,
            AccountCaller::Account { .. } => {
                for (_, id) in &refs {
                    add_reachable(users, &repo, *id).await?;
                }
            }
        }
        if refs.iter().any(|(_, id)| !repo.has(*id)) {
            return Err(ViewError::Incomplete);
        }
        let head = caller.own_ref().unwrap_or(AllUsersRef::Config);
        repo.set_refs(&refs, &head.to_string())?;
        Ok(View {
            repo,
            refs,
            _used: used,
        })
    }
}

/// Returns the refs that a caller may read, sorted by name.
async fn readable(
    users: &AllUsers,
    caller: &AccountCaller,
) -> Result<Vec<(String, ObjectId)>, ViewError> {
    let Some(own) = caller.own_ref() else {
        return Ok(users.store().account_refs().await?.0);
    };
    let mut refs = Vec::new();
    for name in [own, AllUsersRef::UserDefault] {
        if let Some(id) = users.store().account_ref(&name.to_string()).await? {
            refs.push((name.to_string(), id));
            if name == own {
                refs.push((AllUsersRef::UserSelf.to_string(), id));
            }
        }
    }
    refs.sort();
    Ok(refs)
}

/// Adds all objects that are not here yet. A file names the last one that is here, and the number of its update. If the
/// database has another number for it, the database was restored from a backup, and everything is added again.
async fn add_all(users: &AllUsers, repo: &ServedRepo) -> Result<(), ViewError> {
    let path = repo.dir().join("lockkeeper-last");
    let failed = |error| ViewError::File(path.clone(), error);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let last = text.trim().split_once(' ');
    let last = last.and_then(|(number, id)| {
        Some((
            number.parse().ok()?,
            ObjectId::from_hex(id.as_bytes()).ok()?,
        ))
    });
    let mut after = (0, ObjectId::null(gix_hash::Kind::Sha1));
    if let Some((number, id)) = last
        && users.store().account_object_update(id).await? == Some(number)
    {
        after = (number, id);
    }
    loop {
        let objects = users.store().account_objects_after(after, AT_ONCE).await?;
        let Some((newest, object)) = objects.last() else {
            return Ok(());
        };
        after = (*newest, object.id);
        let objects = objects.iter();
        repo.add(objects.map(|(_, object)| (object.kind, object.content.as_slice())))?;
        std::fs::write(&path, format!("{} {}", after.0, after.1)).map_err(failed)?;
    }
}

/// Adds an object and everything that it leads to. What is here already stands for all that it leads to, so each object
/// is written after those that it leads to.
async fn add_reachable(users: &AllUsers, repo: &ServedRepo, id: ObjectId) -> Result<(), ViewError> {
    enum CopyStep {
        Read(ObjectId),
        Write(ObjectId),
    }
    let mut seen = HashSet::new();
    let mut steps = vec![CopyStep::Read(id)];
    while let Some(step) = steps.pop() {
        match step {
            // Read a second time, because a history does not fit into memory.
            CopyStep::Write(id) => {
                let object = users.store().account_object(id).await?;
                repo.add([(object.kind, object.content.as_slice())])?;
            }
            CopyStep::Read(id) if repo.has(id) || !seen.insert(id) => {}
            CopyStep::Read(id) => {
                let object = users.store().account_object(id).await?;
                let links = links(&object)?;
                steps.push(CopyStep::Write(id));
                steps.extend(links.into_iter().map(CopyStep::Read));
            }
        }
    }
    Ok(())
}

/// Returns the objects that an object leads to.
fn links(object: &GitObject) -> Result<Vec<ObjectId>, AccountsError> {
    let bad = |error: &dyn std::fmt::Display| {
        AccountsError::Damaged(format!("the object {}: {error}", object.id))
    };
    match object.kind {
        Kind::Blob | Kind::Tag => Ok(Vec::new()),
        Kind::Tree => TreeRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1)
            // A submodule is a commit of another repository.
            .filter(|entry| !matches!(entry, Ok(entry) if entry.mode.is_commit()))
            .map(|entry| Ok(entry.map_err(|error| bad(&error))?.oid.to_owned()))
            .collect(),
        Kind::Commit => {
            let iter = || CommitRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1);
            let tree = iter().tree_id().map_err(|error| bad(&error))?;
            Ok(std::iter::once(tree).chain(iter().parent_ids()).collect())
        }
    }
}
