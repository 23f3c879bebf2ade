//! A registry in a database, as the commands of an administrator open it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::config::server::{MissLimits, MissRules, RegistryMisses, VcsHosts};
use lockkeeper::features::registry::{
    AddNamespace, CheckedPackage, ExchangeSettings, ForeignVersions, NewToken, PeerExchange,
    Published, Registry, VersionOrigin, Visibility,
};
use lockkeeper::leases::Leases;
use lockkeeper::model::{Actor, Cause, Origin, OwnerName, RepoPath};
use lockkeeper::seal::{Binding, KEY_BYTES, KeyName, Keyring, SealedText, key_line, keyring};
use lockkeeper::store::DatabaseUrl;
use lockkeeper::telemetry::Metrics;
use lockkeeper_registry::go_zip::{select_go_files, write_go_zip};
use lockkeeper_registry::names::NamePrefix;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::NoteSigner;
use lockkeeper_registry::tf_archive::{TfFile, write_tf_archive};
use lockkeeper_registry::tree::{TreeFile, TreeMode};
use lockkeeper_registry::versions::VersionKey;
use sqlx::ConnectOptions as _;
use sqlx_postgres::PgConnection;
use sqlx_sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::locks::open;

/// Name of the registry, and host in the addresses of its modules.
pub const NAME: &str = "mods.example.com";

/// Maximum size of a package in bytes.
const MAX_PACKAGE: u64 = 64 << 20;
/// Maximum number of takedowns of another deployment in an hour.
const BRAKE: u64 = 50;

/// The key of the log as the database has it.
const DEPLOYMENT: &str = "SELECT name, verifier, key_name, sealed_key FROM registry_deployment";
/// Name, public key, name of the key that has sealed the secret key, and the sealed key.
type DeploymentColumns = (String, String, String, Vec<u8>);

/// A registry with everything that commands need.
pub struct BenchRegistry {
    pub registry: Registry,
    keys: Arc<Keyring>,
    key_file: PathBuf,
    name: &'static str,
    url: DatabaseUrl,
}

/// A connection beside those of the store, for statements that fill tables.
pub enum FillConnection {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

/// Returns the cause of all changes.
pub fn cause() -> Cause {
    Cause::new(Actor::new("bench", Origin::Cli), "")
}

impl BenchRegistry {
    /// Opens a registry. The directory becomes that of a server, whose database is there unless it is another one.
    pub async fn open(
        dir: &Path,
        database: Option<&DatabaseUrl>,
        name: &'static str,
    ) -> anyhow::Result<Self> {
        let data = dir.join("data");
        std::fs::create_dir_all(&data)?;
        let key_file = dir.join("keys");
        write_keys(&key_file)?;
        let keys = Arc::new(keyring(&key_file)?);
        let own = DatabaseUrl::Sqlite(data.join("lockkeeper.db"));
        let url = database.cloned().unwrap_or(own);
        let (deployment, packages): (DeploymentName, _) = (name.parse()?, data.join("registry"));
        let registry = Registry::open(
            open(&url).await?,
            Some(Arc::clone(&keys)),
            deployment,
            &packages,
        );
        Ok(Self {
            registry: registry.await?,
            keys,
            key_file,
            name,
            url,
        })
    }

    /// Returns the flags of a server that has this registry.
    pub fn flags(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("--registry", PathBuf::new()),
            ("--registry-name", self.name.into()),
            ("--registry-host", self.name.into()),
            ("--encryption-key-file", self.key_file.clone()),
        ]
    }

    /// Adds a namespace such as `module acme`.
    pub async fn add_namespace(&self, prefix: &str) -> anyhow::Result<()> {
        let owner = OwnerName::new("net")?;
        let (prefix, cause): (NamePrefix, Cause) = (prefix.parse()?, cause());
        let store = self.registry.store();
        drop(store.owner_create(&owner, &cause).await?);
        let added = store
            .registry_namespace_add(
                &prefix,
                &owner,
                Visibility::Public,
                ForeignVersions::Refuse,
                &cause,
            )
            .await?;
        ensure!(matches!(added, AddNamespace::Added(_)), "{added:?}");
        Ok(())
    }

    /// Creates a token that reads all public names.
    pub async fn token(&self) -> anyhow::Result<String> {
        let new = NewToken::new("bench", &["read:*".parse()?], None)?;
        let store = self.registry.store();
        let (_token, secret) = store.registry_token_create(&new, &cause()).await??;
        Ok(secret.expose().to_owned())
    }

    /// Publishes a version such as `go example.com/net v1.0.0`.
    pub async fn publish(&self, key: &str, files: &[(&str, &[u8])]) -> anyhow::Result<()> {
        let key: VersionKey = key.parse()?;
        let mut staging = self.registry.blobs().stage(MAX_PACKAGE).await?;
        staging.write(&archive(&key, files)?).await?;
        let staged = staging.finish().await?;
        let (package, ()) =
            Box::pin(CheckedPackage::of_upload(key, staged, RepoPath::root(), ())).await?;
        let (origin, cause) = (VersionOrigin::Command, cause());
        let published = Box::pin(self.registry.publish(package, origin, &cause)).await?;
        ensure!(matches!(published, Published::New(_)), "{published:?}");
        Ok(())
    }

    /// Returns what is exchanged with other deployments.
    pub fn exchange(&self) -> anyhow::Result<PeerExchange> {
        let leases = Leases::new(
            self.registry.store().clone(),
            Arc::new(SystemClock),
            Arc::new(RandomIds),
            self.name.to_owned(),
            Metrics::default(),
        );
        let settings = ExchangeSettings {
            takedown_brake: BRAKE,
            push_attempts: 1,
            misses: RegistryMisses {
                hosts: VcsHosts::default(),
                rules: MissRules::default(),
                quota: "10GiB".parse().map_err(anyhow::Error::msg)?,
                versions: 500_000,
                limits: MissLimits::DEFAULT,
            },
        };
        PeerExchange::new(
            self.registry.clone(),
            Arc::clone(&self.keys),
            leases,
            settings,
        )
    }

    /// Returns the key of the log, which is encrypted in the database.
    pub async fn signer(&self) -> anyhow::Result<NoteSigner> {
        let row: DeploymentColumns = match self.connect().await? {
            FillConnection::Sqlite(mut connection) => {
                sqlx::query_as(DEPLOYMENT)
                    .fetch_one(&mut *connection)
                    .await?
            }
            FillConnection::Postgres(mut connection) => {
                sqlx::query_as(DEPLOYMENT)
                    .fetch_one(&mut *connection)
                    .await?
            }
        };
        let (name, verifier, key, bytes) = row;
        let sealed = SealedText {
            key: key.parse()?,
            bytes,
        };
        let binding = Binding::new(&["registry signing key", &name, &verifier]);
        let secret = self.keys.open(&sealed, &binding)?;
        Ok(NoteSigner::parse(secret.expose())?)
    }

    /// Opens another connection to the database.
    pub async fn connect(&self) -> anyhow::Result<FillConnection> {
        Ok(match &self.url {
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_mins(1));
                FillConnection::Sqlite(Box::new(options.connect().await?))
            }
            DatabaseUrl::Postgres(options) => {
                FillConnection::Postgres(Box::new(options.connect().await?))
            }
        })
    }

    /// Closes the database, so that a server can open it.
    pub async fn close(self) {
        self.registry.store().close().await;
    }
}

/// Writes the file of `--encryption-key-file` with a key.
fn write_keys(path: &Path) -> anyhow::Result<()> {
    let name: KeyName = "bench".parse()?;
    // A key whose bytes are all the same is refused.
    let mut key = [7; KEY_BYTES];
    key[0] = 1;
    let line = key_line(&name, &key);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .context("cannot write the file of keys")?;
    writeln!(file, "{}", line.expose())?;
    Ok(())
}

/// Makes the package of a version.
fn archive(key: &VersionKey, files: &[(&str, &[u8])]) -> anyhow::Result<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    if let Some((path, version)) = key.as_go() {
        let files: Vec<TreeFile<'_>> = files
            .iter()
            .map(|(path, content)| TreeFile {
                path: path.as_bytes(),
                mode: TreeMode::File,
                content,
            })
            .collect();
        let selected = select_go_files(&files, "")?;
        write_go_zip(path, version, &selected, &mut out)?;
    } else {
        let files: Vec<TfFile<'_>> = files
            .iter()
            .map(|(path, content)| TfFile {
                path: Cow::Borrowed(*path),
                content,
                is_executable: false,
            })
            .collect();
        write_tf_archive(&files, &mut out)?;
    }
    Ok(out.into_inner())
}
