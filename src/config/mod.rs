//! What operators and repositories may decide, checked once and turned into types. Nothing here reads
//! a file, the environment or a clock: the texts are handed in.

pub mod server;
