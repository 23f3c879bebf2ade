//! Where the server keeps things.

use std::path::PathBuf;

use super::problems::ConfigErrors;
use super::raw::RawSettings;
use super::reader::{Read, Reader};
use crate::config::size::ByteSize;
use crate::config::variables::PGPASSWORD;
use crate::secret::Secret;

/// Which database holds the truth (P9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file of this server.
    Sqlite(PathBuf),
    /// A `postgres://` URL, which may carry a password.
    Postgres(Secret),
}

/// Where plan files are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanFiles {
    /// In a folder, absolute; other servers may share it.
    Directory(PathBuf),
    /// In the database.
    Database {
        /// The largest, in bytes.
        limit: u64,
    },
}

/// Where the server keeps things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Mirrors, checkouts and the built-in database; absolute.
    pub data_dir: PathBuf,
    /// The database.
    pub database: Database,
    /// Plan files.
    pub plan_files: PlanFiles,
    /// The keys that credentials are encrypted with; absolute.
    pub encryption_keys: Option<PathBuf>,
    /// The file that checkpoints of the audit log are appended to; absolute.
    pub audit_checkpoints: Option<PathBuf>,
    /// Most that mirrors, checkouts, packages of providers and downloaded programs may take; `None`: any amount.
    pub disk_quota: Option<ByteSize>,
}

impl StorageConfig {
    /// For commands that need the database and nothing else of the server.
    pub fn from_raw(raw: &RawSettings) -> Result<Self, ConfigErrors> {
        let mut reader = Reader::new(raw, Vec::new());
        let storage = Self::read(&mut reader);
        match (storage, ConfigErrors::of(reader.finish().0)) {
            (Ok(storage), None) => Ok(storage),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
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

fn read_data_dir(reader: &mut Reader<'_>) -> Read<PathBuf> {
    let text = reader.text("data-dir").expect("the folder has a default");
    if text.starts_with('~') && reader.raw().home.is_none() {
        let what = format!("`{text}`, but this account has no home folder");
        return reader.refuse("data-dir", what, "name a folder in full, or set HOME");
    }
    Ok(reader.raw().absolute(&text))
}

fn read_database(reader: &mut Reader<'_>) -> Read<Option<Database>> {
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

/// As the driver would read it in its environment, from which the server takes it out.
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

/// Does not repeat the text in its errors: it may hold a password.
fn parse_database(url: &Secret, raw: &RawSettings) -> Result<Database, &'static str> {
    let text = url.expose();
    if let Some(file) = text.strip_prefix("sqlite:") {
        let file = file.strip_prefix("//").unwrap_or(file);
        return match file {
            "" => Err("it names no file"),
            ":memory:" => Err("it asks for a database in memory, which would forget every lock"),
            _ if file.contains('?') => {
                Err("it has parameters, which a SQLite database here does not take")
            }
            _ => Ok(Database::Sqlite(raw.absolute(file))),
        };
    }
    let is_postgres = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    match url::Url::parse(text) {
        Ok(address) if is_postgres => Ok(Database::Postgres(with_password(url, address, raw))),
        Ok(_) => Err("it is for a kind of database that Lockkeeper does not know"),
        Err(_) => Err("it is not a URL"),
    }
}
