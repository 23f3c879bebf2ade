//! What happens to locks, as the audit log keeps it: append-only. An event is written with the change it tells of; a
//! moment later the sealer gives it a number and makes it a part of the chain, with the hash of the event before.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use super::actor::Actor;
use super::apply_lock::ApplyScope;
use super::concern::Concern;
use super::lock::LockKey;
use super::path::RepoPath;
use super::plan::Sha256Digest;
use super::pull::PullRef;
use super::repo::RepoId;
use super::text::text_enum;

text_enum! {
    /// What happened.
    pub enum LockEventKind {
        /// A pull holds the lock from here on.
        Taken = "taken",
        /// The pull that holds it was active again, so its time limit starts anew.
        Renewed = "renewed",
        /// A pull waits in line for it.
        Queued = "queued",
        /// A pull waits no more.
        Left = "left",
        /// It was given back: by the pull that held it, by the end of that pull, or by somebody who saw that nothing went on
        /// under it.
        Released = "released",
        /// Somebody took it away from the pull that held it: by force, or to hand it to another.
        Stolen = "stolen",
        /// Its time limit ran out.
        Expired = "expired",
        /// Somebody was not allowed to do something.
        Denied = "denied",
        /// Applies were stopped.
        ApplyLocked = "apply_locked",
        /// Applies were allowed again.
        ApplyUnlocked = "apply_unlocked",
        /// Somebody gave a lease back by hand. It is no lock: the reason names it.
        LeaseReleased = "lease_released",
        /// Somebody asked for the mirrors of a repository to be brought in step. The reason names it.
        SyncAsked = "sync_asked",
        /// A repository has another name: everything that was kept under the old one goes on under the new one. The reason
        /// names both.
        RepositoryRenamed = "repository_renamed",
        /// A repository became an owner's.
        Claimed = "claimed",
        /// A repository is nobody's any more.
        Unclaimed = "unclaimed",
        /// An owner, an application or a credential was added or changed.
        Registered = "registered",
        /// An owner, an application or a credential was removed.
        Unregistered = "unregistered",
        /// Old events were removed from the beginning of the audit log.
        Pruned = "pruned",
        /// Another key signs checkpoints of the audit log from here on.
        KeyAdded = "key_added",
    }
}

impl LockEventKind {
    /// Whether it is what happened to an apply lock.
    pub const fn is_of_applies(self) -> bool {
        match self {
            Self::ApplyLocked | Self::ApplyUnlocked => true,
            Self::Taken
            | Self::Renewed
            | Self::Queued
            | Self::Left
            | Self::Released
            | Self::Stolen
            | Self::Expired
            | Self::Denied
            | Self::LeaseReleased
            | Self::SyncAsked
            | Self::RepositoryRenamed
            | Self::Claimed
            | Self::Unclaimed
            | Self::Registered
            | Self::Unregistered
            | Self::Pruned
            | Self::KeyAdded => false,
        }
    }
}

/// Who does something to a lock, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Who, and by which way.
    pub actor: Actor,
    /// Address the wish came from, where it came over the network from a person.
    pub remote: Option<String>,
    /// Why, in a clause.
    pub reason: String,
}

impl Cause {
    /// Somebody, for a reason.
    pub fn new(actor: Actor, reason: impl Into<String>) -> Self {
        Self {
            actor,
            remote: None,
            reason: reason.into(),
        }
    }

    /// Over the network from this address.
    #[must_use]
    pub fn from_address(mut self, remote: Option<String>) -> Self {
        self.remote = remote;
        self
    }
}

/// An event as it is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLockEvent {
    /// What happened.
    pub kind: LockEventKind,
    /// To which lock; `None` for apply locks and for what concerns no lock in particular.
    pub key: Option<LockKey>,
    /// Which applies it is about; `None` unless it concerns an apply lock. Kept in the columns of repository and
    /// directory, without a workspace.
    pub scope: Option<ApplyScope>,
    /// Which pull.
    pub pull: Option<PullRef>,
    /// The owner or the repository it is about; `None` where one of the three above says it, or where it is about the whole
    /// server.
    pub concern: Option<Concern>,
    /// Who did it, and why.
    pub cause: Cause,
}

impl NewLockEvent {
    /// The repository of its lock, applies or pull.
    pub fn repo(&self) -> Option<&RepoId> {
        let of_key = self.key.as_ref().map(|key| &key.repo);
        let of_scope = || self.scope.as_ref().and_then(ApplyScope::repo);
        of_key
            .or_else(of_scope)
            .or_else(|| self.pull.as_ref().map(|pull| &pull.repo))
    }

    /// The repository it is about, whatever says so.
    pub fn about_repo(&self) -> Option<&RepoId> {
        self.repo()
            .or_else(|| self.concern.as_ref().and_then(Concern::repo))
    }

    /// The directory it is about.
    pub fn dir(&self) -> Option<&RepoPath> {
        self.key
            .as_ref()
            .map(|key| &key.dir)
            .or_else(|| self.scope.as_ref().and_then(ApplyScope::dir))
    }
}

/// An event as lists show it, in the chain or on its way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    /// Place in lists: greater than those of all events before. The number of an event that has one.
    pub place: i64,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What happened.
    pub event: NewLockEvent,
    /// Its link of the chain; `None` until it is sealed.
    pub link: Option<ChainLink>,
    /// What an application is called now that it is about; no part of what was kept.
    pub title: Option<String>,
}

/// Place of an event in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// Number of the event, from 1, without gaps.
    pub seq: i64,
    /// Hash of this event and all before.
    pub hash: Sha256Digest,
}

impl LockEvent {
    /// Its number, once it is sealed.
    pub fn seq(&self) -> Option<i64> {
        self.link.as_ref().map(|link| link.seq)
    }

    /// The pull, or application, that it is about, for lists: `#12`, `application network (branch main)`.
    pub fn of_whom(&self) -> Option<String> {
        self.event
            .pull
            .as_ref()
            .map(|pull| pull.number.called_short(self.title.as_deref()))
    }
}

/// A link of the chain with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedEvent {
    /// Its place in the chain, from 1, without gaps.
    pub seq: i64,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What happened.
    pub event: NewLockEvent,
    /// Hash of the event before; of the first, [`ChainedEvent::genesis`].
    pub previous: Sha256Digest,
    /// Hash of this event and the one before.
    pub hash: Sha256Digest,
}

/// What is hashed: every field, in this order. A change here breaks every chain that exists.
#[derive(Serialize)]
struct Sealed<'a> {
    previous: &'a str,
    seq: i64,
    at: String,
    kind: &'a str,
    repo: Option<String>,
    dir: Option<String>,
    workspace: Option<String>,
    project: Option<String>,
    pull: Option<i64>,
    actor: &'a str,
    origin: &'a str,
    remote: Option<&'a str>,
    reason: &'a str,
    /// Left out where there is none: chains from before there were any go on to be whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    concern: Option<String>,
}

impl ChainedEvent {
    /// What stands before the first event.
    pub fn genesis() -> Sha256Digest {
        Sha256Digest::of(b"")
    }

    /// The hash that an event at this place must have. Times count to the microsecond, which both databases keep.
    #[expect(clippy::missing_panics_doc, reason = "texts and numbers are JSON")]
    pub fn hash_of(
        seq: i64,
        at: DateTime<Utc>,
        event: &NewLockEvent,
        previous: &Sha256Digest,
    ) -> Sha256Digest {
        let sealed = Sealed {
            previous: previous.as_str(),
            seq,
            at: at.to_rfc3339_opts(SecondsFormat::Micros, true),
            kind: event.kind.as_str(),
            repo: event.repo().map(ToString::to_string),
            dir: event.dir().map(ToString::to_string),
            workspace: event.key.as_ref().map(|key| key.workspace.to_string()),
            project: event
                .key
                .as_ref()
                .and_then(|key| key.project.as_ref())
                .map(ToString::to_string),
            pull: event.pull.as_ref().map(|pull| pull.number.0),
            actor: &event.cause.actor.login,
            origin: event.cause.actor.origin.as_str(),
            remote: event.cause.remote.as_deref(),
            reason: &event.cause.reason,
            concern: event.concern.as_ref().map(ToString::to_string),
        };
        Sha256Digest::of(&serde_json::to_vec(&sealed).expect("texts and numbers are JSON"))
    }

    /// Whether the event is as it was when it was kept.
    pub fn is_intact(&self) -> bool {
        self.hash == Self::hash_of(self.seq, self.at, &self.event, &self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;

    #[test]
    fn what_concerns_nobody_has_the_hash_that_it_always_had() {
        let actor = Actor {
            login: "ada".to_owned(),
            origin: Origin::Comment,
        };
        let cause = Cause::new(actor, "why");
        let mut event = NewLockEvent {
            kind: LockEventKind::Denied,
            key: None,
            scope: None,
            pull: None,
            concern: None,
            cause,
        };
        let hash = |event: &NewLockEvent| {
            ChainedEvent::hash_of(1, DateTime::UNIX_EPOCH, event, &ChainedEvent::genesis())
        };
        let sealed = format!(
            r#"{{"previous":"{}","seq":1,"at":"1970-01-01T00:00:00.000000Z","kind":"denied","repo":null,"dir":null,"workspace":null,"project":null,"pull":null,"actor":"ada","origin":"comment","remote":null,"reason":"why"}}"#,
            ChainedEvent::genesis()
        );
        assert_eq!(hash(&event), Sha256Digest::of(sealed.as_bytes()));
        event.concern = Some("net".parse().unwrap());
        let sealed = format!(r#"{},"concern":"net"}}"#, sealed.trim_end_matches('}'));
        assert_eq!(hash(&event), Sha256Digest::of(sealed.as_bytes()));
    }
}
