//! States of a version, and the effect of a record on one.
//!
//! A version goes absent → added → deprecated → deleted and never back (R3). A record may come before those that precede
//! it: a deprecation of a version never seen is kept, and so is a deletion. An add that comes after a deprecation changes
//! no state, but its content is learned, so that the version can be fetched and served. Its record goes into the log like
//! every other change, because clients look there for the checksums.

use lockkeeper_model::model::text_enum;

use crate::records::{DeploymentName, RecordChange, VersionContent};

text_enum! {
    /// State of a version, in the order in which a version goes through them.
    pub enum VersionState {
        /// Nothing is known of the version.
        Absent = "absent",
        /// The version is listed and served.
        Added = "added",
        /// The version is served once its content is known, and clients are warned.
        Deprecated = "deprecated",
        /// The version is a tombstone, and its number is never used again.
        Deleted = "deleted",
    }
}

/// Storage that has the packages of a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BaseLocation {
    /// Storage of this deployment.
    Here,
    /// Storage of a peer, until the packages are downloaded and their checksums match.
    Peer(DeploymentName),
}

/// Content of a version, and the storage that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedContent {
    /// Checksums and packages that were recorded first. Nothing else is ever served.
    pub content: VersionContent,
    /// Storage that has the packages.
    pub base: BaseLocation,
}

/// Everything that a deployment knows of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KnownVersion {
    /// No record of the version was seen.
    #[default]
    Absent,
    /// The version was added.
    Added(LocatedContent),
    /// The version was deprecated. The content is missing if no add was seen.
    Deprecated(Option<LocatedContent>),
    /// The version was deleted. The content is forgotten.
    Deleted,
}

/// Effect of a record on a version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum RecordEffect {
    /// The record belongs into the log, and this is known from now on.
    Changed(KnownVersion),
    /// The record says nothing new.
    Known,
    /// The record adds other content than the known one, which stays.
    Conflict(VersionContent),
    /// The version is deleted, so the record is dropped.
    Tombstoned,
}

impl KnownVersion {
    /// Returns the state of the version.
    pub fn state(&self) -> VersionState {
        match self {
            Self::Absent => VersionState::Absent,
            Self::Added(_) => VersionState::Added,
            Self::Deprecated(_) => VersionState::Deprecated,
            Self::Deleted => VersionState::Deleted,
        }
    }

    /// Returns the content of a version that can be served.
    pub fn content(&self) -> Option<&LocatedContent> {
        match self {
            Self::Added(content) => Some(content),
            Self::Deprecated(content) => content.as_ref(),
            Self::Absent | Self::Deleted => None,
        }
    }

    /// Determines the effect of a record, whose packages lie at `base` if it adds the version.
    pub fn apply(&self, change: &RecordChange, base: &BaseLocation) -> RecordEffect {
        let located = |content: &VersionContent| LocatedContent {
            content: content.clone(),
            base: base.clone(),
        };
        match (self, change) {
            (Self::Absent, RecordChange::Add(content)) => {
                RecordEffect::Changed(Self::Added(located(content)))
            }
            (Self::Deprecated(None), RecordChange::Add(content)) => {
                RecordEffect::Changed(Self::Deprecated(Some(located(content))))
            }
            (Self::Added(ours) | Self::Deprecated(Some(ours)), RecordChange::Add(theirs)) => {
                if ours.content.has_same_files(theirs) {
                    RecordEffect::Known
                } else {
                    RecordEffect::Conflict(ours.content.clone())
                }
            }
            (Self::Absent, RecordChange::Deprecate(_)) => {
                RecordEffect::Changed(Self::Deprecated(None))
            }
            (Self::Added(content), RecordChange::Deprecate(_)) => {
                RecordEffect::Changed(Self::Deprecated(Some(content.clone())))
            }
            (Self::Absent | Self::Added(_) | Self::Deprecated(_), RecordChange::Delete(..)) => {
                RecordEffect::Changed(Self::Deleted)
            }
            (Self::Deprecated(_), RecordChange::Deprecate(_))
            | (Self::Deleted, RecordChange::Delete(..)) => RecordEffect::Known,
            (Self::Deleted, RecordChange::Add(_) | RecordChange::Deprecate(_)) => {
                RecordEffect::Tombstoned
            }
        }
    }

    /// Moves the base location here, after the packages were downloaded and their checksums matched. Returns `None` if
    /// the version has no such content any more, because it was deleted meanwhile.
    pub fn downloaded(&self, content: &VersionContent) -> Option<Self> {
        let ours = self.content().filter(|ours| ours.content == *content)?;
        let here = LocatedContent {
            base: BaseLocation::Here,
            ..ours.clone()
        };
        Some(match self {
            Self::Deprecated(_) => Self::Deprecated(Some(here)),
            Self::Absent | Self::Added(_) | Self::Deleted => Self::Added(here),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::names::NameKind;
    use crate::records::TakedownKind;
    use crate::testing::{content, deployment, fixed_seed, notice};

    fn add(number: u8) -> RecordChange {
        RecordChange::Add(content(NameKind::Go, number))
    }

    fn deprecate() -> RecordChange {
        RecordChange::Deprecate(notice("old"))
    }

    fn delete() -> RecordChange {
        RecordChange::Delete(TakedownKind::Mistake, notice("wrong"))
    }

    fn located(number: u8, base: BaseLocation) -> LocatedContent {
        LocatedContent {
            content: content(NameKind::Go, number),
            base,
        }
    }

    /// Applies changes in order, and counts those that belong into the log.
    fn after(changes: &[RecordChange]) -> (KnownVersion, usize) {
        let mut known = KnownVersion::Absent;
        let mut logged = 0;
        for change in changes {
            if let RecordEffect::Changed(next) = known.apply(change, &BaseLocation::Here) {
                known = next;
                logged += 1;
            }
        }
        (known, logged)
    }

    #[test]
    fn every_record_has_its_effect_in_every_state() {
        let here = BaseLocation::Here;
        let added = KnownVersion::Added(located(1, here.clone()));
        let deprecated = KnownVersion::Deprecated(Some(located(1, here.clone())));
        let unseen = KnownVersion::Deprecated(None);
        let changed = |known: &KnownVersion| RecordEffect::Changed(known.clone());
        let conflict = RecordEffect::Conflict(content(NameKind::Go, 1));
        for (known, on_add, on_other_add, on_deprecate, on_delete) in [
            (
                &KnownVersion::Absent,
                changed(&added),
                changed(&KnownVersion::Added(located(2, here.clone()))),
                changed(&unseen),
                changed(&KnownVersion::Deleted),
            ),
            (
                &added,
                RecordEffect::Known,
                conflict.clone(),
                changed(&deprecated),
                changed(&KnownVersion::Deleted),
            ),
            (
                &unseen,
                changed(&deprecated),
                changed(&KnownVersion::Deprecated(Some(located(2, here.clone())))),
                RecordEffect::Known,
                changed(&KnownVersion::Deleted),
            ),
            (
                &deprecated,
                RecordEffect::Known,
                conflict.clone(),
                RecordEffect::Known,
                changed(&KnownVersion::Deleted),
            ),
            (
                &KnownVersion::Deleted,
                RecordEffect::Tombstoned,
                RecordEffect::Tombstoned,
                RecordEffect::Tombstoned,
                RecordEffect::Known,
            ),
        ] {
            assert_eq!(known.apply(&add(1), &here), on_add, "{known:?}");
            assert_eq!(known.apply(&add(2), &here), on_other_add, "{known:?}");
            assert_eq!(known.apply(&deprecate(), &here), on_deprecate, "{known:?}");
            assert_eq!(known.apply(&delete(), &here), on_delete, "{known:?}");
        }
    }

    #[test]
    fn a_download_moves_the_base_location_here() {
        let peer = BaseLocation::Peer(deployment("peer"));
        let added = KnownVersion::Added(located(1, peer.clone()));
        let here = KnownVersion::Added(located(1, BaseLocation::Here));
        assert_eq!(added.downloaded(&content(NameKind::Go, 1)), Some(here));
        let deprecated = KnownVersion::Deprecated(Some(located(1, peer)));
        let here = KnownVersion::Deprecated(Some(located(1, BaseLocation::Here)));
        assert_eq!(deprecated.downloaded(&content(NameKind::Go, 1)), Some(here));
        for known in [added, KnownVersion::Absent, KnownVersion::Deleted] {
            assert_eq!(known.downloaded(&content(NameKind::Go, 2)), None);
        }
    }

    #[test]
    fn packages_compressed_otherwise_are_no_conflict() {
        let mut other = content(NameKind::Go, 1);
        other.packages = content(NameKind::Go, 2).packages;
        let added = KnownVersion::Added(located(1, BaseLocation::Here));
        let effect = added.apply(&RecordChange::Add(other), &BaseLocation::Here);
        assert_eq!(effect, RecordEffect::Known);
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn a_state_never_goes_back_and_a_log_has_three_records_at_most(
            changes in vec(select(vec![add(1), add(2), deprecate(), delete()]), 0..12)
        ) {
            let states: Vec<VersionState> = (0..=changes.len()).map(|end| after(&changes[..end]).0.state()).collect();
            prop_assert!(states.is_sorted());
            prop_assert!(after(&changes).1 <= 3);
        }

        #[test]
        fn changes_in_any_order_and_number_end_alike(
            (changes, other_order) in vec(select(vec![add(1), deprecate(), delete()]), 0..6)
                .prop_flat_map(|changes| {
                    let repeated = [changes.clone(), changes.clone()].concat();
                    (Just(changes), Just(repeated).prop_shuffle())
                })
        ) {
            prop_assert_eq!(after(&changes).0, after(&other_order).0);
        }
    }
}
