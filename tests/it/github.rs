//! GitHub: what its deliveries mean, and its API behind `Forge`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may stop a test where it stands, like the tests do")]

mod app;
mod client;
mod failures;
mod server;
mod tools;
mod webhook;
