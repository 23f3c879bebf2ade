//! Configuration: the administrator configures the server and its repositories, and a repository its projects.

pub mod access;
mod branch;
mod duration;
mod hook;
mod lists;
mod lock_block;
mod mirror_filter;
pub mod needs;
mod overrides;
mod permissions;
pub mod repo;
pub mod repos;
pub mod server;
pub mod size;
mod text;
pub mod variables;
pub mod workflow;
mod yaml;

pub use branch::BranchFilter;
pub use duration::parse_duration;
pub use hook::Hook;
pub use mirror_filter::{InvalidFilter, MirrorFilter};
pub use permissions::RepoPermissions;
pub use text::{NotUtf8, read_text, text_of};

#[cfg(test)]
mod generated_docs;
#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod reference;
