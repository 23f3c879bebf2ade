//! Attacks that succeeded once: each is tried again here, and fails.

mod forge;
