//! Handles events and commands. Handlers decide and return a [`reply::Reply`]; one place posts it.

pub mod applications;
pub mod authz;
pub(crate) mod claimed;
pub mod commands;
pub mod dashboard;
pub mod events;
pub(crate) mod identity;
mod in_line;
pub mod locks;
pub mod reconcile;
pub(crate) mod reply;
mod spec;
mod standing;
mod tally;

pub use spec::{CommandSpec, HandedLocks};
