//! Tests that need the whole program, other programs, or the network of this machine, in one binary.

mod github;
mod process;
