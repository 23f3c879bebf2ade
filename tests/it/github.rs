//! GitHub: what its deliveries mean, and its API behind `Forge`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may stop a test where it stands, like the tests do")]

mod app;
mod client;
mod failures;
#[path = "support/github_server.rs"]
mod server;
#[path = "support/github_tools.rs"]
mod tools;
mod webhook;
