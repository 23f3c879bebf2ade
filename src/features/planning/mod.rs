//! Commands of pull requests and applications: plan, apply, import, `state rm`, `version`, `unlock`, `cancel`,
//! `explain` and `help`. Which runs they make, what they refuse, and how they end.
//!
//! | File | Content |
//! |---|---|
//! | `spec.rs` | a command as it is stored |
//! | `jobs/` | the jobs: run a command, cancel commands, plan for a pull request whose turn has come, merge |
//! | `command.rs` | the life of one command, from its row to its reply |
//! | `guards.rs`, `permission.rs` | may the command run on this pull request, and for this user |
//! | `plan.rs`, `apply/`, `state_commands.rs`, `version.rs` | the commands that run a program |
//! | `project_run.rs`, `progress.rs` | the life of one run, the same for all of them |
//! | `projects.rs`, `projects/`, `config_file.rs` | the checkout, and which projects a command concerns |
//! | `command_configs.rs` | stores the configuration of commands whose hooks may have written it |
//! | `needs.rs`, `policies.rs`, `conflicts.rs` | requirements of a project before it is planned or applied |
//! | `policy_checks.rs` | what the policy sets of a project mean for its plan |
//! | `approve_policies.rs`, `withdraw_approvals.rs`, `approvals.rs` | approvals of violations, and what giving and withdrawing them share |
//! | `early.rs` | requests to the forge that are sent together with the one for the pull request |
//! | `seen.rs` | whether the author of a comment can have seen a plan |
//! | `hooks.rs` | hooks before and after a command |
//! | `unlock.rs`, `cancel.rs`, `explain.rs`, `help.rs` | the commands that run nothing |
//! | `turn.rs` | plans for a pull request that was handed a lock it waited for |
//! | `merging.rs` | merges a pull request after its apply |
//! | `interrupted.rs`, `superseded.rs`, `give_up.rs` | commands that a crash, a newer commit or an error ended |
//! | `stop.rs` | how a handler ends early |
//! | `stops.rs` | stops commands that were cancelled on another server |
//! | `tally.rs` | metrics |

mod apply;
mod approvals;
mod approve_policies;
mod cancel;
mod command;
mod command_configs;
mod config_file;
mod conflicts;
mod early;
mod explain;
mod give_up;
mod guards;
mod help;
mod hooks;
mod interrupted;
mod jobs;
mod merging;
mod needs;
mod permission;
mod plan;
mod policies;
mod policy_checks;
mod progress;
mod project_run;
mod projects;
mod seen;
mod spec;
mod state_commands;
mod stop;
mod stops;
mod superseded;
mod tally;
mod turn;
mod unlock;
mod version;
mod withdraw_approvals;

pub use cancel::one as cancel_command;
pub(crate) use cancel::why as cancelled_by;
pub(crate) use command::run;
pub use command_configs::WrittenConfig;
pub(crate) use give_up::give_up;
pub(crate) use guards::other_branch;
pub use jobs::{CancelCommands, MergePull, OfferLock, RunCommand};
pub(crate) use merging::{MergeResult, merge, not_merged};
pub use spec::{CommandSpec, HandedLocks};
pub(crate) use stops::tick as stop_cancelled;
pub(crate) use turn::{begin_turn, give_up_turn};

use super::Feature;
use crate::kit::jobs::JobKind;
use crate::kit::web::Routes;
use command::{CommandCx, PRIVATE, WorkRound, forget, forget_cut_off, headline, log, taken_over};

pub(super) const FEATURE: Feature = Feature {
    routes: Routes::new,
    subcommands: &[],
    reconcilers: &[stops::RECONCILER],
    jobs: &[
        JobKind::of::<RunCommand, _>(),
        JobKind::of::<CancelCommands, _>(),
        JobKind::of::<OfferLock, _>(),
        JobKind::of::<MergePull, _>(),
    ],
};
