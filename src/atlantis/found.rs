//! From records to our words. The value decides, as it does for Atlantis; the key is a second witness: where the two
//! speak of different things the record is not used, because either could be the one that Atlantis obeyed.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use url::Url;

use super::Contents;
use super::record::{
    ApplyLockRecord, LockRecord, PlanStatus, ProjectRecord, PullRecord, PullStatusRecord,
    StatusRecord, Then,
};
use crate::model::{
    BranchName, CommitSha, HostName, LockKey, ProjectKey, ProjectName, PullNumber, PullRef, RepoId,
    RepoPath, WorkspaceName,
};

/// Everything that could be made sense of, and everything that could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Locks, the oldest first: where two pulls hold what is one lock here, the first one had it first.
    pub locks: Vec<FoundLock>,
    /// Pulls with what is known of their projects.
    pub pulls: Vec<FoundPull>,
    /// The lock that stops applies.
    pub apply_lock: Option<FoundApplyLock>,
    /// The rest.
    pub unusable: Vec<Unusable>,
}

/// The lock that stops every apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundApplyLock {
    /// Who set it: Atlantis does not keep that.
    pub holder: String,
    /// Why.
    pub reason: String,
    /// Since when, as far as that is on record.
    pub taken_at: DateTime<Utc>,
}

/// A lock that Atlantis holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// Its key there.
    pub key: String,
    /// The pull that holds it.
    pub pull: PullRef,
    /// Page of that pull.
    pub pull_url: String,
    /// What it protects.
    pub project: ProjectKey,
    /// Who caused it to be taken.
    pub holder: String,
    /// Since when, if that is on record.
    pub taken_at: Option<DateTime<Utc>>,
}

impl FoundLock {
    /// What it protects here.
    pub fn lock_key(&self) -> LockKey {
        LockKey::of(&self.pull.repo, &self.project)
    }
}

/// A pull that Atlantis has worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPull {
    /// The pull.
    pub pull: PullRef,
    /// Its page.
    pub url: String,
    /// Commit and base branch that its projects are at, if both are on record.
    pub at: Option<(CommitSha, BranchName)>,
    /// How far its projects are.
    pub projects: Vec<FoundStatus>,
}

/// How far a project of a pull has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStatus {
    /// The project, as the record names it.
    pub project: ProjectKey,
    /// In Atlantis' words.
    pub status: PlanStatus,
}

impl FoundStatus {
    /// What is left to do.
    pub fn then(&self) -> Then {
        self.status.then()
    }
}

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A lock.
    Lock,
    /// A pull.
    Pull,
}

/// A record that is not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What kind.
    pub kind: Kind,
    /// Its key.
    pub key: String,
    /// Why.
    pub why: Why,
}

/// Why a record is not taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Atlantis' API plans without a pull request under a number below zero.
    #[error("it belongs to no pull request: Atlantis' API took it for a request that is over")]
    NotOfAPull,
    /// A lock of nobody.
    #[error("it does not say which pull request it belongs to")]
    NoPull,
    /// The record of a closed pull.
    #[error("the pull request was closed")]
    Closed,
    /// The value is broken.
    #[error("its value cannot be read: {0}")]
    Unreadable(String),
    /// Something in it breaks a rule of ours.
    #[error("{0}")]
    Invalid(String),
    /// Neither hostname nor address.
    #[error("it does not say on which host the repository is: name the host with --host")]
    NoHost,
    /// Two witnesses, two stories.
    #[error("its key and its value speak of different things; the value says `{0}`")]
    KeyDiffers(String),
}

impl Why {
    /// Whether nothing is lost by leaving it out.
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

/// Who holds the lock that stops applies: Atlantis does not keep who pressed the button.
const SOMEBODY: &str = "somebody in Atlantis";
/// Why applies are stopped.
const APPLY_REASON: &str = "taken over from Atlantis, where applies were stopped";
/// Longer logins exist on no forge.
const MAX_HOLDER: usize = 255;

impl Found {
    /// Makes sense of what is there. `host` is for records that do not name theirs; `now` for the lock that stops
    /// applies, should it have no time.
    pub fn understand(contents: &Contents, host: Option<&HostName>, now: DateTime<Utc>) -> Self {
        let mut found = Self::default();
        for (key, value) in &contents.locks {
            match lock(key, value, host) {
                Ok(lock) => found.locks.push(lock),
                Err(why) => found.unusable.push(Unusable {
                    kind: Kind::Lock,
                    key: text(key),
                    why,
                }),
            }
        }
        for (key, value) in &contents.pulls {
            match pull_status(key, value, host) {
                Ok(pull) => found.pulls.push(pull),
                Err(why) => found.unusable.push(Unusable {
                    kind: Kind::Pull,
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

/// An unreadable value stops applies all the same (P6): it is the key that counts for Atlantis.
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

fn lock(key: &[u8], value: &[u8], host: Option<&HostName>) -> Result<FoundLock, Why> {
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
        return Err(Why::KeyDiffers(with_project));
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

fn pull_status(key: &[u8], value: &[u8], host: Option<&HostName>) -> Result<FoundPull, Why> {
    let record: PullStatusRecord = read(value)?;
    let full_name = &record.pull.base_repo.full_name;
    let expected = format!(
        "{}::{full_name}::{}",
        record.pull.base_repo.host.hostname, record.pull.num
    );
    if text(key) != expected {
        return Err(Why::KeyDiffers(expected));
    }
    let pull = pull(&record.pull, full_name, host)?;
    if record.pull.state != 0 {
        return Err(Why::Closed);
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

fn status(record: &StatusRecord) -> Result<FoundStatus, Why> {
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

fn pull(record: &PullRecord, full_name: &str, host: Option<&HostName>) -> Result<PullRef, Why> {
    match record.num {
        ..0 => return Err(Why::NotOfAPull),
        0 => return Err(Why::NoPull),
        1.. => {}
    }
    let host = host_of(record)?
        .or_else(|| host.cloned())
        .ok_or(Why::NoHost)?;
    let repo = RepoId::new(host, full_name).map_err(|error| Why::invalid(&error))?;
    Ok(PullRef {
        repo,
        number: PullNumber(record.num),
    })
}

/// The host that the record names, else the one in the address of the pull.
fn host_of(record: &PullRecord) -> Result<Option<HostName>, Why> {
    let named = Some(record.base_repo.host.hostname.as_str())
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    let name = named.or_else(|| Url::parse(&record.url).ok()?.host_str().map(str::to_owned));
    name.map(|name| HostName::new(&name).map_err(|error| Why::invalid(&error)))
        .transpose()
}

/// The address on record, if a browser may be led there; else where GitHub keeps such a pull.
fn page(record: &PullRecord, pull: &PullRef) -> String {
    let is_page = Url::parse(&record.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if is_page && record.url.len() <= 2048 {
        record.url.clone()
    } else {
        format!("https://{}/pull/{}", pull.repo, pull.number)
    }
}

fn project(path: &str, workspace: &str, name: &str) -> Result<ProjectKey, Why> {
    Ok(ProjectKey {
        dir: RepoPath::new(path).map_err(|error| Why::invalid(&error))?,
        workspace: WorkspaceName::new(workspace).map_err(|error| Why::invalid(&error))?,
        name: match name {
            "" => None,
            name => Some(ProjectName::new(name).map_err(|error| Why::invalid(&error))?),
        },
    })
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, Why> {
    let mut reader = serde_json::Deserializer::from_slice(value);
    let record = T::deserialize(&mut reader).and_then(|record| reader.end().map(|()| record));
    record.map_err(|error| Why::Unreadable(error.to_string()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
