//! Merges a page of the log of a peer into what this deployment knows.
//!
//! The order is that of the Athens design: added versions first, then deprecated ones, then deleted ones. Each record has the
//! effect that [`KnownVersion::apply`] describes, so pages may come in any order and more than once (R3). Only two contents of
//! one version do not merge: ours stays, and the conflict is reported until a takedown ends it.
//!
//! Nothing is verified here. A page has records whose signatures were checked and whose makers are accepted for the names,
//! and a page is merged and its last ID stored in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use crate::records::{DeploymentName, LogAction, Record, RecordChange, VersionContent};
use crate::states::{BaseLocation, KnownVersion, RecordEffect};
use crate::versions::VersionKey;

/// Records of a peer that follow the last known one, in three lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPage {
    peer: DeploymentName,
    added: Vec<Record>,
    deprecated: Vec<Record>,
    deleted: Vec<Record>,
}

/// The lists of a page cannot be those of a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPage {
    /// The page has more than [`PeerPage::MAX_RECORDS`].
    #[error("the page has more than {} records", PeerPage::MAX_RECORDS)]
    TooLong,
    /// A record is in the list of another action.
    #[error("the record of {key} is in the list of another action")]
    List {
        /// Version that the record is about.
        key: VersionKey,
    },
}

/// Two contents of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentConflict {
    /// Version with two contents.
    pub key: VersionKey,
    /// Content that this deployment goes on to serve.
    pub ours: VersionContent,
    /// Record of the other content, which is never served here.
    pub theirs: Record,
}

/// Changes that a store makes in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeChanges {
    /// Versions that change, with everything that is known of them from now on.
    pub rows: BTreeMap<VersionKey, KnownVersion>,
    /// Records to append to the own log, in this order.
    pub records: Vec<Record>,
    /// Versions whose packages are to download from the peer.
    pub downloads: Vec<VersionKey>,
    /// Versions with two contents.
    pub conflicts: Vec<ContentConflict>,
}

impl PeerPage {
    /// Maximum number of records of a page.
    pub const MAX_RECORDS: usize = 1000;

    /// Checks the lists of a page.
    pub fn new(
        peer: DeploymentName,
        added: Vec<Record>,
        deprecated: Vec<Record>,
        deleted: Vec<Record>,
    ) -> Result<Self, InvalidPage> {
        if added.len() + deprecated.len() + deleted.len() > Self::MAX_RECORDS {
            return Err(InvalidPage::TooLong);
        }
        for (list, action) in [
            (&added, LogAction::Add),
            (&deprecated, LogAction::Deprecate),
            (&deleted, LogAction::Delete),
        ] {
            let misplaced = list
                .iter()
                .find(|record| record.change().action() != action);
            if let Some(record) = misplaced {
                let key = record.key().clone();
                return Err(InvalidPage::List { key });
            }
        }
        Ok(Self {
            peer,
            added,
            deprecated,
            deleted,
        })
    }

    /// Returns the records in the order of the merge.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let lists = self.added.iter().chain(&self.deprecated);
        lists.chain(&self.deleted)
    }

    /// Returns the versions that the page is about, for [`merge`] to know.
    pub fn keys(&self) -> BTreeSet<&VersionKey> {
        self.records().map(Record::key).collect()
    }
}

/// Merges a page of a peer. `known` has the rows of all versions of the page that are not absent.
pub fn merge(known: &BTreeMap<VersionKey, KnownVersion>, page: &PeerPage) -> MergeChanges {
    let base = BaseLocation::Peer(page.peer.clone());
    let mut changes = MergeChanges::default();
    for record in page.records() {
        let key = record.key();
        let row = changes.rows.get(key).or_else(|| known.get(key));
        let row = row.unwrap_or(&KnownVersion::Absent);
        match row.apply(record.change(), &base) {
            RecordEffect::Changed(now) => {
                if matches!(record.change(), RecordChange::Add(_)) {
                    changes.downloads.push(key.clone());
                }
                changes.rows.insert(key.clone(), now);
                changes.records.push(record.clone());
            }
            RecordEffect::Conflict(ours) => changes.conflicts.push(ContentConflict {
                key: key.clone(),
                ours,
                theirs: record.clone(),
            }),
            // The Athens design leaves its loop here. It means to go on with the next version.
            RecordEffect::Known | RecordEffect::Tombstoned => {}
        }
    }
    // The same page may delete a version that it added.
    let MergeChanges {
        rows,
        downloads,
        conflicts,
        ..
    } = &mut changes;
    let is_deleted = |key: &VersionKey| matches!(rows.get(key), Some(KnownVersion::Deleted));
    downloads.retain(|key| !is_deleted(key));
    conflicts.retain(|conflict| !is_deleted(&conflict.key));
    changes
}

#[cfg(test)]
mod tests;
