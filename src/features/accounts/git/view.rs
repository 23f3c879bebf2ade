//! Puts what a caller may read into a repository that git serves. Hiding refs would not be enough: a client could fetch
//! any object by its id, and push a directory that names it. So each account has a repository with nothing but the
//! objects that it may read. Those who may read everything share the objects of one repository.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::AllUsersRef;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::timeout;

use super::super::all_users::{AccountsError, AllUsers, links};
use super::super::sign_in::AccountCaller;
use crate::git::{GitSettings, ServeError, ServedPlace, ServedPlaces, ServedRepo};

/// Directory of the repositories that git serves, in the data directory.
pub(crate) const ACCOUNTS_DIR: &str = "all-users";
/// Repository with all objects.
pub(super) const ALL: &str = "all.git";
/// Maximum number of objects that are read from the database at once.
const AT_ONCE: i64 = 1_000;
/// Time in which a repository is made again at most once.
const AGAIN_AFTER: Duration = Duration::from_mins(1);
/// Longest wait for the requests that use a repository which is to be removed.
const ALONE_WITHIN: Duration = Duration::from_secs(10);

/// Repositories for callers, below the data directory. All of them can be removed at any time.
pub(super) struct Views {
    pub(super) settings: GitSettings,
    pub(super) dir: PathBuf,
    places: Arc<ServedPlaces>,
}

/// The part of `All-Users` that a caller may read. The repository stays as long as this value does.
pub(super) struct View {
    pub repo: ServedRepo,
    /// All readable refs by name.
    pub refs: Arc<Vec<(String, ObjectId)>>,
    _used: ViewUse,
}

impl View {
    /// Returns the object that a ref points to.
    pub(super) fn find(&self, name: &str) -> Option<ObjectId> {
        find_ref(&self.refs, name)
    }
}

/// Returns the object that one of these sorted refs points to.
pub(super) fn find_ref(refs: &[(String, ObjectId)], name: &str) -> Option<ObjectId> {
    let found = refs.binary_search_by(|(known, _)| known.as_str().cmp(name));
    found.ok().map(|at| refs[at].1)
}

/// Keeps the repositories of a request from being removed.
struct ViewUse {
    _own: OwnedRwLockReadGuard<()>,
    /// The repository whose objects are shared.
    _shared: Option<OwnedRwLockReadGuard<()>>,
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
    /// The repository has objects that the caller may not read any more.
    #[error("the caller may read less of All-Users than before")]
    Narrowed,
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

    /// Returns the directory for pushes that are checked.
    pub(super) fn quarantine(&self) -> PathBuf {
        self.dir.join("pushed")
    }

    /// Brings the repository of a caller up to date.
    pub(super) async fn of(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
    ) -> Result<View, ViewError> {
        let place = self.place(&caller.view_name());
        let mut made = place.turn.lock().await;
        let used = Arc::clone(&place.users).read_owned().await;
        match self.up_to_date(users, caller, used).await {
            Err(ViewError::Incomplete | ViewError::Narrowed) => {}
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
        let place = self.place(&caller.view_name());
        let mut made = place.turn.lock().await;
        if made.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return Ok(None);
        }
        let used = self.remove(&place, caller).await?;
        *made = Some(Instant::now());
        self.up_to_date(users, caller, used).await.map(Some)
    }

    pub(super) fn place(&self, name: &str) -> Arc<ServedPlace> {
        self.places.of(name)
    }

    async fn remove(
        &self,
        place: &ServedPlace,
        caller: &AccountCaller,
    ) -> Result<OwnedRwLockReadGuard<()>, ViewError> {
        let alone = timeout(ALONE_WITHIN, Arc::clone(&place.users).write_owned());
        let alone = alone.await.map_err(|_| ViewError::InUse)?;
        self.remove_dir(&caller.view_name())?;
        if caller.shares_objects() {
            let shared = self.place(ALL);
            let _turn = shared.turn.lock().await;
            let alone = timeout(ALONE_WITHIN, Arc::clone(&shared.users).write_owned());
            let _alone = alone.await.map_err(|_| ViewError::InUse)?;
            self.remove_dir(ALL)?;
        }
        Ok(alone.downgrade())
    }

    pub(super) fn remove_dir(&self, name: &str) -> Result<(), ViewError> {
        let dir = self.dir.join(name);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ViewError::File(dir, error))
            }
            _ => Ok(()),
        }
    }

    /// Brings the repository with all objects up to date, for somebody who shares them.
    async fn everything(
        &self,
        users: &AllUsers,
    ) -> Result<(ServedRepo, OwnedRwLockReadGuard<()>), ViewError> {
        let place = self.place(ALL);
        let _turn = place.turn.lock().await;
        let used = Arc::clone(&place.users).read_owned().await;
        let repo = ServedRepo::open(&self.settings, self.dir.join(ALL))?;
        add_all(users, &repo).await?;
        Ok((repo, used))
    }

    /// Returns the refs that a caller may read, sorted by name.
    pub(super) async fn readable(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
    ) -> Result<Arc<Vec<(String, ObjectId)>>, ViewError> {
        let mut refs = if let Some(names) = caller.readable_names() {
            let mut refs = Vec::new();
            for name in names.into_iter().filter(|name| caller.may_read(*name)) {
                let name = name.to_string();
                let id = users.store().account_ref(&name).await?;
                refs.extend(id.map(|id| (name, id)));
            }
            refs.extend(own_stars(users, caller).await?);
            refs
        } else {
            let all = self.all_refs(users).await?;
            if caller.reads_everything() && caller.own_ref().is_none() {
                return Ok(all);
            }
            let may_read = |name: &str| name.parse().is_ok_and(|name| caller.may_read(name));
            let readable = all.iter().filter(|(name, _)| may_read(name));
            readable.cloned().collect()
        };
        let own = caller.own_ref().map(|own| own.to_string());
        let own = refs.iter().find(|(name, _)| Some(name) == own.as_ref());
        if let Some((_, id)) = own {
            refs.push((AllUsersRef::UserSelf.to_string(), *id));
        }
        refs.sort();
        Ok(Arc::new(refs))
    }

    /// Returns all refs, sorted by name.
    async fn all_refs(&self, users: &AllUsers) -> Result<Arc<Vec<(String, ObjectId)>>, ViewError> {
        let newest = users.store().account_update_number().await?;
        if let Some(refs) = self.places.refs_at(newest) {
            return Ok(refs);
        }
        let (mut refs, number) = users.store().account_refs().await?;
        // PostgreSQL sorts texts by the rules of its locale.
        refs.sort();
        let refs = Arc::new(refs);
        self.places.keep_refs((number, Arc::clone(&refs)));
        Ok(refs)
    }

    async fn up_to_date(
        &self,
        users: &AllUsers,
        caller: &AccountCaller,
        used: OwnedRwLockReadGuard<()>,
    ) -> Result<View, ViewError> {
        let dir = self.dir.join(caller.view_name());
        let refs = self.readable(users, caller).await?;
        let (repo, shared) = if caller.shares_objects() {
            let (all, used) = self.everything(users).await?;
            (ServedRepo::open_sharing_objects(&all, dir)?, Some(used))
        } else {
            (ServedRepo::open(&self.settings, dir)?, None)
        };
        if !caller.reads_everything() {
            let known: HashSet<&str> = refs.iter().map(|(name, _)| name.as_str()).collect();
            let there = repo.ref_names()?;
            let gone = there.iter().filter(|name| !known.contains(name.as_str()));
            let mut gone = gone.filter_map(|name| name.parse().ok());
            // A ref that was removed is no secret for those who may read it.
            if gone.any(|name| !caller.may_read_or_owns(name)) {
                return Err(ViewError::Narrowed);
            }
            for (_, id) in refs.iter() {
                add_reachable(users, &repo, *id).await?;
            }
        } else if shared.is_none() {
            add_all(users, &repo).await?;
        }
        // Most stars are the same object.
        let ids: HashSet<ObjectId> = refs.iter().map(|(_, id)| *id).collect();
        if ids.into_iter().any(|id| !repo.has(id)) {
            return Err(ViewError::Incomplete);
        }
        let head = caller.own_ref().unwrap_or(AllUsersRef::Config);
        repo.set_refs(&refs, &head.to_string())?;
        Ok(View {
            repo,
            refs,
            _used: ViewUse {
                _own: used,
                _shared: shared,
            },
        })
    }
}

/// Returns the stars that a caller gave and may read.
async fn own_stars(
    users: &AllUsers,
    caller: &AccountCaller,
) -> Result<Vec<(String, ObjectId)>, ViewError> {
    let Some(own) = caller.own() else {
        return Ok(Vec::new());
    };
    let mut refs = users.store().account_star_refs(own.number).await?;
    refs.retain(|(name, _)| name.parse().is_ok_and(|name| caller.may_read(name)));
    Ok(refs)
}

/// Name of the file with the last object that is here, and with the number of its update.
const LAST: &str = "lockkeeper-last";

/// Returns the number of an update and an object of it: all objects up to this one are here. If the database has another
/// number for the object, the database was restored from a backup, and everything is added again.
pub(super) async fn added_up_to(
    users: &AllUsers,
    repo: &ServedRepo,
) -> Result<(i64, ObjectId), ViewError> {
    let path = repo.dir().join(LAST);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(ViewError::File(path, error)),
    };
    let last = text.trim().split_once(' ');
    let last = last.and_then(|(number, id)| {
        Some((
            number.parse().ok()?,
            ObjectId::from_hex(id.as_bytes()).ok()?,
        ))
    });
    if let Some((number, id)) = last
        && users.store().account_object_update(id).await? == Some(number)
    {
        return Ok((number, id));
    }
    Ok((0, ObjectId::null(gix_hash::Kind::Sha1)))
}

/// Adds all objects that are not here yet.
async fn add_all(users: &AllUsers, repo: &ServedRepo) -> Result<(), ViewError> {
    let path = repo.dir().join(LAST);
    let failed = |error| ViewError::File(path.clone(), error);
    let mut after = added_up_to(users, repo).await?;
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
