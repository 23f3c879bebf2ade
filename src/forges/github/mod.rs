//! Connects to GitHub: github.com, GitHub Enterprise Cloud with data residency (`*.ghe.com`) and GitHub Enterprise
//! Server.
//!
//! [`webhook`] recognises, verifies and parses deliveries, behind [`super::WebhookSource`]. [`client`] is the REST API
//! behind [`super::Forge`]. Only these modules know GitHub's field names.

pub mod client;
pub mod webhook;

pub use client::{
    GitHub, GitHubAuth, GitHubEndpoints, GitHubSetupError, InvalidEndpoint, Timeouts, TokenSource,
};
pub use webhook::GitHubWebhook;
