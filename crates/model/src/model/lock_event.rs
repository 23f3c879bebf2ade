//! Events of locks, as stored in the audit log, which is append-only.
//!
//! An event is written in the transaction of its change. A moment later the sealer numbers it and adds it to the
//! chain, with the hash of the event before.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use super::actor::Actor;
use super::apply_lock::ApplyScope;
use super::concern::Concern;
use super::lock::LockKey;
use super::path::RepoPath;
use super::person::{AccountId, NamedAccount, Person};
use super::plan::Sha256Digest;
use super::pull::PullRef;
use super::repo::RepoId;
use super::text::text_enum;

text_enum! {
    /// Kinds of events in the audit log.
    pub enum LockEventKind {
        /// A pull holds the lock from here on.
        Taken = "taken",
        /// The pull with the lock was active again, so the time limit of the lock starts again.
        Renewed = "renewed",
        /// A pull is queued for the lock.
        Queued = "queued",
        /// A pull left the queue.
        Left = "left",
        /// The lock was released: by the pull with the lock, by the end of that pull, or by somebody who saw that no
        /// work used it.
        Released = "released",
        /// The lock was taken away from its pull: by force, or to hand it over to another.
        Stolen = "stolen",
        /// The time limit of the lock is over.
        Expired = "expired",
        /// A person or program lacked the permission for an action.
        Denied = "denied",
        /// Applies were stopped by an apply lock.
        ApplyLocked = "apply_locked",
        /// Applies were allowed again.
        ApplyUnlocked = "apply_unlocked",
        /// An administrator released a lease. A lease is not a lock, so the reason names it.
        LeaseReleased = "lease_released",
        /// A sync of the mirrors of a repository was requested. The reason names the repository.
        SyncAsked = "sync_asked",
        /// A repository has another name. Everything that was stored under the old one continues under the new one.
        /// The reason names both.
        RepositoryRenamed = "repository_renamed",
        /// An owner claimed a repository.
        Claimed = "claimed",
        /// The claim on a repository ended.
        Unclaimed = "unclaimed",
        /// An owner, an application or a credential was added or changed.
        Registered = "registered",
        /// An owner, an application or a credential was removed.
        Unregistered = "unregistered",
        /// Old events were removed from the beginning of the audit log.
        Pruned = "pruned",
        /// An account of a person was created or changed. The reason names the change, and its commits.
        AccountChanged = "account_changed",
        /// A version was published in the registry.
        RegistryPublished = "registry_published",
        /// A version in the registry was deprecated.
        RegistryDeprecated = "registry_deprecated",
        /// A version in the registry was deleted for good.
        RegistryTakenDown = "registry_taken_down",
        /// A namespace of the registry was given to an owner.
        RegistryNamespaceAdded = "registry_namespace_added",
        /// A namespace of the registry was given to another owner, or to other readers.
        RegistryNamespaceChanged = "registry_namespace_changed",
        /// A namespace of the registry was removed.
        RegistryNamespaceRemoved = "registry_namespace_removed",
        /// A token of the registry was created.
        RegistryTokenCreated = "registry_token_created",
        /// A token of the registry was revoked.
        RegistryTokenRevoked = "registry_token_revoked",
        /// Another deployment was invited, joined, suspended, removed or stopped.
        RegistryPeerChanged = "registry_peer_changed",
        /// A person approved what a policy set found in a plan. The reason names the set and the project.
        PolicyApproved = "policy_approved",
        /// The approvals of a policy set in a project were removed. The reason names the set and the project.
        PolicyCleared = "policy_cleared",
        /// Another key signs checkpoints of the audit log from here on.
        KeyAdded = "key_added",
    }
}

impl LockEventKind {
    /// Returns true for the kinds that concern apply locks.
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
            | Self::KeyAdded
            | Self::AccountChanged
            | Self::RegistryPublished
            | Self::RegistryDeprecated
            | Self::RegistryTakenDown
            | Self::RegistryNamespaceAdded
            | Self::RegistryNamespaceChanged
            | Self::RegistryNamespaceRemoved
            | Self::RegistryTokenCreated
            | Self::RegistryTokenRevoked
            | Self::RegistryPeerChanged
            | Self::PolicyApproved
            | Self::PolicyCleared => false,
        }
    }
}

/// Actor and reason of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Person or program, and the way of the request.
    pub actor: Actor,
    /// Network address of the person who sent the request, if it came over the network.
    pub remote: Option<String>,
    /// Reason of the change, in a clause.
    pub reason: String,
}

impl Cause {
    /// Creates a cause from an actor and a reason.
    pub fn new(actor: Actor, reason: impl Into<String>) -> Self {
        Self {
            actor,
            remote: None,
            reason: reason.into(),
        }
    }

    /// Adds the network address of the request.
    #[must_use]
    pub fn from_address(mut self, remote: Option<String>) -> Self {
        self.remote = remote;
        self
    }
}

/// An event before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLockEvent {
    /// Kind of the event.
    pub kind: LockEventKind,
    /// Lock of the event. `None` for apply locks and for events that concern no lock.
    pub key: Option<LockKey>,
    /// Applies of the event. `None` unless it concerns an apply lock. Stored in the columns of repository and
    /// directory, without a workspace.
    pub scope: Option<ApplyScope>,
    /// Pull of the event, if there is one.
    pub pull: Option<PullRef>,
    /// Owner or repository of the event. `None` if one of the three fields above says it, or if the event concerns
    /// the whole server.
    pub concern: Option<Concern>,
    /// Actor and reason of the event.
    pub cause: Cause,
}

impl NewLockEvent {
    /// Returns the repository of the lock, the applies or the pull.
    pub fn repo(&self) -> Option<&RepoId> {
        let of_key = self.key.as_ref().map(|key| &key.repo);
        let of_scope = || self.scope.as_ref().and_then(ApplyScope::repo);
        of_key
            .or_else(of_scope)
            .or_else(|| self.pull.as_ref().map(|pull| &pull.repo))
    }

    /// Returns the repository of the event, from any field that names one.
    pub fn about_repo(&self) -> Option<&RepoId> {
        self.repo()
            .or_else(|| self.concern.as_ref().and_then(Concern::repo))
    }

    /// Returns the directory of the event, if there is one.
    pub fn dir(&self) -> Option<&RepoPath> {
        self.key
            .as_ref()
            .map(|key| &key.dir)
            .or_else(|| self.scope.as_ref().and_then(ApplyScope::dir))
    }
}

/// An event as lists show it, sealed into the chain or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    /// Position in lists, greater than the positions of all events before. A sealed event has its number here.
    pub place: i64,
    /// Time of the event.
    pub at: DateTime<Utc>,
    /// Content of the event.
    pub event: NewLockEvent,
    /// Link of the event in the chain. `None` until the event is sealed.
    pub link: Option<ChainLink>,
    /// Current title of the application that the event concerns. Not part of the stored event.
    pub title: Option<String>,
    /// Account of the actor with its current name. The stored event has only its number.
    pub account: Option<NamedAccount>,
}

/// Position of an event in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// Number of the event, from 1, without gaps.
    pub seq: i64,
    /// Hash of this event and all events before.
    pub hash: Sha256Digest,
}

impl LockEvent {
    /// Returns the number of the event, once it is sealed.
    pub fn seq(&self) -> Option<i64> {
        self.link.as_ref().map(|link| link.seq)
    }

    /// Returns the actor for people.
    pub fn who(&self) -> Person {
        Person {
            login: self.event.cause.actor.login.clone(),
            account: self.account.clone(),
        }
    }

    /// Returns the pull or application of the event, for lists: `#12`, `application network (branch main)`.
    pub fn of_whom(&self) -> Option<String> {
        self.event
            .pull
            .as_ref()
            .map(|pull| pull.subject.short_name(self.title.as_deref()))
    }
}

/// A link of the chain with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedEvent {
    /// Number of the event, from 1, without gaps.
    pub seq: i64,
    /// Time of the event.
    pub at: DateTime<Utc>,
    /// Content of the event.
    pub event: NewLockEvent,
    /// Hash of the event before. The first event has [`ChainedEvent::genesis`].
    pub previous: Sha256Digest,
    /// Hash of this event and the one before.
    pub hash: Sha256Digest,
}

/// Hashed fields of an event, in this order. A change here breaks every existing chain.
#[derive(Serialize)]
struct HashedFields<'a> {
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
    /// Omitted if there is none, so that chains from before this field stay valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    concern: Option<String>,
    /// Omitted in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountId>,
}

impl ChainedEvent {
    /// Returns the hash that precedes the first event.
    pub fn genesis() -> Sha256Digest {
        Sha256Digest::of(b"")
    }

    /// Returns the hash that an event at this position must have. Times count to the microsecond, which both
    /// databases keep.
    #[expect(clippy::missing_panics_doc, reason = "texts and numbers are JSON")]
    pub fn hash_of(
        seq: i64,
        at: DateTime<Utc>,
        event: &NewLockEvent,
        previous: &Sha256Digest,
    ) -> Sha256Digest {
        let sealed = HashedFields {
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
            pull: event.pull.as_ref().map(|pull| pull.subject.stored()),
            actor: &event.cause.actor.login,
            origin: event.cause.actor.origin.as_str(),
            remote: event.cause.remote.as_deref(),
            reason: &event.cause.reason,
            concern: event.concern.as_ref().map(ToString::to_string),
            account: event.cause.actor.account,
        };
        Sha256Digest::of(&serde_json::to_vec(&sealed).expect("texts and numbers are JSON"))
    }

    /// Returns true if the event has not changed since it was stored.
    pub fn is_intact(&self) -> bool {
        self.hash == Self::hash_of(self.seq, self.at, &self.event, &self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_nobody_has_the_hash_that_it_always_had() {
        let actor = Actor::commenter("ada");
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
        event.cause.actor.account = Some(AccountId::FIRST);
        let sealed = format!(r#"{},"account":1000000}}"#, sealed.trim_end_matches('}'));
        assert_eq!(hash(&event), Sha256Digest::of(sealed.as_bytes()));
    }
}
