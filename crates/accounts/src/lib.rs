//! The formats of accounts kept in Git: the files of a user branch, external IDs as notes, names of refs, and the rules
//! that a push has to follow. Nothing here reads a file, asks the network or runs git.

pub mod access;
pub mod account_config;
pub mod blobs;
pub mod config_text;
pub mod email;
pub mod external_ids;
pub mod findings;
pub mod notes;
pub mod objects;
pub mod preferences;
pub mod refs;
pub mod ssh_keys;
#[cfg(test)]
mod testing;
pub mod watches;

mod text;
