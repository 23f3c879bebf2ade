//! Who holds which lock, and who waits for it: the rules over the rows of `store`.
//!
//! A plan that meets a lock of another pull waits in line for it. When the lock is freed it goes to the first in line,
//! in the same transaction, and that pull is planned by itself. First come, first served, per lock; a new commit keeps
//! the place, `unlock` and closing give it up.
//!
//! # No two pulls wait for each other for ever
//!
//! Pull *a* waits for pull *b* if *b* holds a lock that *a* is in line for, or stands in that line before *a*. The
//! program keeps this relation free of circles, so there is always a pull that waits for nobody; when its locks are
//! freed, somebody else waits for one pull less. Why no step can close a circle:
//!
//! - *taking a free lock*: nobody is in line for it, so nobody begins to wait;
//! - *lining up*: the newcomer alone begins to wait. If that closed a circle, the newcomer gives way first: locks of it
//!   under which nothing was applied yet go to the first in their line, places in lines go behind those who are in the
//!   circle, and it lines up for them anew. Where something was applied already, the lock cannot be given away (the
//!   next plan would undo it), so the newcomer is not lined up, and is told which pulls stand in each other's way;
//! - *handing on to the first in line*: whoever is behind waited for the new holder already;
//! - *handing over to another in line*, which people can ask for: looked at first, and refused if it closed a circle;
//! - *leaving, closing, releasing*: somebody waits for less.
//!
//! All steps but the first hold the line of the repository, so each sees what the others did.

mod audit;
mod audit_files;
mod give;
mod idle;
mod lines;
mod sealer;
mod take;

pub use audit::{Evidence, Fault, Mark, Stretch, Verdict, Whole, anchored, verify, verify_on};
pub use audit_files::{AuditFiles, reseal_audit_keys};
pub use give::{Gave, Given, Giving, WhyNot, give};
pub use idle::{Limit, grain, limit};
pub use sealer::{prune_log, seal_log};
pub use take::{Ask, NotInLine, TakeAll, Took, Wish, ask_list, take_all};
