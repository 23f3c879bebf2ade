//! Attacks: each story is one that worked once, played where the hole was.

mod args;
mod door;
mod forge;
mod git;
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

/// How the attacked servers are started: as an ordinary user, whoever runs the tests. Stories that are about root say so.
fn ordinary() -> crate::support::server::Settings {
    crate::support::server::Settings::default().without_privileges()
}
