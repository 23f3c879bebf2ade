//! Tests that need the whole program, other programs, or the network of this machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod git;
mod process;
mod support;
