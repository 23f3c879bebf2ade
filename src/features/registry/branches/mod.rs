//! Names of the registry that the default branches of repositories use: in calls of Terraform modules, and in `go.mod`
//! files.
//!
//! A plan tells exactly what it uses (`runs/`), but only where somebody has opened a pull request. The default branch tells
//! it for all repositories that are mirrored, with the versions that the code allows. A repository is looked at after each
//! sync of its mirror, and nothing is read while its head stays the same. Nothing here waits in the way of a plan.
//!
//! Rows go with the mirror of their repository. What is known about tags goes with the claim of theirs, except what they
//! have published.
//!
//! | File | Content |
//! |---|---|
//! | `reconciler.rs` | looks at repositories that are due, and forgets those that are gone |
//! | `read.rs` | uses in the files of a commit |
//! | `store.rs` | uses in the database |

mod read;
mod reconciler;
mod store;

pub(super) use self::reconciler::RECONCILER;
pub use self::store::{BranchReading, BranchUse, BranchUseLimits, ListedBranchUse, WatchedBranch};
