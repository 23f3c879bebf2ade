//! `lockkeeper owners`, `claims` and `apps`: owners and their repositories, on the database of a server.

mod claims;
mod list;

use anyhow::Context as _;
use serde_json::json;

use super::view::OwnerView;
use crate::claims::too_many_owners;
use crate::config::server::{StorageConfig, forge_hosts};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, Usage, actor,
    block_on, config_files, database, safe, time,
};
use crate::model::{Cause, ForgeHosts, OwnerName};
use crate::store::{CreateOwner, DeleteOwner, Owner, Store};

pub(super) use claims::ClaimsArgs;
pub(crate) use list::{LIST_PART, OwnerFlag, may_go_on};

/// Add, show and remove owners: the teams or tenants of a server
#[derive(clap::Parser)]
pub(super) enum OwnersArgs {
    /// Add an owner: a team or a tenant
    Add {
        #[command(flatten)]
        owner: OwnerArg,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
    /// Show the names of all owners
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
    /// Remove an owner that has no applications and no credentials
    ///
    /// Exit code 1: no owner has this name, or the owner still has applications or credentials. Remove these first.
    Remove {
        #[command(flatten)]
        owner: OwnerArg,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: AdminFlags,
    },
}

/// Owner that a subcommand is about.
#[derive(clap::Args)]
pub(super) struct OwnerArg {
    /// Name of the owner
    name: OwnerName,
}

/// Flags for the database and for the host of the forge.
#[derive(clap::Args)]
pub(crate) struct AdminFlags {
    #[command(flatten)]
    database: DatabaseFlags,
    /// Host of the forge, as for `lockkeeper server`: names on it are case-insensitive
    #[arg(long, value_name = "HOST")]
    gh_hostname: Option<String>,
    /// File with further hosts, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    gh_hosts_file: Option<String>,
}

/// Database and settings of these commands.
pub(crate) struct AdminSession {
    pub(crate) store: Store,
    pub(crate) forges: ForgeHosts,
}

impl AdminFlags {
    /// Opens the database. A wrong setting is reported first.
    pub async fn open(&self) -> anyhow::Result<AdminSession> {
        let hosts = [
            ("gh-hostname", self.gh_hostname.as_ref()),
            ("gh-hosts-file", self.gh_hosts_file.as_ref()),
        ];
        let raw = config_files::add(self.database.settings_with(hosts)?);
        let storage = StorageConfig::from_raw(&raw).map_err(Usage::new)?;
        let forges = forge_hosts(&raw).map_err(Usage::new)?;
        Ok(AdminSession {
            store: database::open(&storage).await?,
            forges,
        })
    }
}

impl SubcommandArgs for OwnersArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::Add {
                    owner,
                    format,
                    server,
                } => run_add(&server.open().await?.store, &owner.name, format, terminal).await,
                Self::List { format, server } => {
                    run_list(&server.open().await?.store, format, terminal).await
                }
                Self::Remove {
                    owner,
                    format,
                    server,
                } => run_remove(&server.open().await?.store, &owner.name, format, terminal).await,
            }
        })?
    }
}

async fn run_list(store: &Store, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let owners = store
        .owner_list()
        .await
        .context("the owners could not be read")?;
    if owners.is_empty() && !format.is_json() {
        terminal.line("There are no owners yet. Add one with `lockkeeper owners add NAME`.")?;
    }
    for owner in &owners {
        show(owner, format, terminal)?;
    }
    Ok(ExitStatus::Success)
}

async fn run_add(
    store: &Store,
    name: &OwnerName,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match store
        .owner_create(name, &cli_cause())
        .await
        .context("the owner could not be added")?
    {
        CreateOwner::Created(owner) => show(&owner, format, terminal).map(|()| ExitStatus::Success),
        CreateOwner::AlreadyThere(owner) => {
            terminal.note(safe(&format!(
                "error: owner `{name}` already exists, added by {}",
                owner.created_by
            )));
            Ok(ExitStatus::Failure)
        }
        CreateOwner::TooMany(most) => {
            terminal.note(format_args!(
                "error: nothing was changed. {}",
                too_many_owners(most)
            ));
            Ok(ExitStatus::Failure)
        }
    }
}

async fn run_remove(
    store: &Store,
    name: &OwnerName,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match store
        .owner_delete(name, &cli_cause())
        .await
        .context("the owner could not be removed")?
    {
        DeleteOwner::Deleted(owner) => {
            return show(&owner, format, terminal).map(|()| ExitStatus::Success);
        }
        DeleteOwner::NotFound => {
            terminal.note(format_args!("error: there is no owner `{name}`"));
            terminal.note("`lockkeeper owners list` lists all owners.");
        }
        DeleteOwner::InUse {
            applications,
            credentials,
            namespaces,
        } => {
            let registry = in_registry(namespaces);
            terminal.note(format_args!(
                "error: `{name}` has {applications} applications and {credentials} credentials{registry}; nothing was \
                 changed"
            ));
            terminal.note(format_args!(
                "`lockkeeper apps list --owner {name}` and `lockkeeper credentials list --owner {name}` list them.{}",
                way_out_of_registry(namespaces)
            ));
        }
    }
    Ok(ExitStatus::Failure)
}

/// Names the namespaces of an owner, if there are any.
pub(super) fn in_registry(namespaces: i64) -> String {
    match namespaces {
        0 => String::new(),
        1 => ", and a namespace in the registry".to_owned(),
        _ => format!(", and {namespaces} namespaces in the registry"),
    }
}

/// Says what to do about the namespaces of an owner, if there are any.
pub(super) fn way_out_of_registry(namespaces: i64) -> &'static str {
    match namespaces {
        0 => "",
        _ => {
            " `lockkeeper registry namespaces list` lists namespaces, and `lockkeeper registry namespaces change` gives one \
             to another owner."
        }
    }
}

fn show(owner: &Owner, format: OutputFormat, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    Ok(format.print(
        terminal,
        || json!(OwnerView::from(owner)),
        || as_text(owner),
    )?)
}

fn as_text(owner: &Owner) -> String {
    safe(&format!(
        "{}, added by {} at {}",
        owner.name,
        owner.created_by,
        time(owner.created_at)
    ))
}

pub(crate) fn cli_cause() -> Cause {
    Cause::new(actor(), "on the command line")
}

#[cfg(test)]
mod tests;
