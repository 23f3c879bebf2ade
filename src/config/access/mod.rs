//! Who may do what: the words for it, and the rules that can be decided without asking anybody.
//!
//! An [`Action`] is what a rule can give, an [`Identity`] is who wants it, [`TeamRules`] are the rules for people of the
//! forge (`--gh-team-allowlist`, reference 1.8), [`WebRules`] those for whoever uses the pages and the API
//! (`--web-allow`), and [`WebAccounts`] say who of these is limited to owners (`--web-accounts-file`). `handlers::authz`
//! puts them together with what the forge knows of teams; nobody else decides.

mod accounts;
mod action;
mod identity;
mod teams;
mod web;

pub use accounts::{AccountFault, InvalidAccounts, Standing, WebAccount, WebAccounts};
pub use action::Action;
pub use identity::{Account, Asker, Identity, NOBODY};
pub use teams::{Grantees, InvalidTeamRule, TeamRules};
pub use web::{InvalidWebRule, WebRules};

/// A program of the operator that decides in place of the list of teams (`team_authz` of the server-side
/// configuration, reference 5.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamAuthz {
    /// The program: a path, or a name on the `PATH`. Not a line for a shell.
    pub command: String,
    /// What it is given before the arguments of the protocol.
    pub args: Vec<String>,
}
