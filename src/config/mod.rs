//! What people configure: the operator the server and its repositories, a repository its projects.

pub mod access;
mod duration;
mod lock_block;
mod overrides;
pub mod repo;
pub mod repos;
pub mod server;
pub mod size;
mod yaml;

pub use duration::parse_duration;
