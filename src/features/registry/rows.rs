//! Rows of versions, names, packages, records and downloads, read or written with one statement for each table, however
//! many there are.
//!
//! A page of another deployment has up to 1,000 records, and a list of conflicts as many versions. A round trip for
//! each of their rows would take longer than everything else.
//!
//! The rows are one parameter: a list of objects in JSON, which both databases take apart in the same way.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat, Utc};
use lockkeeper_registry::merge::ContentConflict;
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::{
    Checksums, DeploymentName, LogId, PackageFile, Record, VersionContent,
};
use lockkeeper_registry::states::BaseLocation;
use lockkeeper_registry::versions::VersionKey;
use serde_json::{Value, json};

use super::store::{
    RegistryVersion, VersionRow, broken, version_columns, version_sql, versions_of,
};
use crate::store::{Result, Store, Tx, execute, on_pool, on_tx};

/// Returns a statement for SQLite and for PostgreSQL. `$sql` gets the source of the objects, and the conversion of a time.
macro_rules! for_both {
    ($sql:ident) => {
        [
            $sql!("json_each($1) AS each", ""),
            $sql!(
                "jsonb_array_elements($1::jsonb) WITH ORDINALITY AS each (value, key)",
                "::timestamptz"
            ),
        ]
    };
}

/// True for the row `$row` of the version that an object names.
macro_rules! is_named_sql {
    ($row:literal) => {
        concat!(
            $row,
            ".kind = each.value->>'kind' AND ",
            $row,
            ".name = each.value->>'name' AND ",
            $row,
            ".version = each.value->>'version'"
        )
    };
}

/// Selects all versions of the list.
macro_rules! keys_sql {
    ($each:literal) => {
        concat!(
            "SELECT each.value->>'kind', each.value->>'name', each.value->>'version' FROM ",
            $each
        )
    };
}

macro_rules! versions_sql {
    ($each:literal, $time:literal) => {
        version_sql!(concat!(
            "(SELECT r.* FROM ",
            $each,
            " CROSS JOIN registry_versions r WHERE ",
            is_named_sql!("r"),
            ") v"
        ))
    };
}

macro_rules! write_versions_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_versions (kind, name, version, state, files_hash, go_mod_hash, commit_sha, base, \
             origin, published_by, added_at, reason, replacement, takedown, noticed_at, committed_at) \
             SELECT each.value->>'kind', each.value->>'name', each.value->>'version', each.value->>'state', \
             each.value->>'files_hash', each.value->>'go_mod_hash', each.value->>'commit_sha', each.value->>'base', \
             each.value->>'origin', each.value->>'published_by', (each.value->>'added_at')",
            $time,
            ", each.value->>'reason', each.value->>'replacement', each.value->>'takedown', (each.value->>'noticed_at')",
            $time,
            ", (each.value->>'committed_at')",
            $time,
            " FROM ",
            $each,
            " WHERE TRUE ON CONFLICT (kind, name, version) DO UPDATE SET state = excluded.state, \
             files_hash = excluded.files_hash, go_mod_hash = excluded.go_mod_hash, commit_sha = excluded.commit_sha, \
             base = excluded.base, origin = excluded.origin, published_by = excluded.published_by, \
             added_at = excluded.added_at, reason = excluded.reason, replacement = excluded.replacement, \
             takedown = excluded.takedown, noticed_at = excluded.noticed_at, committed_at = excluded.committed_at"
        )
    };
}

macro_rules! add_names_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_names (kind, name, folded_name) \
             SELECT each.value->>'kind', each.value->>'name', each.value->>'folded_name' FROM ",
            $each,
            " WHERE TRUE ON CONFLICT (kind, name) DO NOTHING"
        )
    };
}

macro_rules! add_packages_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_packages (kind, name, version, file, digest, size) \
             SELECT each.value->>'kind', each.value->>'name', each.value->>'version', each.value->>'file', \
             each.value->>'digest', CAST(each.value->>'size' AS BIGINT) FROM ",
            $each
        )
    };
}

macro_rules! add_records_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_log (id, kind, name, version, action, record, logged_at) \
             SELECT CAST(each.value->>'id' AS BIGINT), each.value->>'kind', each.value->>'name', \
             each.value->>'version', each.value->>'action', each.value->>'record', (each.value->>'logged_at')",
            $time,
            " FROM ",
            $each
        )
    };
}

/// Adds downloads from the peer `$2` that are due at `$3`.
macro_rules! add_downloads_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_downloads (kind, name, version, peer, attempts, next_at) \
             SELECT each.value->>'kind', each.value->>'name', each.value->>'version', $2, 0, $3 FROM ",
            $each,
            " WHERE TRUE ON CONFLICT (kind, name, version) DO NOTHING"
        )
    };
}

/// Adds conflicts with the peer `$2` that were seen at `$3`.
macro_rules! add_conflicts_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_conflicts (kind, name, version, peer, record, since) \
             SELECT each.value->>'kind', each.value->>'name', each.value->>'version', $2, each.value->>'record', $3 FROM ",
            $each,
            " WHERE TRUE ON CONFLICT (kind, name, version, peer) DO NOTHING"
        )
    };
}

/// Makes the packages of versions loose (`$2`: now), except those that another version here has as well. A version that is
/// still at a peer gets its package from there. A package that somebody is about to publish stays for as long as that takes,
/// and a removal that runs goes on.
macro_rules! loosen_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "INSERT INTO registry_loose_packages (digest, due_at) SELECT p.digest, $2 FROM ",
            $each,
            " CROSS JOIN registry_packages p WHERE ",
            is_named_sql!("p"),
            " AND NOT EXISTS (SELECT 1 FROM registry_packages o WHERE o.digest = p.digest AND (SELECT v.base \
             FROM registry_versions v WHERE v.kind = o.kind AND v.name = o.name AND v.version = o.version) = '' \
             AND (o.kind, o.name, o.version) NOT IN (",
            keys_sql!($each),
            ")) GROUP BY p.digest ON CONFLICT (digest) DO UPDATE SET due_at = registry_loose_packages.due_at"
        )
    };
}

/// Takes the packages and the `go.mod` files of versions from the size of everything from elsewhere, as far as they are part
/// of that.
macro_rules! uncache_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "UPDATE registry_cache SET bytes = bytes - (SELECT CAST(COALESCE(SUM(p.size), 0) AS BIGINT) FROM ",
            $each,
            " CROSS JOIN registry_packages p CROSS JOIN registry_versions v WHERE ",
            is_named_sql!("p"),
            " AND v.kind = p.kind AND v.name = p.name AND v.version = p.version \
             AND v.origin IN ('version_control', 'peer_version_control')) \
             - (SELECT CAST(COALESCE(SUM(LENGTH(g.content)), 0) AS BIGINT) FROM ",
            $each,
            " CROSS JOIN registry_go_mods g CROSS JOIN registry_versions v WHERE each.value->>'kind' = 'go' \
             AND g.name = each.value->>'name' AND g.version = each.value->>'version' \
             AND v.kind = 'go' AND v.name = g.name AND v.version = g.version \
             AND v.origin IN ('version_control', 'peer_version_control')) WHERE id = 1"
        )
    };
}

macro_rules! remove_packages_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "DELETE FROM registry_packages WHERE (kind, name, version) IN (",
            keys_sql!($each),
            ")"
        )
    };
}

macro_rules! remove_downloads_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "DELETE FROM registry_downloads WHERE (kind, name, version) IN (",
            keys_sql!($each),
            ")"
        )
    };
}

macro_rules! remove_conflicts_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "DELETE FROM registry_conflicts WHERE (kind, name, version) IN (",
            keys_sql!($each),
            ")"
        )
    };
}

macro_rules! remove_go_mods_sql {
    ($each:literal, $time:literal) => {
        concat!(
            "DELETE FROM registry_go_mods WHERE (name, version) IN \
             (SELECT each.value->>'name', each.value->>'version' FROM ",
            $each,
            " WHERE each.value->>'kind' = 'go')"
        )
    };
}

const VERSIONS: [&str; 2] = for_both!(versions_sql);
const WRITE_VERSIONS: [&str; 2] = for_both!(write_versions_sql);
const ADD_NAMES: [&str; 2] = for_both!(add_names_sql);
const ADD_PACKAGES: [&str; 2] = for_both!(add_packages_sql);
const ADD_RECORDS: [&str; 2] = for_both!(add_records_sql);
const ADD_DOWNLOADS: [&str; 2] = for_both!(add_downloads_sql);
const ADD_CONFLICTS: [&str; 2] = for_both!(add_conflicts_sql);
const LOOSEN_PACKAGES: [&str; 2] = for_both!(loosen_sql);
/// Removes everything that only versions with content have. The first statement needs the packages.
const REMOVE: [[&str; 2]; 5] = [
    for_both!(uncache_sql),
    for_both!(remove_packages_sql),
    for_both!(remove_downloads_sql),
    for_both!(remove_conflicts_sql),
    for_both!(remove_go_mods_sql),
];

/// A record with its place in the log.
pub(super) struct LoggedRecord<'a> {
    pub(super) id: LogId,
    pub(super) logged_at: DateTime<Utc>,
    pub(super) record: &'a Record,
    /// Text of the record.
    pub(super) text: &'a str,
}

impl Store {
    /// Returns the versions with these keys in any state but absent.
    pub(super) async fn registry_versions_by_key(
        &self,
        keys: &BTreeSet<VersionKey>,
    ) -> Result<BTreeMap<VersionKey, RegistryVersion>> {
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let [sqlite, postgres] = VERSIONS;
        let sql = if self.is_shared() { postgres } else { sqlite };
        let keys = listed(keys.iter().map(key_row));
        // Planned for the size that the tables have now, as in a transaction.
        let rows = on_pool!(self, db => sqlx::query_as::<_, VersionRow>(sql)
            .bind(keys.as_str()).persistent(false).fetch_all(db))?;
        let versions = versions_of(rows)?.into_iter();
        Ok(versions
            .map(|version| (version.key.clone(), version))
            .collect())
    }
}

/// Returns the statement for the database of a transaction.
fn of_database(tx: &Tx, [sqlite, postgres]: [&'static str; 2]) -> &'static str {
    match tx {
        Tx::Sqlite(_) => sqlite,
        Tx::Postgres(_) => postgres,
    }
}

fn listed(rows: impl Iterator<Item = Value>) -> String {
    rows.collect::<Value>().to_string()
}

/// Formats a time as SQLite stores it. PostgreSQL reads the same text.
fn time_column(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

fn key_row(key: &VersionKey) -> Value {
    json!({"kind": key.kind(), "name": key.name().as_str(), "version": key.version()})
}

/// Reads the versions of records, also unknown ones.
pub(super) async fn versions_in_tx(
    tx: &mut Tx,
    records: &[&Record],
) -> Result<BTreeMap<VersionKey, RegistryVersion>> {
    let unknown = records.iter().map(|record| {
        let key = record.key();
        (key.clone(), RegistryVersion::unknown(key.clone()))
    });
    let mut versions: BTreeMap<VersionKey, RegistryVersion> = unknown.collect();
    if versions.is_empty() {
        return Ok(versions);
    }
    let (sql, keys) = (of_database(tx, VERSIONS), versions.keys().map(key_row));
    let keys = listed(keys);
    // The tables grow with each page, so PostgreSQL plans the statement for the size that they have now.
    let rows = on_tx!(tx, db => sqlx::query_as::<_, VersionRow>(sql)
        .bind(keys.as_str()).persistent(false).fetch_all(db))?;
    for version in versions_of(rows)? {
        versions.insert(version.key.clone(), version);
    }
    Ok(versions)
}

/// Writes the rows of versions, without their packages. No version may be there twice.
pub(super) async fn versions_write_in_tx(tx: &mut Tx, versions: &[&RegistryVersion]) -> Result<()> {
    if versions.is_empty() {
        return Ok(());
    }
    let rows = versions.iter().map(|version| {
        let name = version.key.name();
        let located = version.known.content();
        let content = located.map(|located| &located.content);
        let (files, go_mod) = match content.map(|content| content.checksums) {
            Some(Checksums::Module { files }) => (Some(files), None),
            Some(Checksums::Go { zip, go_mod }) => (Some(zip), Some(go_mod)),
            None => (None, None),
        };
        let base = match located.map(|located| &located.base) {
            Some(BaseLocation::Peer(peer)) => peer.as_str(),
            Some(BaseLocation::Here) | None => "",
        };
        let notice = version.notice.as_ref();
        json!({
            "kind": name.kind(),
            "name": name.as_str(),
            "version": version.key.version(),
            "state": version.known.state(),
            "files_hash": files,
            "go_mod_hash": go_mod,
            "commit_sha": content.and_then(|content| content.commit.as_ref()),
            "base": base,
            "origin": version.origin,
            "published_by": version.published_by,
            "added_at": version.added_at.map(time_column),
            "reason": notice.map(|notice| notice.notice.reason.as_str()),
            "replacement": notice.and_then(|notice| notice.notice.replacement.as_ref()),
            "takedown": notice.and_then(|notice| notice.takedown),
            "noticed_at": notice.map(|notice| time_column(notice.at)),
            "committed_at": version.committed_at.map(time_column),
        })
    });
    let (sql, rows) = (of_database(tx, WRITE_VERSIONS), listed(rows));
    execute!(tx, sql, rows.as_str()).map(drop)
}

/// Adds names to the list of names, except those that are there.
pub(super) async fn names_add_in_tx(tx: &mut Tx, names: &[&RegistryName]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let rows = names.iter().map(|name| {
        let folded = name.as_str().to_ascii_lowercase();
        json!({"kind": name.kind(), "name": name.as_str(), "folded_name": folded})
    });
    let (sql, rows) = (of_database(tx, ADD_NAMES), listed(rows));
    execute!(tx, sql, rows.as_str()).map(drop)
}

/// Adds the packages of versions.
pub(super) async fn packages_add_in_tx(
    tx: &mut Tx,
    contents: &[(&VersionKey, &VersionContent)],
) -> Result<()> {
    let mut rows = Vec::new();
    for (key, content) in contents {
        for PackageFile { name, digest, size } in &content.packages {
            let mut row = key_row(key);
            row["file"] = json!(name);
            row["digest"] = json!(digest);
            row["size"] = json!(i64::try_from(*size).map_err(broken)?);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let (sql, rows) = (of_database(tx, ADD_PACKAGES), listed(rows.into_iter()));
    execute!(tx, sql, rows.as_str()).map(drop)
}

/// Adds records to the log, without the hashes that the tree gets.
pub(super) async fn records_add_in_tx(tx: &mut Tx, records: &[LoggedRecord<'_>]) -> Result<()> {
    let rows = records.iter().map(|logged| {
        let mut row = key_row(logged.record.key());
        row["id"] = json!(logged.id.get());
        row["action"] = json!(logged.record.change().action());
        row["record"] = json!(logged.text);
        row["logged_at"] = json!(time_column(logged.logged_at));
        row
    });
    let (sql, rows) = (of_database(tx, ADD_RECORDS), listed(rows));
    execute!(tx, sql, rows.as_str()).map(drop)
}

/// Adds versions whose packages come from a peer, from this time on.
pub(super) async fn downloads_add_in_tx(
    tx: &mut Tx,
    keys: &[VersionKey],
    peer: &DeploymentName,
    now: DateTime<Utc>,
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let (sql, rows) = (of_database(tx, ADD_DOWNLOADS), keys.iter().map(key_row));
    let rows = listed(rows);
    execute!(tx, sql, rows.as_str(), peer, now).map(drop)
}

/// Adds versions with two contents, whose other one came from a peer.
pub(super) async fn conflicts_add_in_tx(
    tx: &mut Tx,
    conflicts: &[ContentConflict],
    peer: &DeploymentName,
    now: DateTime<Utc>,
) -> Result<()> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let rows = conflicts.iter().map(|conflict| {
        let mut row = key_row(&conflict.key);
        row["record"] = json!(conflict.theirs.to_string());
        row
    });
    let (sql, rows) = (of_database(tx, ADD_CONFLICTS), listed(rows));
    execute!(tx, sql, rows.as_str(), peer, now).map(drop)
}

/// Removes the packages and the `go.mod` files of versions that were taken down, and their downloads and conflicts. Their
/// rows have the ways by which they came.
pub(super) async fn contents_remove_in_tx(
    tx: &mut Tx,
    keys: &[&VersionKey],
    now: DateTime<Utc>,
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let rows = listed(keys.iter().map(|key| key_row(key)));
    let sql = of_database(tx, LOOSEN_PACKAGES);
    execute!(tx, sql, rows.as_str(), now)?;
    for sql in REMOVE {
        let sql = of_database(tx, sql);
        execute!(tx, sql, rows.as_str())?;
    }
    Ok(())
}
