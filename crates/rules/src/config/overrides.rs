//! Keys that a repository may set in its own file: `allowed_overrides` (reference 5.2).

use std::collections::BTreeSet;

use super::yaml::{Field, FileReader, Vocabulary, words};
use crate::model::text_enum;

text_enum! {
    /// Keys of a repository's own file that need the permission of the server (reference 4.3).
    pub enum OverrideKey {
        /// Requirements for a plan.
        PlanRequirements = "plan_requirements",
        /// Requirements for an apply.
        ApplyRequirements = "apply_requirements",
        /// Requirements for an import.
        ImportRequirements = "import_requirements",
        /// The workflow of a project.
        Workflow = "workflow",
        /// Deletion of the branch after a merge.
        DeleteSourceBranchOnMerge = "delete_source_branch_on_merge",
        /// The old form of `repo_locks`.
        RepoLocking = "repo_locking",
        /// The time at which locks are taken.
        RepoLocks = "repo_locks",
        /// Checks of policies before an apply.
        PolicyCheck = "policy_check",
        /// Checks of policies by the repository's own steps.
        CustomPolicyCheck = "custom_policy_check",
        /// Runs whose comments are left out.
        SilencePrComments = "silence_pr_comments",
        /// A word of Lockkeeper, not a key. With it, the requirements of a project replace those of the server.
        /// Without it, both lists are in effect.
        FewerRequirements = "fewer_requirements",
    }
}

impl Vocabulary for OverrideKey {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

/// Keys that a repository may set. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOverrides(BTreeSet<OverrideKey>);

impl AllowedOverrides {
    /// Returns true if the repository may set the key.
    pub fn allows(&self, key: OverrideKey) -> bool {
        self.0.contains(&key)
    }

    /// Returns true if the repository's file may set the key, or does not set it. Otherwise reports a problem that
    /// says how to get permission.
    pub(in crate::config) fn check<T>(&self, reader: &mut FileReader, field: &Field<T>) -> bool {
        let Some(place) = field.place() else {
            return true;
        };
        let key = field.name();
        let is_allowed = key.parse().is_ok_and(|key| self.allows(key));
        if !is_allowed {
            reader.problem(
                place,
                format!("`{key}` may not be set here: the server does not allow it for this repository"),
                format!(
                    "remove it, or ask an administrator of Lockkeeper to add `{key}` to `allowed_overrides` of this \
                     repository in the server's configuration (`--repo-config`)"
                ),
            );
        }
        is_allowed
    }
}

impl FromIterator<OverrideKey> for AllowedOverrides {
    fn from_iter<I: IntoIterator<Item = OverrideKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}
