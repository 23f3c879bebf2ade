//! Opens the server's database for subcommands that work without a server.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use super::{Usage, environment, settings_file};
use crate::clock::{RandomIds, SystemClock};
use crate::config::server::{Database, RawSettings, StorageConfig};
use crate::store::{DatabaseUrl, Store};

/// Flags of the server that locate the database.
#[derive(Clone, clap::Args)]
pub(crate) struct DatabaseFlags {
    /// File with settings of the server, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Data directory of the server, as for `lockkeeper server`
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Database of the server, as for `lockkeeper server`
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Defaults of the server, as for `lockkeeper server`
    #[arg(long, value_name = "NAME")]
    compat: Option<String>,
}

impl DatabaseFlags {
    /// Reads settings from the environment, these flags and the settings file. The server reads them in the same way.
    pub fn settings(&self) -> anyhow::Result<RawSettings> {
        self.settings_with([])
    }

    /// Reads settings with more flags of the server, by their names.
    pub fn settings_with<const N: usize>(
        &self,
        more: [(&str, Option<&String>); N],
    ) -> anyhow::Result<RawSettings> {
        let located = [
            ("config", self.config.as_ref()),
            ("data-dir", self.data_dir.as_ref()),
            ("database-url", self.database_url.as_ref()),
            ("compat", self.compat.as_ref()),
        ];
        let mut raw = environment::read()?;
        for (flag, value) in located.into_iter().chain(more) {
            let given = value.map(|value| (flag.to_owned(), vec![value.clone()]));
            raw.flags.extend(given);
        }
        let (raw, problems) = settings_file::add(raw);
        match problems.first() {
            // The problem could be the location of the database.
            Some(problem) => bail!("{problem}"),
            None => Ok(raw),
        }
    }

    /// Reads the settings of the data directory and the database.
    pub fn storage(&self) -> anyhow::Result<StorageConfig> {
        Ok(StorageConfig::from_raw(&self.settings()?).map_err(Usage::new)?)
    }

    /// Opens the database, which must exist.
    pub async fn open(&self) -> anyhow::Result<Store> {
        open(&self.storage()?).await
    }
}

/// Opens the database of these settings, which must exist.
pub(crate) async fn open(storage: &StorageConfig) -> anyhow::Result<Store> {
    let url = database_url(&storage.database, "--database-url")?;
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

/// Returns the address of a database that a setting names.
pub fn database_url(database: &Database, flag: &str) -> anyhow::Result<DatabaseUrl> {
    match database {
        Database::Sqlite(path) => Ok(DatabaseUrl::Sqlite(path.clone())),
        Database::Postgres(url) => url
            .expose()
            .parse()
            .map_err(|error| anyhow!("{flag}: {error}")),
    }
}
