//! Stories with the whole program, real Terraform, real git and an emulated GitHub, as people at a pull request see
//! them.
//!
//! A story performs the actions of people and asserts the results. Every story ends with [`world::World::finish`],
//! which checks everything that must be true at the end of any story. No story waits for time to pass: it waits for a
//! comment, a status, a line of the log, or for Terraform to arrive at one of its [`gates`].

mod apply;
mod checkout;
mod close;
mod crash;
pub mod gates;
mod locks;
mod modules;
mod order;
mod outbox;
mod plan;
mod refusals;
mod reload;
mod secrets;
mod shutdown;
mod stale;
mod state;
mod versions;
mod workflows;
pub mod world;
