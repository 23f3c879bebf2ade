//! Atlantis' records as it writes them, in Go's spelling of JSON. What a record lacks is empty, as it is for Atlantis.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};

use crate::model::text_enum;

/// `null` and an absent field are both the empty value.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A value of bucket `runLocks`, or under `pr/` in Redis.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct LockRecord {
    #[serde(deserialize_with = "or_empty")]
    pub project: ProjectRecord,
    #[serde(deserialize_with = "or_empty")]
    pub pull: PullRecord,
    #[serde(deserialize_with = "or_empty")]
    pub user: UserRecord,
    #[serde(deserialize_with = "or_empty")]
    pub workspace: String,
    pub time: Option<DateTime<Utc>>,
}

/// A directory of a repository.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ProjectRecord {
    #[serde(deserialize_with = "or_empty")]
    pub project_name: String,
    #[serde(deserialize_with = "or_empty")]
    pub repo_full_name: String,
    #[serde(deserialize_with = "or_empty")]
    pub path: String,
}

/// A pull as it was when the record was written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct PullRecord {
    #[serde(deserialize_with = "or_empty")]
    pub num: i64,
    #[serde(rename = "URL", deserialize_with = "or_empty")]
    pub url: String,
    #[serde(deserialize_with = "or_empty")]
    pub author: String,
    /// 0 is open, 1 is closed.
    #[serde(deserialize_with = "or_empty")]
    pub state: i64,
    #[serde(deserialize_with = "or_empty")]
    pub base_repo: RepoRecord,
    #[serde(deserialize_with = "or_empty")]
    pub head_commit: String,
    #[serde(deserialize_with = "or_empty")]
    pub base_branch: String,
}

/// The repository a pull wants to change.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct RepoRecord {
    #[serde(deserialize_with = "or_empty")]
    pub full_name: String,
    #[serde(rename = "VCSHost", deserialize_with = "or_empty")]
    pub host: HostRecord,
}

/// A forge.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct HostRecord {
    #[serde(deserialize_with = "or_empty")]
    pub hostname: String,
}

/// Who asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct UserRecord {
    #[serde(deserialize_with = "or_empty")]
    pub username: String,
}

/// A value of bucket `pulls`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct PullStatusRecord {
    #[serde(deserialize_with = "or_empty")]
    pub pull: PullRecord,
    #[serde(deserialize_with = "or_empty")]
    pub projects: Vec<StatusRecord>,
}

/// How far a project of a pull has come.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct StatusRecord {
    #[serde(deserialize_with = "or_empty")]
    pub workspace: String,
    #[serde(deserialize_with = "or_empty")]
    pub repo_rel_dir: String,
    #[serde(deserialize_with = "or_empty")]
    pub project_name: String,
    pub status: i64,
}

/// The value of `apply/lock`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ApplyLockRecord {
    #[serde(deserialize_with = "or_empty")]
    pub lock_metadata: MetadataRecord,
}

/// When.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct MetadataRecord {
    #[serde(deserialize_with = "or_empty")]
    pub unix_time: i64,
}

text_enum! {
    /// How far a project has come, in Atlantis' words (reference 15.2).
    pub enum PlanStatus {
        /// The plan failed.
        PlanErrored = "plan_errored",
        /// A plan waits.
        Planned = "planned",
        /// The plan found nothing to do.
        PlannedNoChanges = "planned_no_changes",
        /// The apply failed.
        ApplyErrored = "apply_errored",
        /// Applied.
        Applied = "applied",
        /// Thrown away on the page.
        PlanDiscarded = "plan_discarded",
        /// Planned, but a policy does not hold.
        PolicyCheckErrored = "policy_check_errored",
        /// Planned, and the policies hold.
        PolicyCheckPassed = "policy_check_passed",
        /// A number that no release we know writes.
        Unknown = "unknown",
    }
}

text_enum! {
    /// What people have to do for a project after the move.
    pub enum Then {
        /// There is a plan, but plan files are not taken over: plan again before an apply.
        PlanAgain = "plan_again",
        /// It was applied, had no changes, or was thrown away.
        Nothing = "nothing",
    }
}

impl PlanStatus {
    pub(super) fn of_number(number: i64) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|n| Self::ALL.get(n).copied())
            .unwrap_or(Self::Unknown)
    }

    /// What is left to do.
    pub fn then(self) -> Then {
        match self {
            Self::Planned
            | Self::PlanErrored
            | Self::ApplyErrored
            | Self::PolicyCheckErrored
            | Self::PolicyCheckPassed
            | Self::Unknown => Then::PlanAgain,
            Self::PlannedNoChanges | Self::Applied | Self::PlanDiscarded => Then::Nothing,
        }
    }
}
