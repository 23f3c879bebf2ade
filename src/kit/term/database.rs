//! The server's database, for subcommands that work on it without a server.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{Arg, ArgMatches};

use super::{Usage, environment, settings_file};
use crate::clock::{RandomIds, SystemClock};
use crate::config::server::{Database, RawSettings, StorageConfig};
use crate::store::{DatabaseUrl, Store};

/// Flags of the server that say where the database is.
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

/// The flags, for a subcommand.
pub(crate) fn flags() -> [Arg; 4] {
    FLAGS.map(|(flag, value, help)| Arg::new(flag).long(flag).value_name(value).help(help))
}

/// What the environment, these flags and the file of settings say. All count as they do for the server.
pub(crate) fn settings(matches: &ArgMatches) -> anyhow::Result<RawSettings> {
    let mut raw = environment::read()?;
    for (flag, _, _) in FLAGS {
        let given = matches.get_one::<String>(flag).cloned();
        raw.flags
            .extend(given.map(|value| (flag.to_owned(), vec![value])));
    }
    let (raw, problems) = settings_file::add(raw);
    match problems.first() {
        // Where the database is could be what is wrong.
        Some(problem) => bail!("{problem}"),
        None => Ok(raw),
    }
}

/// Where they say the database is.
pub(crate) fn storage(matches: &ArgMatches) -> anyhow::Result<StorageConfig> {
    Ok(StorageConfig::from_raw(&settings(matches)?).map_err(Usage::new)?)
}

/// Opens the database, which must be there.
pub(crate) async fn open(storage: &StorageConfig) -> anyhow::Result<Store> {
    let url = database_url(&storage.database)?;
    let store = Store::open_existing(&url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    match store
        .with_context(|| format!("cannot open the database {url} (--database-url, --data-dir)"))?
    {
        Some(store) => Ok(store),
        None => bail!(
            "there is no database {url} yet (--database-url, --data-dir): a server makes it when it starts"
        ),
    }
}

/// The address of the database that the settings name.
pub fn database_url(database: &Database) -> anyhow::Result<DatabaseUrl> {
    match database {
        Database::Sqlite(path) => Ok(DatabaseUrl::Sqlite(path.clone())),
        Database::Postgres(url) => url
            .expose()
            .parse()
            .map_err(|error| anyhow!("--database-url: {error}")),
    }
}
