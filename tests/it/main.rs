//! Tests that need the whole program, other programs, or the network of this machine, in one binary.

mod architecture;
mod emulator;
mod github;
mod process;
mod store;
mod stories;
mod support;
