//! Builds all services from the configuration, runs the loops, and shuts down gracefully.

mod accounts;
mod build;
mod connections;
mod descriptors;
mod environment;
mod loops;
mod news;
mod reload;
mod replica;
mod sandbox;
mod serve;
mod server;
mod tls;
mod web;
mod webhooks;

pub(crate) use build::own_dir;
pub use build::{ServiceInputs, build, build_on};
pub use replica::Replica;
pub use serve::{Signals, serve};
pub use server::{ProcessFacts, Server};
pub use web::router;
