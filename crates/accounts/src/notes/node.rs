//! One tree of notes, and the reading of many.

use std::collections::BTreeMap;

use gix_hash::ObjectId;
use gix_object::Tree;
use gix_object::tree::EntryKind;

use super::{MAX_FOLDERS, MAX_NOTES, NoteFault, NoteTrees, NotesError};
use crate::external_ids::NoteName;

/// The entries of a tree, by their meaning.
#[derive(Clone, Debug, Default)]
pub(super) struct NoteNode {
    pub(super) notes: BTreeMap<NoteName, ObjectId>,
    /// Folders by the two digits of their names.
    pub(super) folders: BTreeMap<u8, ObjectId>,
}

/// Reads trees, counts them, and collects their faults.
pub(super) struct NoteWalk<'a, T> {
    trees: &'a T,
    notes: usize,
    folders: usize,
    faults: Vec<NoteFault>,
}

/// Faults that are listed at most. Nobody reads more at once.
const MAX_FAULTS: usize = 20;

impl<'a, T: NoteTrees> NoteWalk<'a, T> {
    pub(super) fn new(trees: &'a T) -> Self {
        Self {
            trees,
            notes: 0,
            folders: 0,
            faults: Vec::new(),
        }
    }

    /// Reads the tree at the place of these digits.
    pub(super) fn read(
        &mut self,
        prefix: &[u8],
        id: ObjectId,
    ) -> Result<NoteNode, NotesError<T::Error>> {
        let tree = self.tree(id)?;
        self.node(prefix, tree)
    }

    /// Reads the entries of a tree.
    pub(super) fn tree(&self, id: ObjectId) -> Result<Tree, NotesError<T::Error>> {
        self.trees.tree(id).map_err(NotesError::Read)
    }

    /// Returns the notes and folders of the tree at the place of these digits. A folder inside itself would describe any
    /// number of notes, so the reading ends at a limit.
    pub(super) fn node(
        &mut self,
        prefix: &[u8],
        tree: Tree,
    ) -> Result<NoteNode, NotesError<T::Error>> {
        let mut node = NoteNode::default();
        for entry in tree.entries {
            let digits = std::str::from_utf8(&entry.filename)
                .ok()
                .and_then(lower_hex);
            let rest = digits.as_deref().unwrap_or_default();
            let is_twice = match (entry.mode.kind(), rest) {
                // Two digits of a name are left to the last tree, so there is no folder in it.
                (EntryKind::Tree, [byte]) if prefix.len() < 19 => {
                    node.folders.insert(*byte, entry.oid).is_some()
                }
                (EntryKind::Blob, rest) if prefix.len() + rest.len() == 20 => {
                    let name = note_name(prefix, rest);
                    node.notes.insert(name, entry.oid).is_some()
                }
                (
                    EntryKind::Tree
                    | EntryKind::Blob
                    | EntryKind::BlobExecutable
                    | EntryKind::Link
                    | EntryKind::Commit,
                    _,
                ) => true,
            };
            if is_twice {
                let mut path = folder_path(prefix);
                path.push_str(&String::from_utf8_lossy(&entry.filename));
                self.fault(NoteFault::NotANote(crate::text::shown(&path)));
            }
        }
        self.notes += node.notes.len();
        self.folders += 1;
        if self.notes > MAX_NOTES || self.folders > MAX_FOLDERS {
            return Err(NotesError::Invalid(vec![NoteFault::TooMany]));
        }
        Ok(node)
    }

    /// Reports a note at two depths, in folders.
    pub(super) fn twice(&mut self, name: NoteName, depth: usize, other: usize) {
        let paths = [depth.min(other), depth.max(other)].map(|depth| {
            let (folders, rest) = name.as_bytes().split_at(depth);
            folder_path(folders) + &hex::encode(rest)
        });
        self.fault(NoteFault::Twice { name, paths });
    }

    fn fault(&mut self, fault: NoteFault) {
        if self.faults.len() < MAX_FAULTS && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Fails if there was a fault.
    pub(super) fn finish(self) -> Result<(), NotesError<T::Error>> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(NotesError::Invalid(self.faults))
        }
    }
}

/// Git writes digits in lower case, so that each note has one spelling.
fn lower_hex(text: &str) -> Option<Vec<u8>> {
    let is_lower = !text.contains(|c: char| c.is_ascii_uppercase());
    is_lower.then(|| hex::decode(text).ok()).flatten()
}

fn note_name(prefix: &[u8], rest: &[u8]) -> NoteName {
    let mut bytes = [0; 20];
    let (start, end) = bytes.split_at_mut(prefix.len());
    start.copy_from_slice(prefix);
    end.copy_from_slice(rest);
    NoteName::from_bytes(bytes)
}

fn folder_path(prefix: &[u8]) -> String {
    let folders = prefix
        .iter()
        .flat_map(|byte| [hex::encode([*byte]), "/".to_owned()]);
    folders.collect()
}
