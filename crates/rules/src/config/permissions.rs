//! Permissions that the server gives to the file of one repository (reference 4.3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::overrides::{AllowedOverrides, OverrideKey};
use super::workflow::Workflow;

/// Settings that a repository may decide itself. The default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoPermissions {
    pub(in crate::config) overrides: AllowedOverrides,
    /// True if the file may define workflows (`allow_custom_workflows`).
    pub(in crate::config) custom_workflows: bool,
    /// Workflows that the projects of the repository may choose (`allowed_workflows`). An empty set stands for all.
    /// The repository's own workflows are not checked against it.
    pub(in crate::config) allowed_workflows: Arc<BTreeSet<String>>,
    /// Workflows of the server, by name.
    pub(in crate::config) workflows: Arc<BTreeMap<String, Arc<Workflow>>>,
    /// True if the server has policy sets, so that the file can ask for checks.
    pub(in crate::config) policy_sets: bool,
}

impl RepoPermissions {
    /// Returns the keys that the repository's file may set.
    pub fn overrides(&self) -> &AllowedOverrides {
        &self.overrides
    }

    /// Returns true if the repository may set the key.
    pub fn allows(&self, key: OverrideKey) -> bool {
        self.overrides.allows(key)
    }

    /// Returns true if the repository may define workflows.
    pub fn allows_custom_workflows(&self) -> bool {
        self.custom_workflows
    }

    /// Returns the names of the workflows that the server defines, and of the built-in one.
    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &str> {
        let own = self
            .workflows
            .keys()
            .map(String::as_str)
            .filter(|name| *name != Workflow::DEFAULT);
        std::iter::once(Workflow::DEFAULT).chain(own)
    }
}

impl FromIterator<OverrideKey> for RepoPermissions {
    fn from_iter<I: IntoIterator<Item = OverrideKey>>(keys: I) -> Self {
        Self {
            overrides: keys.into_iter().collect(),
            ..Self::default()
        }
    }
}
