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
