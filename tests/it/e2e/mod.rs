//! The whole program with real Terraform, real git and an emulated GitHub: what people at a pull request see.
//!
//! A story says what people do and asserts what they get. Every story ends with [`world::World::finish`], which holds
//! the server to what must be true at the end of any story. Nothing waits for time to pass: a story waits for a comment,
//! a status, a line of the log, or for Terraform to arrive at a [`gates`] of the story's own.

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
