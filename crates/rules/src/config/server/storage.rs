//! Settings for the places of data.

use std::path::PathBuf;

use super::problems::StartupProblems;
use super::raw::RawSettings;
use super::reader::{ReadResult, SettingReader};
use super::section::{Section as _, section};
use crate::config::size::ByteSize;
use crate::config::variables::PGPASSWORD;
use crate::secret::Secret;

/// Way out of a database URL that is refused.
pub(super) const DATABASE_FORMS: &str =
    "write postgres://user:password@host/name, or sqlite:/path/to/file";

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

section! {
    /// Places for the data of the server: database, mirrors, plan files.
    #[expect(clippy::doc_markdown, reason = "the comment of a setting is its help on the command line")]
    pub struct StorageConfig in Storage {
        /// Folder for mirrors, checkouts and the built-in database.
        pub data_dir: PathBuf = path("data-dir", "FOLDER")
            .or_with_compat("~/.lockkeeper", "~/.atlantis")
            .hidden_from_runs("the data directory") => read_data_dir,

        /// Database: postgres://user:password@host/name, or sqlite:FILE. Several servers can share one PostgreSQL
        /// database.
        pub database: Database =
            secret("database-url", "URL").or_derived("sqlite:<data dir>/lockkeeper.db") => read_database,

        /// Place of plan files.
        pub plan_files: PlanFiles = read_plan_files from {
            /// Folder for plan files; servers with one database can share it.
            path("share-plan-dir", "FOLDER")
                .or_derived("<data dir>/plans; with PostgreSQL the database")
                .hidden_from_runs("the plan files"),

            /// Maximum size in MiB of a plan file in the database; larger ones need --share-plan-dir.
            number("plan-size-limit", "MIB", 1, 512).or("64"),
        },

        /// File with keys for the stored credentials of repositories, one per line. The first key encrypts, all
        /// keys decrypt. `lockkeeper credentials keygen` prints a line. Not set: credentials cannot be stored.
        pub encryption_keys: Option<PathBuf> = path("encryption-key-file", "FILE").hidden_from_runs("the keys"),

        /// File to which each signed checkpoint of the audit log is appended as one line; it is opened again each
        /// time. Copy it to another machine to prove later that the log is complete. Not set: checkpoints are in
        /// the log of the server, and the last one is in the data directory.
        pub audit_checkpoints: Option<PathBuf> =
            path("audit-checkpoint-file", "FILE").fixed_in_runs("the checkpoints of the audit log"),

        /// Maximum disk space for mirrors, checkouts, packages of providers and downloaded programs, such as 20GiB.
        /// The least recently used data is removed first. Not set: no limit.
        pub disk_quota: Option<ByteSize> = size("disk-quota"),
    }
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
}

fn read_data_dir(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<PathBuf> {
    let text = reader.text(flag).expect("the folder has a default");
    if text.starts_with('~') && reader.raw().home.is_none() {
        let what = format!("`{text}` needs a home folder, but this account has none");
        return reader.refuse(flag, what, "write the full path of a folder, or set HOME");
    }
    Ok(reader.raw().absolute(&text))
}

pub(super) fn read_database(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Database> {
    let Some(url) = reader.hidden(flag) else {
        let data_dir = read_data_dir(reader, "data-dir")?;
        return Ok(Database::Sqlite(data_dir.join("lockkeeper.db")));
    };
    match parse_database(&url, reader.raw()) {
        Ok(Database::Postgres(url)) => {
            reader.warn_of_secret_flag(flag);
            Ok(Database::Postgres(with_password(url, reader.raw())))
        }
        Ok(sqlite) => Ok(sqlite),
        Err(what) => reader.refuse(flag, what, DATABASE_FORMS),
    }
}

fn read_plan_files(reader: &mut SettingReader<'_>) -> ReadResult<PlanFiles> {
    let mebibytes = reader.number::<u64>("plan-size-limit");
    let dir = reader.path("share-plan-dir");
    let limit = mebibytes?.unwrap_or_default() << 20;
    let database = read_database(reader, "database-url")?;
    match (dir, database) {
        (Some(dir), _) => Ok(PlanFiles::Directory(dir)),
        (None, Database::Sqlite(_)) => {
            let data_dir = read_data_dir(reader, "data-dir")?;
            Ok(PlanFiles::Directory(data_dir.join("plans")))
        }
        // Servers that share a database need not share a disk.
        (None, Database::Postgres(_)) => Ok(PlanFiles::Database { limit }),
    }
}

/// Adds the password of the environment to the URL. The driver would read it there, but the server removes it from
/// its environment.
fn with_password(url: Secret, raw: &RawSettings) -> Secret {
    let Ok(mut address) = url::Url::parse(url.expose()) else {
        return url;
    };
    let password = raw
        .variables
        .get(PGPASSWORD)
        .filter(|password| !password.is_empty());
    let Some(password) = password.filter(|_| address.password().is_none()) else {
        return url;
    };
    if address.query_pairs().any(|(name, _)| name == "password") {
        return url;
    }
    address.query_pairs_mut().append_pair("password", password);
    Secret::new(address.as_str())
}

/// Parses the URL of a database. Errors do not repeat the text, because it may contain a password.
pub(super) fn parse_database(url: &Secret, raw: &RawSettings) -> Result<Database, &'static str> {
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
        Ok(_) if is_postgres => Ok(Database::Postgres(url.clone())),
        Ok(_) => Err("the URL is for an unsupported kind of database"),
        Err(_) => Err("the text is not a URL"),
    }
}
