//! `lockkeeper import atlantis (--boltdb FILE | --redis URL | --redis-url-file FILE) [--host HOST] [--write] [--json]`
//!
//! Imports the locks of an Atlantis, so that nobody plans over another person's plan on the day of the move. No
//! forge is contacted: the server checks every pull request that holds a lock, and so finds those that were closed
//! meanwhile. Without `--write`, neither database is changed.

mod report;
mod source;
mod takeover;

use std::sync::Arc;

use anyhow::Context as _;

use crate::atlantis::AtlantisRecords;
use crate::atlantis::redis::RedisUrl;
use crate::clock::{Clock, RandomIds, SystemClock};
use crate::config::server::{RawSettings, StorageConfig};
use crate::kit::term::database::database_url;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, SubcommandArgs, Terminal, Usage, block_on,
};
use crate::model::HostName;
use crate::store::{DatabaseUrl, ImportMode, Store};
use source::ImportSource;
use takeover::takeover;

/// Import the locks of another tool
#[derive(clap::Parser)]
pub(super) enum ImportArgs {
    /// Import locks, open pull requests and the apply lock of an Atlantis
    ///
    /// Without --write, it only shows what it would import. It never changes existing data of Lockkeeper, and it only
    /// reads Atlantis' database. You can safely repeat it.
    ///
    /// Exit code 1: something could not be imported.
    Atlantis(AtlantisArgs),
}

/// Arguments of `lockkeeper import atlantis`.
#[derive(clap::Args)]
pub(super) struct AtlantisArgs {
    #[command(flatten)]
    source: SourceFlags,
    /// Forge of the repositories whose records do not name one, such as github.com
    #[arg(long)]
    host: Option<HostName>,
    /// Write to Lockkeeper's database; without it, nothing is changed
    #[arg(long)]
    write: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Location of Atlantis' records. Exactly one flag is required.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SourceFlags {
    /// Atlantis' database file, or the data directory with `atlantis.db` in it; stop Atlantis first
    #[arg(long, value_name = "FILE")]
    boltdb: Option<String>,
    /// Atlantis' Redis, as redis://host:6379/0, or rediss:// for TLS; if the URL has no user and password, they are read
    /// from `LOCKKEEPER_REDIS_USERNAME` and `LOCKKEEPER_REDIS_PASSWORD`, then from `ATLANTIS_X`
    #[arg(long, value_name = "URL")]
    #[expect(
        clippy::doc_markdown,
        reason = "the comment is the help on the command line"
    )]
    redis: Option<String>,
    /// File with the URL of Atlantis' Redis, password included
    #[arg(long, value_name = "FILE")]
    redis_url_file: Option<String>,
}

impl SubcommandArgs for ImportArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let Self::Atlantis(args) = self;
        let raw = args.database.settings()?;
        let storage = StorageConfig::from_raw(&raw).map_err(Usage::new)?;
        let source = ImportSource::of(&args.source, &raw)?;
        if let Some(Ok(url)) = args.source.redis.as_deref().map(str::parse::<RedisUrl>)
            && url.has_password()
        {
            terminal
                .note("warning: other users of this machine can see the password on the command line; use a variable or a file instead");
        }
        block_on(import(&source, &storage, &args, terminal))?
    }
}

async fn import(
    source: &ImportSource,
    storage: &StorageConfig,
    args: &AtlantisArgs,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let contents = source
        .read()
        .await
        .with_context(|| format!("cannot import {source}"))?;
    let found = AtlantisRecords::understand(&contents, args.host.as_ref(), SystemClock.now());
    let url = database_url(&storage.database, "--database-url")?;
    let target = ImportTarget::open(&url, storage, args.write).await?;
    let mode = if args.write {
        ImportMode::Write
    } else {
        ImportMode::Trial
    };
    let mut report = takeover(&target.store, found, mode)
        .await
        .context("cannot write to the database")?;
    target.store.close().await;
    report.from = source.to_string();
    report.to = if target.is_new {
        format!("{url} (does not exist yet)")
    } else {
        url.to_string()
    };
    if args.json {
        terminal.line(
            serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?,
        )?;
    } else {
        terminal.line(format_args!("{report}"))?;
    }
    Ok(if report.is_complete() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Lockkeeper's database, or an empty one for a trial.
struct ImportTarget {
    store: Store,
    /// The database does not exist. A trial does not create it, but uses a temporary empty one.
    is_new: bool,
    _trial: Option<tempfile::TempDir>,
}

impl ImportTarget {
    async fn open(url: &DatabaseUrl, storage: &StorageConfig, write: bool) -> anyhow::Result<Self> {
        let cannot = || format!("cannot open the database {url} (--database-url, --data-dir)");
        if write {
            crate::app::own_dir(&storage.data_dir).with_context(cannot)?;
            let store = open(url).await.with_context(cannot)?;
            return Ok(Self {
                store,
                is_new: false,
                _trial: None,
            });
        }
        let existing = Store::open_existing(url, Arc::new(SystemClock), Arc::new(RandomIds));
        if let Some(store) = existing.await.with_context(cannot)? {
            return Ok(Self {
                store,
                is_new: false,
                _trial: None,
            });
        }
        let dir = tempfile::tempdir().context("cannot create a directory for the trial")?;
        let store = open(&DatabaseUrl::Sqlite(dir.path().join("trial.db")))
            .await
            .context("cannot create a database for the trial")?;
        Ok(Self {
            store,
            is_new: true,
            _trial: Some(dir),
        })
    }
}

async fn open(url: &DatabaseUrl) -> Result<Store, sqlx::Error> {
    Store::open(url, Arc::new(SystemClock), Arc::new(RandomIds)).await
}

/// Returns the variable with our prefix, or else with that of Atlantis.
fn variable(raw: &RawSettings, name: &str) -> Option<String> {
    let value = |prefix: &str| {
        raw.variables
            .get(&format!("{prefix}{name}"))
            .filter(|text| !text.is_empty())
            .cloned()
    };
    value("LOCKKEEPER_").or_else(|| value("ATLANTIS_"))
}

#[cfg(test)]
mod tests;
