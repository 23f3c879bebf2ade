//! Attacks: each story is one that worked once, played where the hole was.

mod args;
mod door;
mod forge;
mod git;
mod interop;
mod owners;
mod profiles;
mod sandbox;
mod shown;
mod tools;
mod web;
