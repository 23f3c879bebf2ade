//! Accounts of people, kept in a Git repository that is called `All-Users` (`docs/accounts.md`). The formats and their
//! rules are in [`lockkeeper_accounts`].
//!
//! This version reads copies of such a repository. The server does not keep accounts there yet.
//!
//! | File | Content |
//! |---|---|
//! | `copy.rs` | all accounts of a copy |
//! | `check.rs` | every rule, applied to a copy |
//! | `view.rs` | an account as JSON |
//! | `cli.rs` | `lockkeeper accounts` |

mod check;
mod cli;
mod copy;
mod view;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::Routes;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[Subcommand::of::<cli::AccountsArgs>("accounts")],
    reconcilers: &[],
    jobs: &[],
};
