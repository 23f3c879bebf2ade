//! Policies on the command line, for their authors. Policy checks of pull requests are in `features/planning` and
//! `workflow/policies`.
//!
//! | File | Content |
//! |---|---|
//! | `cli.rs` | `lockkeeper policy` |

mod cli;

use super::Feature;
use crate::kit::term::Subcommand;
use crate::kit::web::Routes;

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[Subcommand::of::<cli::PolicyArgs>("policy")],
    reconcilers: &[],
    jobs: &[],
};
