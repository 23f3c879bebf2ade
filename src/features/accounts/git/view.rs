//! Puts what a caller may read into a repository that git serves. Hiding refs would not be enough: a client could fetch
//! any object by its id, and push a directory that names it. So each account has a repository with nothing
//! but its own objects.

use std::collections::HashSet;
use std::path::PathBuf;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, TreeRefIter};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::AllUsersRef;
use tokio::sync::Mutex;

use super::super::all_users::{AccountsError, AllUsers};
use super::access::GitCaller;
use crate::git::{GitSettings, ServeError, ServedRepo};

/// Directory of the repositories that git serves, in the data directory.
pub(crate) const ACCOUNTS_DIR: &str = "all-users";
/// Maximum number of objects that are read from the database at once.
const AT_ONCE: i64 = 1_000;
/// The id after all others.
const LAST: ObjectId = ObjectId::Sha1([0xff; 20]);

/// Repositories for callers, below the data directory. All of them can be removed at any time.
pub(super) struct Views {
    settings: GitSettings,
    dir: PathBuf,
    /// One repository is brought up to date at a time.
    turn: Mutex<()>,
}

/// The part of `All-Users` that a caller may read.
pub(super) struct View {
    pub repo: ServedRepo,
    /// All readable refs by name.
    pub refs: Vec<(String, ObjectId)>,
}

/// A repository could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum ViewError {
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("the file {} cannot be used", .0.display())]
    File(PathBuf, #[source] std::io::Error),
}

impl From<sqlx::Error> for ViewError {
    fn from(error: sqlx::Error) -> Self {
        Self::Accounts(error.into())
    }
}

impl Views {
    pub(super) fn new(settings: &GitSettings) -> Self {
        Self {
            settings: settings.clone(),
            dir: settings.data_dir.join(ACCOUNTS_DIR),
            turn: Mutex::new(()),
        }
    }

    /// Returns the directory for pushes that are judged.
    pub(super) fn quarantine(&self) -> PathBuf {
        self.dir.join("pushed")
    }

    /// Brings the repository of a caller up to date.
    pub(super) async fn of(&self, users: &AllUsers, caller: &GitCaller) -> Result<View, ViewError> {
        let _turn = self.turn.lock().await;
        self.up_to_date(users, caller).await
    }

    /// Removes the repository of a caller, and makes it again.
    pub(super) async fn anew(
        &self,
        users: &AllUsers,
        caller: &GitCaller,
    ) -> Result<View, ViewError> {
        let _turn = self.turn.lock().await;
        let dir = self.dir_of(caller);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ViewError::File(dir, error))
            }
            _ => self.up_to_date(users, caller).await,
        }
    }

    fn dir_of(&self, caller: &GitCaller) -> PathBuf {
        self.dir.join(match caller {
            GitCaller::Administrator(_) => "all.git".to_owned(),
            GitCaller::Account { row, .. } => format!("{}.git", row.number),
        })
    }

    async fn up_to_date(&self, users: &AllUsers, caller: &GitCaller) -> Result<View, ViewError> {
        let repo = ServedRepo::open(&self.settings, self.dir_of(caller))?;
        let (all, number) = users.store().account_refs().await?;
        let refs = caller.readable(all);
        match caller {
            GitCaller::Administrator(_) => add_since(users, &repo, number).await?,
            GitCaller::Account { .. } => {
                for (_, id) in &refs {
                    add_reachable(users, &repo, *id).await?;
                }
            }
        }
        let head = caller.own_ref().unwrap_or(AllUsersRef::Config);
        repo.set_refs(&refs, &head.to_string())?;
        Ok(View { repo, refs })
    }
}

/// Writes everything into a new repository in an empty directory. No git is run.
pub(in super::super) async fn copy_to(
    users: &AllUsers,
    dir: &std::path::Path,
) -> Result<(), ViewError> {
    let repo = ServedRepo::open(&GitSettings::new(dir, ""), dir.to_owned())?;
    let (refs, number) = users.store().account_refs().await?;
    add_since(users, &repo, number).await?;
    Ok(repo.set_refs(&refs, &AllUsersRef::Config.to_string())?)
}

/// Adds all objects of the updates up to `number` that are not here yet. A file says how far that is done.
async fn add_since(users: &AllUsers, repo: &ServedRepo, number: i64) -> Result<(), ViewError> {
    let path = repo.dir().join("lockkeeper-update");
    let failed = |error| ViewError::File(path.clone(), error);
    let done = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    // A restored database is behind its copy: begin again.
    let at = if done > number { 0 } else { done };
    if at == number {
        return Ok(());
    }
    let mut after = (at, LAST);
    loop {
        let objects = users.store().account_objects_after(after, AT_ONCE).await?;
        let Some((newest, object)) = objects.last() else {
            break;
        };
        after = (*newest, object.id);
        let objects = objects.iter();
        repo.add(objects.map(|(_, object)| (object.kind, object.content.as_slice())))?;
    }
    std::fs::write(&path, number.to_string()).map_err(failed)
}

/// Adds an object and everything that it leads to. What is here already stands for all that it leads to, so each object
/// is written after those that it leads to.
async fn add_reachable(users: &AllUsers, repo: &ServedRepo, id: ObjectId) -> Result<(), ViewError> {
    enum CopyStep {
        Read(ObjectId),
        Write(GitObject),
    }
    let mut seen = HashSet::new();
    let mut steps = vec![CopyStep::Read(id)];
    while let Some(step) = steps.pop() {
        match step {
            CopyStep::Write(object) => repo.add([(object.kind, object.content.as_slice())])?,
            CopyStep::Read(id) if repo.has(id) || !seen.insert(id) => {}
            CopyStep::Read(id) => {
                let object = users.store().account_object(id).await?;
                let links = links(&object)?;
                steps.push(CopyStep::Write(object));
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
            .map(|entry| Ok(entry.map_err(|error| bad(&error))?.oid.to_owned()))
            .collect(),
        Kind::Commit => {
            let iter = || CommitRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1);
            let tree = iter().tree_id().map_err(|error| bad(&error))?;
            Ok(std::iter::once(tree).chain(iter().parent_ids()).collect())
        }
    }
}
