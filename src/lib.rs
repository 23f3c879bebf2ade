//! Lockkeeper runs Terraform and OpenTofu from pull requests and keeps the locks.
//!
//! `docs/architecture.md` describes the modules and their allowed imports. The test `imports_only_go_down` holds the
//! table.
//!
//! Rules without input or output are crates of their own, so that they build without the server:
//!
//! | Search for | Look in |
//! |---|---|
//! | what a plan comment or a status says | `crates/rules/src/render/`, `templates/comments/` |
//! | a setting of the server, a key of a file | `crates/rules/src/config/server/`, `crates/rules/src/config/` |
//! | commands of comments, discovery of projects | `crates/rules/src/command/`, `crates/rules/src/discovery/` |
//! | policies, accounts in Git, the registry's log | `crates/policy/`, `crates/accounts/`, `crates/registry/` |
//! | nouns such as locks, pulls and plans | `crates/model/src/model/` |

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
