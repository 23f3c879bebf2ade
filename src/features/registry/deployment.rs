//! The name and the signing key of this deployment.
//!
//! The first server with `--registry` makes the key and stores it sealed in the database, so that all replicas share it.
//! Servers that start at the same time end with the same key, because only one row can be inserted. The name never
//! changes: two logs under one name would look like fraud to `go`, and so would one log under two names.

use chrono::{DateTime, Utc};
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::{InvalidNoteKey, NoteSigner, NoteVerifier};

use super::blobs::StoreId;
use super::peers::reseal_tokens;
use super::service::RegistryError;
use crate::seal::{Binding, KeyName, Keyring, SealedText};
use crate::secret::Secret;
use crate::store::{Result as StoreResult, Store, execute, kept_time, on_pool};

/// Identity of this server and its replicas: the name, and the key that signs records and heads.
#[derive(Clone, Debug)]
pub struct Deployment {
    pub name: DeploymentName,
    pub signer: NoteSigner,
}

#[derive(sqlx::FromRow)]
struct DeploymentRow {
    name: String,
    verifier: String,
    key_name: KeyName,
    sealed_key: Vec<u8>,
    store_id: StoreId,
    created_at: DateTime<Utc>,
}

impl Deployment {
    /// Opens the deployment of a database, or makes it.
    pub(super) async fn open(
        store: &Store,
        keys: &Keyring,
        name: &DeploymentName,
        packages: &StoreId,
    ) -> Result<Self, RegistryError> {
        if store.registry_deployment().await?.is_none() {
            let signer = NoteSigner::from_seed(name.as_str(), &rand::random())
                .map_err(|error| RegistryError::Settings(error.to_string()))?;
            store
                .registry_deployment_add(&signer, keys, packages)
                .await?;
        }
        let row = store.registry_deployment().await?;
        let row = row.ok_or(sqlx::Error::RowNotFound)?;
        row.open(store, keys, name, packages).await
    }
}

impl DeploymentRow {
    async fn open(
        self,
        store: &Store,
        keys: &Keyring,
        name: &DeploymentName,
        packages: &StoreId,
    ) -> Result<Deployment, RegistryError> {
        let refused = |text: String| Err(RegistryError::Settings(text));
        if self.name != name.as_str() {
            return refused(format!(
                "the registry of this database is called `{}`, since {}, and its name never changes. Set \
                 --registry-name to that name, or use a new database",
                self.name,
                self.created_at.date_naive()
            ));
        }
        // Two first servers with two directories come here.
        if self.store_id != *packages {
            return refused(format!(
                "the packages of this database are in another store: its identifier is {}, and that of the given one is \
                 {packages}. Use the directory or the object store that the first server used. Several replicas need a shared one",
                self.store_id
            ));
        }
        let sealed = SealedText {
            key: self.key_name,
            bytes: self.sealed_key,
        };
        let binding = binding(&self.name, &self.verifier);
        let secret = match keys.open(&sealed, &binding) {
            Ok(secret) => secret,
            Err(error) => {
                return refused(format!(
                    "the signing key of the registry cannot be read: {error}"
                ));
            }
        };
        let signer = NoteSigner::parse(secret.expose())
            .ok()
            .filter(|signer| signer.verifier().to_string() == self.verifier);
        let Some(signer) = signer else {
            return refused(
                "the signing key of the registry does not fit its public key".to_owned(),
            );
        };
        if sealed.key != *keys.first() {
            let again = keys.seal(&secret, &binding);
            store
                .registry_deployment_reseal(&self.verifier, &again)
                .await?;
        }
        Ok(Deployment {
            name: name.clone(),
            signer,
        })
    }
}

/// Encrypts the signing key and the tokens for peers again with the first key of the file, if there is a registry. Returns true if another
/// key had encrypted the signing key.
pub(crate) async fn reseal_signing_key(store: &Store, keys: &Keyring) -> anyhow::Result<bool> {
    let Some(row) = store.registry_deployment().await? else {
        return Ok(false);
    };
    reseal_tokens(store, keys).await?;
    let sealed = SealedText {
        key: row.key_name,
        bytes: row.sealed_key,
    };
    if sealed.key == *keys.first() {
        return Ok(false);
    }
    let binding = binding(&row.name, &row.verifier);
    let secret = keys.open(&sealed, &binding)?;
    store
        .registry_deployment_reseal(&row.verifier, &keys.seal(&secret, &binding))
        .await?;
    Ok(true)
}

/// Returns the place that the sealed key belongs to.
fn binding(name: &str, verifier: &str) -> Binding {
    Binding::new(&["registry signing key", name, verifier])
}

impl Store {
    /// Returns the identifier of the store of packages, if there is a registry.
    pub(super) async fn registry_store_id(&self) -> StoreResult<Option<StoreId>> {
        Ok(self.registry_deployment().await?.map(|row| row.store_id))
    }

    /// Returns the public key of the log. `None`: no server has made the registry of this database.
    pub async fn registry_log_key(&self) -> StoreResult<Option<NoteVerifier>> {
        let row = self.registry_deployment().await?;
        let key = row.map(|row| row.verifier.parse()).transpose();
        key.map_err(|error: InvalidNoteKey| sqlx::Error::Decode(error.into()))
    }

    async fn registry_deployment(&self) -> StoreResult<Option<DeploymentRow>> {
        on_pool!(self, db => sqlx::query_as::<_, DeploymentRow>(
            "SELECT name, verifier, key_name, sealed_key, store_id, created_at FROM registry_deployment WHERE id = 1")
            .fetch_optional(db))
    }

    /// Adds the deployment, unless another server was faster.
    async fn registry_deployment_add(
        &self,
        signer: &NoteSigner,
        keys: &Keyring,
        packages: &StoreId,
    ) -> Result<(), RegistryError> {
        let verifier = signer.verifier().to_string();
        let secret = Secret::new(&signer.secret_text());
        let sealed = keys.seal(&secret, &binding(signer.name(), &verifier));
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO registry_deployment (id, name, verifier, key_name, sealed_key, store_id, created_at) \
             VALUES (1, $1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
            signer.name(),
            verifier.as_str(),
            &sealed.key,
            sealed.bytes.as_slice(),
            packages.as_str(),
            kept_time(self.now()),
        )?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores the key again, sealed with another key.
    async fn registry_deployment_reseal(
        &self,
        verifier: &str,
        sealed: &SealedText,
    ) -> StoreResult<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE registry_deployment SET key_name = $1, sealed_key = $2 WHERE id = 1 AND verifier = $3",
            &sealed.key,
            sealed.bytes.as_slice(),
            verifier,
        )?;
        tx.commit().await
    }
}
