//! Handles events and commands. Handlers decide and return a [`reply::Reply`]; one place posts it.

pub mod applications;
pub mod authz;
pub(crate) mod claimed;
pub mod commands;
pub mod dashboard;
pub mod events;
pub(crate) mod identity;
pub mod locks;
mod queued;
pub mod reconcile;
pub(crate) mod reply;
mod spec;
mod statuses;
mod tally;

pub use spec::{CommandSpec, HandedLocks};
