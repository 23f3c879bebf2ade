//! Computes everything again that the registry has stored, and names the first thing that is wrong (R4, R5).
//!
//! The log is read first: every record with its signature, and every hash of the tree. Then the state of each version is
//! computed from its records and compared with its rows, and at last the packages if that is wanted. All of it is read
//! in pages, so the memory does not grow with the log.
//!
//! Changes go on meanwhile. The log only grows, so what was added since the beginning is left out. A version can change
//! between the reading of its rows and of its records. So a fault of a version only counts if it is still there when
//! nobody writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _};
use std::num::NonZero;
use std::thread;

use futures::TryStreamExt as _;
use futures::future::try_join_all;
use lockkeeper_registry::dirhash::{DirHash, hash_go_mod};
use lockkeeper_registry::go_zip::{GO_LIMITS, GoZipError, check_go_zip};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::records::{
    Checksums, DeploymentName, LogAction, PackageFile, Record, VersionContent,
};
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::states::{BaseLocation, KnownVersion, RecordEffect};
use lockkeeper_registry::tf_archive::{TF_LIMITS, TfArchiveError, check_tf_archive};
use lockkeeper_registry::tlog::{self, LogHash, TreeHead};
use lockkeeper_registry::versions::VersionKey;
use sha2::{Digest as _, Sha256};

use super::blobs::{BlobError, RemoteFault};
use super::peers::Makers;
use super::service::{Registry, RegistryError};
use super::store::{
    HashRow, RegistryVersion, VersionRow, key_of, log_hold_in_tx, version_columns, version_in_tx,
    version_sql, versions_of,
};
use crate::store::{Result as StoreResult, Store, Tx, on_pool, on_tx};

/// Number of records or versions that are read at a time.
const PAGE: usize = 200;

/// Maximum number of records of a version (R3).
const RECORDS_OF_A_VERSION: usize = 3;

/// Public keys of other deployments whose records may be in the log.
#[derive(Clone, Debug, Default)]
pub struct RecordKeys(Vec<NoteVerifier>);

impl RecordKeys {
    /// Takes keys, which have the names of their deployments.
    pub(super) fn new(keys: impl IntoIterator<Item = NoteVerifier>) -> Self {
        Self(keys.into_iter().collect())
    }

    fn has(&self, deployment: &DeploymentName) -> bool {
        self.0.iter().any(|key| key.name() == deployment.as_str())
    }
}

/// Result of a verification that found no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Head of the log that was verified.
    pub head: TreeHead,
    /// Number of versions in any state.
    pub versions: u64,
    /// Number of packages whose bytes were verified.
    pub packages: u64,
}

/// The first fault that a verification found, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VerifyFault(pub String);

/// Reason why a verification ended early.
enum VerifyStop {
    Fault(VerifyFault),
    /// The verification could not go on, which says nothing about the data.
    Failed(RegistryError),
}

type VerifyStep<T> = Result<T, VerifyStop>;

fn fault(text: impl Into<String>) -> VerifyStop {
    VerifyStop::Fault(VerifyFault(text.into()))
}

impl From<RegistryError> for VerifyStop {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for VerifyStop {
    fn from(error: sqlx::Error) -> Self {
        if is_damage(&error) {
            fault(format!("a row cannot be read: {error}"))
        } else {
            Self::Failed(error.into())
        }
    }
}

/// Returns true for rows that do not have what this program stores.
fn is_damage(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. }
    )
}

impl From<tokio::task::JoinError> for VerifyStop {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Failed(RegistryError::Damaged(error.to_string()))
    }
}

impl From<tlog::TlogError> for VerifyStop {
    fn from(error: tlog::TlogError) -> Self {
        Self::Failed(error.into())
    }
}

impl Registry {
    /// Recomputes everything: records, signatures, hashes, the root, and the state of every version. With `packages`, also
    /// the checksums of all packages. Returns the first fault.
    pub async fn verify(
        &self,
        packages: bool,
    ) -> Result<Result<VerifyReport, VerifyFault>, RegistryError> {
        match self.verified(packages).await {
            Ok(report) => Ok(Ok(report)),
            Err(VerifyStop::Fault(fault)) => Ok(Err(fault)),
            Err(VerifyStop::Failed(error)) => Err(error),
        }
    }

    async fn verified(&self, packages: bool) -> VerifyStep<VerifyReport> {
        let head = self.verify_log().await?;
        let mut report = VerifyReport {
            head,
            versions: 0,
            packages: 0,
        };
        let mut after = RowKey::default();
        loop {
            let page = self.verify_versions(&after).await?;
            report.versions += page.versions.len() as u64;
            if packages {
                for version in &page.versions {
                    report.packages += self.verify_packages(version).await?;
                }
            }
            match page.last {
                Some(last) => after = last,
                None => break,
            }
        }
        self.verify_ends().await?;
        Ok(report)
    }

    /// Verifies all records, and all hashes of the tree over them.
    async fn verify_log(&self) -> VerifyStep<TreeHead> {
        let size = self.store.registry_log_size().await?;
        // Read after the size: a record is never older than the key of its maker.
        let peers = self.store.registry_peers().await?;
        let keys = Makers::new(self.name().clone(), peers).keys();
        let mut tree = GrowingTree::default();
        let mut page = self.store.registry_log_page(0, size).await?;
        while tree.size < size {
            if page.is_empty() {
                let missing = tree.size + 1;
                return Err(fault(format!("record {missing} is missing")));
            }
            let end = tree.size + page.len() as u64;
            let places = tlog::stored_hash_count(tree.size)..tlog::stored_hash_count(end);
            let (leaves, stored, next) = tokio::join!(
                self.check_records(tree.size, page, &keys),
                self.store.registry_log_hash_page(places.start, places.end),
                self.store.registry_log_page(end, size),
            );
            let (leaves, stored) = (leaves?, stored?);
            page = next?;
            let mut stored = stored.into_iter();
            for leaf in leaves {
                for (place, hash) in tree.add(leaf)? {
                    let found = stored.next();
                    let is_there = found.is_some_and(|row| {
                        u64::try_from(row.place) == Ok(place) && row.hash == hash.as_bytes()
                    });
                    if !is_there {
                        let id = tree.size;
                        return Err(fault(format!(
                            "the hash at place {place} of the tree, which belongs to record {id}, is missing or wrong"
                        )));
                    }
                }
            }
        }
        Ok(tree.head()?)
    }

    /// Checks records that follow the first `before` ones, on all processors. Returns their hashes.
    async fn check_records(
        &self,
        before: u64,
        mut rows: Vec<LogRow>,
        keys: &RecordKeys,
    ) -> VerifyStep<Vec<LogHash>> {
        let tasks = thread::available_parallelism().map_or(1, NonZero::get);
        let share = rows.len().div_ceil(tasks).max(1);
        let mut first = before + 1;
        let mut running = Vec::new();
        while !rows.is_empty() {
            let rest = rows.split_off(share.min(rows.len()));
            let part = std::mem::replace(&mut rows, rest);
            let (name, key, keys) = (self.name().clone(), self.verifier().clone(), keys.clone());
            let count = part.len() as u64;
            running.push(tokio::task::spawn_blocking(move || {
                check_part(first, part, (&name, &key), &keys)
            }));
            first += count;
        }
        let parts = try_join_all(running).await?;
        let parts: Result<Vec<Vec<LogHash>>, VerifyFault> = parts.into_iter().collect();
        Ok(parts.map_err(VerifyStop::Fault)?.concat())
    }

    /// Verifies the versions after a row, a page of them.
    async fn verify_versions(&self, after: &RowKey) -> VerifyStep<VersionPage> {
        let page = self.store.registry_version_page(after).await;
        let (versions, last) = match page {
            Err(error) if is_damage(&error) => {
                return Err(self.name_damaged_row(after, &error).await?);
            }
            page => page?,
        };
        let records = self.store.registry_log_of(after, last.as_ref()).await?;
        let mut records_of: BTreeMap<RowKey, Vec<LogRow>> = BTreeMap::new();
        for row in records {
            records_of.entry(row.key()).or_default().push(row);
        }
        let mut go_mods = BTreeMap::new();
        for version in &versions {
            let key = RowKey::of(&version.key);
            let records = records_of.remove(&key).unwrap_or_default();
            if compare(&version.key, Some(version), &records).is_err() {
                self.verify_while_locked(&version.key).await?;
            }
            if let Some(hash) = go_mod_hash(&version.known) {
                go_mods.insert((key.name, key.version), hash);
            }
        }
        for key in records_of.into_keys() {
            self.verify_while_locked(&key.parse()?).await?;
        }
        for (name, version) in self
            .differing_go_mods(after, last.as_ref(), go_mods)
            .await?
        {
            let key = key_of(NameKind::Go, &name, &version)?;
            self.verify_while_locked(&key).await?;
        }
        Ok(VersionPage { versions, last })
    }

    /// Names the first row after another one that cannot be read.
    async fn name_damaged_row(
        &self,
        after: &RowKey,
        error: &sqlx::Error,
    ) -> VerifyStep<VerifyStop> {
        for key in self.store.registry_version_keys(after).await? {
            let read = match key.parse() {
                Ok(parsed) => self.store.registry_version(&parsed).await.map(drop),
                Err(error) => Err(error),
            };
            match read {
                Err(error) if is_damage(&error) => {
                    return Ok(fault(format!("the row of {key} cannot be read: {error}")));
                }
                read => read?,
            }
        }
        Ok(fault(format!("a row of a version cannot be read: {error}")))
    }

    /// Returns the versions with a `go.mod` file that differs from these, or with one too many or none.
    async fn differing_go_mods(
        &self,
        after: &RowKey,
        last: Option<&RowKey>,
        mut expected: BTreeMap<(String, String), DirHash>,
    ) -> VerifyStep<Vec<(String, String)>> {
        let go = NameKind::Go.as_str();
        if after.kind.as_str() > go {
            return Ok(Vec::new());
        }
        let last = last.filter(|last| last.kind == go);
        let end = last.map_or((AFTER_ALL, AFTER_ALL), |last| {
            (last.name.as_str(), last.version.as_str())
        });
        let mut differing = Vec::new();
        // One at a time, because a file can be large.
        let mut compare = |name: String, version: String, content: &[u8]| {
            let key = (name, version);
            if expected.remove(&key) != Some(hash_go_mod(content)) && differing.len() < PAGE {
                differing.push(key);
            }
        };
        on_pool!(self.store, db => async {
            let mut rows = sqlx::query_as::<_, (String, String, Vec<u8>)>(
                "SELECT name, version, content FROM registry_go_mods WHERE (name, version) > ($1, $2) \
                 AND (name, version) <= ($3, $4) ORDER BY name, version")
                .bind(&after.name).bind(&after.version).bind(end.0).bind(end.1).fetch(db);
            while let Some((name, version, content)) = rows.try_next().await? {
                compare(name, version, &content);
            }
            Ok::<(), sqlx::Error>(())
        })?;
        differing.extend(expected.into_keys());
        Ok(differing)
    }

    /// Verifies a version while nobody writes, and fails if it is really wrong.
    async fn verify_while_locked(&self, key: &VersionKey) -> VerifyStep<()> {
        let mut tx = self.store.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let version = match version_in_tx(&mut tx, key).await {
            Err(error) if is_damage(&error) => {
                return Err(fault(format!("the row of {key} cannot be read: {error}")));
            }
            version => version?,
        };
        let records = records_in_tx(&mut tx, key).await?;
        compare(key, version.as_ref(), &records).map_err(VerifyStop::Fault)?;
        if let Some((path, number)) = key.as_go() {
            let go_mod = on_tx!(&mut tx, db => sqlx::query_scalar::<_, Vec<u8>>(
                "SELECT content FROM registry_go_mods WHERE name = $1 AND version = $2")
                .bind(path).bind(number).fetch_optional(db))?;
            let recorded = version.and_then(|version| go_mod_hash(&version.known));
            if go_mod.map(|content| hash_go_mod(&content)) != recorded {
                return Err(fault(format!(
                    "the go.mod file of {key} is not the recorded one"
                )));
            }
        }
        tx.roll_back().await?;
        Ok(())
    }

    /// Verifies the bytes of all packages of a version. Returns their number.
    async fn verify_packages(&self, version: &RegistryVersion) -> VerifyStep<u64> {
        let located = version.known.content();
        let Some(located) = located.filter(|located| located.base == BaseLocation::Here) else {
            return Ok(0);
        };
        let key = &version.key;
        let mut verified = 0;
        for package in &located.content.packages {
            let file = self.blobs.open_stored(&package.digest, package.size).await;
            let file = match file {
                Err(error @ BlobError::Remote(RemoteFault::Wrong(..))) => {
                    return Err(fault(error.to_string()));
                }
                file => file.map_err(RegistryError::from)?,
            };
            let Some(file) = file else {
                // A takedown may have come in between.
                let now = self.store.registry_version(key).await?;
                if now.is_none_or(|now| now.known.content().is_none()) {
                    return Ok(verified);
                }
                return Err(fault(format!(
                    "the package {} of {key} is missing",
                    package.name
                )));
            };
            let (key, package) = (key.clone(), package.clone());
            let content = located.content.clone();
            let checked =
                tokio::task::spawn_blocking(move || check_package(&key, &package, &content, file));
            match checked.await? {
                Ok(Ok(())) => verified += 1,
                Ok(Err(fault)) => return Err(VerifyStop::Fault(fault)),
                Err(error) => {
                    return Err(fault(format!(
                        "a package of {} cannot be read: {error}",
                        version.key
                    )));
                }
            }
        }
        Ok(verified)
    }

    /// Verifies that no rows are left over, and that the tree has no hashes beyond the log.
    async fn verify_ends(&self) -> VerifyStep<()> {
        for (sql, what) in LEFT_OVER {
            let row =
                on_pool!(self.store, db => sqlx::query_as::<_, RowKey>(*sql).fetch_optional(db))?;
            if let Some(key) = row {
                return Err(fault(format!("{what} {key}")));
            }
        }
        let mut tx = self.store.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let (size, hashes) = on_tx!(&mut tx, db => sqlx::query_as::<_, (Option<i64>, Option<i64>)>(
            "SELECT (SELECT MAX(id) FROM registry_log), (SELECT MAX(place) + 1 FROM registry_log_hashes)")
            .fetch_one(db))?;
        tx.roll_back().await?;
        let number = |count: Option<i64>| u64::try_from(count.unwrap_or(0)).unwrap_or(0);
        if number(hashes) == tlog::stored_hash_count(number(size)) {
            Ok(())
        } else {
            Err(fault(format!(
                "the tree has {} hashes, and a log of {} records has {}",
                number(hashes),
                number(size),
                tlog::stored_hash_count(number(size))
            )))
        }
    }
}

/// Rows that belong to nothing.
const LEFT_OVER: &[(&str, &str)] = &[
    (
        "SELECT p.kind, p.name, p.version FROM registry_packages p WHERE NOT EXISTS (SELECT 1 FROM registry_versions v \
         WHERE v.kind = p.kind AND v.name = p.name AND v.version = p.version) LIMIT 1",
        "a package belongs to a version that does not exist:",
    ),
    (
        "SELECT v.kind, v.name, v.version FROM registry_versions v WHERE NOT EXISTS (SELECT 1 FROM registry_names n \
         WHERE n.kind = v.kind AND n.name = v.name) LIMIT 1",
        "a name is missing in the list of names, that of",
    ),
];

/// Text after all names and versions.
const AFTER_ALL: &str = "\u{7f}";

/// Columns that identify a version, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, sqlx::FromRow)]
struct RowKey {
    kind: String,
    name: String,
    version: String,
}

impl RowKey {
    fn of(key: &VersionKey) -> Self {
        Self {
            kind: key.kind().to_string(),
            name: key.name().as_str().to_owned(),
            version: key.version(),
        }
    }

    fn parse(&self) -> StoreResult<VersionKey> {
        let kind = self.kind.parse();
        let kind = kind.map_err(|error: String| sqlx::Error::Decode(error.into()))?;
        key_of(kind, &self.name, &self.version)
    }
}

impl std::fmt::Display for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.kind, self.name, self.version)
    }
}

/// Versions of a page, and the row of the last one, unless the page is the last one.
struct VersionPage {
    versions: Vec<RegistryVersion>,
    last: Option<RowKey>,
}

/// A record as it is stored.
#[derive(sqlx::FromRow)]
struct LogRow {
    id: i64,
    kind: String,
    name: String,
    version: String,
    action: String,
    record: String,
}

impl LogRow {
    fn key(&self) -> RowKey {
        RowKey {
            kind: self.kind.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
        }
    }
}

macro_rules! log_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, kind, name, version, action, record FROM registry_log ",
            $rest
        )
    };
}

impl Store {
    /// Returns the records after the first `before` ones, up to the first `size` ones: a page of them.
    async fn registry_log_page(&self, before: u64, size: u64) -> StoreResult<Vec<LogRow>> {
        on_pool!(self, db => sqlx::query_as::<_, LogRow>(
            log_sql!("WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3"))
            .bind(number(before)).bind(number(size)).bind(number(PAGE as u64)).fetch_all(db))
    }

    /// Returns the hashes at the places from `start` to before `end`.
    async fn registry_log_hash_page(&self, start: u64, end: u64) -> StoreResult<Vec<HashRow>> {
        on_pool!(self, db => sqlx::query_as::<_, HashRow>(
            "SELECT place, hash FROM registry_log_hashes WHERE place >= $1 AND place < $2 ORDER BY place")
            .bind(number(start)).bind(number(end)).fetch_all(db))
    }

    /// Returns the versions after a row, a page of them, and the row of the last one, unless the page is the last one.
    async fn registry_version_page(
        &self,
        after: &RowKey,
    ) -> StoreResult<(Vec<RegistryVersion>, Option<RowKey>)> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, VersionRow>(version_sql!(
            "(SELECT * FROM registry_versions WHERE (kind, name, version) > ($1, $2, $3) \
             ORDER BY kind, name, version LIMIT $4) v"))
            .bind(&after.kind).bind(&after.name).bind(&after.version).bind(number(PAGE as u64)).fetch_all(db))?;
        let versions = versions_of(rows)?;
        let last = versions.last().filter(|_| versions.len() == PAGE);
        let last = last.map(|last| RowKey::of(&last.key));
        Ok((versions, last))
    }

    async fn registry_version_keys(&self, after: &RowKey) -> StoreResult<Vec<RowKey>> {
        on_pool!(self, db => sqlx::query_as::<_, RowKey>(
            "SELECT kind, name, version FROM registry_versions WHERE (kind, name, version) > ($1, $2, $3) \
             ORDER BY kind, name, version LIMIT $4")
            .bind(&after.kind).bind(&after.name).bind(&after.version).bind(number(PAGE as u64)).fetch_all(db))
    }

    /// Returns the records of the versions after a row, up to another row. Of more than the versions of a page can have,
    /// the first ones.
    async fn registry_log_of(
        &self,
        after: &RowKey,
        last: Option<&RowKey>,
    ) -> StoreResult<Vec<LogRow>> {
        let all = RowKey {
            kind: AFTER_ALL.to_owned(),
            ..RowKey::default()
        };
        let last = last.unwrap_or(&all);
        let most = RECORDS_OF_A_VERSION * PAGE + 1;
        on_pool!(self, db => sqlx::query_as::<_, LogRow>(log_sql!(
            "WHERE (kind, name, version) > ($1, $2, $3) AND (kind, name, version) <= ($4, $5, $6) \
             ORDER BY kind, name, version, id LIMIT $7"))
            .bind(&after.kind).bind(&after.name).bind(&after.version)
            .bind(&last.kind).bind(&last.name).bind(&last.version).bind(number(most as u64)).fetch_all(db))
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn records_in_tx(tx: &mut Tx, key: &VersionKey) -> StoreResult<Vec<LogRow>> {
    let key = RowKey::of(key);
    on_tx!(tx, db => sqlx::query_as::<_, LogRow>(
        log_sql!("WHERE kind = $1 AND name = $2 AND version = $3 ORDER BY id"))
        .bind(&key.kind).bind(&key.name).bind(&key.version).fetch_all(db))
}

/// The tree over the records so far: the hashes of its complete subtrees.
#[derive(Default)]
struct GrowingTree {
    size: u64,
    /// Hashes of the complete subtrees that make up the tree, from left to right, with their places.
    subtrees: Vec<(u64, LogHash)>,
}

impl GrowingTree {
    /// Adds a record and returns the hashes that it completes, with their places.
    fn add(&mut self, leaf: LogHash) -> Result<Vec<(u64, LogHash)>, tlog::TlogError> {
        let query = tlog::stored_hashes(self.size, leaf)?;
        let left_sides: Vec<LogHash> = query
            .indexes()
            .iter()
            .filter_map(|_| self.subtrees.pop())
            .map(|(_, hash)| hash)
            .collect();
        let first = tlog::stored_hash_count(self.size);
        let hashes: Vec<(u64, LogHash)> = (first..).zip(query.compute(&left_sides)?).collect();
        self.subtrees.extend(hashes.last().copied());
        self.size += 1;
        Ok(hashes)
    }

    fn head(&self) -> Result<TreeHead, tlog::TlogError> {
        let hashes: Vec<LogHash> = self.subtrees.iter().map(|(_, hash)| *hash).collect();
        Ok(TreeHead {
            size: self.size,
            root: tlog::tree_hash(self.size)?.compute(&hashes)?,
        })
    }
}

/// Checks records that begin with this ID. Returns their hashes.
fn check_part(
    first: u64,
    rows: Vec<LogRow>,
    (deployment, verifier): (&DeploymentName, &NoteVerifier),
    keys: &RecordKeys,
) -> Result<Vec<LogHash>, VerifyFault> {
    let check = |(id, row): (u64, LogRow)| {
        if u64::try_from(row.id) != Ok(id) {
            return Err(VerifyFault(format!("record {id} is missing")));
        }
        let record = read_record(&row)?;
        let maker = record.maker();
        let is_own = maker.deployment == *deployment;
        if !is_own && !keys.has(&maker.deployment) {
            return Err(VerifyFault(format!(
                "record {id} was made by {}, which this deployment does not know",
                maker.deployment
            )));
        }
        if is_own && maker.id.get() != row.id {
            return Err(VerifyFault(format!(
                "record {id} was made as record {}",
                maker.id
            )));
        }
        let known = if is_own {
            std::slice::from_ref(verifier)
        } else {
            &keys.0
        };
        if record.verify(known).is_err() {
            return Err(VerifyFault(format!(
                "the signature of record {id} is not valid"
            )));
        }
        Ok(tlog::record_hash(row.record.as_bytes()))
    };
    (first..).zip(rows).map(check).collect()
}

/// Reads a record, whose columns must be those of its text.
fn read_record(row: &LogRow) -> Result<Record, VerifyFault> {
    let id = row.id;
    let record = Record::parse(row.record.as_bytes())
        .map_err(|error| VerifyFault(format!("record {id} cannot be read: {error}")))?;
    let action: Option<LogAction> = row.action.parse().ok();
    if RowKey::of(record.key()) != row.key() || action != Some(record.change().action()) {
        return Err(VerifyFault(format!(
            "record {id} is about another change than its row: {} {}",
            row.action,
            row.key()
        )));
    }
    Ok(record)
}

/// Compares the row of a version with the state that its records lead to.
fn compare(
    key: &VersionKey,
    row: Option<&RegistryVersion>,
    records: &[LogRow],
) -> Result<(), VerifyFault> {
    let mut expected = RegistryVersion::unknown(key.clone());
    for row in records {
        let record = read_record(row)?;
        match expected.known.apply(record.change(), &BaseLocation::Here) {
            RecordEffect::Changed(known) => {
                expected = expected.recorded(known, record.change(), record.time());
            }
            RecordEffect::Known | RecordEffect::Conflict(_) | RecordEffect::Tombstoned => {
                return Err(VerifyFault(format!(
                    "record {} of {key} changes nothing, so it does not belong into the log",
                    row.id
                )));
            }
        }
    }
    let what = match (row, records.last()) {
        (None, None) => return Ok(()),
        (None, Some(last)) => format!("{key} has record {} and no row", last.id),
        (Some(_), None) => format!("{key} has a row and no record"),
        (Some(row), Some(last)) => {
            let is_same = row.known.state() == expected.known.state()
                && content(&row.known) == content(&expected.known)
                && row.notice == expected.notice
                && row.added_at == expected.added_at;
            if is_same {
                return Ok(());
            }
            format!(
                "the row of {key} ({}) is not what its records say, the last one is {} ({})",
                row.known.state(),
                last.id,
                expected.known.state()
            )
        }
    };
    Err(VerifyFault(what))
}

/// Returns the content of a version, which records tell, without the storage that has it.
fn content(known: &KnownVersion) -> Option<&VersionContent> {
    known.content().map(|located| &located.content)
}

/// Returns the hash of the `go.mod` file of a version whose package is here.
fn go_mod_hash(known: &KnownVersion) -> Option<DirHash> {
    let located = known.content();
    let located = located.filter(|located| located.base == BaseLocation::Here)?;
    match located.content.checksums {
        Checksums::Go { go_mod, .. } => Some(go_mod),
        Checksums::Module { .. } => None,
    }
}

/// Checks the bytes of a package.
fn check_package(
    key: &VersionKey,
    package: &PackageFile,
    content: &VersionContent,
    mut file: File,
) -> io::Result<Result<(), VerifyFault>> {
    let fault = |what: String| {
        let name = &package.name;
        Ok(Err(VerifyFault(format!(
            "the package {name} of {key} {what}"
        ))))
    };
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        sha256.update(&buffer[..count]);
        size += count as u64;
    }
    if size != package.size {
        return fault(format!("has {size} bytes instead of {}", package.size));
    }
    let digest = hex::encode(sha256.finalize());
    if digest != package.digest.as_str() {
        return fault(format!(
            "has the SHA-256 {digest} instead of {}",
            package.digest
        ));
    }
    file.rewind()?;
    let reader = BufReader::new(file);
    let hash = match (key.as_go(), content.checksums) {
        (Some((path, version)), Checksums::Go { zip, .. }) => {
            match check_go_zip(path, version, reader, &GO_LIMITS, |_, _| Ok(())) {
                Ok(contents) => Ok((contents.hash, zip)),
                Err(GoZipError::Io(error)) => return Err(error),
                Err(error) => Err(error.to_string()),
            }
        }
        (None, Checksums::Module { files }) => {
            match check_tf_archive(reader, &TF_LIMITS, |_, _| Ok(())) {
                Ok(contents) => Ok((contents.hash, files)),
                Err(TfArchiveError::Io(error)) => return Err(error),
                Err(error) => Err(error.to_string()),
            }
        }
        (Some(_), Checksums::Module { .. }) | (None, Checksums::Go { .. }) => {
            Err("has the checksums of another kind".to_owned())
        }
    };
    match hash {
        Ok((found, recorded)) if found == recorded => Ok(Ok(())),
        Ok((found, recorded)) => fault(format!("has the hash {found} instead of {recorded}")),
        Err(error) => fault(format!("breaks the rules of packages: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_grows_to_the_hashes_that_a_log_stores() {
        let leaves: Vec<LogHash> = (0..300_u32)
            .map(|n| tlog::record_hash(&n.to_be_bytes()))
            .collect();
        let mut tree = GrowingTree::default();
        assert_eq!(tree.head().unwrap().root, LogHash::EMPTY_TREE);
        let mut stored: Vec<LogHash> = Vec::new();
        for leaf in &leaves {
            for (place, hash) in tree.add(*leaf).unwrap() {
                assert_eq!(place, stored.len() as u64);
                stored.push(hash);
            }
            let query = tlog::tree_hash(tree.size).unwrap();
            let hashes = query.indexes().iter();
            let hashes: Vec<LogHash> = hashes
                .map(|place| stored[usize::try_from(*place).unwrap()])
                .collect();
            assert_eq!(tree.head().unwrap().root, query.compute(&hashes).unwrap());
        }
    }
}
