//! Stores plan files where every replica finds them (P9): in the shared database or in a directory. Each file is
//! checked against its plan record before use (P5).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::model::{PlanId, PlanRecord, Sha256Digest};
use crate::store::Store;

/// Reason that a plan file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The store has no file for this plan.
    #[error("the plan file `{0}` does not exist in the store of plan files any more")]
    Missing(PlanId),
    /// The content differs from what was stored.
    #[error(
        "the plan file `{id}` was changed after the plan: its SHA-256 is `{found}`, not `{recorded}` as recorded"
    )]
    Altered {
        id: PlanId,
        /// Digest of the bytes found.
        found: Sha256Digest,
        /// Digest in the plan record.
        recorded: String,
    },
    /// The file is larger than the database may hold.
    #[error(
        "the plan file has {bytes} bytes, but the database stores at most {limit} (`--plan-size-limit`). Store plan \
         files in a directory that the servers share (`--share-plan-dir`), or raise the limit"
    )]
    TooLarge {
        /// Size of the file.
        bytes: u64,
        /// Largest size allowed (`--plan-size-limit`).
        limit: u64,
    },
    /// The database query failed.
    #[error("the database query failed")]
    Database(#[source] sqlx::Error),
    /// The directory of plan files could not be read or written.
    #[error("cannot read or write the store of plan files")]
    Store(#[source] object_store::Error),
}

/// Store of plan files. Clones share it.
#[derive(Clone)]
pub struct Artifacts(ArtifactLocation);

#[derive(Clone)]
enum ArtifactLocation {
    Directory {
        files: Arc<dyn ObjectStore>,
        /// Directory that contains the files themselves.
        dir: PathBuf,
    },
    Database {
        store: Store,
        limit: u64,
    },
}

/// A plan file found in the directory of plan files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPlanFile {
    /// Plan that the file was written for.
    pub plan: PlanId,
    /// Time of the last write.
    pub modified: DateTime<Utc>,
    /// True if the file was written to its end. Otherwise its writer died or is still writing.
    pub is_whole: bool,
    path: PathBuf,
}

/// A plan file that is saved, or that will be saved together with its plan record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Digest for the plan record.
    pub digest: Sha256Digest,
    /// Content of the file, if it must be saved in the transaction that records the plan.
    pub with_record: Option<Vec<u8>>,
}

impl Artifacts {
    /// Keeps plan files in a directory, which is created if it does not exist.
    pub fn in_directory(root: &Path) -> Result<Self, object_store::Error> {
        let make = std::fs::create_dir_all(root);
        make.map_err(|source| object_store::Error::Generic {
            store: "LocalFileSystem",
            source: source.into(),
        })?;
        let files = LocalFileSystem::new_with_prefix(root)?.with_automatic_cleanup(true);
        Ok(Self(ArtifactLocation::Directory {
            files: Arc::new(files),
            dir: root.join(FOLDER),
        }))
    }

    /// Keeps plan files in the database, each of at most `limit` bytes.
    pub fn in_database(store: Store, limit: u64) -> Self {
        Self(ArtifactLocation::Database { store, limit })
    }

    /// Saves a plan file. In database mode the caller saves the returned bytes together with the plan record.
    pub async fn save(&self, id: PlanId, bytes: Vec<u8>) -> Result<Saved, ArtifactError> {
        let digest = Sha256Digest::of(&bytes);
        match &self.0 {
            ArtifactLocation::Directory { files, .. } => {
                files
                    .put(&key(id), PutPayload::from(bytes))
                    .await
                    .map_err(ArtifactError::Store)?;
                Ok(Saved {
                    digest,
                    with_record: None,
                })
            }
            ArtifactLocation::Database { limit, .. } => match bytes.len() as u64 {
                size if size > *limit => Err(ArtifactError::TooLarge {
                    bytes: size,
                    limit: *limit,
                }),
                _ => Ok(Saved {
                    digest,
                    with_record: Some(bytes),
                }),
            },
        }
    }

    /// Returns the plan file of a record, if it is still exactly what was stored.
    pub async fn load(&self, plan: &PlanRecord) -> Result<Vec<u8>, ArtifactError> {
        let bytes = self
            .read(plan.id)
            .await?
            .ok_or(ArtifactError::Missing(plan.id))?;
        let found = Sha256Digest::of(&bytes);
        if plan.digest.as_ref() == Some(&found) {
            return Ok(bytes);
        }
        let recorded = plan
            .digest
            .as_ref()
            .map_or_else(|| "none".to_owned(), ToString::to_string);
        Err(ArtifactError::Altered {
            id: plan.id,
            found,
            recorded,
        })
    }

    async fn read(&self, id: PlanId) -> Result<Option<Vec<u8>>, ArtifactError> {
        match &self.0 {
            ArtifactLocation::Directory { files, .. } => match files.get(&key(id)).await {
                Ok(got) => Ok(Some(
                    got.bytes().await.map_err(ArtifactError::Store)?.into(),
                )),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(ArtifactError::Store(error)),
            },
            ArtifactLocation::Database { store, .. } => store
                .plan_file_get(id)
                .await
                .map_err(ArtifactError::Database),
        }
    }

    /// Removes a plan file. Succeeds if the file does not exist.
    pub async fn remove(&self, id: PlanId) -> Result<(), ArtifactError> {
        match &self.0 {
            ArtifactLocation::Directory { files, .. } => match files.delete(&key(id)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(ArtifactError::Store(error)),
            },
            ArtifactLocation::Database { store, .. } => store
                .plan_file_remove(id)
                .await
                .map_err(ArtifactError::Database),
        }
    }

    /// Lists the plan files in the directory, including those that were not written to their end. The database has no
    /// file without a record, so the list is empty for it.
    pub async fn found(&self) -> io::Result<Vec<FoundPlanFile>> {
        let ArtifactLocation::Directory { dir, .. } = &self.0 else {
            return Ok(Vec::new());
        };
        let dir = dir.clone();
        tokio::task::spawn_blocking(move || found_in(&dir))
            .await
            .map_err(io::Error::other)?
    }

    /// Removes a file that [`Self::found`] returned. Succeeds if the file does not exist.
    pub async fn remove_found(&self, file: &FoundPlanFile) -> io::Result<()> {
        match tokio::fs::remove_file(&file.path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Subdirectory that contains the files.
const FOLDER: &str = "plans";
/// Extension of a plan file. While a file is being written, `#` and a number follow.
const ENDING: &str = ".tfplan";

fn key(id: PlanId) -> Key {
    Key::from(format!("{FOLDER}/{id}{ENDING}"))
}

fn found_in(dir: &Path) -> io::Result<Vec<FoundPlanFile>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some((plan, is_whole)) = entry.file_name().to_str().and_then(plan_of) else {
            continue;
        };
        match entry.metadata() {
            Ok(meta) if meta.is_file() => {
                found.push(FoundPlanFile {
                    plan,
                    modified: meta.modified()?.into(),
                    is_whole,
                    path: entry.path(),
                });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}

/// Reads the name of a plan file; `None` for other files.
fn plan_of(name: &str) -> Option<(PlanId, bool)> {
    let (id, rest) = name.split_once(ENDING)?;
    let number = rest.strip_prefix('#');
    let is_ours = rest.is_empty()
        || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()));
    let plan: PlanId = id.parse().ok().filter(|_| is_ours)?;
    (plan.to_string() == id).then_some((plan, rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00000000-0000-7000-8000-000000000001";

    #[test]
    fn files_of_others_are_not_plan_files() {
        let plan: PlanId = ID.parse().unwrap();
        assert_eq!(plan_of(&format!("{ID}.tfplan")), Some((plan, true)));
        assert_eq!(plan_of(&format!("{ID}.tfplan#12")), Some((plan, false)));
        let others = [
            "notes.txt".to_owned(),
            ID.to_owned(),
            "x.tfplan".to_owned(),
            format!("{ID}.tfplan.bak"),
            format!("{ID}.tfplan#"),
        ];
        for name in others {
            assert_eq!(plan_of(&name), None, "{name}");
        }
    }

    /// The store writes to a temporary file beside the plan file first, and a crash leaves that file behind.
    #[tokio::test]
    async fn what_is_saved_is_found_and_what_was_cut_off_too() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::in_directory(dir.path()).unwrap();
        assert_eq!(artifacts.found().await.unwrap(), []);
        let plan: PlanId = ID.parse().unwrap();
        artifacts.save(plan, b"plan".to_vec()).await.unwrap();
        std::fs::write(dir.path().join(format!("plans/{ID}.tfplan#1")), "pl").unwrap();
        let mut found = artifacts.found().await.unwrap();
        found.sort_by_key(|file| file.is_whole);
        assert_eq!(
            found
                .iter()
                .map(|file| (file.plan, file.is_whole))
                .collect::<Vec<_>>(),
            [(plan, false), (plan, true)]
        );
        for file in found.iter().chain(&found) {
            artifacts.remove_found(file).await.unwrap();
        }
        assert_eq!(artifacts.found().await.unwrap(), []);
    }
}
