//! Attacks: each story is one that worked once, played where the hole was.

mod door;
mod forge;
mod git;
mod owners;
mod sandbox;
