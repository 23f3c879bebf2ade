//! Changes of a tree of notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gix_hash::ObjectId;
use gix_object::tree::{Entry, EntryKind};
use gix_object::{Tree, WriteTo as _};
use sha1::{Digest as _, Sha1};

use super::node::{NoteNode, NoteWalk};
use super::{MAX_ENTRIES, NoteTrees, NotesError};
use crate::external_ids::NoteName;

/// A changed tree of notes, and the trees that are not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenNotes {
    /// Tree with all notes.
    pub root: ObjectId,
    /// New trees, each after the trees inside of it.
    pub trees: Vec<(ObjectId, Tree)>,
}

/// Adds, replaces and removes notes. `None` removes a note, if it is there. Reads and rewrites only the trees on the
/// paths of these notes. The tree has no faults, because it was read before.
pub fn write_notes<T: NoteTrees>(
    trees: &T,
    root: Option<ObjectId>,
    changes: &BTreeMap<NoteName, Option<ObjectId>>,
) -> Result<WrittenNotes, NotesError<T::Error>> {
    let mut walk = NoteWalk::new(trees, Arc::default());
    let mut written = Vec::new();
    let rewritten = rewrite(&mut walk, &mut written, &[], root, changes)?;
    walk.finish()?;
    let root = rewritten.unwrap_or_else(|| {
        let empty = Tree::empty();
        let id = id_of(&empty);
        if root != Some(id) {
            written.push((id, empty));
        }
        id
    });
    Ok(WrittenNotes {
        root,
        trees: written,
    })
}

/// Maximum number of changes that are looked for in a tree one by one.
const FEW_CHANGES: usize = 8;

type NoteEdits = BTreeMap<NoteName, Option<ObjectId>>;

/// Rewrites the tree at the place of these digits. Returns `None` if nothing is left in it.
fn rewrite<T: NoteTrees>(
    walk: &mut NoteWalk<'_, T>,
    written: &mut Vec<(ObjectId, Tree)>,
    prefix: &[u8],
    id: Option<ObjectId>,
    changes: &NoteEdits,
) -> Result<Option<ObjectId>, NotesError<T::Error>> {
    let depth = prefix.len();
    let tree = match id {
        Some(id) => walk.tree(id)?,
        None => Tree::empty(),
    };
    if let Some(inner) = all_inside(&tree, depth, changes) {
        return rewrite_folders(walk, written, prefix, tree, inner);
    }
    let mut node = walk.node(prefix, tree)?;
    let is_split = !node.folders.is_empty();
    let mut inner: BTreeMap<u8, NoteEdits> = BTreeMap::new();
    for (name, blob) in changes {
        let byte = name.as_bytes()[depth];
        let is_here = node.notes.remove(name).is_some();
        let is_inside =
            !is_here && (node.folders.contains_key(&byte) || is_split && blob.is_some());
        if is_inside {
            inner.entry(byte).or_default().insert(*name, *blob);
        } else if let Some(blob) = blob {
            node.notes.insert(*name, *blob);
        }
    }
    let new_folders = inner.keys().filter(|byte| !node.folders.contains_key(byte));
    if node.notes.len() + node.folders.len() + new_folders.count() > MAX_ENTRIES {
        for (name, blob) in std::mem::take(&mut node.notes) {
            let byte = name.as_bytes()[depth];
            inner.entry(byte).or_default().insert(name, Some(blob));
        }
    }
    for (byte, changes) in inner {
        let folder = node.folders.remove(&byte);
        let prefix = [prefix, &[byte]].concat();
        if let Some(folder) = rewrite(walk, written, &prefix, folder, &changes)? {
            node.folders.insert(byte, folder);
        }
    }
    if node.notes.is_empty() && node.folders.is_empty() {
        return Ok(None);
    }
    let tree = to_tree(depth, node);
    let new = id_of(&tree);
    if id != Some(new) {
        written.push((new, tree));
    }
    Ok(Some(new))
}

/// Returns the changes by the place of the folder that they are in, if every note is in a folder of the tree and not in the
/// tree itself. Most changes of a few notes are of this kind in all trees but the last.
fn all_inside(
    tree: &Tree,
    depth: usize,
    changes: &NoteEdits,
) -> Option<BTreeMap<usize, NoteEdits>> {
    let mut inner: BTreeMap<usize, NoteEdits> = BTreeMap::new();
    // Looking for many notes takes longer than reading all entries. The last digits of a name are in no folder.
    if changes.len() > FEW_CHANGES || depth >= 19 {
        return None;
    }
    for (name, blob) in changes {
        let digits = hex::encode(&name.as_bytes()[depth..]);
        let (folder, _) = digits.split_at(2);
        if tree.entries.iter().any(|entry| entry.filename == digits) {
            return None;
        }
        let is_folder = |entry: &Entry| entry.mode.is_tree() && entry.filename == folder;
        let place = tree.entries.iter().position(is_folder)?;
        inner.entry(place).or_default().insert(*name, *blob);
    }
    Some(inner)
}

/// Rewrites a tree in which only folders change.
fn rewrite_folders<T: NoteTrees>(
    walk: &mut NoteWalk<'_, T>,
    written: &mut Vec<(ObjectId, Tree)>,
    prefix: &[u8],
    mut tree: Tree,
    inner: BTreeMap<usize, NoteEdits>,
) -> Result<Option<ObjectId>, NotesError<T::Error>> {
    let depth = prefix.len();
    let mut is_changed = false;
    // From the last place, so that a folder that goes moves none that is still to be changed.
    for (place, changes) in inner.into_iter().rev() {
        let byte = changes.keys().next().map(|name| name.as_bytes()[depth]);
        let inside: Vec<u8> = prefix.iter().copied().chain(byte).collect();
        let folder = tree.entries[place].oid;
        let new = rewrite(walk, written, &inside, Some(folder), &changes)?;
        is_changed |= new != Some(folder);
        match new {
            Some(new) => tree.entries[place].oid = new,
            None => drop(tree.entries.remove(place)),
        }
    }
    if tree.entries.is_empty() {
        return Ok(None);
    }
    let new = id_of(&tree);
    if is_changed {
        written.push((new, tree));
    }
    Ok(Some(new))
}

fn to_tree(depth: usize, node: NoteNode) -> Tree {
    let notes = node.notes.into_iter().map(|(name, oid)| Entry {
        mode: EntryKind::Blob.into(),
        filename: hex::encode(&name.as_bytes()[depth..]).into(),
        oid,
    });
    let folders = node.folders.into_iter().map(|(byte, oid)| Entry {
        mode: EntryKind::Tree.into(),
        filename: hex::encode([byte]).into(),
        oid,
    });
    let mut entries: Vec<Entry> = notes.chain(folders).collect();
    entries.sort();
    Tree { entries }
}

fn id_of(tree: &Tree) -> ObjectId {
    let mut data = tree.loose_header().to_vec();
    tree.write_to(&mut data)
        .expect("names are digits, and memory takes every byte");
    ObjectId::Sha1(Sha1::digest(&data).into())
}
