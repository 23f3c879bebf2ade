//! Lockkeeper runs Terraform and OpenTofu from pull requests and keeps the locks.
//!
//! `docs/architecture.md` describes the modules and their allowed imports. The test `imports_only_go_down` holds the
//! table.

pub mod app;
pub mod atlantis;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod context;
pub mod credential;
pub mod discovery;
pub mod emulator;
pub mod errors;
pub mod features;
pub mod git;
pub mod handlers;
pub mod http;
pub mod jobs;
pub mod kit;
pub mod leases;
pub mod locks;
pub mod model;
pub mod process;
pub mod queue;
pub mod render;
pub mod seal;
pub mod secret;
pub mod store;
pub mod sync;
pub mod telemetry;
pub mod vcs;
pub mod workflow;
