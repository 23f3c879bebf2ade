//! Accounts of people, kept in a Git repository that is called `All-Users` (`docs/accounts.md`). The formats and their
//! rules are in [`lockkeeper_accounts`].
//!
//! | File | Content |
//! |---|---|
//! | `store.rs` | objects, refs, and the rows that are derived from them |
//! | `update.rs` | an update is stored in one transaction |
//! | `all_users.rs` | updates: read the state, edit it, store everything in one transaction |
//! | `actions.rs` | what people do with accounts |
//! | `access.rs` | groups, and what accounts may do to others |
//! | `forge_users.rs` | accounts of people on forges |
//! | `stars.rs` | stars, and the numbers of changes |
//! | `patch_sets.rs` | the heads of changes by number |
//! | `flags.rs` | reviewed flags |
//! | `import.rs` | an empty server is filled from a copy |
//! | `wanted.rs` | the rows that the tables should have |
//! | `reindex.rs` | tables against branches |
//! | `query.rs`, `search.rs` | queries for accounts |
//! | `sign_in.rs` | people and programs sign in with an HTTP password |
//! | `verified.rs` | passwords are checked, and right ones remembered |
//! | `web_accounts.rs` | users of `--web-accounts-file` become accounts |
//! | `web_passwords.rs` | HTTP passwords at the pages and the API of the bot |
//! | `api/` | `/api/accounts/…`, and the flags below `/api/changes/` and `/api/plans/` |
//! | `git/` | `All-Users` for git clients |
//! | `copy.rs` | all accounts of a copy |
//! | `check.rs` | every rule, applied to a copy |
//! | `checking.rs` | the reconciler that checks all accounts |
//! | `view.rs` | an account as JSON |
//! | `cli/` | `lockkeeper accounts`, `lockkeeper reindex` |

mod access;
mod actions;
mod all_users;
mod api;
mod check;
mod checking;
mod cli;
mod copy;
mod flags;
mod forge_users;
mod git;
mod import;
mod patch_sets;
mod query;
mod reindex;
mod search;
mod sign_in;
mod stars;
mod store;
mod update;
mod verified;
mod view;
mod wanted;
mod web_accounts;
mod web_passwords;

pub use flags::{
    FlagCount, FlagSet, FlagTable, Reviewed, ReviewedFlags, open_flags, remove_orphaned_flags,
};
pub(crate) use forge_users::{inactive_reply, of_forge_user};
pub use patch_sets::{PatchSet, PatchSetName};
pub use stars::{SeenChange, StarredChange};
pub use store::AccountRow;

pub use actions::{LabelChanges, NewAccount};
pub use all_users::{AccountsActor, AccountsError, AllUsers, SignedInAccount};
pub(crate) use api::routes as api_routes;
pub(crate) use git::{ACCOUNTS_DIR, AccountsGit, routes as git_routes};
pub use git::{InvalidPush, PushCommand, PushRequest};
pub(crate) use sign_in::AccountSignIn;
pub(crate) use view::AccountJson;
pub use web_passwords::WebPasswords;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::Routes;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[
        Subcommand::of::<cli::AccountsArgs>("accounts"),
        Subcommand::of::<cli::ReindexArgs>("reindex"),
    ],
    reconcilers: &[
        checking::RECONCILER,
        flags::RECONCILER,
        git::CACHE_RECONCILER,
        git::MIRROR_RECONCILER,
    ],
    jobs: &[],
};
