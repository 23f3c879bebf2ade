//! GitHub: github.com, GitHub Enterprise Cloud with data residency (`*.ghe.com`) and GitHub Enterprise Server.
//!
//! [`webhook`] is the door's two pure questions (is it signed, what does it mean); [`client`] is the REST API behind
//! [`super::Forge`]. Both know GitHub's field names so that nothing above has to.

pub mod client;
pub mod webhook;

pub use client::{
    GitHub, GitHubAuth, GitHubEndpoints, GitHubSetupError, InvalidEndpoint, Timeouts, TokenSource,
};
