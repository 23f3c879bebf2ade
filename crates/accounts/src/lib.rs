//! The formats of accounts kept in Git: the files of a user branch, external IDs as notes, names of refs, and the rules
//! that a push has to follow. Nothing here reads a file, asks the network or runs git.

pub mod blobs;
pub mod config_text;
pub mod findings;
pub mod refs;

#[cfg(test)]
mod testing;
mod text;
