//! What people configure: the operator the server and its repositories, a repository its projects.

mod duration;
mod lock_block;
mod overrides;
pub mod repo;
pub mod repos;
pub mod server;
mod yaml;
