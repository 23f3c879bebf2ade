//! Opens the server's database for subcommands that work without a server.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{Arg, ArgMatches};

use super::{Usage, environment, settings_file};
use crate::clock::{RandomIds, SystemClock};
use crate::config::server::{Database, RawSettings, StorageConfig};
use crate::store::{DatabaseUrl, Store};

/// Flags of the server that locate the database.
const FLAGS: [(&str, &str, &str); 4] = [
    (
        "config",
        "FILE",
        "File with settings of the server, as for `lockkeeper server`",
    ),
    (
        "data-dir",
        "FOLDER",
        "Data directory of the server, as for `lockkeeper server`",
    ),
    (
        "database-url",
        "URL",
        "Database of the server, as for `lockkeeper server`",
    ),
    (
        "compat",
        "NAME",
        "Defaults of the server, as for `lockkeeper server`",
    ),
];

/// Returns the flags as arguments of a subcommand.
pub(crate) fn flags() -> [Arg; 4] {
    FLAGS.map(|(flag, value, help)| Arg::new(flag).long(flag).value_name(value).help(help))
}

/// Reads settings from the environment, these flags and the settings file. The server reads them in the same way.
pub(crate) fn settings(matches: &ArgMatches) -> anyhow::Result<RawSettings> {
    let mut raw = environment::read()?;
    for (flag, _, _) in FLAGS {
        let given = matches.get_one::<String>(flag).cloned();
        raw.flags
            .extend(given.map(|value| (flag.to_owned(), vec![value])));
    }
    let (raw, problems) = settings_file::add(raw);
    match problems.first() {
        // The problem could be the location of the database.
        Some(problem) => bail!("{problem}"),
        None => Ok(raw),
    }
}

/// Returns the location of the database according to the settings.
pub(crate) fn storage(matches: &ArgMatches) -> anyhow::Result<StorageConfig> {
    Ok(StorageConfig::from_raw(&settings(matches)?).map_err(Usage::new)?)
}

/// Opens the database, which must exist.
pub(crate) async fn open(storage: &StorageConfig) -> anyhow::Result<Store> {
    let url = database_url(&storage.database)?;
    let store = Store::open_existing(&url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    match store
        .with_context(|| format!("cannot open the database {url} (--database-url, --data-dir)"))?
    {
        Some(store) => Ok(store),
        None => bail!(
            "there is no database {url} yet (--database-url, --data-dir). A server creates it when it starts"
        ),
    }
}

/// Returns the address of the database that the settings name.
pub fn database_url(database: &Database) -> anyhow::Result<DatabaseUrl> {
    match database {
        Database::Sqlite(path) => Ok(DatabaseUrl::Sqlite(path.clone())),
        Database::Postgres(url) => url
            .expose()
            .parse()
            .map_err(|error| anyhow!("--database-url: {error}")),
    }
}
