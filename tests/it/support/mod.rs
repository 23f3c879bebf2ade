//! Support code of the tests. Each kind has a file; `main.rs` and this file stay plain lists of modules.

pub mod accounts;
pub mod accounts_fixture;
pub mod bot;
pub mod db;
pub mod gerrit;
pub mod git_http;
pub mod installed;
pub mod log;
pub mod object_store;
pub mod openapi;
pub mod panics;
pub mod postgres;
pub mod program;
pub mod redis;
pub mod rows;
pub mod server;
pub mod sshd;
