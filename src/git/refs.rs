//! Defines the full names of refs, selections of refs, and lists of refs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{BranchName, CommitSha, Sha256Digest};

/// Error for a text that is not the full name of a ref.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the full name of a git ref (`refs/heads/main`, `refs/pull/12/head`)")]
pub struct InvalidRefName(String);

/// Full name of a ref, safe to hand to git, e.g. `refs/pull/12/head`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefName(String);

impl RefName {
    /// Validates the full name of a ref.
    pub fn new(text: &str) -> Result<Self, InvalidRefName> {
        let invalid = || InvalidRefName(text.chars().take(200).collect());
        let rest = text
            .strip_prefix("refs/")
            .filter(|rest| rest.contains('/'))
            .ok_or_else(invalid)?;
        BranchName::new(rest).map_err(|_| invalid())?;
        Ok(Self(text.to_owned()))
    }

    /// Returns the ref `refs/heads/<branch>`.
    pub fn branch(branch: &BranchName) -> Self {
        Self(format!("{BRANCHES}{branch}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_branch(&self) -> bool {
        self.0.starts_with(BRANCHES)
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Common prefix of all branches.
const BRANCHES: &str = "refs/heads/";

/// Selection of the refs that a mirror keeps. Plans do not use tags, notes and closed pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefSelection {
    /// True if all branches are selected.
    pub branches: bool,
    /// Heads of the selected pulls, as the forge names them: `refs/pull/12/head`.
    pub pulls: BTreeSet<RefName>,
}

impl RefSelection {
    /// Returns true if a ref is selected.
    pub fn includes(&self, name: &RefName) -> bool {
        (self.branches && name.is_branch()) || self.pulls.contains(name)
    }
}

/// Refs with the ids of their commits, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefList(BTreeMap<RefName, CommitSha>);

impl RefList {
    /// Returns the number of refs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the list has no refs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the commit of a ref.
    pub fn get(&self, name: &RefName) -> Option<&CommitSha> {
        self.0.get(name)
    }

    /// Iterates over all refs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&RefName, &CommitSha)> {
        self.0.iter()
    }

    /// Returns the SHA-256 over a line `name SP id LF` for each ref, in the order of the names' bytes. Two mirrors
    /// with the same refs at the same commits have the same checksum.
    pub fn checksum(&self) -> Sha256Digest {
        let lines: Vec<String> = self
            .iter()
            .map(|(name, id)| format!("{name} {id}\n"))
            .collect();
        Sha256Digest::of(lines.concat().as_bytes())
    }

    /// Returns only the selected refs.
    #[must_use]
    pub fn selected(&self, by: &RefSelection) -> Self {
        self.iter()
            .filter(|(name, _)| by.includes(name))
            .map(|(name, id)| (name.clone(), id.clone()))
            .collect()
    }

    /// Adds a ref. Returns `false` when the list already has a ref of this name.
    pub(super) fn add(&mut self, name: RefName, id: CommitSha) -> bool {
        self.0.insert(name, id).is_none()
    }
}

impl FromIterator<(RefName, CommitSha)> for RefList {
    fn from_iter<I: IntoIterator<Item = (RefName, CommitSha)>>(refs: I) -> Self {
        Self(refs.into_iter().collect())
    }
}

/// Difference between two lists of refs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefChanges<'a> {
    /// Refs that no longer exist.
    pub(super) gone: Vec<&'a RefName>,
    /// Refs that are new or have moved, with their new commits.
    pub(super) moved: Vec<(&'a RefName, &'a CommitSha)>,
}

impl<'a> RefChanges<'a> {
    pub(super) fn between(old: &'a RefList, new: &'a RefList) -> Self {
        let gone = old
            .0
            .keys()
            .filter(|name| !new.0.contains_key(*name))
            .collect();
        let moved = new
            .iter()
            .filter(|(name, id)| old.get(name) != Some(id))
            .collect();
        Self { gone, moved }
    }

    pub(super) fn len(&self) -> usize {
        self.gone.len() + self.moved.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(refs: &[(&str, u8)]) -> RefList {
        let id = |byte: u8| hex::encode([byte; 20]).parse().unwrap();
        refs.iter()
            .map(|(name, byte)| (RefName::new(name).unwrap(), id(*byte)))
            .collect()
    }

    #[test]
    fn only_full_names_that_git_cannot_misread() {
        for text in [
            "main",
            "refs/main",
            "-refs/heads/x",
            "refs/heads/a..b",
            "refs/heads/x:y",
            "+refs/heads/x",
            "refs/heads/*",
        ] {
            assert!(RefName::new(text).is_err(), "{text}");
        }
        assert_eq!(
            RefName::branch(&"a/b".parse().unwrap()),
            RefName::new("refs/heads/a/b").unwrap()
        );
        assert!(RefName::new("refs/pull/12/head").is_ok());
    }

    #[test]
    fn branches_and_named_pulls_are_selected_and_nothing_else() {
        let pulls = [RefName::new("refs/pull/12/head").unwrap()].into();
        let selection = RefSelection {
            branches: true,
            pulls,
        };
        for (name, wanted) in [
            ("refs/heads/a/b", true),
            ("refs/pull/12/head", true),
            ("refs/pull/12/merge", false),
            ("refs/pull/1/head", false),
            ("refs/tags/v1", false),
            ("refs/headsx/a", false),
        ] {
            assert_eq!(
                selection.includes(&RefName::new(name).unwrap()),
                wanted,
                "{name}"
            );
        }
        assert!(!RefSelection::default().includes(&RefName::new("refs/heads/main").unwrap()));
    }

    #[test]
    fn the_checksum_is_that_of_sorted_lines() {
        let refs = list(&[("refs/pull/1/head", 2), ("refs/heads/main", 1)]);
        let one = "01".repeat(20);
        let two = "02".repeat(20);
        let text = format!("refs/heads/main {one}\nrefs/pull/1/head {two}\n");
        assert_eq!(refs.checksum(), Sha256Digest::of(text.as_bytes()));
        assert_eq!(RefList::default().checksum(), Sha256Digest::of(b""));
    }

    proptest! {
        #[test]
        fn changes_lead_from_one_list_to_the_other(
            old in proptest::collection::btree_map("[ab]/?[ab]", 0_u8..3, 0..5),
            new in proptest::collection::btree_map("[ab]/?[ab]", 0_u8..3, 0..5),
        ) {
            let made = |refs: &BTreeMap<String, u8>| {
                let named: Vec<_> = refs.iter().map(|(name, id)| (format!("refs/heads/{name}"), *id)).collect();
                list(&named.iter().map(|(name, id)| (name.as_str(), *id)).collect::<Vec<_>>())
            };
            let (old, new) = (made(&old), made(&new));
            let changes = RefChanges::between(&old, &new);
            let mut led = old.clone();
            changes.gone.iter().for_each(|name| { led.0.remove(*name); });
            led.0.extend(changes.moved.iter().map(|(name, id)| ((*name).clone(), (*id).clone())));
            prop_assert_eq!(&led, &new);
            prop_assert_eq!(changes.len() == 0, old == new);
            prop_assert_eq!(old.checksum() == new.checksum(), old == new);
        }
    }
}
