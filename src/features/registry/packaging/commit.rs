//! A directory at a commit becomes a package, from a tag of a mirrored repository or for a version that is missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::directory::{LICENSE, SourceDirectory};
use super::reach::{self, ModuleReach};
use super::{CheckedPackage, PackagingError, limits};
use crate::features::registry::blobs::blocking;
use crate::git::{CommitSnapshot, FileLimits, SnapshotError};
use crate::model::RepoPath;

/// One commit at a time is in the memory of the process: its files, and the archive of git that they come from.
static PLACE: Mutex<()> = Mutex::const_new(());
/// Time after which no further directory that a module reaches is read. Everybody else waits meanwhile.
const REACH_TIME: Duration = Duration::from_mins(4);

/// Right to make a package from a commit. Only one exists at a time.
pub type PackingPlace = MutexGuard<'static, ()>;

/// Waits for the right to make a package from a commit.
pub async fn packing_place() -> PackingPlace {
    PLACE.lock().await
}

/// Reason why a commit has no package.
#[derive(Debug, thiserror::Error)]
pub enum CommitFault {
    /// The commit does not have the directory.
    #[error("the commit has no directory {0}")]
    NoDirectory(RepoPath),
    /// The files of the commit cannot be read.
    #[error(transparent)]
    Files(#[from] SnapshotError),
    /// The files make no package, or the server failed.
    #[error(transparent)]
    Packaging(#[from] PackagingError),
    /// The directories that a module reaches were not read in time.
    #[error("the directories that the module uses were not read in {} minutes", REACH_TIME.as_secs() / 60)]
    TooSlow,
    /// The work has ended in the middle.
    #[error("making the package has ended in the middle")]
    Stopped(#[source] JoinError),
}

impl CommitFault {
    /// Returns true if the same commit will always lead to this error.
    pub fn is_of_commit(&self) -> bool {
        match self {
            Self::NoDirectory(_) => true,
            Self::Files(error) => error.is_of_commit(),
            Self::Packaging(error) => !error.is_internal(),
            Self::TooSlow | Self::Stopped(_) => false,
        }
    }
}

impl CheckedPackage {
    /// Makes the package of a version from a directory at a commit. `staging` is the directory for the package. A module of
    /// Terraform brings the directories that it reaches by local sources.
    pub async fn of_commit(
        key: VersionKey,
        files: Arc<CommitSnapshot>,
        dir: RepoPath,
        staging: PathBuf,
        place: PackingPlace,
    ) -> Result<Self, CommitFault> {
        // A task of its own: its place is taken until the memory is free, also if nobody waits for it any more.
        let packing = tokio::spawn(async move {
            let packed = pack(key, &files, &dir, &staging).await;
            drop(place);
            packed
        });
        packing
            .await
            .unwrap_or_else(|error| Err(CommitFault::Stopped(error)))
    }
}

async fn pack(
    key: VersionKey,
    files: &CommitSnapshot,
    dir: &RepoPath,
    staging: &Path,
) -> Result<CheckedPackage, CommitFault> {
    let kind = key.kind();
    let limits = limits(kind);
    let most = FileLimits {
        entries: limits.entries,
        bytes: limits.unpacked,
    };
    let license = RepoPath::new(LICENSE).expect("a plain name is a path");
    let license = (kind == NameKind::Go).then_some(&license);
    let Some(archived) = files.archive(dir, license, most).await? else {
        return Err(CommitFault::NoDirectory(dir.clone()));
    };
    let mut source = SourceDirectory::of_commit(kind, dir, archived, files.commit().clone());
    if kind == NameKind::Module {
        Box::pin(add_reached(&mut source, files, dir)).await?;
    }
    Ok(CheckedPackage::of_directory(key, source, staging).await?)
}

/// Adds the directories that a module reaches by local sources.
async fn add_reached(
    source: &mut SourceDirectory,
    files: &CommitSnapshot,
    dir: &RepoPath,
) -> Result<(), CommitFault> {
    let mut reach = ModuleReach::new(dir.clone(), source.take_entries());
    let until = Instant::now() + REACH_TIME;
    loop {
        let (searched, unread) = blocking(move || {
            let unread = reach.unread();
            (reach, unread)
        })
        .await;
        reach = searched;
        let unread = unread.map_err(PackagingError::from)?;
        if unread.is_empty() {
            break;
        }
        for dir in unread {
            if reach.has(&dir) {
                continue;
            }
            if Instant::now() >= until {
                return Err(CommitFault::TooSlow);
            }
            let archived = match files.archive(&dir, None, reach.left()).await {
                Ok(archived) => archived,
                Err(SnapshotError::TooLarge { .. }) => return Err(reach::too_large().into()),
                Err(SnapshotError::TooMany { .. }) => return Err(reach::too_many().into()),
                Err(error) => return Err(error.into()),
            };
            let entries = archived.map(|archived| source.part_of_commit(&dir, archived));
            reach.add(dir, entries);
        }
    }
    source.put_reached(reach.finish());
    Ok(())
}
