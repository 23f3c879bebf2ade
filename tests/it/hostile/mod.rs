//! Attacks: each story is one that worked once, played against the real program.

mod sandbox;
