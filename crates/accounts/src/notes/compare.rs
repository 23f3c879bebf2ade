//! The difference of two trees of notes, from reading only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gix_hash::ObjectId;

use super::node::{NoteNode, NoteWalk};
use super::{NoteTrees, NotesError};
use crate::external_ids::NoteName;

/// Blobs of a note before and after a change. At least one of them is there, and they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteChange {
    /// Blob in the old tree. `None` for an added note.
    pub before: Option<ObjectId>,
    /// Blob in the new tree. `None` for a removed note.
    pub after: Option<ObjectId>,
}

/// Compares two trees of notes with any fan-out. The old one has no faults, because it was read before. Reads each tree
/// on the path of a change once, and no others. A note that is at another place with the same blob has not changed.
pub fn changed_notes<T: NoteTrees>(
    trees: &T,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
) -> Result<BTreeMap<NoteName, NoteChange>, NotesError<T::Error>> {
    let mut walk = NoteWalk::new(trees, Arc::default());
    let mut before: BTreeMap<NoteName, ObjectId> = BTreeMap::new();
    let mut after: BTreeMap<NoteName, ObjectId> = BTreeMap::new();
    // Trees of the new side that were read, for the search of notes at two places.
    let mut nodes: BTreeMap<Vec<u8>, NoteNode> = BTreeMap::new();
    let mut open = vec![(Vec::new(), old, new)];
    while let Some((prefix, old, new)) = open.pop() {
        if old == new {
            continue;
        }
        let read = |walk: &mut NoteWalk<'_, T>, id: Option<ObjectId>| match id {
            Some(id) => walk.read(&prefix, id),
            None => Ok(NoteNode::default()),
        };
        let (old, new) = (read(&mut walk, old)?, read(&mut walk, new)?);
        let differing = |these: &NoteNode, those: &NoteNode| {
            let pairs = these.notes.iter().map(|(name, blob)| (*name, *blob));
            let pairs = pairs.filter(|(name, blob)| those.notes.get(name) != Some(blob));
            pairs.collect::<Vec<_>>()
        };
        before.extend(differing(&old, &new));
        after.extend(differing(&new, &old));
        for byte in old
            .folders
            .keys()
            .chain(new.folders.keys())
            .collect::<BTreeSet<_>>()
        {
            let inner = [prefix.as_slice(), &[*byte]].concat();
            let folder = |node: &NoteNode| node.folders.get(byte).copied();
            open.push((inner, folder(&old), folder(&new)));
        }
        nodes.insert(prefix, new);
    }
    for name in after.keys() {
        let bytes = name.as_bytes();
        let mut first: Option<usize> = None;
        let mut next = new;
        for depth in 0..20 {
            let Some(id) = next else { break };
            let prefix = &bytes[..depth];
            if !nodes.contains_key(prefix) {
                nodes.insert(prefix.to_vec(), walk.read(prefix, id)?);
            }
            let Some(node) = nodes.get(prefix) else { break };
            if node.notes.contains_key(name) {
                match first {
                    None => first = Some(depth),
                    Some(first) => walk.twice(*name, first, depth),
                }
            }
            next = node.folders.get(&bytes[depth]).copied();
        }
    }
    walk.finish()?;
    let names: BTreeSet<NoteName> = before.keys().chain(after.keys()).copied().collect();
    let change = |name: NoteName| {
        let (before, after) = (before.get(&name).copied(), after.get(&name).copied());
        (before != after).then_some((name, NoteChange { before, after }))
    };
    Ok(names.into_iter().filter_map(change).collect())
}
