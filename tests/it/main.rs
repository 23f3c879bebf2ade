//! Tests that need the whole program, other programs, or the network of this machine.

mod git;
mod process;
mod support;
