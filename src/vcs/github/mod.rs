//! Connects to GitHub: github.com, GitHub Enterprise Cloud with data residency (`*.ghe.com`) and GitHub Enterprise
//! Server.
//!
//! [`webhook`] contains the pure functions of the webhook endpoint: they check signatures and parse deliveries.
//! [`client`] is the REST API behind [`super::Forge`]. Only these modules know GitHub's field names.

pub mod client;
pub mod webhook;

pub use client::{
    GitHub, GitHubAuth, GitHubEndpoints, GitHubSetupError, InvalidEndpoint, Timeouts, TokenSource,
};
