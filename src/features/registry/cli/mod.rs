//! `lockkeeper registry …`: publishes versions, and manages names and tokens, on the database of a server.
//!
//! | File | Content |
//! |--|--|
//! | `publish.rs`, `remote.rs` | `publish`, here or at a server |
//! | `versions.rs` | `list`, `show`, `deprecate`, `takedown` |
//! | `log.rs` | `log`, `verify`, `key` |
//! | `peers.rs` | `peers`: other deployments |
//! | `tags.rs` | `tags`: tags of repositories that publish versions |
//! | `explain.rs` | `explain`: what happens when a version is missing |
//! | `uses.rs` | `uses`: projects that use a module |
//! | `setup.rs` | `setup`: settings of clients |
//! | `namespaces.rs`, `tokens.rs` | who may publish and read |

mod explain;
mod log;
mod namespaces;
mod peers;
mod publish;
mod remote;
mod setup;
mod tags;
mod tokens;
mod uses;
mod versions;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use lockkeeper_registry::names::{NamePrefix, RegistryName};
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::versions::VersionKey;

use self::explain::ExplainArgs;
use self::log::LogArgs;
use self::namespaces::NamespacesArgs;
use self::peers::PeersArgs;
use self::publish::PublishArgs;
use self::setup::SetupArgs;
use self::tags::TagsArgs;
use self::tokens::TokensArgs;
use self::uses::UsesArgs;
use self::versions::{DeprecateArgs, ListArgs, ShowArgs, TakedownArgs};
use super::service::Registry;
use super::{PACKAGES_DIR, input};
use crate::config::server::{ObjectStoreUrl, StorageConfig};
use crate::context::PackagePlace;
use crate::kit::term::{
    DatabaseFlags, ExitResult, OutputFormat, SubcommandArgs, Terminal, Usage, actor, block_on,
    database,
};
use crate::model::Cause;
use crate::objects::RemoteObjects;
use crate::seal::{Keyring, keyring};
use crate::store::Store;

/// Publish Terraform and Go modules, and manage their names and tokens
#[derive(clap::Parser)]
pub(super) enum RegistryArgs {
    /// Publish a directory as a version of a module
    ///
    /// In a working tree of git, files that git ignores are left out. If it neither tracks nor ignores a file, nothing is
    /// published: add the file with `git add`, or remove it. The commit is recorded if nothing is changed.
    ///
    /// With --server, the package goes to a server over HTTPS. Without it, the command needs the data directory and the
    /// database of the server, and runs as the account of the server.
    ///
    /// A published version never changes. If you publish the same files again, nothing happens.
    ///
    /// Exit code 1: the version was published with other files or taken down, or the files break a rule. The message
    /// says which one, and nothing was published.
    Publish(Box<PublishArgs>),
    /// Show the names with versions
    List(ListArgs),
    /// Show the versions of a name, or one of them
    ///
    /// Exit code 1: there is no such name or version.
    Show(ShowArgs),
    /// Warn everyone who uses a version
    ///
    /// The version is still served, but `go get` no longer chooses it. A deprecation is final.
    ///
    /// Exit code 1: there is no such version, or it was deprecated before or taken down.
    Deprecate(DeprecateArgs),
    /// Remove a version for good
    ///
    /// Its packages are removed, and its number is never used again. Clients see the reason. This cannot be undone, so
    /// type the name and the version again, or give them with --confirm.
    ///
    /// Exit code 1: there is no such version, it was taken down before, or the takedown was not confirmed.
    Takedown(TakedownArgs),
    /// Explain what happens when a version is not in the registry
    ///
    /// Shows the namespace, rule or default that counts for a name, where a version would come from, and the last failure to
    /// fetch it.
    Explain(ExplainArgs),
    /// Show the plans and default branches that use a module
    ///
    /// These are the current plans of pull requests and applications, and the newest plan of each project. A plan
    /// counts until it is deleted (--keep-runs). Default branches are those of mirrored repositories, with the
    /// constraint as their code has it.
    Uses(UsesArgs),
    /// Show the tags of repositories that publish versions, and what became of them
    ///
    /// Without REPO: a line for each repository.
    ///
    /// Exit code 1: the tags of this repository were never read.
    Tags(TagsArgs),
    /// Show the log: every addition, deprecation and takedown
    Log(LogArgs),
    /// Recompute the log and the state of every version
    ///
    /// Exit code 1: something is wrong. The message names the first fault.
    Verify {
        /// Read all packages as well, and compare their checksums
        #[arg(long)]
        packages: bool,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: RegistryFlags,
    },
    /// Manage the namespaces that owners publish in
    Namespaces {
        #[command(subcommand)]
        command: NamespacesArgs,
    },
    /// Manage the tokens of clients and pipelines
    Tokens {
        #[command(subcommand)]
        command: TokensArgs,
    },
    /// Exchange versions with other deployments
    Peers {
        #[command(subcommand)]
        command: Box<PeersArgs>,
    },
    /// Print the public key of the log, as GOSUMDB has it
    Key {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Print the settings of Terraform, OpenTofu and Go for the users of the registry
    Setup(SetupArgs),
}

impl SubcommandArgs for RegistryArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::Publish(args) => args.run(terminal).await,
                Self::List(args) => args.run(terminal).await,
                Self::Show(args) => args.run(terminal).await,
                Self::Deprecate(args) => args.run(terminal).await,
                Self::Takedown(args) => args.run(terminal).await,
                Self::Explain(args) => args.run(terminal).await,
                Self::Uses(args) => args.run(terminal).await,
                Self::Tags(args) => args.run(terminal).await,
                Self::Log(args) => args.run(terminal).await,
                Self::Verify {
                    packages,
                    format,
                    server,
                } => log::verify(&server.open().await?, packages, format, terminal).await,
                Self::Namespaces { command } => command.run(terminal).await,
                Self::Tokens { command } => command.run(terminal).await,
                Self::Peers { command } => command.run(terminal).await,
                Self::Key { format, database } => {
                    log::key(&database.open().await?, format, terminal).await
                }
                Self::Setup(args) => args.run(terminal).await,
            }
        })?
    }
}

/// Flags for the database, the signing key and the packages.
#[derive(Clone, clap::Args)]
pub(super) struct RegistryFlags {
    /// Keys to encrypt with, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<String>,
    /// Object store for the packages, as for `lockkeeper server`
    #[arg(long, value_name = "URL")]
    registry_store: Option<String>,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl RegistryFlags {
    /// Opens the registry, which a server has created.
    async fn open(&self) -> anyhow::Result<Registry> {
        Ok(self.open_with_keys().await?.0)
    }

    /// Opens the registry and the keys that seal its secrets.
    async fn open_with_keys(&self) -> anyhow::Result<(Registry, Arc<Keyring>)> {
        let more = [
            ("encryption-key-file", self.encryption_key_file.as_ref()),
            ("registry-store", self.registry_store.as_ref()),
        ];
        let raw = self.database.settings_with(more)?;
        let storage = StorageConfig::from_raw(&raw).map_err(Usage::new)?;
        let objects = ObjectStoreUrl::from_raw(&raw).map_err(Usage::new)?;
        let store = database::open(&storage).await?;
        let key = log_key(&store).await?;
        let name = key.name().parse();
        let name = name.context("the registry of this database has an invalid name")?;
        let dir = storage.data_dir.join(PACKAGES_DIR);
        check_account(&dir)?;
        let remote = objects.map(|url| RemoteObjects::open(&url, &raw.variables));
        let remote = remote.transpose();
        let packages = PackagePlace {
            remote: remote.context("cannot use the store of packages (--registry-store)")?,
            ..PackagePlace::from(&dir)
        };
        let keys = storage.encryption_keys.as_deref().map(keyring);
        let keys = keys.transpose()?.map(Arc::new);
        let registry = Registry::open(store, keys.clone(), name, &packages).await;
        let registry = registry.context("cannot open the registry")?;
        Ok((registry, keys.context("the registry has no keys")?))
    }
}

/// Returns the public key of the log.
async fn log_key(store: &Store) -> anyhow::Result<NoteVerifier> {
    let key = store.registry_log_key().await;
    match key.context("the registry cannot be read")? {
        Some(key) => Ok(key),
        None => bail!(
            "this database has no registry yet. A server creates it when it starts with --registry"
        ),
    }
}

/// Checks that this process has the account of the server. The server could not read the files of another one.
fn check_account(packages: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(packages);
    let metadata = metadata.with_context(|| {
        format!(
            "cannot open the packages of the registry in `{}` (--data-dir). Run this on a machine of the server",
            packages.display()
        )
    })?;
    let (owner, us) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if owner != us {
        bail!(
            "the packages of the registry in `{}` belong to the user {owner}, and this process is of the user {us}. Run \
             the command as the account of the server",
            packages.display()
        );
    }
    Ok(())
}

/// Name of a module.
#[derive(Clone, clap::Args)]
pub(super) struct NameArg {
    /// Name of the module, as in acme/vpc/aws or example.com/net
    #[arg(value_name = "NAME", value_parser = input::read_name)]
    name: RegistryName,
}

/// Name and version of a module.
#[derive(Clone, clap::Args)]
pub(super) struct KeyArgs {
    #[command(flatten)]
    name: NameArg,
    /// Version of the module, as in 1.2.3, or v1.2.3 for Go
    #[arg(value_name = "VERSION")]
    version: String,
}

impl KeyArgs {
    fn read(&self) -> Result<VersionKey, Usage> {
        let key = input::read_version(self.name.name.clone(), &self.version);
        key.map_err(|problem| Usage::new(format_args!("VERSION: {problem}")))
    }
}

/// Parses a prefix of names.
fn prefix(text: &str) -> Result<NamePrefix, String> {
    input::read_prefix(text)
}

/// Returns the person who runs the program, as the cause of a change.
fn cause(reason: &str) -> Cause {
    Cause::new(actor(), reason)
}

/// Returns a path as the user gave it, without `~` and other signs of shells.
fn working_path(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot use `{}`", path.display()))
}

#[cfg(test)]
mod tests;
