//! Builds everything from the configuration, turns the loops, and ends in good order.

mod build;
mod loops;
mod replica;
mod serve;

pub use build::{Parts, build, build_on};
pub use replica::Replica;
pub use serve::{Surroundings, serve};
