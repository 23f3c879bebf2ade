//! Tests that need the whole program, other programs, or the network of this machine, in one binary.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test, here and in the helpers of tests")]
#![expect(
    dead_code,
    unused_imports,
    reason = "the stories of crashes and of the door, which use the rest of the harness, come next"
)]
#![expect(unused_must_use, dropping_copy_types, reason = "a story may let go of what a tick did")]
#![expect(
    clippy::disallowed_methods,
    clippy::duration_suboptimal_units,
    clippy::explicit_auto_deref,
    clippy::unused_self,
    clippy::wrong_self_convention,
    reason = "tests of the real program use the machine's clock, and helpers read as sentences"
)]

mod architecture;
mod demo;
mod e2e;
mod emulator;
mod git;
mod github;
mod pages;
mod process;
mod store;
mod stories;
mod support;
