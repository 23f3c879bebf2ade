//! Attacks: each story worked once, and is played where the hole was.

mod args;
mod backends;
mod forge;
mod git;
mod hints;
mod hosts;
mod interop;
mod limits;
mod old_kernels;
mod owners;
mod prepared;
mod profiles;
mod sandbox;
mod secrets;
mod shown;
mod tools;
mod web;
mod webhooks;

/// Returns the settings of attacked servers. They run as an ordinary user, regardless of the user of the tests.
/// Stories about root say so.
fn ordinary() -> crate::support::server::Settings {
    crate::support::server::Settings::default().without_privileges()
}
