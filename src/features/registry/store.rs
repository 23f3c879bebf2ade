//! Versions, the log and its hashes.
//!
//! A change of a version, its record, the hashes of the record and the event of the audit log are one transaction (R2).
//! On PostgreSQL such transactions hold the *log lock*, an advisory lock, before they read the size of the log. So IDs
//! have no gaps, and they are in the order of the commits: who sees a record sees all records before it. SQLite has one
//! writing transaction anyway. A removal of a namespace holds the log lock too, because a publication relies on its
//! namespace.
//!
//! An append reads the newest record and at most one hash for each level of the tree, however long the log is. Any number of
//! records are appended with the same few statements (`rows.rs`).
//!
//! The state of a version follows [`KnownVersion::apply`] (R3).

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::dirhash::DirHash;
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::records::{
    Checksums, LogId, PackageFile, PackageFileName, PackageFiles, Record, RecordChange,
    RecordMaker, RecordNotice, RecordTime, TakedownKind, UnsignedRecord, VersionContent,
};
use lockkeeper_registry::signed_note::NoteSigner;
use lockkeeper_registry::states::{
    BaseLocation, KnownVersion, LocatedContent, RecordEffect, VersionState,
};
use lockkeeper_registry::tlog::{self, LogHash};
use lockkeeper_registry::versions::VersionKey;

use super::misses::covers_in_any_case;
use super::namespaces::{covering, covering_sql, of_kind_in_tx};
use super::rows::{
    LoggedRecord, names_add_in_tx, packages_add_in_tx, records_add_in_tx, versions_write_in_tx,
};
use crate::model::{
    Cause, CommitSha, Concern, LockEventKind, NewLockEvent, OwnerName, Reason, Sha256Digest,
    text_enum,
};
use crate::store::{
    News, Result, Store, Tx, announce_in_tx, execute, execute_alone, free_text, kept_time, on_pool,
    on_tx,
};

text_enum! {
    /// Way by which this deployment got a version.
    pub enum VersionOrigin {
        /// Upload of a package.
        Upload = "upload",
        /// Publication of a directory on the command line.
        Command = "command",
        /// Tag of a repository.
        Tag = "tag",
        /// Record of another deployment.
        Peer = "peer",
        /// Fetch from a repository that is not here, because a client has requested the version.
        VersionControl = "version_control",
        /// Record of another deployment that has fetched the version in this way.
        PeerVersionControl = "peer_version_control",
    }
}

impl VersionOrigin {
    /// Returns true if the version was fetched because a client has requested it, and nobody has published it.
    pub(super) fn is_foreign(self) -> bool {
        match self {
            Self::VersionControl | Self::PeerVersionControl => true,
            // A peer signs its records, and is accepted for their names.
            Self::Upload | Self::Command | Self::Tag | Self::Peer => false,
        }
    }
}

/// A version as this deployment knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryVersion {
    /// Name and number of the version.
    pub key: VersionKey,
    /// State, content and base location.
    pub known: KnownVersion,
    /// Reason of the last deprecation or deletion.
    pub notice: Option<VersionNotice>,
    /// Time of the record that added the version.
    pub added_at: Option<DateTime<Utc>>,
    /// Time of the commit, if the version was fetched from a repository, here or at another deployment.
    pub committed_at: Option<DateTime<Utc>>,
    /// Way by which the version came. `None`: it was never here, and another deployment has deprecated it or taken it
    /// down before.
    pub origin: Option<VersionOrigin>,
    /// Login of the person or name of the token that published it, or address of the repository that it came from. For a version
    /// that was never here: who has taken it down here.
    pub published_by: Option<String>,
}

/// Reason of a deprecation or deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionNotice {
    /// Kind of the takedown. `None`: the version is only deprecated.
    pub takedown: Option<TakedownKind>,
    /// Reason, and the version to use instead.
    pub notice: RecordNotice,
    /// Time of the record.
    pub at: DateTime<Utc>,
}

/// A change to record in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChange {
    /// Version that the change is about.
    pub key: VersionKey,
    /// Addition, deprecation or deletion.
    pub change: RecordChange,
    /// Storage that has the packages of an added version.
    pub base: BaseLocation,
    /// The `go.mod` file of an added Go module.
    pub go_mod: Option<Vec<u8>>,
    /// Time of the commit of an added version that was fetched from a repository.
    pub committed_at: Option<DateTime<Utc>>,
    /// Way by which an added version came.
    pub origin: VersionOrigin,
}

/// Outcome of a change.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutcome {
    /// The change is recorded under this ID.
    Logged(LogId),
    /// The change says nothing new. Nothing was recorded.
    Known,
    /// Another deployment has taken the version down, which was never here. The takedown counts as one of this deployment from
    /// now on.
    Confirmed,
    /// The version has this other content, which stays.
    Conflict(VersionContent),
    /// The version was deleted, and its number is never used again.
    Tombstoned(VersionNotice),
    /// The name belongs to no owner, so nobody can publish it.
    NoNamespace,
    /// The name belongs to an owner, and the version is from elsewhere.
    Owned,
    /// The name differs only in case from this one.
    CaseConflict(RegistryName),
    /// The package was removed from the store in the meantime. Store it again.
    PackageGone,
}

/// Newest record of the log, and facts about a name.
#[derive(sqlx::FromRow)]
struct LogContext {
    last_id: Option<i64>,
    last_logged_at: Option<DateTime<Utc>>,
    /// Owner of the namespace with the name.
    owner: Option<OwnerName>,
    /// True if a version of the name is known.
    has_name: bool,
    /// Published name that differs only in case.
    other_name: Option<String>,
}

/// Newest record of the log.
#[derive(Clone, Copy, sqlx::FromRow)]
pub(super) struct LogEnd {
    last_id: Option<i64>,
    last_logged_at: Option<DateTime<Utc>>,
}

impl LogEnd {
    /// Reads the end of the log, which the transaction holds.
    pub(super) async fn read_in_tx(tx: &mut Tx) -> Result<Self> {
        on_tx!(tx, db => sqlx::query_as::<_, Self>(
            "SELECT (SELECT MAX(id) FROM registry_log) AS last_id, \
             (SELECT logged_at FROM registry_log WHERE id = (SELECT MAX(id) FROM registry_log)) AS last_logged_at")
            .fetch_one(db))
    }

    /// Returns the ID and the time of the next record, which becomes the newest one. No two have the same time.
    fn advance(&mut self, now: DateTime<Utc>) -> Result<(LogId, DateTime<Utc>)> {
        let id = LogId::new(self.last_id.unwrap_or(0) + 1).map_err(broken)?;
        let logged_at = match self.last_logged_at {
            Some(last) => now.max(last + TimeDelta::microseconds(1)),
            None => now,
        };
        *self = Self {
            last_id: Some(id.get()),
            last_logged_at: Some(logged_at),
        };
        Ok((id, logged_at))
    }
}

/// True for a name `k` that somebody has published. Names whose versions were all fetched do not count: everyone who may
/// request one could take the name away from its owner, or from other spellings.
macro_rules! published_sql {
    () => {
        "EXISTS (SELECT 1 FROM registry_versions v WHERE v.kind = k.kind AND v.name = k.name \
         AND ((v.origin IS NULL AND v.committed_at IS NULL) \
         OR v.origin NOT IN ('version_control', 'peer_version_control')))"
    };
}

macro_rules! context_sql {
    ($covering:expr) => {
        concat!(
            "SELECT (SELECT MAX(id) FROM registry_log) AS last_id, \
             (SELECT logged_at FROM registry_log WHERE id = (SELECT MAX(id) FROM registry_log)) AS last_logged_at, \
             (SELECT o.name FROM registry_namespaces n JOIN owners o ON o.id = n.owner WHERE n.kind = $1 AND ",
            $covering,
            " LIMIT 1) AS owner, \
             EXISTS (SELECT 1 FROM registry_names WHERE kind = $1 AND name = $3) AS has_name, \
             (SELECT k.name FROM registry_names k WHERE k.kind = $1 AND k.folded_name = $4 AND k.name <> $3 AND ",
            published_sql!(),
            " LIMIT 1) AS other_name",
        )
    };
}

const CONTEXT_SQLITE: &str = context_sql!(covering_sql!(sqlite));
const CONTEXT_POSTGRES: &str = context_sql!(covering_sql!(postgres));

macro_rules! version_columns {
    () => {
        "v.kind, v.name, v.version, v.state, v.files_hash, v.go_mod_hash, v.commit_sha, v.base, v.origin, \
         v.published_by, v.added_at, v.committed_at, v.reason, v.replacement, v.takedown, v.noticed_at"
    };
}

/// Selects versions from `$from`, with a row for each package, in an order in which rows of a version follow each other.
macro_rules! version_sql {
    ($from:expr) => {
        concat!(
            "SELECT ",
            version_columns!(),
            ", p.file, p.digest, p.size FROM ",
            $from,
            " LEFT JOIN registry_packages p ON p.kind = v.kind AND p.name = v.name AND p.version = v.version \
             ORDER BY v.kind, v.name, v.version, p.file"
        )
    };
}

pub(super) use {version_columns, version_sql};

const VERSION: &str = version_sql!(
    "(SELECT * FROM registry_versions WHERE kind = $1 AND name = $2 AND version = $3) v"
);
const VERSIONS: &str =
    version_sql!("(SELECT * FROM registry_versions WHERE kind = $1 AND name = $2) v");

/// Makes the packages of a version loose, except those that another version here has as well. A version that is still at a
/// peer gets its package from there. A package that somebody is about to publish stays for as long as that takes, and a
/// removal that runs goes on. The update of such a row does nothing.
const LOOSEN_PACKAGES: &str = "INSERT INTO registry_loose_packages (digest, due_at) \
    SELECT p.digest, $4 FROM registry_packages p WHERE p.kind = $1 AND p.name = $2 AND p.version = $3 \
    AND NOT EXISTS (SELECT 1 FROM registry_packages o WHERE o.digest = p.digest \
    AND NOT (o.kind = p.kind AND o.name = p.name AND o.version = p.version) \
    AND (SELECT v.base FROM registry_versions v WHERE v.kind = o.kind AND v.name = o.name AND v.version = o.version) = '') \
    GROUP BY p.digest \
    ON CONFLICT (digest) DO UPDATE SET due_at = registry_loose_packages.due_at";

/// Takes the packages and the `go.mod` file of a version from the size of everything from elsewhere, if it is part of that.
const UNCACHE: &str = "UPDATE registry_cache SET bytes = bytes - (SELECT CAST(COALESCE(SUM(p.size), 0) AS BIGINT) \
    FROM registry_packages p WHERE p.kind = $1 AND p.name = $2 AND p.version = $3 AND EXISTS (SELECT 1 \
    FROM registry_versions v WHERE v.kind = p.kind AND v.name = p.name AND v.version = p.version \
    AND v.origin IN ('version_control', 'peer_version_control'))) \
    - (SELECT CAST(COALESCE(SUM(LENGTH(g.content)), 0) AS BIGINT) FROM registry_go_mods g \
    WHERE g.name = $2 AND g.version = $3 AND EXISTS (SELECT 1 FROM registry_versions v \
    WHERE v.kind = 'go' AND v.name = g.name AND v.version = g.version \
    AND v.origin IN ('version_control', 'peer_version_control'))) WHERE id = 1";

/// Selects a package of a version that is here. A version whose base location is a peer may never arrive. With a join,
/// PostgreSQL may read all versions.
macro_rules! package_here_sql {
    ($rest:literal) => {
        concat!(
            "SELECT p.file FROM registry_packages p WHERE p.digest = $1 AND (SELECT v.base FROM registry_versions v \
             WHERE v.kind = p.kind AND v.name = p.name AND v.version = p.version) = ''",
            $rest,
            " LIMIT 1"
        )
    };
}

const HASHES_SQLITE: &str = "SELECT place, hash FROM registry_log_hashes \
    WHERE place IN (SELECT value FROM json_each($1))";
const HASHES_POSTGRES: &str = "SELECT place, hash FROM registry_log_hashes \
    WHERE place = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)::bigint))";

const ADD_HASHES_SQLITE: &str = "INSERT INTO registry_log_hashes (place, hash) \
    SELECT $1 + each.key, unhex(each.value) FROM json_each($2) AS each";
const ADD_HASHES_POSTGRES: &str = "INSERT INTO registry_log_hashes (place, hash) \
    SELECT $1 + each.number - 1, decode(each.value, 'hex') \
    FROM jsonb_array_elements_text($2::jsonb) WITH ORDINALITY AS each (value, number)";

/// Character after all characters of names.
const AFTER_NAMES: char = '\u{7f}';

impl Store {
    /// Records a change: state, record, hashes and audit event are one transaction (R2).
    pub async fn registry_log(
        &self,
        signer: &NoteSigner,
        change: &NewChange,
        cause: &Cause,
    ) -> Result<LogOutcome> {
        let NewChange { key, base, .. } = change;
        let name = key.name();
        let mut tx = self.begin_shared().await?;
        log_hold_in_tx(&mut tx).await?;
        let context = context_in_tx(&mut tx, &name).await?;
        let old = version_in_tx(&mut tx, key).await?;
        let old = old.unwrap_or_else(|| RegistryVersion::unknown(key.clone()));
        let refused = match old.known.apply(&change.change, base) {
            RecordEffect::Changed(known) => {
                let is_published = matches!(
                    (&change.change, base),
                    (RecordChange::Add(_), BaseLocation::Here)
                );
                let is_foreign = change.origin.is_foreign();
                if is_published && is_foreign && is_owned_in_tx(&mut tx, &name).await? {
                    Err(LogOutcome::Owned)
                } else if is_published && !is_foreign && context.owner.is_none() {
                    Err(LogOutcome::NoNamespace)
                } else if is_published
                    && !is_foreign
                    && context.other_name.is_some()
                    && !(context.has_name && name_is_published_in_tx(&mut tx, &name).await?)
                {
                    let other = context.other_name.as_deref().unwrap_or_default();
                    RegistryName::new(name.kind(), other)
                        .map(|other| Err(LogOutcome::CaseConflict(other)))
                        .map_err(broken)?
                } else if is_published && !packages_fasten_in_tx(&mut tx, &change.change).await? {
                    Err(LogOutcome::PackageGone)
                } else {
                    Ok(known)
                }
            }
            RecordEffect::Known => Err(LogOutcome::Known),
            RecordEffect::Conflict(ours) => Err(LogOutcome::Conflict(ours)),
            RecordEffect::Tombstoned => Err(LogOutcome::Tombstoned(
                old.notice.clone().ok_or_else(|| broken(NoNotice))?,
            )),
        };
        let known = match refused {
            Ok(known) => known,
            Err(outcome) => {
                let is_takedown = matches!(change.change, RecordChange::Delete(..));
                if outcome != LogOutcome::Known || !is_takedown || old.takedown_stays() {
                    return tx.roll_back().await.map(|()| outcome);
                }
                // The takedown of a version that was never here ends with the trust in the deployments that made it. This
                // deployment's own must not.
                let own = RegistryVersion {
                    published_by: Some(free_text(&cause.actor.login).into_owned()),
                    ..old
                };
                versions_write_in_tx(&mut tx, &[&own]).await?;
                let event = change_event(key, &change.change, context.owner, cause);
                self.lock_events_in_tx(&mut tx, vec![event]).await?;
                return tx.commit().await.map(|()| LogOutcome::Confirmed);
            }
        };

        let now = kept_time(self.now());
        let time = RecordTime::new(now).map_err(broken)?;
        let id = LogId::new(context.last_id.unwrap_or(0) + 1).map_err(broken)?;
        let deployment = signer.name().parse().map_err(broken)?;
        let maker = RecordMaker { deployment, id };
        // Others must not take it for one that somebody has published.
        let committed = change
            .committed_at
            .or(old.committed_at)
            .map(RecordTime::new);
        let committed = committed.transpose().map_err(broken)?;
        let is_add = matches!(change.change, RecordChange::Add(_));
        let is_fetched = change.origin.is_foreign() || (!is_add && old.is_fetched());
        let record = UnsignedRecord::new(key.clone(), change.change.clone(), time, maker)
            .map_err(broken)?
            .fetched(is_fetched.then(|| committed.unwrap_or(time)))
            .sign(signer);
        let new = old.after(known, change, time, cause);
        versions_write_in_tx(&mut tx, &[&new]).await?;
        if !context.has_name {
            names_add_in_tx(&mut tx, &[&name]).await?;
        }
        content_write_in_tx(&mut tx, change, now).await?;
        if change.origin.is_foreign()
            && let RecordChange::Add(content) = &change.change
        {
            cached_in_tx(&mut tx, &[content]).await?;
        }
        let end = LogEnd {
            last_id: context.last_id,
            last_logged_at: context.last_logged_at,
        };
        log_append_in_tx(&mut tx, end, &[&record], now).await?;
        let event = change_event(key, &change.change, context.owner, cause);
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        announce_in_tx(&mut tx, News::Registry).await?;
        tx.commit().await.map(|()| LogOutcome::Logged(id))
    }

    /// Returns a version in any state but absent.
    pub async fn registry_version(&self, key: &VersionKey) -> Result<Option<RegistryVersion>> {
        let name = key.name();
        let rows = on_pool!(self, db => sqlx::query_as::<_, VersionRow>(VERSION)
            .bind(key.kind()).bind(name.as_str()).bind(key.version()).fetch_all(db))?;
        Ok(versions_of(rows)?.pop())
    }

    /// Returns all versions of a name, also deleted ones, in no particular order.
    pub async fn registry_versions(&self, name: &RegistryName) -> Result<Vec<RegistryVersion>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, VersionRow>(VERSIONS)
            .bind(name.kind()).bind(name.as_str()).fetch_all(db))?;
        versions_of(rows)
    }

    /// Returns the `go.mod` file of a version with content.
    pub async fn registry_go_mod(&self, key: &VersionKey) -> Result<Option<Vec<u8>>> {
        let Some((path, version)) = key.as_go() else {
            return Ok(None);
        };
        on_pool!(self, db => sqlx::query_scalar::<_, Vec<u8>>(
            "SELECT content FROM registry_go_mods WHERE name = $1 AND version = $2")
            .bind(path).bind(version).fetch_optional(db))
    }

    /// Returns the number of bytes of the `go.mod` file of a version with content.
    pub async fn registry_go_mod_size(&self, key: &VersionKey) -> Result<Option<u64>> {
        let Some((path, version)) = key.as_go() else {
            return Ok(None);
        };
        let size = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT CAST(LENGTH(content) AS BIGINT) FROM registry_go_mods WHERE name = $1 AND version = $2")
            .bind(path).bind(version).fetch_optional(db))?;
        size.map(u64::try_from).transpose().map_err(broken)
    }

    /// Lists names by kind and name. With `prefix`: those whose name begins with this text.
    pub async fn registry_names(
        &self,
        prefix: Option<&str>,
        after: Option<&RegistryName>,
        limit: i64,
    ) -> Result<Vec<RegistryName>> {
        let prefix = free_text(prefix.unwrap_or_default()).into_owned();
        let end = format!("{prefix}{AFTER_NAMES}");
        let mut names = Vec::new();
        for kind in [NameKind::Go, NameKind::Module] {
            let after = match after {
                Some(after) if after.kind() == kind => after.as_str(),
                Some(RegistryName::Module(_)) if kind == NameKind::Go => continue,
                Some(_) | None => "",
            };
            let left = limit - i64::try_from(names.len()).unwrap_or(limit);
            let found = on_pool!(self, db => sqlx::query_scalar::<_, String>(
                "SELECT name FROM registry_names WHERE kind = $1 AND name >= $2 AND name < $3 AND name > $4 \
                 ORDER BY name LIMIT $5")
                .bind(kind).bind(&prefix).bind(&end).bind(after).bind(left).fetch_all(db))?;
            for name in found {
                names.push(RegistryName::new(kind, &name).map_err(broken)?);
            }
        }
        Ok(names)
    }

    /// Lists names that begin with this text, by kind and name, after the first `skip` ones.
    pub(super) async fn registry_names_part(
        &self,
        prefix: &str,
        skip: i64,
        limit: i64,
    ) -> Result<Vec<RegistryName>> {
        let prefix = free_text(prefix).into_owned();
        let end = format!("{prefix}{AFTER_NAMES}");
        let rows = on_pool!(self, db => sqlx::query_as::<_, (NameKind, String)>(
            "SELECT kind, name FROM registry_names WHERE kind IN ('go', 'module') AND name >= $1 AND name < $2 \
             ORDER BY kind, name LIMIT $3 OFFSET $4")
            .bind(&prefix).bind(&end).bind(limit).bind(skip).fetch_all(db))?;
        let rows = rows.into_iter();
        rows.map(|(kind, name)| RegistryName::new(kind, &name).map_err(broken))
            .collect()
    }

    /// Returns a published name that differs from this one only in case. `None`: there is none, or this one is published.
    pub async fn registry_name_in_other_case(
        &self,
        name: &RegistryName,
    ) -> Result<Option<RegistryName>> {
        let names = on_pool!(self, db => sqlx::query_scalar::<_, String>(
            concat!("SELECT k.name FROM registry_names k WHERE k.kind = $1 AND k.folded_name = $2 AND ", published_sql!()))
            .bind(name.kind()).bind(name.as_str().to_ascii_lowercase()).fetch_all(db))?;
        if names.iter().any(|known| known == name.as_str()) {
            return Ok(None);
        }
        let other = names.first();
        let other = other.map(|other| RegistryName::new(name.kind(), other));
        other.transpose().map_err(broken)
    }

    /// Returns the number of records.
    pub async fn registry_log_size(&self) -> Result<u64> {
        let last = on_pool!(self, db => sqlx::query_scalar::<_, Option<i64>>(
            "SELECT MAX(id) FROM registry_log").fetch_one(db))?;
        u64::try_from(last.unwrap_or(0)).map_err(broken)
    }

    /// Returns the hashes at these places, in the order of the places. All of them must exist.
    pub async fn registry_log_hashes(&self, places: &[u64]) -> Result<Vec<LogHash>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let sql = if self.is_shared() {
            HASHES_POSTGRES
        } else {
            HASHES_SQLITE
        };
        let rows = on_pool!(self, db => sqlx::query_as::<_, HashRow>(sql)
            .bind(place_list(places)).fetch_all(db))?;
        in_order(places, rows)
    }

    /// Returns the texts of records from an ID on.
    pub async fn registry_records(&self, from: LogId, limit: i64) -> Result<Vec<(LogId, String)>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, (i64, String)>(
            "SELECT id, record FROM registry_log WHERE id >= $1 ORDER BY id LIMIT $2")
            .bind(from.get()).bind(limit).fetch_all(db))?;
        rows.into_iter().map(record_of).collect()
    }

    /// Returns the ID and the text of the record that added a version.
    pub async fn registry_added_record(&self, key: &VersionKey) -> Result<Option<(LogId, String)>> {
        let name = key.name();
        let row = on_pool!(self, db => sqlx::query_as::<_, (i64, String)>(
            "SELECT id, record FROM registry_log WHERE kind = $1 AND name = $2 AND version = $3 AND action = 'add' \
             ORDER BY id LIMIT 1")
            .bind(key.kind()).bind(name.as_str()).bind(key.version()).fetch_optional(db))?;
        row.map(record_of).transpose()
    }

    /// Lists versions of Go modules with their states and the times at which this deployment added them, oldest first. No
    /// two have the same time. Fewer than `limit` are the last ones.
    pub async fn registry_go_index(
        &self,
        since: Option<DateTime<Utc>>,
        limit: i64,
    ) -> Result<Vec<(VersionKey, VersionState, DateTime<Utc>)>> {
        let since = kept_time(since.unwrap_or(DateTime::UNIX_EPOCH));
        // With a join, PostgreSQL reads all versions.
        let rows = on_pool!(self, db => sqlx::query_as::<_, (String, String, VersionState, DateTime<Utc>)>(
            "SELECT l.name, l.version, (SELECT v.state FROM registry_versions v \
             WHERE v.kind = l.kind AND v.name = l.name AND v.version = l.version), l.logged_at FROM registry_log l \
             WHERE l.kind = 'go' AND l.action = 'add' AND l.logged_at >= $1 \
             ORDER BY l.logged_at LIMIT $2").bind(since).bind(limit).fetch_all(db))?;
        let rows = rows.into_iter();
        rows.map(|(name, version, state, at)| {
            Ok((key_of(NameKind::Go, &name, &version)?, state, at))
        })
        .collect()
    }

    /// Announces a package that a publication is about to store and to refer to. Until `due_at`, the package is not
    /// removed. Returns false if a removal of it has begun and may still take effect.
    pub async fn registry_package_announce(
        &self,
        digest: &Sha256Digest,
        due_at: DateTime<Utc>,
    ) -> Result<bool> {
        let mut tx = self.begin_shared().await?;
        let announced = execute!(
            &mut tx,
            "INSERT INTO registry_loose_packages (digest, due_at, is_removing) VALUES ($1, $2, FALSE) \
             ON CONFLICT (digest) DO UPDATE SET due_at = excluded.due_at, is_removing = FALSE \
             WHERE NOT registry_loose_packages.is_removing OR registry_loose_packages.due_at <= $3",
            digest,
            kept_time(due_at),
            kept_time(self.now()),
        )?;
        tx.commit().await.map(|()| announced > 0)
    }

    /// Lists packages that are due and that no version with packages here uses, the oldest first.
    pub async fn registry_packages_due(&self, limit: i64) -> Result<Vec<Sha256Digest>> {
        on_pool!(self, db => sqlx::query_scalar::<_, Sha256Digest>(
            "SELECT digest FROM registry_loose_packages WHERE due_at <= $1 ORDER BY due_at, digest LIMIT $2")
            .bind(kept_time(self.now())).bind(limit).fetch_all(db))
    }

    /// Returns true if a version whose packages are here has this one.
    pub async fn registry_package_is_here(&self, digest: &Sha256Digest) -> Result<bool> {
        let row = on_pool!(self, db => sqlx::query_scalar::<_, String>(package_here_sql!(""))
            .bind(digest).fetch_optional(db))?;
        Ok(row.is_some())
    }

    /// Claims a package that is due and that no version with packages here uses, so that nobody publishes it before `until`. Returns
    /// false if there is nothing to remove, or if somebody else removes it.
    ///
    /// No transaction waits for the store of packages. At the end of its claim, a package that is still there is due again.
    pub async fn registry_package_claim(
        &self,
        digest: &Sha256Digest,
        until: DateTime<Utc>,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let claimed = execute!(
            &mut tx,
            "UPDATE registry_loose_packages SET due_at = $2, is_removing = TRUE WHERE digest = $1 AND due_at <= $3",
            digest,
            kept_time(until),
            kept_time(self.now()),
        )?;
        if claimed == 0 {
            return tx.roll_back().await.map(|()| false);
        }
        let is_here = package_is_here_in_tx(&mut tx, digest).await?;
        if is_here {
            execute!(
                &mut tx,
                "DELETE FROM registry_loose_packages WHERE digest = $1",
                digest,
            )?;
        }
        tx.commit().await.map(|()| !is_here)
    }

    /// Forgets a package that was removed from the store of packages, unless its claim until this time is over.
    pub async fn registry_package_removed(
        &self,
        digest: &Sha256Digest,
        until: DateTime<Utc>,
    ) -> Result<()> {
        execute_alone!(
            self,
            "DELETE FROM registry_loose_packages WHERE digest = $1 AND is_removing AND due_at = $2",
            digest,
            kept_time(until),
        )
        .map(drop)
    }
}

/// A tombstone does not say why the version was deleted.
#[derive(Debug, thiserror::Error)]
#[error("a deleted version has no reason")]
struct NoNotice;

/// A row contradicts itself.
#[derive(Debug, thiserror::Error)]
#[error("the row of {0} is damaged: {1}")]
struct DamagedVersion(String, &'static str);

/// Reports data that this program would not have stored.
pub(super) fn broken(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

impl RegistryVersion {
    /// Describes a version that nothing is known about.
    pub(super) fn unknown(key: VersionKey) -> Self {
        Self {
            key,
            known: KnownVersion::Absent,
            notice: None,
            added_at: None,
            committed_at: None,
            origin: None,
            published_by: None,
        }
    }

    /// Returns true if a takedown of the version counts also when no other deployment is trusted any more: the version was
    /// here, or somebody here has taken it down.
    pub(super) fn takedown_stays(&self) -> bool {
        self.origin.is_some() || self.published_by.is_some()
    }

    /// Returns who has published the version: the login of a person, the name of a token, or the address of a repository.
    pub fn publisher(&self) -> Option<&str> {
        let is_published = self.added_at.is_some();
        self.published_by.as_deref().filter(|_| is_published)
    }

    /// Returns true if somebody has fetched the version from a repository, and nobody has published it.
    pub(super) fn is_fetched(&self) -> bool {
        match self.origin {
            Some(origin) => origin.is_foreign(),
            None => self.committed_at.is_some(),
        }
    }

    /// Returns the time that `go` compares versions by.
    pub fn go_time(&self) -> Option<DateTime<Utc>> {
        self.committed_at.or(self.added_at)
    }

    /// Returns the version after a change.
    fn after(
        self,
        known: KnownVersion,
        change: &NewChange,
        time: RecordTime,
        cause: &Cause,
    ) -> Self {
        let after = self.recorded(known, &change.change, time);
        match &change.change {
            RecordChange::Add(_) => Self {
                origin: Some(change.origin),
                committed_at: change.committed_at.map(kept_time),
                published_by: Some(free_text(&cause.actor.login).into_owned()),
                ..after
            },
            RecordChange::Delete(..) if after.origin.is_none() => Self {
                published_by: Some(free_text(&cause.actor.login).into_owned()),
                ..after
            },
            RecordChange::Deprecate(_) | RecordChange::Delete(..) => after,
        }
    }

    /// Returns the version after a record that a peer has sent.
    pub(super) fn merged(self, known: KnownVersion, record: &Record) -> Self {
        let after = self.recorded(known, record.change(), record.time());
        match record.change() {
            RecordChange::Add(_) => Self {
                origin: Some(match record.fetched() {
                    Some(_) => VersionOrigin::PeerVersionControl,
                    None => VersionOrigin::Peer,
                }),
                committed_at: record.fetched().map(RecordTime::get),
                published_by: Some(record.maker().deployment.to_string()),
                ..after
            },
            // Without the record that added it, only this tells that nobody has published the version.
            RecordChange::Deprecate(_) | RecordChange::Delete(..) if after.origin.is_none() => {
                Self {
                    committed_at: record.fetched().map(RecordTime::get),
                    ..after
                }
            }
            RecordChange::Deprecate(_) | RecordChange::Delete(..) => after,
        }
    }

    /// Returns the version after a record, as far as the record tells.
    pub(super) fn recorded(
        self,
        known: KnownVersion,
        change: &RecordChange,
        time: RecordTime,
    ) -> Self {
        let notice = |takedown: Option<TakedownKind>, notice: &RecordNotice| VersionNotice {
            takedown,
            notice: notice.clone(),
            at: time.get(),
        };
        match change {
            RecordChange::Add(_) => Self {
                known,
                added_at: Some(time.get()),
                ..self
            },
            RecordChange::Deprecate(reason) => Self {
                known,
                notice: Some(notice(None, reason)),
                ..self
            },
            RecordChange::Delete(kind, reason) => Self {
                known,
                notice: Some(notice(Some(*kind), reason)),
                ..self
            },
        }
    }
}

/// A version with one of its packages.
#[derive(sqlx::FromRow)]
pub(super) struct VersionRow {
    kind: NameKind,
    name: String,
    version: String,
    state: VersionState,
    files_hash: Option<DirHash>,
    go_mod_hash: Option<DirHash>,
    commit_sha: Option<CommitSha>,
    base: String,
    origin: Option<VersionOrigin>,
    published_by: Option<String>,
    added_at: Option<DateTime<Utc>>,
    committed_at: Option<DateTime<Utc>>,
    reason: Option<String>,
    replacement: Option<VersionKey>,
    takedown: Option<TakedownKind>,
    noticed_at: Option<DateTime<Utc>>,
    file: Option<PackageFileName>,
    digest: Option<Sha256Digest>,
    size: Option<i64>,
}

impl VersionRow {
    fn is_same_version(&self, other: &Self) -> bool {
        (self.kind, &self.name, &self.version) == (other.kind, &other.name, &other.version)
    }

    fn damaged(&self, why: &'static str) -> sqlx::Error {
        let shown = format!("{} {} {}", self.kind, self.name, self.version);
        broken(DamagedVersion(shown, why))
    }

    fn package(&self) -> Result<Option<PackageFile>> {
        match (&self.file, &self.digest, self.size) {
            (None, None, None) => Ok(None),
            (Some(name), Some(digest), Some(size)) => Ok(Some(PackageFile {
                name: name.clone(),
                digest: digest.clone(),
                size: u64::try_from(size).map_err(|_| self.damaged("a size is negative"))?,
            })),
            _ => Err(self.damaged("a package is incomplete")),
        }
    }

    /// Returns the version, whose other rows have the packages after the first one.
    fn version(self, packages: Vec<PackageFile>) -> Result<RegistryVersion> {
        let key = key_of(self.kind, &self.name, &self.version)?;
        let checksums = match (self.kind, self.files_hash, self.go_mod_hash) {
            (NameKind::Module, Some(files), None) => Some(Checksums::Module { files }),
            (NameKind::Go, Some(zip), Some(go_mod)) => Some(Checksums::Go { zip, go_mod }),
            (_, None, None) => None,
            (NameKind::Module | NameKind::Go, _, _) => {
                return Err(self.damaged("its checksums are those of another kind"));
            }
        };
        let content = match checksums {
            Some(checksums) => {
                let packages = PackageFiles::new(packages).map_err(broken)?;
                let base = if self.base.is_empty() {
                    BaseLocation::Here
                } else {
                    BaseLocation::Peer(self.base.parse().map_err(broken)?)
                };
                Some(LocatedContent {
                    content: VersionContent {
                        checksums,
                        packages,
                        commit: self.commit_sha.clone(),
                    },
                    base,
                })
            }
            None if packages.is_empty() => None,
            None => return Err(self.damaged("it has packages without checksums")),
        };
        let known = match (self.state, content) {
            (VersionState::Added, Some(content)) => KnownVersion::Added(content),
            (VersionState::Deprecated, content) => KnownVersion::Deprecated(content),
            (VersionState::Deleted, None) => KnownVersion::Deleted,
            (VersionState::Absent | VersionState::Added | VersionState::Deleted, _) => {
                return Err(self.damaged("its content does not fit its state"));
            }
        };
        let notice = match (&self.reason, self.noticed_at) {
            (Some(reason), Some(at)) => {
                let reason = Reason::read(reason).map_err(broken)?;
                Some(VersionNotice {
                    takedown: self.takedown,
                    notice: RecordNotice {
                        reason: reason.ok_or_else(|| self.damaged("its reason is empty"))?,
                        replacement: self.replacement.clone(),
                    },
                    at,
                })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(self.damaged("its reason and the time of it do not fit"));
            }
        };
        Ok(RegistryVersion {
            key,
            known,
            notice,
            added_at: self.added_at,
            committed_at: self.committed_at,
            origin: self.origin,
            published_by: self.published_by,
        })
    }
}

/// Puts versions together, whose rows follow each other.
pub(super) fn versions_of(rows: Vec<VersionRow>) -> Result<Vec<RegistryVersion>> {
    let mut versions = Vec::new();
    let mut rows = rows.into_iter().peekable();
    while let Some(row) = rows.next() {
        let mut packages = Vec::from_iter(row.package()?);
        while let Some(next) = rows.next_if(|next| next.is_same_version(&row)) {
            packages.extend(next.package()?);
        }
        versions.push(row.version(packages)?);
    }
    Ok(versions)
}

/// Returns the version that columns name, in the one way in which it is written.
pub(super) fn key_of(kind: NameKind, name: &str, version: &str) -> Result<VersionKey> {
    let read = RegistryName::new(kind, name).map_err(broken)?;
    let key = VersionKey::new(read, version).map_err(broken)?;
    if key.name().as_str() == name && key.version() == version {
        return Ok(key);
    }
    let shown = format!("{kind} {name} {version}");
    Err(broken(DamagedVersion(
        shown,
        "it is not the canonical text",
    )))
}

fn record_of((id, text): (i64, String)) -> Result<(LogId, String)> {
    Ok((LogId::new(id).map_err(broken)?, text))
}

/// A hash of the tree.
#[derive(sqlx::FromRow)]
pub(super) struct HashRow {
    pub(super) place: i64,
    pub(super) hash: Vec<u8>,
}

/// A hash of the tree is missing, or has another length.
#[derive(Debug, thiserror::Error)]
#[error("the hash at place {0} of the log is missing or damaged")]
struct MissingHash(u64);

fn place_list(places: &[u64]) -> String {
    serde_json::to_string(places).expect("numbers are JSON")
}

fn in_order(places: &[u64], rows: Vec<HashRow>) -> Result<Vec<LogHash>> {
    let found: HashMap<i64, Vec<u8>> = rows.into_iter().map(|row| (row.place, row.hash)).collect();
    let hash = |place: &u64| {
        let bytes = i64::try_from(*place)
            .ok()
            .and_then(|place| found.get(&place))
            .and_then(|bytes| bytes.as_slice().try_into().ok());
        bytes
            .map(LogHash::from_bytes)
            .ok_or_else(|| broken(MissingHash(*place)))
    };
    places.iter().map(hash).collect()
}

/// Holds the log lock until the transaction ends, so that nobody else adds records or removes namespaces.
pub(super) async fn log_hold_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('registry_log', 0))")
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

async fn context_in_tx(tx: &mut Tx, name: &RegistryName) -> Result<LogContext> {
    let sql = match tx {
        Tx::Sqlite(_) => CONTEXT_SQLITE,
        Tx::Postgres(_) => CONTEXT_POSTGRES,
    };
    on_tx!(tx, db => sqlx::query_as::<_, LogContext>(sql)
        .bind(name.kind()).bind(covering(name)).bind(name.as_str())
        .bind(name.as_str().to_ascii_lowercase()).fetch_one(db))
}

/// Returns a version in any state but absent.
pub(super) async fn version_in_tx(
    tx: &mut Tx,
    key: &VersionKey,
) -> Result<Option<RegistryVersion>> {
    let name = key.name();
    let rows = on_tx!(tx, db => sqlx::query_as::<_, VersionRow>(VERSION)
        .bind(key.kind()).bind(name.as_str()).bind(key.version()).fetch_all(db))?;
    Ok(versions_of(rows)?.pop())
}

/// Writes or removes the packages and the `go.mod` file of a version.
async fn content_write_in_tx(tx: &mut Tx, change: &NewChange, now: DateTime<Utc>) -> Result<()> {
    let key = &change.key;
    let name = key.name();
    let (kind, name, version) = (name.kind(), name.as_str(), key.version());
    match &change.change {
        RecordChange::Add(content) => {
            packages_add_in_tx(tx, &[(key, content)]).await?;
            if let Some(go_mod) = &change.go_mod {
                go_mod_add_in_tx(tx, key, go_mod, change.origin.is_foreign()).await?;
            }
        }
        RecordChange::Deprecate(_) => {}
        RecordChange::Delete(..) => {
            execute!(tx, LOOSEN_PACKAGES, kind, name, version.as_str(), now)?;
            execute!(tx, UNCACHE, kind, name, version.as_str())?;
            // A takedown also ends downloads, and conflicts about the content.
            for sql in [
                "DELETE FROM registry_packages WHERE kind = $1 AND name = $2 AND version = $3",
                "DELETE FROM registry_downloads WHERE kind = $1 AND name = $2 AND version = $3",
                "DELETE FROM registry_conflicts WHERE kind = $1 AND name = $2 AND version = $3",
            ] {
                execute!(tx, sql, kind, name, version.as_str())?;
            }
            if kind == NameKind::Go {
                execute!(
                    tx,
                    "DELETE FROM registry_go_mods WHERE name = $1 AND version = $2",
                    name,
                    version.as_str(),
                )?;
            }
        }
    }
    Ok(())
}

/// Adds the `go.mod` file of a Go module. `is_foreign`: nobody has published the version, so the file counts in the size of
/// everything from elsewhere.
pub(super) async fn go_mod_add_in_tx(
    tx: &mut Tx,
    key: &VersionKey,
    go_mod: &[u8],
    is_foreign: bool,
) -> Result<()> {
    let Some((path, version)) = key.as_go() else {
        return Ok(());
    };
    let added = execute!(
        tx,
        "INSERT INTO registry_go_mods (name, version, content) VALUES ($1, $2, $3) \
         ON CONFLICT (name, version) DO NOTHING",
        path,
        version,
        go_mod,
    )?;
    if added == 0 || !is_foreign {
        return Ok(());
    }
    let bytes = i64::try_from(go_mod.len()).map_err(broken)?;
    let sql = "UPDATE registry_cache SET bytes = bytes + $1 WHERE id = 1";
    execute!(tx, sql, bytes).map(drop)
}

/// Appends records to the log, with the hashes that the tree gets.
pub(super) async fn log_append_in_tx(
    tx: &mut Tx,
    mut end: LogEnd,
    records: &[&Record],
    now: DateTime<Utc>,
) -> Result<()> {
    let texts: Vec<String> = records.iter().map(ToString::to_string).collect();
    let mut logged = Vec::with_capacity(records.len());
    for (record, text) in records.iter().zip(&texts) {
        let (id, logged_at) = end.advance(now)?;
        logged.push(LoggedRecord {
            id,
            logged_at,
            record,
            text,
        });
    }
    let Some(first) = logged.first() else {
        return Ok(());
    };
    let first = first.id;
    records_add_in_tx(tx, &logged).await?;
    hashes_add_in_tx(tx, first, &texts).await
}

/// Makes sure that the announced packages of an added version are still stored, and will be. Returns false if one of
/// them was removed.
async fn packages_fasten_in_tx(tx: &mut Tx, change: &RecordChange) -> Result<bool> {
    let RecordChange::Add(content) = change else {
        return Ok(true);
    };
    for package in &content.packages {
        let announced = execute!(
            tx,
            "DELETE FROM registry_loose_packages WHERE digest = $1 AND NOT is_removing",
            &package.digest,
        )?;
        if announced == 0 && !package_stays_in_tx(tx, &package.digest).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if a version whose packages are here has this one.
pub(super) async fn package_is_here_in_tx(tx: &mut Tx, digest: &Sha256Digest) -> Result<bool> {
    let row = on_tx!(tx, db => sqlx::query_scalar::<_, String>(package_here_sql!(""))
        .bind(digest).fetch_optional(db))?;
    Ok(row.is_some())
}

/// Returns true if a version whose packages are here has this one, and nobody removes it.
async fn package_stays_in_tx(tx: &mut Tx, digest: &Sha256Digest) -> Result<bool> {
    let row = on_tx!(tx, db => sqlx::query_scalar::<_, String>(
        package_here_sql!(" AND NOT EXISTS (SELECT 1 FROM registry_loose_packages WHERE digest = $1)"))
        .bind(digest).fetch_optional(db))?;
    Ok(row.is_some())
}

/// Stores the hashes that the tree gets with new records, whose first one has this ID.
async fn hashes_add_in_tx(tx: &mut Tx, first: LogId, texts: &[String]) -> Result<()> {
    let first = u64::try_from(first.get() - 1).map_err(broken)?;
    let first_place = tlog::stored_hash_index(0, first);
    let mut queries = Vec::with_capacity(texts.len());
    for (number, text) in (first..).zip(texts) {
        let leaf = tlog::record_hash(text.as_bytes());
        queries.push(tlog::stored_hashes(number, leaf).map_err(broken)?);
    }
    // The left sides at later places are hashes of the new records.
    let places = queries.iter().flat_map(tlog::HashQuery::indexes);
    let places: Vec<u64> = places
        .copied()
        .filter(|place| *place < first_place)
        .collect();
    let (read, add) = match tx {
        Tx::Sqlite(_) => (HASHES_SQLITE, ADD_HASHES_SQLITE),
        Tx::Postgres(_) => (HASHES_POSTGRES, ADD_HASHES_POSTGRES),
    };
    let stored = if places.is_empty() {
        Vec::new()
    } else {
        let rows = on_tx!(tx, db => sqlx::query_as::<_, HashRow>(read)
            .bind(place_list(&places)).fetch_all(db))?;
        in_order(&places, rows)?
    };
    let stored: HashMap<u64, LogHash> = places.into_iter().zip(stored).collect();
    let mut hashes: Vec<LogHash> = Vec::with_capacity(2 * texts.len());
    for query in queries {
        let mut left_sides = Vec::new();
        for place in query.indexes() {
            let left_side = match place.checked_sub(first_place) {
                Some(at) => usize::try_from(at).ok().and_then(|at| hashes.get(at)),
                None => stored.get(place),
            };
            left_sides.push(*left_side.ok_or_else(|| broken(MissingHash(*place)))?);
        }
        hashes.extend(query.compute(&left_sides).map_err(broken)?);
    }
    let hashes: Vec<String> = hashes
        .iter()
        .map(|hash| hex::encode(hash.as_bytes()))
        .collect();
    let hashes = serde_json::to_string(&hashes).expect("texts are JSON");
    let first_place = i64::try_from(first_place).map_err(broken)?;
    execute!(tx, add, first_place, hashes).map(drop)
}

/// Counts versions that were fetched, and their packages. Their `go.mod` files count when they are added.
pub(super) async fn cached_in_tx(tx: &mut Tx, contents: &[&VersionContent]) -> Result<()> {
    if contents.is_empty() {
        return Ok(());
    }
    let packages = contents.iter().flat_map(|content| content.packages.iter());
    let bytes = packages.fold(0, |bytes: u64, package| bytes.saturating_add(package.size));
    let bytes = i64::try_from(bytes).map_err(broken)?;
    let versions = i64::try_from(contents.len()).map_err(broken)?;
    let sql = "UPDATE registry_cache SET bytes = bytes + $1, versions = versions + $2 WHERE id = 1";
    execute!(tx, sql, bytes, versions).map(drop)
}

/// Returns true if a namespace has a name, or has it in other case (R6). The transaction holds the log lock, so the answer
/// stays true until its end.
async fn is_owned_in_tx(tx: &mut Tx, name: &RegistryName) -> Result<bool> {
    let namespaces = of_kind_in_tx(tx, name.kind()).await?;
    let mut prefixes = namespaces.iter().map(|namespace| &namespace.prefix);
    Ok(prefixes.any(|prefix| covers_in_any_case((prefix.kind(), prefix.as_str()), name)))
}

/// Returns true if somebody has published a name, so that it is in the right case.
async fn name_is_published_in_tx(tx: &mut Tx, name: &RegistryName) -> Result<bool> {
    let row = on_tx!(tx, db => sqlx::query_scalar::<_, String>(
        concat!("SELECT k.name FROM registry_names k WHERE k.kind = $1 AND k.name = $2 AND ", published_sql!()))
        .bind(name.kind()).bind(name.as_str()).fetch_optional(db))?;
    Ok(row.is_some())
}

/// Returns the event of a change for the audit log.
pub(super) fn change_event(
    key: &VersionKey,
    change: &RecordChange,
    owner: Option<OwnerName>,
    cause: &Cause,
) -> NewLockEvent {
    let (kind, what) = match change {
        RecordChange::Add(_) => (LockEventKind::RegistryPublished, key.to_string()),
        RecordChange::Deprecate(notice) => (
            LockEventKind::RegistryDeprecated,
            format!("{key}: {}", notice.reason.as_str()),
        ),
        RecordChange::Delete(kind, notice) => (
            LockEventKind::RegistryTakenDown,
            format!("{key} ({kind}): {}", notice.reason.as_str()),
        ),
    };
    registry_event(kind, owner, &what, cause)
}

/// Returns an event about a version, a namespace or a token, which concerns an owner or nobody.
pub(super) fn registry_event(
    kind: LockEventKind,
    owner: Option<OwnerName>,
    what: &str,
    cause: &Cause,
) -> NewLockEvent {
    let reason = if cause.reason.is_empty() {
        what.to_owned()
    } else {
        format!("{what} ({})", cause.reason)
    };
    NewLockEvent {
        kind,
        key: None,
        scope: None,
        pull: None,
        concern: owner.map(Concern::Owner),
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}
