//! Rules for one project and their sources, merged from all files (reference 4.4).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use semver::Version;

use super::policies::ProjectPolicies;
use super::policy::{Decider, LockPolicy};
use crate::config::workflow::Workflow;
use crate::model::{Distribution, Requirement, RunKind};

/// A value, and the source that decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided<T> {
    /// The value in effect.
    pub value: T,
    /// Source of the value.
    pub by: Decider,
}

impl<T> Decided<T> {
    /// Returns the default, for a value that no file or flag sets.
    pub(super) fn default_of(value: T) -> Self {
        Self {
            value,
            by: Decider::Default,
        }
    }

    pub(super) fn set(&mut self, value: Option<T>, by: &Decider) {
        if let Some(value) = value {
            *self = Self {
                value,
                by: by.clone(),
            };
        }
    }
}

/// Requirements, and the source of each. Every requirement occurs once, with its first source. A requirement that
/// another one [implies](Requirement::implies) is left out: the stricter of two is in effect, independent of its
/// source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands(Vec<Decided<Requirement>>);

impl Demands {
    /// Adds a requirement, unless it is already demanded. Removes the requirements that it implies.
    pub(in crate::config) fn add(&mut self, requirement: Requirement, by: &Decider) {
        if self
            .0
            .iter()
            .any(|demand| demand.value.implies(requirement))
        {
            return;
        }
        self.0.retain(|demand| !requirement.implies(demand.value));
        self.0.push(Decided {
            value: requirement,
            by: by.clone(),
        });
    }

    /// Returns the requirements in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Decided<Requirement>> {
        self.0.iter()
    }

    /// Returns true if there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Demands {
    /// Formats the requirements for explanations: `` `approved` (line 3 of …), … `` or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let all: Vec<String> = self
            .iter()
            .map(|demand| format!("`{}` ({})", demand.value, demand.by))
            .collect();
        f.write_str(&all.join(", "))
    }
}

/// Rules for one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRules {
    /// Rules for the lock.
    pub lock: LockPolicy,
    /// Workflow with the steps of the runs.
    pub workflow: Decided<Arc<Workflow>>,
    /// Requirements for a plan.
    pub plan_requirements: Demands,
    /// Requirements for an apply.
    pub apply_requirements: Demands,
    /// Requirements for an import and a `state rm`.
    pub import_requirements: Demands,
    /// Runs whose comments are left out.
    pub silenced: Decided<BTreeSet<RunKind>>,
    /// Environment profile of the runs, if the administrator set one.
    pub environment_profile: Option<Decided<String>>,
    /// Policy sets for its plans, with the source that switched the checks on. `None`: plans are not checked.
    pub policies: Option<Decided<ProjectPolicies>>,
    /// Terraform or OpenTofu, if a file sets it.
    pub distribution: Option<Decided<Distribution>>,
    /// Version of Terraform or OpenTofu, if a file sets it.
    pub version: Option<Decided<Version>>,
}
