//! Defines the records of Atlantis as it writes them, in Go's spelling of JSON. A missing field is empty, as it is
//! for Atlantis.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};

use crate::model::text_enum;

/// Deserializes `null` as the empty value, like an absent field.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Value in the bucket `runLocks`, or under `pr/` in Redis.
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

/// Directory of a repository, with an optional project name.
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

/// Pull request as it was when the record was written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct PullRecord {
    #[serde(deserialize_with = "or_empty")]
    pub num: i64,
    #[serde(rename = "URL", deserialize_with = "or_empty")]
    pub url: String,
    #[serde(deserialize_with = "or_empty")]
    pub author: String,
    /// State: 0 is open, 1 is closed.
    #[serde(deserialize_with = "or_empty")]
    pub state: i64,
    #[serde(deserialize_with = "or_empty")]
    pub base_repo: RepoRecord,
    #[serde(deserialize_with = "or_empty")]
    pub head_commit: String,
    #[serde(deserialize_with = "or_empty")]
    pub base_branch: String,
}

/// Base repository of a pull request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct RepoRecord {
    #[serde(deserialize_with = "or_empty")]
    pub full_name: String,
    #[serde(rename = "VCSHost", deserialize_with = "or_empty")]
    pub host: HostRecord,
}

/// Forge that hosts a repository.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct HostRecord {
    #[serde(deserialize_with = "or_empty")]
    pub hostname: String,
}

/// User whose command caused the record.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct UserRecord {
    #[serde(deserialize_with = "or_empty")]
    pub username: String,
}

/// Value in the bucket `pulls`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct PullStatusRecord {
    #[serde(deserialize_with = "or_empty")]
    pub pull: PullRecord,
    #[serde(deserialize_with = "or_empty")]
    pub projects: Vec<StatusRecord>,
}

/// Status of a project in a pull request.
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

/// Value of the key `apply/lock`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ApplyLockRecord {
    #[serde(deserialize_with = "or_empty")]
    pub lock_metadata: MetadataRecord,
}

/// Metadata of the lock that stops applies.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct MetadataRecord {
    #[serde(deserialize_with = "or_empty")]
    pub unix_time: i64,
}

text_enum! {
    /// Status of a project, in Atlantis' words (reference 15.2).
    pub enum PlanStatus {
        /// The last plan failed.
        PlanErrored = "plan_errored",
        /// A plan waits for its apply.
        Planned = "planned",
        /// The plan found nothing to do.
        PlannedNoChanges = "planned_no_changes",
        /// The last apply failed.
        ApplyErrored = "apply_errored",
        /// The plan was applied.
        Applied = "applied",
        /// The plan was discarded on the page of its lock.
        PlanDiscarded = "plan_discarded",
        /// The project is planned, but a policy check failed.
        PolicyCheckErrored = "policy_check_errored",
        /// The project is planned, and all policy checks passed.
        PolicyCheckPassed = "policy_check_passed",
        /// The record has a number that no known release writes.
        Unknown = "unknown",
    }
}

text_enum! {
    /// Step that people have to do for a project after the import.
    pub enum NextStep {
        /// Plan again before an apply: there may be a plan, but plan files are not imported.
        PlanAgain = "plan_again",
        /// Do nothing: the plan was applied, had no changes, or was discarded.
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

    /// Returns the step that is left for people to do.
    pub fn then(self) -> NextStep {
        match self {
            Self::Planned
            | Self::PlanErrored
            | Self::ApplyErrored
            | Self::PolicyCheckErrored
            | Self::PolicyCheckPassed
            | Self::Unknown => NextStep::PlanAgain,
            Self::PlannedNoChanges | Self::Applied | Self::PlanDiscarded => NextStep::Nothing,
        }
    }
}
