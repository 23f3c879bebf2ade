//! The right edge of a tree: everything that is needed to add records and to compute the root.
//!
//! A deployment that follows the log of another one stores the edge instead of the tree. It has one hash for each bit of
//! the size, so it stays small.

use std::fmt;
use std::str::FromStr;

use super::hash::{LogHash, node_hash};
use super::{MAX_SIZE, TlogError, TreeHead};

/// Hashes of the complete subtrees that make up a tree, from left to right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeEdge {
    size: u64,
    subtrees: Vec<LogHash>,
}

impl TreeEdge {
    /// Returns the number of records of the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds the hash of the next record.
    pub fn add(&mut self, leaf: LogHash) -> Result<(), TlogError> {
        if self.size >= MAX_SIZE {
            return Err(TlogError::TooLarge(self.size));
        }
        // Every trailing 1 of the size is a subtree that becomes the left side of a larger one.
        let mut top = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.subtrees.pop() {
                top = node_hash(&left, &top);
            }
        }
        self.subtrees.push(top);
        self.size += 1;
        Ok(())
    }

    /// Returns size and root of the tree.
    pub fn head(&self) -> TreeHead {
        let right_to_left = self.subtrees.iter().rev().copied();
        let root = right_to_left.reduce(|right, left| node_hash(&left, &right));
        TreeHead {
            size: self.size,
            root: root.unwrap_or(LogHash::EMPTY_TREE),
        }
    }
}

impl fmt::Display for TreeEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.size)?;
        for hash in &self.subtrees {
            write!(f, " {hash}")?;
        }
        Ok(())
    }
}

impl FromStr for TreeEdge {
    type Err = TlogError;

    fn from_str(text: &str) -> Result<Self, TlogError> {
        let mut words = text.split(' ');
        let size = words.next().unwrap_or_default();
        let size = size.parse().ok().filter(|size| *size <= MAX_SIZE);
        let size: u64 = size.ok_or(TlogError::BadHead)?;
        let subtrees: Vec<LogHash> = words.map(str::parse).collect::<Result<_, _>>()?;
        let edge = Self { size, subtrees };
        let is_whole = u32::try_from(edge.subtrees.len()) == Ok(size.count_ones());
        if is_whole && edge.to_string() == text {
            Ok(edge)
        } else {
            Err(TlogError::BadHead)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{record_hash, stored_hashes, tree_hash};
    use super::*;

    #[test]
    fn an_edge_has_the_root_of_the_whole_tree() {
        let mut edge = TreeEdge::default();
        assert_eq!(edge.head().root, LogHash::EMPTY_TREE);
        let mut stored: Vec<LogHash> = Vec::new();
        let read = |stored: &[LogHash], places: &[u64]| -> Vec<LogHash> {
            let places = places.iter().map(|place| usize::try_from(*place).unwrap());
            places.map(|place| stored[place]).collect()
        };
        for number in 0..300_u64 {
            let leaf = record_hash(&number.to_be_bytes());
            edge.add(leaf).unwrap();
            let query = stored_hashes(number, leaf).unwrap();
            let left = read(&stored, query.indexes());
            stored.extend(query.compute(&left).unwrap());
            let query = tree_hash(number + 1).unwrap();
            let hashes = read(&stored, query.indexes());
            let root = query.compute(&hashes).unwrap();
            let size = number + 1;
            assert_eq!(edge.head(), TreeHead { size, root });
            assert_eq!(edge.to_string().parse::<TreeEdge>().unwrap(), edge);
        }
    }

    #[test]
    fn an_edge_has_one_hash_for_each_bit_of_its_size() {
        let mut edge = TreeEdge::default();
        assert_eq!(edge.to_string(), "0");
        for number in 0..3_u8 {
            edge.add(record_hash(&[number])).unwrap();
        }
        let text = edge.to_string();
        let longer = format!("{text} {}", LogHash::EMPTY_TREE);
        let (shorter, _) = text.rsplit_once(' ').unwrap();
        for bad in [
            "",
            "x",
            "1",
            "-1",
            "03",
            &longer,
            shorter,
            &format!("{text} "),
        ] {
            bad.parse::<TreeEdge>().unwrap_err();
        }
    }
}
