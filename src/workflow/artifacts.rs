//! Plan files, kept where every replica finds them (P9) and checked against their record before use (P5).

use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::model::{PlanId, PlanRecord, Sha256Digest};

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
    /// The store did not do what was asked.
    #[error("the store of plan files did not answer")]
    Store(#[source] object_store::Error),
}

/// The store of plan files.
#[derive(Clone, Debug)]
pub struct Artifacts(Arc<dyn ObjectStore>);

impl Artifacts {
    /// Plan files in a directory, which is made if need be.
    pub fn in_directory(root: &Path) -> Result<Self, object_store::Error> {
        let make = std::fs::create_dir_all(root);
        make.map_err(|source| object_store::Error::Generic { store: "LocalFileSystem", source: source.into() })?;
        Ok(Self(Arc::new(LocalFileSystem::new_with_prefix(root)?.with_automatic_cleanup(true))))
    }

    /// Stores a plan file and returns its digest.
    pub async fn save(&self, id: PlanId, bytes: Vec<u8>) -> Result<Sha256Digest, ArtifactError> {
        let digest = Sha256Digest::of(&bytes);
        self.0.put(&key(id), PutPayload::from(bytes)).await.map_err(ArtifactError::Store)?;
        Ok(digest)
    }

    /// The plan file of a record, if it is still exactly what was stored.
    pub async fn load(&self, plan: &PlanRecord) -> Result<Vec<u8>, ArtifactError> {
        let got = match self.0.get(&key(plan.id)).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Err(ArtifactError::Missing(plan.id)),
            Err(error) => return Err(ArtifactError::Store(error)),
        };
        let bytes = got.bytes().await.map_err(ArtifactError::Store)?;
        let found = Sha256Digest::of(&bytes);
        if plan.digest.as_ref() == Some(&found) {
            return Ok(bytes.into());
        }
        let recorded = plan.digest.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        Err(ArtifactError::Altered { id: plan.id, found, recorded })
    }

    /// Removes a plan file; one that is gone already is fine.
    pub async fn remove(&self, id: PlanId) -> Result<(), ArtifactError> {
        match self.0.delete(&key(id)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(ArtifactError::Store(error)),
        }
    }
}

fn key(id: PlanId) -> Key {
    Key::from(format!("plans/{id}.tfplan"))
}
