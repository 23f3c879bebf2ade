//! A plan is a record with an identity, not a file found on disk (P5).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::ids::{PlanId, RunId};
use super::project::ProjectKey;
use super::pull::{BranchName, CommitSha, PullRef};
use super::text::{text_enum, text_type};

text_enum! {
    /// Which program runs the code.
    pub enum Distribution {
        /// HashiCorp's `terraform`.
        Terraform = "terraform",
        /// The Linux Foundation's `tofu`.
        OpenTofu = "opentofu",
    }
}

impl Distribution {
    /// Name of the executable.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::OpenTofu => "tofu",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Terraform => "Terraform",
            Self::OpenTofu => "OpenTofu",
        }
    }
}

text_enum! {
    /// What became of a plan.
    pub enum PlanState {
        /// Waiting to be applied.
        Planned = "planned",
        /// Nothing to apply.
        NoChanges = "no_changes",
        /// An apply of it is under way or was cut off.
        Applying = "applying",
        /// Applied.
        Applied = "applied",
        /// An apply of it failed.
        ApplyFailed = "apply_failed",
        /// Thrown away by a newer plan, `unlock`, or the dashboard.
        Discarded = "discarded",
    }
}

/// SHA-256 of a file, lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sha256Digest(String);

impl Sha256Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// The hexadecimal text.
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

/// What a plan would do, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanCounts {
    /// Resources to create.
    pub add: u32,
    /// Resources to change in place.
    pub change: u32,
    /// Resources to destroy.
    pub destroy: u32,
    /// Resources to import.
    pub import: u32,
    /// Resources to drop from the state.
    pub forget: u32,
}

impl PlanCounts {
    /// Whether nothing would happen.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for PlanCounts {
    /// Terraform's own sentence: `Plan: 1 to add, 0 to change, 0 to destroy.` (reference 9.6).
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

/// A plan that was made, and everything an apply of it has to find unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRecord {
    /// Identity.
    pub id: PlanId,
    /// The pull it was made for.
    pub pull: PullRef,
    /// The project it was made for.
    pub project: ProjectKey,
    /// The run that made it.
    pub run: RunId,
    /// Head commit of the pull.
    pub head: CommitSha,
    /// Base branch of the pull.
    pub base_branch: BranchName,
    /// Commit of the base branch (merged into the checkout with the strategy `merge`).
    pub base: CommitSha,
    /// Which program made it.
    pub distribution: Distribution,
    /// Its version.
    pub tool_version: semver::Version,
    /// What the workflow that made it does ([`crate::config::workflow::Workflow::fingerprint`]); no other one applies it.
    pub workflow: Sha256Digest,
    /// Its group in the order in which it was planned: `execution_order_group`, or its place among the units of Terragrunt.
    pub order_group: i32,
    /// Digest of the plan file; `None` when there is nothing to apply, or when the workflow needs no file.
    pub digest: Option<Sha256Digest>,
    /// What it would do.
    pub counts: PlanCounts,
    /// Why it must never be applied, a clause for people: its text and its file disagree, or the file cannot be shown.
    pub blocked: Option<String>,
    /// What became of it.
    pub state: PlanState,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}
