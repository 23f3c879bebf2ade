//! One tree of notes, and the reading of many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// A note in a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundNote {
    pub(super) name: NoteName,
    pub(super) blob: ObjectId,
    /// Number of folders around the note.
    pub(super) folders: usize,
}

/// A folder of notes: the digits before it, and its tree.
pub(super) type NoteFolder = (Vec<u8>, ObjectId);

/// Content of a folder.
pub(super) struct OpenedFolder {
    pub(super) notes: Vec<FoundNote>,
    pub(super) folders: Vec<NoteFolder>,
}

/// Numbers of notes and folders that were read, on all threads together.
#[derive(Debug, Default)]
pub(super) struct CountedNotes {
    notes: AtomicUsize,
    folders: AtomicUsize,
}

/// Reads trees, counts them, and collects their faults.
pub(super) struct NoteWalk<'a, T> {
    trees: &'a T,
    counted: Arc<CountedNotes>,
    faults: Vec<NoteFault>,
}

/// Faults that are listed at most. Nobody reads more at once.
pub(super) const MAX_FAULTS: usize = 20;

impl<'a, T: NoteTrees> NoteWalk<'a, T> {
    pub(super) fn new(trees: &'a T, counted: Arc<CountedNotes>) -> Self {
        Self {
            trees,
            counted,
            faults: Vec::new(),
        }
    }

    /// Returns the notes in these folders and in all folders inside.
    pub(super) fn find(
        &mut self,
        mut open: Vec<NoteFolder>,
    ) -> Result<Vec<FoundNote>, NotesError<T::Error>> {
        let mut found = Vec::new();
        open.reverse();
        while let Some((prefix, id)) = open.pop() {
            let OpenedFolder { notes, folders } = self.open(&prefix, id)?;
            found.extend(notes);
            open.extend(folders.into_iter().rev());
        }
        Ok(found)
    }

    /// Reads the notes and the folders in a folder, not those further inside.
    pub(super) fn open(
        &mut self,
        prefix: &[u8],
        id: ObjectId,
    ) -> Result<OpenedFolder, NotesError<T::Error>> {
        let NoteNode { notes, folders } = self.read(prefix, id)?;
        let notes = notes.into_iter().map(|(name, blob)| FoundNote {
            name,
            blob,
            folders: prefix.len(),
        });
        let folders = folders.into_iter();
        let folders = folders.map(|(byte, id)| ([prefix, &[byte]].concat(), id));
        Ok(OpenedFolder {
            notes: notes.collect(),
            folders: folders.collect(),
        })
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
        let (notes, folders) = (&self.counted.notes, &self.counted.folders);
        let notes = notes.fetch_add(node.notes.len(), Ordering::Relaxed) + node.notes.len();
        let folders = folders.fetch_add(1, Ordering::Relaxed) + 1;
        if notes > MAX_NOTES || folders > MAX_FOLDERS {
            return Err(NotesError::Invalid(vec![NoteFault::TooMany]));
        }
        Ok(node)
    }

    /// Reports a note at two depths, in folders.
    pub(super) fn twice(&mut self, name: NoteName, depth: usize, other: usize) {
        self.fault(twice_at(name, depth.min(other), depth.max(other)));
    }

    fn fault(&mut self, fault: NoteFault) {
        if self.faults.len() < MAX_FAULTS && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Returns the faults that were found.
    pub(super) fn into_faults(self) -> Vec<NoteFault> {
        self.faults
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

/// Returns the fault of a note at two depths, in folders, the smaller one first.
pub(super) fn twice_at(name: NoteName, depth: usize, other: usize) -> NoteFault {
    let paths = [depth, other].map(|depth| {
        let (folders, rest) = name.as_bytes().split_at(depth);
        folder_path(folders) + &hex::encode(rest)
    });
    NoteFault::Twice { name, paths }
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
