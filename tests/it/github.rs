//! Tests of GitHub: the meaning of its deliveries, and its API behind `Forge`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may stop a test where it stands, like the tests do"
)]

mod annotations;
mod app;
mod appflow;
mod client;
mod emulate;
mod failures;
mod limits;
mod merging;
mod permissions;
mod relay;
mod reviews;
mod server;
mod teams;
mod tools;
mod webhook;
