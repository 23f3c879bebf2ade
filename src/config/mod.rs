//! What people configure: the operator the server, a repository its projects.

pub mod access;
pub mod repo;
pub mod server;
