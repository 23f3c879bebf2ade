//! The arguments of `lockkeeper credentials`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::CredentialSession;
use crate::claims::CredentialStore;
use crate::clock::RandomIds;
use crate::config::server::{StorageConfig, forge_hosts};
use crate::credential::CredentialKind;
use crate::kit::term::{DatabaseFlags, OutputFormat, Usage, config_files, database};
use crate::model::{CredentialId, ForgeHosts, OwnerName, RepoUrl};
use crate::seal::{KeyName, keyring};

/// Add, change and remove credentials of repositories
#[derive(clap::Parser)]
pub(in crate::features::credentials) enum CredentialsArgs {
    /// Store a credential for a repository, and claim the repository for its owner
    ///
    /// Stores a token, an installation of a GitHub App or an SSH key for one repository. The secret is read from
    /// --value-file, or from standard input.
    ///
    /// Exit code 1: another owner has claimed the repository, or the credential cannot be used. The message says why,
    /// and nothing was stored.
    Add {
        /// Owner of the credential
        #[arg(long, value_name = "NAME")]
        owner: OwnerName,
        /// Address of the repository
        #[arg(long)]
        url: String,
        /// token, app (an installation of a GitHub App) or ssh (an SSH key, for git only)
        #[arg(long, value_parser = kind(), default_value = "token")]
        kind: CredentialKind,
        #[command(flatten)]
        value: CredentialFlags,
        #[command(flatten)]
        server: CredentialServerFlags,
    },
    /// Replace a credential, or use it for another repository
    Change {
        /// As `list` shows it
        id: CredentialId,
        /// New repository of the credential
        #[arg(long)]
        url: Option<String>,
        /// token, app (an installation of a GitHub App) or ssh (an SSH key, for git only)
        #[arg(long, value_parser = kind())]
        kind: Option<CredentialKind>,
        #[command(flatten)]
        value: CredentialFlags,
        #[command(flatten)]
        server: CredentialServerFlags,
    },
    /// Show credentials without their secrets
    List {
        /// Only credentials of this owner
        #[arg(long, value_name = "NAME")]
        owner: Option<OwnerName>,
        /// Only credentials for this repository
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        server: CredentialServerFlags,
    },
    /// Remove a credential, and the claim if nothing else needs it
    Remove {
        /// As `list` shows it
        id: CredentialId,
        #[command(flatten)]
        server: CredentialServerFlags,
    },
    /// Encrypt all credentials with the first key of the key file
    ///
    /// Encrypts every credential with the first key of --encryption-key-file, a hundred at a time. You can interrupt it
    /// and run it again, and the servers keep working. Afterwards the older keys are no longer needed.
    ///
    /// Exit code 1: some credentials could not be read, or were changed at the same time. Run it again.
    Rotate {
        #[command(flatten)]
        server: CredentialServerFlags,
    },
    /// Print a new line for the key file
    Keygen {
        /// Name of the key; the default is today's date
        #[arg(long)]
        name: Option<KeyName>,
    },
}

/// Parts of the value of a credential. The kind decides which of them are needed.
#[derive(clap::Args)]
pub(in crate::features::credentials) struct CredentialFlags {
    /// File with the token or the private key; the default is standard input
    #[arg(long, value_name = "FILE")]
    pub value_file: Option<PathBuf>,
    /// Account of the token, or on the SSH host; usually not needed
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Identifier of the GitHub App
    #[arg(long, value_name = "NUMBER")]
    pub app_id: Option<u64>,
    /// Identifier of its installation
    #[arg(long, value_name = "NUMBER")]
    pub installation_id: Option<u64>,
    /// Keys of the SSH host, as in a `known_hosts` file
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
    /// Port of the SSH host, if it is not 22
    #[arg(long, value_name = "NUMBER")]
    pub ssh_port: Option<u16>,
}

/// Flags for the database, the keys and the host of the forge.
#[derive(clap::Args)]
pub(in crate::features::credentials) struct CredentialServerFlags {
    /// Keys to encrypt with, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<String>,
    /// Host of the forge, as for `lockkeeper server`: names on it are case-insensitive
    #[arg(long, value_name = "HOST")]
    gh_hostname: Option<String>,
    /// File with further hosts, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    gh_hosts_file: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

fn kind() -> impl TypedValueParser<Value = CredentialKind> {
    let words = CredentialKind::ALL.iter().map(|kind| kind.as_str());
    PossibleValuesParser::new(words).try_map(|word| word.parse::<CredentialKind>())
}

impl CredentialServerFlags {
    /// Reads the settings from the environment, the flags and the settings file.
    pub(super) fn settings(&self) -> anyhow::Result<CredentialSettings> {
        let raw = config_files::add(self.database.settings_with([
            ("encryption-key-file", self.encryption_key_file.as_ref()),
            ("gh-hostname", self.gh_hostname.as_ref()),
            ("gh-hosts-file", self.gh_hosts_file.as_ref()),
        ])?);
        Ok(CredentialSettings {
            storage: StorageConfig::from_raw(&raw).map_err(Usage::new)?,
            forges: forge_hosts(&raw).map_err(Usage::new)?,
            format: self.format,
        })
    }
}

/// Settings of the server that matter for credentials.
pub(super) struct CredentialSettings {
    storage: StorageConfig,
    forges: ForgeHosts,
    format: OutputFormat,
}

impl CredentialSettings {
    /// Reads the address of a repository from `--url`.
    pub fn repo(&self, url: &str) -> Result<RepoUrl, Usage> {
        RepoUrl::parse_at(url, &self.forges)
            .map_err(|error| Usage::new(format_args!("--url: {error}")))
    }

    /// Opens the database, which must exist.
    pub async fn open(self) -> anyhow::Result<CredentialSession> {
        let store = database::open(&self.storage).await?;
        let keys = self.storage.encryption_keys.as_deref().map(keyring);
        let keys = keys.transpose()?.map(Arc::new);
        Ok(CredentialSession {
            credentials: CredentialStore::new(store.clone(), Arc::new(RandomIds), keys.clone()),
            store,
            keys,
            format: self.format,
        })
    }
}
