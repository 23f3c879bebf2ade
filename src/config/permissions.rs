//! What the server lets the file of one repository say (reference 4.3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::overrides::{AllowedOverrides, OverrideKey};
use super::workflow::Workflow;

/// What a repository may decide itself. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    pub(in crate::config) overrides: AllowedOverrides,
    /// Whether it may bring workflows along (`allow_custom_workflows`).
    pub(in crate::config) custom_workflows: bool,
    /// Workflows that its projects may choose; none: all (`allowed_workflows`). Its own are not asked about.
    pub(in crate::config) allowed_workflows: Arc<BTreeSet<String>>,
    /// Workflows of the server.
    pub(in crate::config) workflows: Arc<BTreeMap<String, Arc<Workflow>>>,
}

impl Permissions {
    /// Keys of its file that need permission.
    pub fn overrides(&self) -> &AllowedOverrides {
        &self.overrides
    }

    /// Whether it may set a key.
    pub fn allows(&self, key: OverrideKey) -> bool {
        self.overrides.allows(key)
    }

    /// Whether it may bring workflows along.
    pub fn allows_custom_workflows(&self) -> bool {
        self.custom_workflows
    }

    /// Names of the workflows that the server defines, with the built-in one.
    pub(in crate::config) fn names(&self) -> impl Iterator<Item = &str> {
        let own = self
            .workflows
            .keys()
            .map(String::as_str)
            .filter(|name| *name != Workflow::DEFAULT);
        std::iter::once(Workflow::DEFAULT).chain(own)
    }
}

impl FromIterator<OverrideKey> for Permissions {
    fn from_iter<I: IntoIterator<Item = OverrideKey>>(keys: I) -> Self {
        Self {
            overrides: keys.into_iter().collect(),
            ..Self::default()
        }
    }
}
