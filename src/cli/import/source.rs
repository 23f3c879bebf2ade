//! Location of Atlantis' records.

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::{SourceFlags, variable};
use crate::atlantis::redis::RedisUrl;
use crate::atlantis::{self, Contents};
use crate::config::server::RawSettings;
use crate::secret::Secret;

/// Maximum number of bytes that are read from the file with the URL.
const LARGEST_URL_FILE: u64 = 64 << 10;

pub(super) enum ImportSource {
    File(PathBuf),
    Redis(Box<RedisUrl>),
}

impl fmt::Display for ImportSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Redis(url) => write!(f, "{url}"),
        }
    }
}

impl ImportSource {
    /// Selects the source from the flags. At least one flag is required.
    pub fn of(flags: &SourceFlags, raw: &RawSettings) -> anyhow::Result<Self> {
        if let Some(file) = &flags.boltdb {
            let file = raw.absolute(file);
            let in_dir = file.join("atlantis.db");
            return Ok(Self::File(if file.is_dir() { in_dir } else { file }));
        }
        let url = match (&flags.redis, &flags.redis_url_file) {
            (Some(url), _) => RedisUrl::from_secret(&Secret::new(url)).context("--redis")?,
            (None, Some(file)) => RedisUrl::from_secret(&read_url(&raw.absolute(file))?)
                .with_context(|| format!("--redis-url-file {file}"))?,
            (None, None) => {
                bail!(
                    "the location of Atlantis' locks is missing: give --boltdb, --redis or --redis-url-file"
                )
            }
        };
        let secret = |name| variable(raw, name).map(|text| Secret::new(&text));
        Ok(Self::Redis(Box::new(url.or_credentials(
            secret("REDIS_USERNAME"),
            secret("REDIS_PASSWORD"),
        ))))
    }

    /// Reads all of Atlantis' records.
    pub async fn read(&self) -> anyhow::Result<Contents> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || atlantis::read_file(&path));
                Ok(read.await.context("reading was interrupted")??)
            }
            Self::Redis(url) => Ok(atlantis::redis::read(url).await?),
        }
    }
}

fn read_url(path: &std::path::Path) -> anyhow::Result<Secret> {
    let cannot = || format!("--redis-url-file: cannot read {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(cannot)?;
    file.take(LARGEST_URL_FILE)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    Ok(Secret::new(&text))
}
