//! Plan files, kept where every replica finds them (P9) and checked against their record before use (P5): in the
//! database that the replicas share, or in a directory.

use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::model::{PlanId, PlanRecord, Sha256Digest};
use crate::store::Store;

/// Why a plan file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// There is no such file.
    #[error("the plan file `{0}` is gone from the store of plan files")]
    Missing(PlanId),
    /// Its content is not what was stored.
    #[error(
        "the plan file `{id}` is not the one that was made: its SHA-256 is `{found}`, the record says `{recorded}`"
    )]
    Altered {
        /// The plan.
        id: PlanId,
        /// Digest of the bytes found.
        found: Sha256Digest,
        /// Digest in the record.
        recorded: String,
    },
    /// It is larger than what the database is to hold.
    #[error(
        "the plan file has {bytes} bytes, and at most {limit} are kept in the database (`--plan-size-limit`); keep plan \
         files in a folder that the servers share (`--share-plan-dir`), or raise the limit"
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The database did not do what was asked.
    #[error("the database did not do what was asked")]
    Database(#[source] sqlx::Error),
    /// The store did not do what was asked.
    #[error("the store of plan files did not answer")]
    Store(#[source] object_store::Error),
}

/// The store of plan files.
#[derive(Clone)]
pub struct Artifacts(Place);

#[derive(Clone)]
enum Place {
    Directory(Arc<dyn ObjectStore>),
    Database { store: Store, limit: u64 },
}

/// A plan file that is kept, or will be together with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// What the record says of it.
    pub digest: Sha256Digest,
    /// The bytes, if they belong into the transaction that records the plan.
    pub with_record: Option<Vec<u8>>,
}

impl Artifacts {
    /// Plan files in a directory, which is made if need be.
    pub fn in_directory(root: &Path) -> Result<Self, object_store::Error> {
        let make = std::fs::create_dir_all(root);
        make.map_err(|source| object_store::Error::Generic { store: "LocalFileSystem", source: source.into() })?;
        let files = LocalFileSystem::new_with_prefix(root)?.with_automatic_cleanup(true);
        Ok(Self(Place::Directory(Arc::new(files))))
    }

    /// Plan files in the database, each of at most so many bytes.
    pub fn in_database(store: Store, limit: u64) -> Self {
        Self(Place::Database { store, limit })
    }

    /// Stores a plan file, as far as that is not done together with its record.
    pub async fn save(&self, id: PlanId, bytes: Vec<u8>) -> Result<Saved, ArtifactError> {
        let digest = Sha256Digest::of(&bytes);
        match &self.0 {
            Place::Directory(files) => {
                files.put(&key(id), PutPayload::from(bytes)).await.map_err(ArtifactError::Store)?;
                Ok(Saved { digest, with_record: None })
            }
            Place::Database { limit, .. } => match bytes.len() as u64 {
                size if size > *limit => Err(ArtifactError::TooLarge { bytes: size, limit: *limit }),
                _ => Ok(Saved { digest, with_record: Some(bytes) }),
            },
        }
    }

    /// The plan file of a record, if it is still exactly what was stored.
    pub async fn load(&self, plan: &PlanRecord) -> Result<Vec<u8>, ArtifactError> {
        let bytes = self.read(plan.id).await?.ok_or(ArtifactError::Missing(plan.id))?;
        let found = Sha256Digest::of(&bytes);
        if plan.digest.as_ref() == Some(&found) {
            return Ok(bytes);
        }
        let recorded = plan.digest.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        Err(ArtifactError::Altered { id: plan.id, found, recorded })
    }

    async fn read(&self, id: PlanId) -> Result<Option<Vec<u8>>, ArtifactError> {
        match &self.0 {
            Place::Directory(files) => match files.get(&key(id)).await {
                Ok(got) => Ok(Some(got.bytes().await.map_err(ArtifactError::Store)?.into())),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(ArtifactError::Store(error)),
            },
            Place::Database { store, .. } => store.plan_file_get(id).await.map_err(ArtifactError::Database),
        }
    }

    /// Removes a plan file; one that is gone already is fine.
    pub async fn remove(&self, id: PlanId) -> Result<(), ArtifactError> {
        match &self.0 {
            Place::Directory(files) => match files.delete(&key(id)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(ArtifactError::Store(error)),
            },
            Place::Database { store, .. } => store.plan_file_remove(id).await.map_err(ArtifactError::Database),
        }
    }
}

fn key(id: PlanId) -> Key {
    Key::from(format!("plans/{id}.tfplan"))
}
