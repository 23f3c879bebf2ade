//! The jobs of commands, one file each.

mod cancel_commands;
mod merge_pull;
mod run_command;
mod take_turn;

pub use cancel_commands::CancelCommands;
pub use merge_pull::MergePull;
pub use run_command::RunCommand;
pub use take_turn::OfferLock;
