//! Tests that need the whole program, other programs, or the network of this machine.

mod process;
