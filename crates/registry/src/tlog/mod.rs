//! A Merkle tree over the records of a log, in the form of Go's checksum database.
//!
//! Hashes and proofs follow RFC 6962. Every hash of a complete subtree is stored once, in the order in which it becomes
//! known, so that a log only appends to its stored hashes. Clients read them as tiles and check all that they use.
//!
//! `golang.org/x/mod/sumdb/tlog` is the reference, and the vectors of the tests come from it. The `go` command proves
//! with the same code that this log contains a record and that nobody changed its past.

mod edge;
mod hash;
mod text;
mod tile;
mod tree;

pub use self::edge::TreeEdge;
pub use self::hash::{
    LogHash, node_hash, record_hash, split_stored_hash_index, stored_hash_count, stored_hash_index,
};
pub use self::text::{
    TreeHead, format_data_record, format_record, parse_data_record, parse_record,
};
pub use self::tile::{TILE_HEIGHT, Tile, TileLevel, hash_from_tile, new_tiles};
pub use self::tree::{
    HashQuery, check_record, check_tree, prove_record, prove_tree, stored_hashes, tree_hash,
};

/// Maximum number of records of a log, which is that of Go.
pub const MAX_SIZE: u64 = i64::MAX.unsigned_abs();

/// A request to a log that has no answer, or data that does not belong to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlogError {
    /// A size is larger than [`MAX_SIZE`].
    #[error("a log of {0} records is too large")]
    TooLarge(u64),
    /// The tree does not have this record. Records are counted from 0.
    #[error("a log of {size} records has no record {record}")]
    NoRecord {
        /// Number of the record.
        record: u64,
        /// Number of records of the tree.
        size: u64,
    },
    /// The older tree is empty, or larger than the newer one.
    #[error("a log of {size} records cannot be compared with one of {old}")]
    NotOlder {
        /// Number of records of the older tree.
        old: u64,
        /// Number of records of the newer tree.
        size: u64,
    },
    /// The reader of stored hashes returned too many or too few.
    #[error("{found} stored hashes were read instead of {expected}")]
    HashCount {
        /// Number of requested hashes.
        expected: usize,
        /// Number of returned hashes.
        found: usize,
    },
    /// A proof does not lead from one hash to the other.
    #[error("the proof does not fit the tree")]
    ProofFailed,
    /// The tree does not have this tile, or a hash is not in it.
    #[error("`{0}` does not have the requested hashes")]
    NotInTile(String),
    /// Coordinates are out of range, or a path does not name a tile in the one way it can be written.
    #[error("not a tile")]
    BadTile,
    /// A text is not the base64 form of 32 bytes.
    #[error("not a hash")]
    BadHash,
    /// A text is not the head of a tree.
    #[error("not the head of a log")]
    BadHead,
    /// A record has no text, an empty line, control characters or no end.
    #[error("not the text of a record")]
    BadRecord,
}

/// Checks that the indexes of all stored hashes of a tree are numbers of 64 bits.
fn check_size(size: u64) -> Result<(), TlogError> {
    if size > MAX_SIZE {
        return Err(TlogError::TooLarge(size));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
