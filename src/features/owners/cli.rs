//! `lockkeeper owners`, `claims` and `apps`: owners and their repositories, on the database of a server.

mod claims;
mod list;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use crate::claims::too_many_owners;
use crate::config::server::{StorageConfig, forge_hosts};
use crate::kit::term::{
    ExitResult, ExitStatus, Subcommand, Terminal, Usage, actor, block_on, database, safe, time,
};
use crate::model::{Cause, ForgeHosts, OwnerName};
use crate::store::{CreateOwner, DeleteOwner, Owner, Store};

pub(super) const OWNERS: Subcommand = Subcommand {
    name: "owners",
    command,
    run,
};
pub(super) use claims::CLAIMS;
pub(crate) use list::{PART, may_go_on, owner, owner_arg};

fn command() -> Command {
    let add = Command::new("add")
        .about("Add an owner")
        .arg(name_arg())
        .arg(json_arg());
    let list = Command::new("list")
        .about("Show all owners")
        .arg(json_arg());
    let remove = Command::new("remove")
        .about("Remove an owner that has no applications and no credentials")
        .long_about(
            "Removes an owner.\n\nExit code 1: no owner has this name, or the owner still has applications or credentials. \
             Remove these first.",
        )
        .arg(name_arg())
        .arg(json_arg());
    Command::new("owners")
        .about("Add, show and remove owners: the teams or tenants of a server")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([add, list, remove].map(|command| command.args(flags())))
}

fn name_arg() -> Arg {
    Arg::new("name")
        .value_name("NAME")
        .required(true)
        .value_parser(value_parser!(OwnerName))
        .help("Name of the owner")
}

pub(crate) fn json_arg() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("As JSON, an object per line")
}

/// Returns the flags for the database and for the host of the forge.
pub(crate) fn flags() -> Vec<Arg> {
    let host = "Host of the forge, as for `lockkeeper server`: names on it are case-insensitive";
    let host = Arg::new("gh-hostname")
        .long("gh-hostname")
        .value_name("HOST")
        .help(host);
    database::flags().into_iter().chain([host]).collect()
}

/// Database and settings of these commands.
pub(crate) struct AdminSession {
    pub(crate) store: Store,
    pub(crate) forges: ForgeHosts,
}

/// Opens the database and runs a command with it. A wrong setting is reported first.
pub(crate) fn in_admin_session(
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
    work: impl AsyncFnOnce(&AdminSession, &mut Terminal<'_>) -> ExitResult,
) -> ExitResult {
    let mut raw = database::settings(matches)?;
    let host = matches.get_one::<String>("gh-hostname").cloned();
    raw.flags
        .extend(host.map(|host| ("gh-hostname".to_owned(), vec![host])));
    let read = StorageConfig::from_raw(&raw).and_then(|storage| Ok((storage, forge_hosts(&raw)?)));
    let (storage, forges) = read.map_err(Usage::new)?;
    block_on(async {
        let session = AdminSession {
            store: database::open(&storage).await?,
            forges,
        };
        work(&session, terminal).await
    })?
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (command, matches) = matches.subcommand().expect("clap demands a subcommand");
    let as_json = matches.get_flag("json");
    in_admin_session(matches, terminal, async |session, terminal| match command {
        "list" => run_list(&session.store, as_json, terminal).await,
        "add" => run_add(&session.store, name_of(matches), as_json, terminal).await,
        _ => run_remove(&session.store, name_of(matches), as_json, terminal).await,
    })
}

fn name_of(matches: &ArgMatches) -> &OwnerName {
    matches.get_one("name").expect("clap demands it")
}

async fn run_list(store: &Store, as_json: bool, terminal: &mut Terminal<'_>) -> ExitResult {
    let owners = store
        .owner_list()
        .await
        .context("the owners could not be read")?;
    if owners.is_empty() && !as_json {
        terminal.line("There are no owners yet. Add one with `lockkeeper owners add NAME`.")?;
    }
    for owner in &owners {
        show(owner, as_json, terminal)?;
    }
    Ok(ExitStatus::Success)
}

async fn run_add(
    store: &Store,
    name: &OwnerName,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match store
        .owner_create(name, &cause())
        .await
        .context("the owner could not be added")?
    {
        CreateOwner::Created(owner) => {
            show(&owner, as_json, terminal).map(|()| ExitStatus::Success)
        }
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
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match store
        .owner_delete(name, &cause())
        .await
        .context("the owner could not be removed")?
    {
        DeleteOwner::Deleted(owner) => {
            return show(&owner, as_json, terminal).map(|()| ExitStatus::Success);
        }
        DeleteOwner::NotThere => {
            terminal.note(format_args!("error: there is no owner `{name}`"));
            terminal.note("`lockkeeper owners list` lists all owners.");
        }
        DeleteOwner::InUse {
            applications,
            credentials,
        } => {
            terminal.note(format_args!(
                "error: `{name}` has {applications} applications and {credentials} credentials; nothing was changed"
            ));
            terminal.note(format_args!(
                "`lockkeeper apps list --owner {name}` and `lockkeeper credentials list --owner {name}` list them."
            ));
        }
    }
    Ok(ExitStatus::Failure)
}

fn show(owner: &Owner, as_json: bool, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    let line = if as_json {
        as_object(owner).to_string()
    } else {
        as_text(owner)
    };
    Ok(terminal.line(line)?)
}

fn as_text(owner: &Owner) -> String {
    safe(&format!(
        "{}, added by {} at {}",
        owner.name,
        owner.created_by,
        time(owner.created_at)
    ))
}

fn as_object(owner: &Owner) -> Value {
    json!({
        "id": owner.id, "name": owner.name, "created_by": owner.created_by, "created_at": time(owner.created_at),
    })
}

pub(crate) fn cause() -> Cause {
    Cause::new(actor(), "on the command line")
}

#[cfg(test)]
mod tests;
