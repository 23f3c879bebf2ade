//! Settings for the places of data.

use std::path::PathBuf;

use super::problems::StartupProblems;
use super::raw::RawSettings;
use super::reader::{ReadResult, SettingReader};
use crate::config::size::ByteSize;
use crate::config::variables::PGPASSWORD;
use crate::secret::Secret;

/// Database of the server, the only source of truth (P9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file of this server.
    Sqlite(PathBuf),
    /// A `postgres://` URL, which may contain a password.
    Postgres(Secret),
}

/// Place of plan files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanFiles {
    /// A folder, absolute. Several servers may share it.
    Directory(PathBuf),
    /// The database, next to the plan records.
    Database {
        /// Maximum size of a plan file, in bytes.
        limit: u64,
    },
}

/// Places for the data of the server: database, mirrors, plan files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Folder of mirrors, checkouts and the built-in database; absolute.
    pub data_dir: PathBuf,
    /// Database of the server.
    pub database: Database,
    /// Place of plan files.
    pub plan_files: PlanFiles,
    /// File with the keys that encrypt credentials; absolute.
    pub encryption_keys: Option<PathBuf>,
    /// File to which checkpoints of the audit log are appended; absolute.
    pub audit_checkpoints: Option<PathBuf>,
    /// Maximum disk space of mirrors, checkouts, packages of providers and downloaded programs. `None` stands for no
    /// limit.
    pub disk_quota: Option<ByteSize>,
}

impl StorageConfig {
    /// Reads these settings for commands that need the database, but no other setting of the server.
    pub fn from_raw(raw: &RawSettings) -> Result<Self, StartupProblems> {
        let mut reader = SettingReader::new(raw, Vec::new());
        let storage = Self::read(&mut reader);
        match (storage, StartupProblems::of(reader.finish().0)) {
            (Ok(storage), None) => Ok(storage),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }

    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let data_dir = read_data_dir(reader);
        let database = read_database(reader);
        let plan_dir = reader.path("share-plan-dir");
        let limit = reader
            .number::<u64>("plan-size-limit")
            .map(|mebibytes| mebibytes.unwrap_or_default() << 20);
        let encryption_keys = reader.path("encryption-key-file");
        let audit_checkpoints = reader.path("audit-checkpoint-file");
        let disk_quota = reader.size("disk-quota");
        let (data_dir, limit) = (data_dir?, limit?);
        let database =
            database?.unwrap_or_else(|| Database::Sqlite(data_dir.join("lockkeeper.db")));
        let plan_files = match (plan_dir, &database) {
            (Some(dir), _) => PlanFiles::Directory(dir),
            (None, Database::Sqlite(_)) => PlanFiles::Directory(data_dir.join("plans")),
            // Servers that share a database need not share a disk.
            (None, Database::Postgres(_)) => PlanFiles::Database { limit },
        };
        Ok(Self {
            data_dir,
            database,
            plan_files,
            encryption_keys,
            audit_checkpoints,
            disk_quota: disk_quota?,
        })
    }
}

fn read_data_dir(reader: &mut SettingReader<'_>) -> ReadResult<PathBuf> {
    let text = reader.text("data-dir").expect("the folder has a default");
    if text.starts_with('~') && reader.raw().home.is_none() {
        let what = format!("`{text}` needs a home folder, but this account has none");
        return reader.refuse(
            "data-dir",
            what,
            "write the full path of a folder, or set HOME",
        );
    }
    Ok(reader.raw().absolute(&text))
}

fn read_database(reader: &mut SettingReader<'_>) -> ReadResult<Option<Database>> {
    let Some(url) = reader.hidden("database-url") else {
        return Ok(None);
    };
    match parse_database(&url, reader.raw()) {
        Ok(Database::Postgres(url)) => {
            reader.warn_of_secret_flag("database-url");
            Ok(Some(Database::Postgres(url)))
        }
        Ok(sqlite) => Ok(Some(sqlite)),
        Err(what) => reader.refuse(
            "database-url",
            what,
            "write postgres://user:password@host/name, or sqlite:/path/to/file",
        ),
    }
}

/// Adds the password of the environment to the URL. The driver would read it there, but the server removes it from
/// its environment.
fn with_password(url: &Secret, mut address: url::Url, raw: &RawSettings) -> Secret {
    let password = raw
        .variables
        .get(PGPASSWORD)
        .filter(|password| !password.is_empty());
    let Some(password) = password.filter(|_| address.password().is_none()) else {
        return url.clone();
    };
    if address.query_pairs().any(|(name, _)| name == "password") {
        return url.clone();
    }
    address.query_pairs_mut().append_pair("password", password);
    Secret::new(address.as_str())
}

/// Parses the URL of the database. Errors do not repeat the text, because it may contain a password.
fn parse_database(url: &Secret, raw: &RawSettings) -> Result<Database, &'static str> {
    let text = url.expose();
    if let Some(file) = text.strip_prefix("sqlite:") {
        let file = file.strip_prefix("//").unwrap_or(file);
        return match file {
            "" => Err("the URL names no file"),
            ":memory:" => {
                Err("the URL names a database in memory, which would lose every lock at a restart")
            }
            _ if file.contains('?') => {
                Err("the URL has parameters, which are not supported for SQLite")
            }
            _ => Ok(Database::Sqlite(raw.absolute(file))),
        };
    }
    let is_postgres = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    match url::Url::parse(text) {
        Ok(address) if is_postgres => Ok(Database::Postgres(with_password(url, address, raw))),
        Ok(_) => Err("the URL is for an unsupported kind of database"),
        Err(_) => Err("the text is not a URL"),
    }
}
