//! Hashes of records and nodes, and the order in which they are stored.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use super::TlogError;
use crate::encoding::{base64, from_base64};

/// SHA-256 of a record, a node or a tree. The text form is base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogHash([u8; Self::LEN]);

impl LogHash {
    /// Number of bytes of a hash.
    pub const LEN: usize = 32;

    /// Hash of the tree without records: SHA-256 of nothing.
    pub const EMPTY_TREE: Self = Self([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ]);

    /// Takes the bytes of a stored hash.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a database or a tile.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for LogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64(&self.0))
    }
}

impl fmt::Debug for LogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogHash({self})")
    }
}

impl FromStr for LogHash {
    type Err = TlogError;

    fn from_str(text: &str) -> Result<Self, TlogError> {
        from_base64(text).map(Self).ok_or(TlogError::BadHash)
    }
}

/// Returns the hash of the text of a record.
pub fn record_hash(text: &[u8]) -> LogHash {
    let mut hash = Sha256::new_with_prefix([0]);
    hash.update(text);
    LogHash(hash.finalize().into())
}

/// Returns the hash of the node above two subtrees.
pub fn node_hash(left: &LogHash, right: &LogHash) -> LogHash {
    let mut hash = Sha256::new_with_prefix([1]);
    hash.update(left.0);
    hash.update(right.0);
    LogHash(hash.finalize().into())
}

/// Returns the place, among the stored hashes, of the hash number `n` of a level. Level 0 has the hashes of records.
///
/// # Panics
///
/// If the subtree below the hash is not within the first [`MAX_SIZE`](super::MAX_SIZE) records.
pub fn stored_hash_index(level: u8, n: u64) -> u64 {
    // A hash is stored once the last record below it is, after the hashes of the levels below.
    let last_record = (u128::from(n) + 1) << level.min(64);
    let last_record = u64::try_from(last_record - 1)
        .ok()
        .filter(|last| *last < super::MAX_SIZE)
        .expect("the subtree is part of a log");
    stored_hash_count(last_record) + u64::from(level)
}

/// Returns the level and the number of the hash at this place among the stored hashes: the inverse of
/// [`stored_hash_index`].
pub fn split_stored_hash_index(index: u64) -> (u8, u64) {
    // The record that was added with this hash is one of the 64 from here on.
    let mut record = index / 2;
    let mut start = stored_hash_count(record);
    while let Some(next) = start.checked_add(1 + u64::from((record + 1).trailing_zeros()))
        && next <= index
    {
        record += 1;
        start = next;
    }
    let level = level_number(index - start);
    (level, record >> level)
}

/// Returns the number of stored hashes of a log with `size` records.
pub fn stored_hash_count(size: u64) -> u64 {
    // A subtree of 2^k records has 2^(k+1) - 1 nodes, and each bit of the size is one such subtree. In this order the
    // sum passes 64 bits only if the size does not fit into 63.
    size - u64::from(size.count_ones()) + size
}

/// Returns the number of a level. A tree has at most 64 levels.
pub(super) fn level_number(level: impl TryInto<u8>) -> u8 {
    level.try_into().ok().expect("a tree has at most 64 levels")
}
