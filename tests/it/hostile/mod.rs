//! Attacks: each was tried on an earlier version and succeeded there.

mod args;
mod interop;
mod tools;
