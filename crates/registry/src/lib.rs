//! The rules and formats of the registry of modules: names and versions, records and their log, the merge with another
//! deployment, and the packages of Terraform and Go modules. Nothing here opens a file, asks the network, runs git or
//! knows a database.
//!
//! # Invariants
//!
//! Comments cite the invariants of the registry by number.
//!
//! - **R1** A version that was served once is served byte for byte, or not at all.
//! - **R2** A change of state and its record are one transaction, and IDs have no gaps.
//! - **R3** A version goes absent → added → deprecated → deleted and never back, so merging logs in any order, however
//!   often, ends the same.
//! - **R4** Nothing is offered whose checksum is not the recorded one.
//! - **R5** The log is a Merkle tree: nobody changes the past unseen.
//! - **R6** Nothing from outside stands in for a name that somebody here owns.
//! - **R7** Any number of requests for what is missing start one fill.
//! - **R8** When peers are away, everything that is here is served as before.
//!
//! # Parts
//!
//! - [`names`] and [`versions`] decide which texts name a module and a version of it.
//! - [`records`] are the lines of the log, [`tlog`] is the Merkle tree over them, and [`signed_note`] has the keys and
//!   the signed heads. The formats are those of Go's checksum database, so the `go` command verifies the log (R5).
//! - [`states`] and [`merge`] determine what a record changes (R3).
//! - [`tf_archive`] and [`go_zip`] make packages from a [`tree`] and read uploaded ones within [`limits`], with
//!   [`go_mod`] for the one file that Go interprets. [`dirhash`] is the checksum that both kinds of packages have (R4),
//!   and [`paths`] has the rules for names of files.
//! - [`tags`] determine the versions that tags of a repository name, and [`git_archive`] reads the files of their commits.
//!
//! Everything that is read may come from a hostile peer or upload: readers bound memory and time and never panic.

pub mod dirhash;
mod encoding;
pub mod git_archive;
pub mod go_mod;
pub mod go_zip;
pub mod limits;
pub mod merge;
pub mod names;
pub mod paths;
pub mod records;
pub mod signed_note;
pub mod states;
pub mod tags;
#[cfg(test)]
mod testing;
pub mod tf_archive;
pub mod tlog;
pub mod tree;
pub mod versions;
