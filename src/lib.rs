//! Lockkeeper runs Terraform and OpenTofu from pull requests and keeps the locks.
//!
//! `docs/architecture.md` describes the modules and their allowed imports. The test `imports_only_go_down` holds the
//! table.

pub mod app;
pub mod atlantis;
pub mod authz;
pub(crate) mod boxed;
pub mod claims;
pub mod cli;
pub mod context;
pub mod credential;
pub mod features;
pub mod forges;
pub mod git;
pub mod http;
pub mod kit;
pub mod leases;
pub mod locks;
pub mod objects;
pub mod process;
pub mod queue;
pub mod seal;
pub mod store;
pub mod sync;
pub mod telemetry;
pub mod workflow;

pub use lockkeeper_emulator as emulator;
pub use lockkeeper_model::{clock, errors, model, secret};
pub use lockkeeper_rules::{command, config, discovery, render};
