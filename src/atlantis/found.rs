//! Converts Atlantis records to types of Lockkeeper. The value of a record decides, as it does for Atlantis. If the
//! key describes another thing than the value, the record is not used, because Atlantis could have obeyed either.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use url::Url;

use super::Contents;
use super::record::{
    ApplyLockRecord, LockRecord, NextStep, PlanStatus, ProjectRecord, PullRecord, PullStatusRecord,
    StatusRecord,
};
use crate::model::{
    BranchName, CommitSha, HostName, LockKey, ProjectKey, ProjectName, PullRef, RepoId, RepoPath,
    Subject, WorkspaceName,
};

/// Result of reading an Atlantis database: usable and unusable records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtlantisRecords {
    /// Locks, the oldest first. If two pull requests hold what is one lock in Lockkeeper, the first one got it first.
    pub locks: Vec<FoundLock>,
    /// Pull requests with the status of their projects.
    pub pulls: Vec<FoundPull>,
    /// Lock that stops all applies.
    pub apply_lock: Option<FoundApplyLock>,
    /// Records that cannot be imported.
    pub unusable: Vec<Unusable>,
}

/// Lock that stops all applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundApplyLock {
    /// Text in place of a user, because Atlantis does not store who set the lock.
    pub holder: String,
    /// Reason that is shown with the lock.
    pub reason: String,
    /// Time when the lock was set, as far as it is stored.
    pub taken_at: DateTime<Utc>,
}

/// Lock that Atlantis holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// Key in the Atlantis database.
    pub key: String,
    /// Pull request that holds the lock.
    pub pull: PullRef,
    /// Web page of the pull request.
    pub pull_url: String,
    /// Project that the lock protects.
    pub project: ProjectKey,
    /// User whose command took the lock.
    pub holder: String,
    /// Time when the lock was taken, if it is stored.
    pub taken_at: Option<DateTime<Utc>>,
}

impl FoundLock {
    /// Returns the key of the same lock in Lockkeeper.
    pub fn lock_key(&self) -> LockKey {
        LockKey::of(&self.pull.repo, &self.project)
    }
}

/// Pull request that Atlantis has worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPull {
    pub pull: PullRef,
    /// Web page of the pull request.
    pub url: String,
    /// Commit and base branch of its projects, if both are stored.
    pub at: Option<(CommitSha, BranchName)>,
    /// Status of each project.
    pub projects: Vec<FoundStatus>,
}

/// Status of a project in a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStatus {
    /// Project, as the record names it.
    pub project: ProjectKey,
    /// Status in Atlantis' words.
    pub status: PlanStatus,
}

impl FoundStatus {
    /// Returns the step that is left for people to do.
    pub fn then(&self) -> NextStep {
        self.status.then()
    }
}

/// Kind of an Atlantis record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Lock,
    Pull,
}

/// Record that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub kind: RecordKind,
    /// Key in the Atlantis database.
    pub key: String,
    /// Reason that the record cannot be imported.
    pub why: UnusableReason,
}

/// Reason that a record cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReason {
    /// The number of the pull request is below zero: Atlantis' API uses such numbers to plan without a pull request.
    #[error(
        "it belongs to no pull request: Atlantis' API took the lock for a request that has ended"
    )]
    NotOfAPull,
    /// The lock does not name a pull request.
    #[error("it does not name its pull request")]
    NoPull,
    /// The pull request of the record is closed.
    #[error("the pull request was closed")]
    Closed,
    /// The value cannot be parsed.
    #[error("its value cannot be read: {0}")]
    Unreadable(String),
    /// A field of the value is not valid in Lockkeeper.
    #[error("{0}")]
    Invalid(String),
    /// The record has neither a hostname nor a URL of the pull request.
    #[error("it does not name the host of the repository; name the host with --host")]
    NoHost,
    /// Key and value of the record contradict each other.
    #[error("its key and its value do not match; the value is about `{0}`")]
    KeyDiffers(String),
}

impl UnusableReason {
    /// Returns true if nothing is lost without this record.
    pub fn is_harmless(&self) -> bool {
        match self {
            Self::NotOfAPull | Self::Closed => true,
            Self::NoPull
            | Self::Unreadable(_)
            | Self::Invalid(_)
            | Self::NoHost
            | Self::KeyDiffers(_) => false,
        }
    }

    fn invalid(error: &impl fmt::Display) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Holder of the lock that stops applies, because Atlantis does not store who set it.
const SOMEBODY: &str = "somebody in Atlantis";
/// Reason of the lock that stops applies.
const APPLY_REASON: &str = "taken over from Atlantis, where applies were stopped";
/// Maximum length of a login. No forge has longer ones.
const MAX_HOLDER: usize = 255;

impl AtlantisRecords {
    /// Converts the contents of a database. `host` is for records that do not name their own; `now` is the time of
    /// the lock that stops applies if it has none.
    pub fn understand(contents: &Contents, host: Option<&HostName>, now: DateTime<Utc>) -> Self {
        let mut found = Self::default();
        for (key, value) in &contents.locks {
            match lock(key, value, host) {
                Ok(lock) => found.locks.push(lock),
                Err(why) => found.unusable.push(Unusable {
                    kind: RecordKind::Lock,
                    key: text(key),
                    why,
                }),
            }
        }
        for (key, value) in &contents.pulls {
            match pull_status(key, value, host) {
                Ok(pull) => found.pulls.push(pull),
                Err(why) => found.unusable.push(Unusable {
                    kind: RecordKind::Pull,
                    key: text(key),
                    why,
                }),
            }
        }
        found.apply_lock = contents
            .apply_lock
            .as_deref()
            .map(|value| apply_lock(value, now));
        found.locks.sort_by(|a, b| {
            (a.taken_at, &a.pull, &a.project).cmp(&(b.taken_at, &b.pull, &b.project))
        });
        found
    }
}

/// Converts the lock that stops applies. An unreadable value stops applies too (P6), because Atlantis only checks for
/// the key.
fn apply_lock(value: &[u8], now: DateTime<Utc>) -> FoundApplyLock {
    let time = read::<ApplyLockRecord>(value)
        .ok()
        .map(|record| record.lock_metadata.unix_time);
    let time = time
        .filter(|time| *time > 0)
        .and_then(|time| DateTime::from_timestamp(time, 0));
    FoundApplyLock {
        holder: SOMEBODY.to_owned(),
        reason: APPLY_REASON.to_owned(),
        taken_at: time.unwrap_or(now),
    }
}

fn lock(key: &[u8], value: &[u8], host: Option<&HostName>) -> Result<FoundLock, UnusableReason> {
    let record: LockRecord = read(value)?;
    let ProjectRecord {
        repo_full_name,
        path,
        project_name,
    } = &record.project;
    let classic = format!("{repo_full_name}/{path}/{}", record.workspace);
    let with_project = format!("{classic}/{project_name}");
    let key = text(key);
    if key != classic && key != with_project {
        return Err(UnusableReason::KeyDiffers(with_project));
    }
    let pull = pull(&record.pull, repo_full_name, host)?;
    let holder = [&record.user.username, &record.pull.author]
        .into_iter()
        .find(|name| !name.is_empty());
    Ok(FoundLock {
        key,
        pull_url: page(&record.pull, &pull),
        project: project(path, &record.workspace, project_name)?,
        holder: holder
            .map_or(SOMEBODY, String::as_str)
            .chars()
            .take(MAX_HOLDER)
            .collect(),
        taken_at: record.time.filter(|time| *time > DateTime::UNIX_EPOCH),
        pull,
    })
}

fn pull_status(
    key: &[u8],
    value: &[u8],
    host: Option<&HostName>,
) -> Result<FoundPull, UnusableReason> {
    let record: PullStatusRecord = read(value)?;
    let full_name = &record.pull.base_repo.full_name;
    let expected = format!(
        "{}::{full_name}::{}",
        record.pull.base_repo.host.hostname, record.pull.num
    );
    if text(key) != expected {
        return Err(UnusableReason::KeyDiffers(expected));
    }
    let pull = pull(&record.pull, full_name, host)?;
    if record.pull.state != 0 {
        return Err(UnusableReason::Closed);
    }
    let projects = record
        .projects
        .iter()
        .map(status)
        .collect::<Result<_, _>>()?;
    let at = CommitSha::new(&record.pull.head_commit)
        .ok()
        .zip(BranchName::new(&record.pull.base_branch).ok());
    Ok(FoundPull {
        url: page(&record.pull, &pull),
        pull,
        at,
        projects,
    })
}

fn status(record: &StatusRecord) -> Result<FoundStatus, UnusableReason> {
    let project = project(
        &record.repo_rel_dir,
        &record.workspace,
        &record.project_name,
    )?;
    Ok(FoundStatus {
        project,
        status: PlanStatus::of_number(record.status),
    })
}

fn pull(
    record: &PullRecord,
    full_name: &str,
    host: Option<&HostName>,
) -> Result<PullRef, UnusableReason> {
    match record.num {
        ..0 => return Err(UnusableReason::NotOfAPull),
        0 => return Err(UnusableReason::NoPull),
        1.. => {}
    }
    let host = host_of(record)?
        .or_else(|| host.cloned())
        .ok_or(UnusableReason::NoHost)?;
    let repo = RepoId::new(host, full_name).map_err(|error| UnusableReason::invalid(&error))?;
    Ok(PullRef {
        repo,
        subject: Subject::pull(record.num),
    })
}

/// Returns the host that the record names, else the one in the URL of the pull request.
fn host_of(record: &PullRecord) -> Result<Option<HostName>, UnusableReason> {
    let named = Some(record.base_repo.host.hostname.as_str())
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    let name = named.or_else(|| Url::parse(&record.url).ok()?.host_str().map(str::to_owned));
    name.map(|name| HostName::new(&name).map_err(|error| UnusableReason::invalid(&error)))
        .transpose()
}

/// Returns the stored URL if it is safe to link to, else the URL that GitHub would use.
fn page(record: &PullRecord, pull: &PullRef) -> String {
    let is_page = Url::parse(&record.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if is_page && record.url.len() <= 2048 {
        record.url.clone()
    } else {
        format!("https://{}/pull/{}", pull.repo, pull.subject)
    }
}

fn project(path: &str, workspace: &str, name: &str) -> Result<ProjectKey, UnusableReason> {
    Ok(ProjectKey {
        dir: RepoPath::new(path).map_err(|error| UnusableReason::invalid(&error))?,
        workspace: WorkspaceName::new(workspace)
            .map_err(|error| UnusableReason::invalid(&error))?,
        name: match name {
            "" => None,
            name => Some(ProjectName::new(name).map_err(|error| UnusableReason::invalid(&error))?),
        },
    })
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, UnusableReason> {
    let mut reader = serde_json::Deserializer::from_slice(value);
    let record = T::deserialize(&mut reader).and_then(|record| reader.end().map(|()| record));
    record.map_err(|error| UnusableReason::Unreadable(error.to_string()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
