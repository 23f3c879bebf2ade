//! The rules of the registry of modules: names and versions, the records of its log, and the changes that a merge with
//! another deployment makes. Nothing here reads a file, asks the network or knows a database.
//!
//! Comments quote two invariants of the registry. **R3**: a version goes absent → added → deprecated → deleted and never
//! back. **R6**: nothing from outside stands in for a name that somebody here owns.

pub mod dirhash;
pub mod go_mod;
pub mod go_zip;
pub mod limits;
pub mod merge;
pub mod names;
pub mod paths;
pub mod records;
pub mod signed_note;
pub mod states;
#[cfg(test)]
mod testing;
pub mod tf_archive;
pub mod tlog;
pub mod tree;
pub mod versions;
