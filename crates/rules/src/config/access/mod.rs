//! Access rules: their words, and the decisions that need no request to a forge.
//!
//! A rule permits an [`Action`] to an [`Identity`]. [`TeamRules`] are the rules for people of the forge
//! (`--gh-team-allowlist`, reference 1.8). [`WebRules`] are the rules for users of the pages and the API
//! (`--web-allow`). [`WebAccounts`] are the accounts that are limited to owners (`--web-accounts-file`).
//! `authz` combines these rules with the teams that the forge reports. No other module decides about
//! access.

mod accounts;
mod action;
mod identity;
mod teams;
mod web;

pub use accounts::{AccessScope, AccountFault, InvalidAccounts, WebAccount, WebAccounts, WebProof};
pub use action::Action;
pub use identity::{Account, Identity, NOBODY, NamedRequester, NetworkRequester};
pub use teams::{Grantees, InvalidTeamRule, TeamRules};
pub use web::{InvalidWebRule, WebRules};

/// A program of the administrator that replaces the list of teams (`team_authz` of the server-side configuration,
/// reference 5.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamAuthz {
    /// The program: a path, or a name on the `PATH`. A shell does not parse it.
    pub command: String,
    /// Arguments before those of the protocol.
    pub args: Vec<String>,
}
