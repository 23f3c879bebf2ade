//! Publishes versions from tags of repositories.
//!
//! A reconciler reads the tags of each repository whose owner has a namespace, and publishes those that name a version. It
//! takes a tag to the id of its commit once, and everything else is decided by that id: whether the default branch has the
//! commit, what `lockkeeper.yaml` says, and the files. So nobody can change a tag between the check and the package.
//!
//! Only outcomes that will not change are stored: published, refused by a rule, another content. Everything else, such as a
//! full disk or a forge that is away, is tried again. A refusal is looked at again when something that it depends on has
//! changed: the default branch, the owner, the namespaces, the settings.
//!
//! Nothing here waits in the way of a plan: tags and their files are read without the locks of the mirror (`git/tags.rs`,
//! `git/commit_files.rs`).
//!
//! | File | Content |
//! |---|---|
//! | `reconciler.rs` | reads the tags of repositories, and takes up those that need something |
//! | `scan.rs` | one repository: its tags at one moment, and the outcome of each |
//! | `targets.rs` | the versions that a tag names at its commit |
//! | `publish.rs` | a version of a commit becomes a package |
//! | `statuses.rs` | statuses of the commit |
//! | `store.rs` | tags, their outcomes and their moves, in the database |
//! | `view.rs` | repositories and tags, as people and programs see them |

mod publish;
mod reconciler;
mod scan;
mod statuses;
mod store;
mod targets;
mod view;

pub(super) use self::reconciler::RECONCILER;
pub(super) use self::scan::{list_forge, pause};
pub use self::store::{
    DueTag, SeenTags, TagChanges, TagOutcome, TagPlace, TagSettled, TagState, TagVersion,
    TaggedRepo,
};
pub(super) use self::store::{ListedTag, TagMove};
pub(super) use self::view::{CountedRepo, ShownTag};
