//! Plan records. A plan is a record with an identity, not a file found on disk (P5).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::ids::{PlanId, RunId};
use super::project::ProjectKey;
use super::pull::{BranchName, CommitSha, PullRef};
use super::text::{text_enum, text_type};

text_enum! {
    /// Program that runs the code.
    pub enum Distribution {
        /// The program `terraform` of HashiCorp.
        Terraform = "terraform",
        /// The program `tofu` of the Linux Foundation.
        OpenTofu = "opentofu",
    }
}

impl Distribution {
    /// Returns the name of the executable.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::OpenTofu => "tofu",
        }
    }

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Terraform => "Terraform",
            Self::OpenTofu => "OpenTofu",
        }
    }
}

text_enum! {
    /// State of a plan.
    pub enum PlanState {
        /// The plan waits for an apply.
        Planned = "planned",
        /// The plan has nothing to apply.
        NoChanges = "no_changes",
        /// An apply of the plan is under way or was cut off.
        Applying = "applying",
        /// The plan was applied.
        Applied = "applied",
        /// An apply of the plan failed.
        ApplyFailed = "apply_failed",
        /// The plan was discarded by a newer plan, `unlock`, or the dashboard.
        Discarded = "discarded",
    }
}

/// SHA-256 of a file, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sha256Digest(String);

impl Sha256Digest {
    /// Returns the digest of the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// Returns the hexadecimal text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Sha256Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fine = text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        if fine {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("`{text}` is not a SHA-256 digest"))
        }
    }
}

text_type!(Sha256Digest);

/// Numbers of the changes in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanCounts {
    /// Number of resources to create.
    pub add: u32,
    /// Number of resources to change in place.
    pub change: u32,
    /// Number of resources to destroy.
    pub destroy: u32,
    /// Number of resources to import.
    pub import: u32,
    /// Number of resources to remove from the state without destroying them.
    pub forget: u32,
}

impl PlanCounts {
    /// Returns true if the plan has no changes.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for PlanCounts {
    /// Formats Terraform's own sentence: `Plan: 1 to add, 0 to change, 0 to destroy.` (reference 9.6).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plan: ")?;
        if self.import > 0 {
            write!(f, "{} to import, ", self.import)?;
        }
        write!(
            f,
            "{} to add, {} to change, {} to destroy",
            self.add, self.change, self.destroy
        )?;
        if self.forget > 0 {
            write!(f, ", {} to forget", self.forget)?;
        }
        f.write_str(".")
    }
}

/// A plan, and everything that its apply must find unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRecord {
    /// Identifier of the plan.
    pub id: PlanId,
    /// Pull of the plan.
    pub pull: PullRef,
    /// Project of the plan.
    pub project: ProjectKey,
    /// Run that made the plan.
    pub run: RunId,
    /// Head commit of the pull.
    pub head: CommitSha,
    /// Base branch of the pull.
    pub base_branch: BranchName,
    /// Commit of the base branch (merged into the checkout with the strategy `merge`).
    pub base: CommitSha,
    /// Program that made the plan.
    pub distribution: Distribution,
    /// Version of that program.
    pub tool_version: semver::Version,
    /// Fingerprint of the workflow that made the plan (`Workflow::fingerprint` of the rules). No other
    /// workflow applies it.
    pub workflow: Sha256Digest,
    /// Group in the order of the plans: `execution_order_group`, or the position among the units of Terragrunt.
    pub order_group: i32,
    /// Digest of the plan file. `None` when there is nothing to apply, or when the workflow needs no file.
    pub digest: Option<Sha256Digest>,
    /// Numbers of the planned changes.
    pub counts: PlanCounts,
    /// Reason why the plan must never be applied, in a clause for people: its text and its file disagree, or the file
    /// cannot be shown.
    pub blocked: Option<String>,
    /// State of the plan.
    pub state: PlanState,
    /// Time when the plan was made.
    pub created_at: DateTime<Utc>,
}
