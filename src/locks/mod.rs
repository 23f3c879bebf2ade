//! Rules of locks and their queues, over the rows of `store`.
//!
//! A plan that needs a lock of another pull waits in the queue of the lock. When the lock is released, the first pull in
//! the queue gets it in the same transaction, and is planned automatically. Each lock is first come, first served. A pull
//! keeps its place when it gets a new commit, and loses it with `unlock` or when it is closed.
//!
//! # No two pulls wait for each other forever
//!
//! Pull *a* waits for pull *b* if *b* holds a lock that *a* is queued for, or if *b* is before *a* in that queue. The
//! program keeps this relation free of circles. So there is always a pull that waits for nobody, and each release of its
//! locks lets another pull wait for one pull less. No step can close a circle:
//!
//! - *taking a free lock*: nobody is queued for it, so nobody begins to wait;
//! - *joining queues*: only the newcomer begins to wait. If that would close a circle, the newcomer gives way first: its
//!   locks without an apply go to the first pull in their queue, its places go behind those of the circle, and it joins
//!   these queues again. A lock with an apply cannot be handed over, because the next plan would undo the apply. In that
//!   case the newcomer is not queued, and its comment names the pulls that wait for each other;
//! - *handing over to the first in the queue*: the pulls behind it already waited for the new holder;
//! - *handing over to another pull in the queue* on request: checked first, and refused if it would close a circle;
//! - *leaving, closing, releasing*: some pull waits for less.
//!
//! All steps but the first hold the queue of the repository, so each sees the changes of the others.

mod audit;
mod audit_files;
mod hand_over;
mod idle;
mod lines;
mod sealer;
mod take;

pub use audit::{
    AuditVerdict, ChainFault, KnownLogState, RangeVerdict, VerifiedMark, WholeLog, anchored,
    verify, verify_on,
};
pub use audit_files::{AuditFiles, reseal_audit_keys};
pub use hand_over::{HandOver, HandOverOutcome, HandedOver, KeptReason, hand_over};
pub use idle::{Limit, limit, renew_interval};
pub use sealer::{prune_log, seal_log};
pub use take::{
    LockRequest, NotQueued, QueuedPlan, TakeAll, TakeOutcome, read_queued_plans, take_all,
};
