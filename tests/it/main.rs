//! Tests that need the whole program, other programs, or the network of this machine, in one binary.

#![expect(
    clippy::unwrap_used,
    reason = "an unexpected error fails the test, here and in the helpers of tests"
)]

mod accounts;
mod accounts_api;
mod accounts_git;
mod architecture;
mod browser;
mod chaos;
mod check;
mod demo;
mod e2e;
mod emulator;
mod forge_contract;
mod fuzz;
mod git;
mod github;
mod hostile;
mod import;
mod leases;
mod pages;
mod policies;
mod process;
mod providers;
mod registry;
mod store;
mod stories;
mod support;
mod upgrade;

/// Reserves the descriptor for secrets before the test harness opens a file, as `main` of the server does. Without it,
/// git starts with `fork`, which copies the page tables of this large process.
#[expect(unsafe_code, reason = "nothing else runs before the test harness")]
#[used]
#[unsafe(link_section = ".init_array")]
static RESERVE: extern "C" fn() = reserve;

extern "C" fn reserve() {
    lockkeeper::process::reserve_secret_fd();
}
