//! What a repository may decide itself: `allowed_overrides` (reference 5.2).

use std::collections::BTreeSet;

use super::yaml::{Fields, Key, Kind, Reader, words};
use crate::model::text_enum;

text_enum! {
    /// What a repository needs the permission of the server for: keys of its own file (reference 4.3).
    pub enum OverrideKey {
        /// What must hold before a plan.
        PlanRequirements = "plan_requirements",
        /// What must hold before an apply.
        ApplyRequirements = "apply_requirements",
        /// What must hold before an import.
        ImportRequirements = "import_requirements",
        /// Which steps are run.
        Workflow = "workflow",
        /// Whether a merge deletes the branch.
        DeleteSourceBranchOnMerge = "delete_source_branch_on_merge",
        /// The old form of `repo_locks`.
        RepoLocking = "repo_locking",
        /// When locks are taken.
        RepoLocks = "repo_locks",
        /// Whether policies are checked.
        PolicyCheck = "policy_check",
        /// Whether policies are checked by the repository's own steps.
        CustomPolicyCheck = "custom_policy_check",
        /// Which comments are left out.
        SilencePrComments = "silence_pr_comments",
        /// No key, but a word of our own: what a project lists under a key of requirements then holds in place of what
        /// the server demands, not beside it.
        FewerRequirements = "fewer_requirements",
    }
}

/// `allowed_overrides`.
pub(in crate::config) const ALLOWED_OVERRIDES: Key = Key::new(
    "allowed_overrides",
    Kind::List(&Kind::Words(|| {
        words(OverrideKey::ALL, OverrideKey::as_str)
    })),
    "`[]`",
    "Keys that the repository's own file may set. `fewer_requirements` is no key: with it, lists of requirements there \
     hold in place of those here; without it, beside them.",
    "[workflow, apply_requirements]",
);

/// The keys that a repository may set; none unless the server says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOverrides(BTreeSet<OverrideKey>);

impl AllowedOverrides {
    /// Whether the repository may set the key.
    pub fn allows(&self, key: OverrideKey) -> bool {
        self.0.contains(&key)
    }

    /// Takes the list out of an entry of the server's file; `None` when the entry has none.
    pub(in crate::config) fn read(reader: &mut Reader, fields: &Fields<'_>) -> Option<Self> {
        const KEY: &str = "allowed_overrides";
        let words: Vec<&str> = OverrideKey::ALL.iter().map(|key| key.as_str()).collect();
        let texts = reader.texts(fields, KEY)?;
        let keys = texts
            .iter()
            .filter_map(|text| reader.word_of(text, &format!("an item of `{KEY}`"), &words));
        Some(keys.collect())
    }

    /// Whether the repository's file may say what it says about a key. If not, its people are told what would have to
    /// change.
    pub(in crate::config) fn check(
        &self,
        reader: &mut Reader,
        fields: &Fields<'_>,
        key: OverrideKey,
    ) -> bool {
        let Some(place) = fields.place(key.as_str()) else {
            return true;
        };
        let is_allowed = self.allows(key);
        if !is_allowed {
            reader.problem(
                place,
                format!("`{key}` may not be set here: the server does not allow it for this repository"),
                format!(
                    "remove it, or ask whoever runs Lockkeeper to add `{key}` to `allowed_overrides` of this \
                     repository in the server's configuration (`--repo-config`)"
                ),
            );
        }
        is_allowed
    }

    /// The same of a key that can only be `false` in this version. Of `true` nobody is sent for permission: that it is
    /// not available is told already, and it would be refused with permission too.
    pub(in crate::config) fn check_only_false(
        &self,
        reader: &mut Reader,
        fields: &Fields<'_>,
        key: OverrideKey,
    ) {
        if !fields.is_true(key.as_str()) {
            self.check(reader, fields, key);
        }
    }
}

impl FromIterator<OverrideKey> for AllowedOverrides {
    fn from_iter<I: IntoIterator<Item = OverrideKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}
