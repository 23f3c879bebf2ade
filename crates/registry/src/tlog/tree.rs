//! Hashes of trees, and proofs that a tree contains a record or an older tree.
//!
//! A tree of more than one record splits into a left side of the largest power of two below its size, and the rest. The
//! hashes of a proof belong to those sides that the way down does not take.

use super::hash::{LogHash, level_number, node_hash, stored_hash_index};
use super::{TlogError, check_size};

type Computation<R> = Box<dyn FnOnce(&[LogHash]) -> R + Send>;

/// Stored hashes that a result needs, and the computation of the result. The caller reads the hashes, for example from
/// a database, in the order of [`indexes`](Self::indexes).
#[must_use]
pub struct HashQuery<R> {
    indexes: Vec<u64>,
    compute: Computation<R>,
}

impl<R> HashQuery<R> {
    pub(super) fn new(
        indexes: Vec<u64>,
        compute: impl FnOnce(&[LogHash]) -> R + Send + 'static,
    ) -> Self {
        Self {
            indexes,
            compute: Box::new(compute),
        }
    }

    /// Returns the places of the needed hashes among the stored ones. There are at most a few for each level.
    pub fn indexes(&self) -> &[u64] {
        &self.indexes
    }

    /// Computes the result from the hashes at those places.
    pub fn compute(self, hashes: &[LogHash]) -> Result<R, TlogError> {
        if hashes.len() != self.indexes.len() {
            return Err(TlogError::HashCount {
                expected: self.indexes.len(),
                found: hashes.len(),
            });
        }
        Ok((self.compute)(hashes))
    }

    /// Computes the result with a reader of stored hashes.
    pub fn read_with<E: From<TlogError>>(
        self,
        read: impl FnOnce(&[u64]) -> Result<Vec<LogHash>, E>,
    ) -> Result<R, E> {
        let hashes = read(&self.indexes)?;
        Ok(self.compute(&hashes)?)
    }
}

/// Records from the first to before the second number.
type Span = (u64, u64);

/// Returns the hashes that a log stores when the record with this hash becomes its record number `record`. They follow
/// the hashes that are stored already.
pub fn stored_hashes(record: u64, hash: LogHash) -> Result<HashQuery<Vec<LogHash>>, TlogError> {
    check_size(record.saturating_add(1))?;
    // Every trailing 1 of the number completes a subtree, whose left side is stored.
    let completed = level_number((record + 1).trailing_zeros());
    let indexes = (0..completed)
        .map(|level| stored_hash_index(level, (record >> level) - 1))
        .collect();
    Ok(HashQuery::new(indexes, move |left_sides| {
        let mut hashes = vec![hash];
        let mut top = hash;
        for left in left_sides {
            top = node_hash(left, &top);
            hashes.push(top);
        }
        hashes
    }))
}

/// Returns the root of a tree of this size.
pub fn tree_hash(size: u64) -> Result<HashQuery<LogHash>, TlogError> {
    check_size(size)?;
    if size == 0 {
        return Ok(HashQuery::new(Vec::new(), |_| LogHash::EMPTY_TREE));
    }
    Ok(HashQuery::new(span_indexes((0, size)), span_hash))
}

/// Returns the proof that a tree of this size contains a record, from the sibling of the record up to one below the
/// root.
pub fn prove_record(size: u64, record: u64) -> Result<HashQuery<Vec<LogHash>>, TlogError> {
    Ok(spans_query(record_spans(size, record)?))
}

/// Checks a proof that a tree of this size and root contains a record with this number and hash.
pub fn check_record(
    proof: &[LogHash],
    size: u64,
    root: &LogHash,
    record: u64,
    hash: &LogHash,
) -> Result<(), TlogError> {
    let spans = record_spans(size, record)?;
    if proof.len() != spans.len() {
        return Err(TlogError::ProofFailed);
    }
    let mut top = *hash;
    for ((start, _), sibling) in spans.into_iter().zip(proof) {
        top = if start > record {
            node_hash(&top, sibling)
        } else {
            node_hash(sibling, &top)
        };
    }
    if top == *root {
        Ok(())
    } else {
        Err(TlogError::ProofFailed)
    }
}

/// Returns the proof that a tree of this size begins with all records of a tree of `old` records.
pub fn prove_tree(size: u64, old: u64) -> Result<HashQuery<Vec<LogHash>>, TlogError> {
    Ok(spans_query(tree_spans(size, old)?.0))
}

/// Checks a proof that a tree of this size and root begins with all records of an older tree.
pub fn check_tree(
    proof: &[LogHash],
    size: u64,
    root: &LogHash,
    old: u64,
    old_root: &LogHash,
) -> Result<(), TlogError> {
    let (spans, is_old_tree) = tree_spans(size, old)?;
    if proof.len() != spans.len() {
        return Err(TlogError::ProofFailed);
    }
    let mut siblings = spans.into_iter().zip(proof);
    let start = if is_old_tree {
        Some(*old_root)
    } else {
        siblings.next().map(|(_, hash)| *hash)
    };
    let start = start.ok_or(TlogError::ProofFailed)?;
    let (mut old_top, mut top) = (start, start);
    for ((start, _), sibling) in siblings {
        if start >= old {
            top = node_hash(&top, sibling);
        } else {
            old_top = node_hash(sibling, &old_top);
            top = node_hash(sibling, &top);
        }
    }
    if top == *root && old_top == *old_root {
        Ok(())
    } else {
        Err(TlogError::ProofFailed)
    }
}

/// Sides that the way from the root to a record does not take, the nearest to the record first.
fn record_spans(size: u64, record: u64) -> Result<Vec<Span>, TlogError> {
    check_size(size)?;
    if record >= size {
        return Err(TlogError::NoRecord { record, size });
    }
    let mut spans = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = start + left_side(end - start);
        if record < middle {
            spans.push((middle, end));
            end = middle;
        } else {
            spans.push((start, middle));
            start = middle;
        }
    }
    spans.reverse();
    Ok(spans)
}

/// Sides that the way from the root to the end of the old tree does not take, and in front of them the subtree where it
/// stops. If the way stops at the whole old tree, then its hash is known and left out, and the second value is true.
fn tree_spans(size: u64, old: u64) -> Result<(Vec<Span>, bool), TlogError> {
    check_size(size)?;
    if old == 0 || old > size {
        return Err(TlogError::NotOlder { old, size });
    }
    let mut spans = Vec::new();
    let (mut start, mut end) = (0, size);
    while old < end {
        let middle = start + left_side(end - start);
        if old <= middle {
            spans.push((middle, end));
            end = middle;
        } else {
            spans.push((start, middle));
            start = middle;
        }
    }
    let is_old_tree = start == 0;
    if !is_old_tree {
        spans.push((start, end));
    }
    spans.reverse();
    Ok((spans, is_old_tree))
}

/// Largest power of two below a size of at least 2.
fn left_side(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// Places of the complete subtrees that make up a span, from left to right. A span that a tree is split into begins at a
/// multiple of each of them.
fn span_indexes((mut start, end): Span) -> Vec<u64> {
    let mut indexes = Vec::new();
    while start < end {
        let level = level_number((end - start).ilog2());
        indexes.push(stored_hash_index(level, start >> level));
        start += 1 << level;
    }
    indexes
}

/// Hash of a span from those of its complete subtrees.
fn span_hash(subtrees: &[LogHash]) -> LogHash {
    let right_to_left = subtrees.iter().rev().copied();
    right_to_left
        .reduce(|right, left| node_hash(&left, &right))
        .expect("a span has at least one record")
}

/// Hashes of several spans.
fn spans_query(spans: Vec<Span>) -> HashQuery<Vec<LogHash>> {
    let groups: Vec<Vec<u64>> = spans.into_iter().map(span_indexes).collect();
    let lengths: Vec<usize> = groups.iter().map(Vec::len).collect();
    HashQuery::new(groups.concat(), move |mut hashes| {
        let mut take = |length| {
            let (group, rest) = hashes.split_at(length);
            hashes = rest;
            span_hash(group)
        };
        lengths.into_iter().map(&mut take).collect()
    })
}
