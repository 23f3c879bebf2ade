//! Tests that need the whole program, other programs, or the network of this machine, in one binary.

mod architecture;
mod e2e;
mod emulator;
mod github;
mod process;
// mod store;
mod support;
