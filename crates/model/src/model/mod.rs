//! The nouns of `docs/glossary.md` as types. Only constructors normalise, and no type does I/O.

mod actor;
mod annotation;
mod application;
mod apply_lock;
mod comment;
mod concern;
mod event;
mod forge_repo;
mod ids;
mod lock;
mod lock_event;
mod lock_mode;
mod lock_name;
mod merge_method;
mod mirror;
mod moment;
mod outcome;
mod owner;
mod path;
mod person;
mod plan;
mod plan_changes;
mod project;
mod pull;
mod rate_scope;
mod reason;
mod repo;
mod repo_url;
mod requirement;
mod review;
mod run_user;
mod status;
mod text;
mod words;

pub use actor::{Actor, Origin};
pub use annotation::{AnnotationLevel, AnnotationSet, LineAnnotation};
pub use application::{
    ApplicationChange, ApplicationField, ApplicationFields, ApplicationProblem, ApplicationSpec,
};
pub use apply_lock::{ApplyLock, ApplyScope};
pub use comment::CommentId;
pub use concern::{Concern, InvalidConcern};
pub use event::{CommentEvent, Event, PullAction, PullEvent, RepositoryChange};
pub use forge_repo::ForgeRepo;
pub use ids::{
    ApplicationId, ApplyLockId, ClaimId, CommandId, CredentialId, DeliveryId, JobId, LockId,
    OwnerId, PlanId, RunId,
};
pub use lock::{Lock, LockKey, LockUse, Waiter};
pub use lock_event::{Cause, ChainLink, ChainedEvent, LockEvent, LockEventKind, NewLockEvent};
pub use lock_mode::{LockMode, LockScope};
pub use lock_name::{InvalidLockName, LockName, MatchQuality};
pub use merge_method::{MergeMethod, UnknownMethod};
pub use mirror::{
    AttemptLease, DataDirId, FailureKind, InvalidDataDirId, Jitter, MirrorEvent, MirrorState,
    NotAllowed, RepositoryEventKind, SyncFacts, SyncFailure, SyncRequest, SyncState, Verification,
};
pub use moment::minute;
pub use outcome::{CommandKind, CommandOutcome, ProjectOutcome, RunKind};
pub use owner::{InvalidOwnerName, OwnerName, Rights};
pub use path::{InvalidPath, RepoPath};
pub use person::{AccountId, InvalidNumber, NamedAccount, Person};
pub use plan::{Distribution, PlanCounts, PlanRecord, PlanState, Sha256Digest};
pub use plan_changes::{PlanChanges, PlannedAction, ResourceChange};
pub use project::{InvalidName, ProjectKey, ProjectName, WorkspaceName};
pub use pull::{
    BranchName, ChangeKind, ChangedFile, CommitSha, InvalidRef, Pull, PullHead, PullNumber,
    PullRef, PullState, Subject,
};
pub use rate_scope::{RateScope, Traffic};
pub use reason::{InvalidReason, Reason};
pub use repo::{HostName, InvalidRepo, RepoId};
pub use repo_url::{ForgeHosts, InvalidRepoUrl, RepoUrl, RepoUrlFault};
pub use requirement::Requirement;
pub use review::{Approval, CheckState, IgnoredStatuses, MergeObstacle, Mergeability};
pub use run_user::{InvalidUser, RunUser};
pub use status::{CommitState, CommitStatus, StatusContext, StatusTarget};
pub use text::{text_enum, text_type};
pub use words::{code_span, is_hidden, literal_dir, quote, read_literal_dir, without_backticks};
