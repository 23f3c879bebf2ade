//! What holds for one project, and who decided it: the answer of all files together (reference 4.4).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use semver::Version;

use super::policy::{Decider, LockPolicy};
use crate::config::workflow::Workflow;
use crate::model::{Distribution, Requirement, RunKind};

/// A value, and who decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided<T> {
    /// What.
    pub value: T,
    /// By whom.
    pub by: Decider,
}

impl<T> Decided<T> {
    /// What holds where nobody says anything.
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

/// What must hold, and who demands it. The same requirement is there once, of whoever demanded it first, and none beside
/// one that [implies](Requirement::implies) it: the stricter of two demands counts, whoever makes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands(Vec<Decided<Requirement>>);

impl Demands {
    /// Adds a demand, unless it is made already. What it implies is not demanded any more on its own.
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

    /// The demands, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Decided<Requirement>> {
        self.0.iter()
    }

    /// Whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Demands {
    /// For explanations: `` `approved` (line 3 of …), … `` or `none`.
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

/// What holds for one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRules {
    /// Its lock.
    pub lock: LockPolicy,
    /// Its steps.
    pub workflow: Decided<Arc<Workflow>>,
    /// What must hold before a plan.
    pub plan_requirements: Demands,
    /// What must hold before an apply.
    pub apply_requirements: Demands,
    /// What must hold before an import.
    pub import_requirements: Demands,
    /// Of which runs nothing is told in comments.
    pub silenced: Decided<BTreeSet<RunKind>>,
    /// The environment profile of its runs, if the operator gave it one.
    pub environment_profile: Option<Decided<String>>,
    /// Terraform or OpenTofu, if the files say.
    pub distribution: Option<Decided<Distribution>>,
    /// The version, if the files say.
    pub version: Option<Decided<Version>>,
}
