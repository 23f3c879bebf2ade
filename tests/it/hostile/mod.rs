//! Attacks that worked once, each as a story that fails where the hole is open.

mod owners;
