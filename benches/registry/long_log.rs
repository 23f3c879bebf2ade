//! Measures a long log beside a short one: its pages, proofs, lookups and appends, and a verification of everything.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::features::registry::Deprecated;
use lockkeeper::model::Reason;
use lockkeeper::store::DatabaseUrl;
use lockkeeper_registry::records::{
    Checksums, LogId, RecordChange, RecordMaker, RecordNotice, RecordTime, UnsignedRecord,
    VersionContent,
};
use lockkeeper_registry::signed_note::NoteSigner;
use lockkeeper_registry::tlog::{self, LogHash};
use lockkeeper_registry::versions::VersionKey;

use super::office::{BenchRegistry, FillConnection, NAME, cause};
use crate::locks::durable_postgres;
use crate::report::{Section, Table};
use crate::stats::{Samples, ratio};

/// Number of records of the short log.
const SHORT: u64 = 1_000;
/// Number of measured reads of each kind.
const READS: u64 = 300;
/// Number of measured appends.
const APPENDS: u64 = 200;
/// Number of records on a page.
const PAGE: i64 = 500;
/// Number of records that a statement adds.
const BATCH: usize = 2_000;

/// Version that the records of a filled log have the content of.
const PUBLISHED: &str = "module acme/vpc/aws 1.0.0";

// `$1` is the first ID, and `$2` a list with name, version, record and time of each record.
const ADD_RECORDS_SQLITE: &str = "INSERT INTO registry_log (id, kind, name, version, action, record, logged_at) \
     SELECT $1 + each.key, 'module', json_extract(each.value, '$[0]'), json_extract(each.value, '$[1]'), 'add', \
     json_extract(each.value, '$[2]'), json_extract(each.value, '$[3]') FROM json_each($2) AS each";
const ADD_RECORDS_POSTGRES: &str = "INSERT INTO registry_log (id, kind, name, version, action, record, logged_at) \
     SELECT $1 + each.number - 1, 'module', each.value->>0, each.value->>1, 'add', each.value->>2, \
     (each.value->>3)::timestamptz FROM jsonb_array_elements($2::jsonb) WITH ORDINALITY AS each (value, number)";
// `$1` is the first place, and `$2` a list of hashes.
const ADD_HASHES_SQLITE: &str = "INSERT INTO registry_log_hashes (place, hash) \
     SELECT $1 + each.key, unhex(each.value) FROM json_each($2) AS each";
const ADD_HASHES_POSTGRES: &str = "INSERT INTO registry_log_hashes (place, hash) \
     SELECT $1 + each.number - 1, decode(each.value, 'hex') \
     FROM jsonb_array_elements_text($2::jsonb) WITH ORDINALITY AS each (value, number)";
// The last parameter is the ID before the first one.
const ADD_NAMES: &str = "INSERT INTO registry_names (kind, name, folded_name) \
     SELECT DISTINCT kind, name, lower(name) FROM registry_log WHERE id > $1 ON CONFLICT (kind, name) DO NOTHING";
const ADD_VERSIONS: &str = "INSERT INTO registry_versions (kind, name, version, state, files_hash, base, origin, \
     published_by, added_at) SELECT kind, name, version, 'added', $1, '', 'command', 'bench', $2 FROM registry_log \
     WHERE id > $3";
const ADD_PACKAGES: &str = "INSERT INTO registry_packages (kind, name, version, file, digest, size) \
     SELECT kind, name, version, $1, $2, $3 FROM registry_log WHERE id > $4";

/// Runs a statement with parameters on either database.
macro_rules! execute {
    ($connection:expr, $sql:expr, $($parameter:expr),+) => {
        match $connection {
            FillConnection::Sqlite(connection) => sqlx::query($sql)
                $(.bind($parameter))+
                .execute(&mut **connection)
                .await
                .map(drop),
            FillConnection::Postgres(connection) => sqlx::query($sql)
                $(.bind($parameter))+
                .execute(&mut **connection)
                .await
                .map(drop),
        }
    };
}

/// Measures both logs and returns the section of the report.
pub async fn measure(work: &Path, records: u64) -> anyhow::Result<Section> {
    let (postgres, version) = durable_postgres().await?;
    let head = ["ms", "p50", "p90", "p99", "max", "times", "p50 ÷ short log"];
    let mut table = Table::new(&head);
    let mut verified = Table::new(&["verification", "records", "s", "records/s", "filled in s"]);
    for database in [None, Some(&postgres)] {
        let name = database.map_or("SQLite", |_| "PostgreSQL");
        let dir = work.join(format!("log-{name}"));
        one_database(&dir, (name, database), records, (&mut table, &mut verified))
            .await
            .context(name)?;
    }
    let mut section =
        Section::new(format!("The registry: a log of {records} records")).with_table(table);
    section.note(format!(
        "A page has {PAGE} records. An append is a deprecation until it is durable. The short log has {SHORT} records."
    ));
    section.note(format!("Both databases are durable. {version}"));
    let mut of_all = Section::new("The registry: everything computed again").with_table(verified);
    of_all.note("`lockkeeper registry verify`: records, signatures, hashes and states, without packages. The log was filled by SQL, with real signatures.");
    Ok(section.followed_by(of_all))
}

async fn one_database(
    dir: &Path,
    (name, database): (&str, Option<&DatabaseUrl>),
    records: u64,
    (table, verified): (&mut Table, &mut Table),
) -> anyhow::Result<()> {
    let office = BenchRegistry::open(dir, database, NAME).await?;
    office.add_namespace("module acme").await?;
    let files: [(&str, &[u8]); 1] = [("main.tf", b"output \"size\" {\n  value = 1\n}\n")];
    office.publish(PUBLISHED, &files).await?;
    fill(&office, SHORT).await?;
    let short = measure_log(&office, 1..SHORT).await?;
    let since = Instant::now();
    fill(&office, records).await?;
    let filled = since.elapsed();
    let long = measure_log(&office, SHORT + APPENDS..records).await?;
    for ((what, short), (_, long)) in short.iter().zip(&long) {
        table.row(
            format!("{name}, short log: {what}"),
            short.cells().into_iter().chain(["1".to_owned()]),
        );
        let compared = ratio(long.quantile(50), short.quantile(50));
        table.row(
            format!("{name}, long log: {what}"),
            long.cells().into_iter().chain([compared]),
        );
    }
    let since = Instant::now();
    let report = match office.registry.verify(false).await? {
        Ok(report) => report,
        Err(fault) => bail!("the log that was filled is wrong: {fault}"),
    };
    let took = since.elapsed();
    let size = u32::try_from(report.head.size)?;
    verified.row(
        name,
        [
            size.to_string(),
            seconds(took),
            format!("{:.0}", f64::from(size) / took.as_secs_f64()),
            seconds(filled),
        ],
    );
    office.close().await;
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// Returns the version of the record after this number of others.
fn key(number: u64) -> anyhow::Result<VersionKey> {
    let text = format!("module acme/m{}/aws 1.{}.0", number / 100, number % 100);
    Ok(text.parse()?)
}

/// Measures a log whose records with these numbers are additions.
async fn measure_log(
    office: &BenchRegistry,
    numbers: Range<u64>,
) -> anyhow::Result<[(&'static str, Samples); 4]> {
    let registry = &office.registry;
    // Spreads the reads over the log.
    let number = |round: u64| numbers.start + round * 7_919 % (numbers.end - numbers.start);
    let (mut pages, mut proofs) = (Samples::default(), Samples::default());
    let (mut lookups, mut appends) = (Samples::default(), Samples::default());
    for round in 0..READS {
        let id = LogId::new(i64::try_from(number(round) + 1)?)?;
        let since = Instant::now();
        let page = registry.store().registry_records(id, PAGE).await?;
        pages.push(since.elapsed());
        ensure!(!page.is_empty(), "the log has no record {}", id.get());
        let since = Instant::now();
        let proven = registry.proven_record(id).await?;
        proofs.push(since.elapsed());
        ensure!(proven.is_some(), "the log has no record {}", id.get());
        let key = key(number(round))?;
        let since = Instant::now();
        let found = registry.lookup(&key).await?;
        lookups.push(since.elapsed());
        ensure!(found.is_some(), "the log does not have {key}");
    }
    let reason = Reason::read("for a measurement")?.context("the reason is empty")?;
    let notice = RecordNotice {
        reason,
        replacement: None,
    };
    for round in 0..APPENDS {
        let key = key(numbers.start + round)?;
        let (notice, cause) = (notice.clone(), cause());
        let since = Instant::now();
        let deprecated = registry.deprecate(&key, notice, &cause).await?;
        appends.push(since.elapsed());
        ensure!(
            matches!(deprecated, Deprecated::New(_)),
            "{key}: {deprecated:?}"
        );
    }
    Ok([
        ("a page", pages),
        ("a record with its proof", proofs),
        ("a lookup", lookups),
        ("an append", appends),
    ])
}

/// Adds versions by SQL until the log has this number of records, which are signed and hashed as real ones.
pub async fn fill(office: &BenchRegistry, records: u64) -> anyhow::Result<()> {
    let store = office.registry.store();
    let published = office.registry.version(&PUBLISHED.parse()?).await?;
    let content = published
        .as_ref()
        .and_then(|version| version.known.content())
        .map(|located| located.content.clone())
        .context("nothing is published")?;
    let size = store.registry_log_size().await?;
    let places: Vec<u64> = (0..tlog::stored_hash_count(size)).collect();
    let mut log = FilledLog {
        signer: office.signer().await?,
        content,
        hashes: store.registry_log_hashes(&places).await?,
        added_at: RecordTime::new(SystemClock.now() - TimeDelta::hours(1))?,
        logged_at: SystemClock.now(),
    };
    let mut connection = office.connect().await?;
    let mut next = size;
    while next < records {
        let end = records.min(next + BATCH as u64);
        log.add(&mut connection, next..end).await?;
        next = end;
    }
    log.add_versions(&mut connection, i64::try_from(size)?)
        .await
}

/// A log that is filled.
struct FilledLog {
    signer: NoteSigner,
    /// Content of all versions.
    content: VersionContent,
    /// All hashes of the tree so far, by their places.
    hashes: Vec<LogHash>,
    /// Time of all records.
    added_at: RecordTime,
    /// Time of the newest row. Each is later than the one before.
    logged_at: DateTime<Utc>,
}

impl FilledLog {
    /// Adds records with these numbers.
    async fn add(
        &mut self,
        connection: &mut FillConnection,
        numbers: Range<u64>,
    ) -> anyhow::Result<()> {
        let first_id = i64::try_from(numbers.start + 1)?;
        let first_place = i64::try_from(self.hashes.len())?;
        let (mut rows, mut hashes) = (Vec::with_capacity(BATCH), Vec::with_capacity(2 * BATCH));
        for number in numbers {
            let key = key(number)?;
            let text = self.record(&key, number)?;
            let query = tlog::stored_hashes(number, tlog::record_hash(text.as_bytes()))?;
            let mut left_sides = Vec::new();
            for place in query.indexes() {
                left_sides.push(self.hashes[usize::try_from(*place)?]);
            }
            let new = query.compute(&left_sides)?;
            hashes.extend(new.iter().map(|hash| hex::encode(hash.as_bytes())));
            self.hashes.extend(new);
            self.logged_at += TimeDelta::microseconds(1);
            let at = self.logged_at.to_rfc3339_opts(SecondsFormat::Micros, false);
            rows.push((key.name().as_str().to_owned(), key.version(), text, at));
        }
        let (rows, hashes) = (
            serde_json::to_string(&rows)?,
            serde_json::to_string(&hashes)?,
        );
        let (records_sql, hashes_sql) = match connection {
            FillConnection::Sqlite(_) => (ADD_RECORDS_SQLITE, ADD_HASHES_SQLITE),
            FillConnection::Postgres(_) => (ADD_RECORDS_POSTGRES, ADD_HASHES_POSTGRES),
        };
        execute!(connection, records_sql, first_id, rows.as_str())?;
        execute!(connection, hashes_sql, first_place, hashes.as_str())?;
        Ok(())
    }

    /// Returns the text of a record.
    fn record(&self, key: &VersionKey, number: u64) -> anyhow::Result<String> {
        let maker = RecordMaker {
            deployment: self.signer.name().parse()?,
            id: LogId::new(i64::try_from(number + 1)?)?,
        };
        let change = RecordChange::Add(self.content.clone());
        let record = UnsignedRecord::new(key.clone(), change, self.added_at, maker)?;
        Ok(record.sign(&self.signer).to_string())
    }

    /// Adds the versions of all records after one, with their names and packages.
    async fn add_versions(
        &self,
        connection: &mut FillConnection,
        after: i64,
    ) -> anyhow::Result<()> {
        let Checksums::Module { files } = self.content.checksums else {
            bail!("the version is not one of Terraform");
        };
        let files = files.to_string();
        let package = self.content.packages.iter().next();
        let package = package.context("the version has no package")?;
        let (file, digest) = (package.name.as_str(), package.digest.as_str());
        let (size, added_at) = (i64::try_from(package.size)?, self.added_at.get());
        execute!(connection, ADD_NAMES, after)?;
        execute!(connection, ADD_VERSIONS, files.as_str(), added_at, after)?;
        execute!(connection, ADD_PACKAGES, file, digest, size, after)?;
        if let FillConnection::Postgres(connection) = connection {
            // As autovacuum does some time after so many rows.
            sqlx::query("VACUUM ANALYZE")
                .execute(&mut **connection)
                .await?;
        }
        Ok(())
    }
}
