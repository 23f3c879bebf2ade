//! Git notes as a map from the name of a note to a blob.
//!
//! A tree of notes splits the 40 digits of a name into folders of two digits, at any place: `e0b7…`, `e0/b7…` and
//! `e0/b7/51…` are the same note. Every mixture is read. The same note at two places would be one external ID twice, so
//! it is an error, like everything that is not a note.
//!
//! Trees written here are split where more than [`MAX_ENTRIES`] notes begin alike. A folder that loses notes stays, so
//! that removing a note costs as little as adding it.

mod compare;
mod node;
mod write;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use gix_hash::ObjectId;
use gix_object::Tree;

pub use self::compare::{NoteChange, changed_notes};
use self::node::{CountedNotes, FoundNote, MAX_FAULTS, NoteWalk, OpenedFolder, twice_at};
pub use self::write::{WrittenNotes, write_notes};
use crate::external_ids::NoteName;
use crate::findings::Problem;

/// Source of trees, such as a repository or a table of objects.
pub trait NoteTrees {
    /// Reason why a tree cannot be read.
    type Error: std::error::Error + 'static;

    /// Reads the entries of a tree.
    fn tree(&self, id: ObjectId) -> Result<Tree, Self::Error>;
}

/// Maximum number of entries of a tree written here.
pub const MAX_ENTRIES: usize = 256;

/// Maximum number of notes. A small pack can describe any number of them.
pub const MAX_NOTES: usize = 2_000_000;

/// Maximum number of folders, with or without notes.
pub const MAX_FOLDERS: usize = 250_000;

/// A tree cannot be read as notes.
#[derive(Debug, thiserror::Error)]
pub enum NotesError<E: std::error::Error + 'static> {
    /// A tree cannot be read.
    #[error("cannot read a tree of notes")]
    Read(#[source] E),
    /// The entries of a tree are not notes. There is at least one fault.
    #[error("the tree has entries that are not notes")]
    Invalid(Vec<NoteFault>),
}

/// An entry that makes a tree of notes invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteFault {
    /// A note is at two places.
    #[error("the note {name} is there twice, as `{}` and `{}`", paths[0], paths[1])]
    Twice {
        /// Name of the note.
        name: NoteName,
        /// Both places, the one closer to the root first.
        paths: [String; 2],
    },
    /// A path is neither a note nor a folder of notes.
    #[error("`{0}` is not a note")]
    NotANote(String),
    /// A tree has more than [`MAX_NOTES`] notes or [`MAX_FOLDERS`] folders.
    #[error("there are more than {MAX_NOTES} notes or {MAX_FOLDERS} folders")]
    TooMany,
}

impl NoteFault {
    /// Returns the fault as a problem of a push.
    pub fn to_problem(&self) -> Problem {
        let fix = match self {
            Self::Twice { .. } => "remove one of them",
            Self::NotANote(_) => {
                "remove it; a note is a file named by 40 digits of the SHA-1 of its key"
            }
            Self::TooMany => "remove some of them",
        };
        Problem::error(None, self.to_string(), fix)
    }
}

/// Reads all notes of a tree. `None` stands for a ref that does not exist.
pub fn read_notes<T: NoteTrees>(
    trees: &T,
    root: Option<ObjectId>,
) -> Result<BTreeMap<NoteName, ObjectId>, NotesError<T::Error>> {
    let mut walk = NoteWalk::new(trees, Arc::default());
    let found = walk.find(root.map(|root| (Vec::new(), root)).into_iter().collect())?;
    unique(found, walk.into_faults())
}

/// Reads all notes of a tree like [`read_notes`], on a thread for each of these readers of the same trees. There must be
/// at least one.
pub fn read_notes_on_threads<T>(
    readers: Vec<T>,
    root: ObjectId,
) -> Result<BTreeMap<NoteName, ObjectId>, NotesError<T::Error>>
where
    T: NoteTrees + Send,
    T::Error: Send,
{
    let counted = Arc::<CountedNotes>::default();
    let mut walk = NoteWalk::new(&readers[0], Arc::clone(&counted));
    let OpenedFolder {
        notes: mut found,
        folders,
    } = walk.open(&[], root)?;
    let mut faults = walk.into_faults();
    let part = folders.len().div_ceil(readers.len()).max(1);
    let parts = thread::scope(|scope| {
        let threads = readers.into_iter().zip(folders.chunks(part));
        let threads = threads.map(|(trees, folders)| {
            let counted = Arc::clone(&counted);
            scope.spawn(move || {
                let mut walk = NoteWalk::new(&trees, counted);
                let found = walk.find(folders.to_vec())?;
                Ok((found, walk.into_faults()))
            })
        });
        let threads: Vec<_> = threads.collect();
        let parts = threads.into_iter().map(|thread| match thread.join() {
            Ok(part) => part,
            Err(panic) => resume_unwind(panic),
        });
        parts.collect::<Result<Vec<_>, NotesError<T::Error>>>()
    })?;
    for (notes, more) in parts {
        found.extend(notes);
        faults.extend(more);
    }
    unique(found, faults)
}

/// Makes a map of notes. Fails if there was a fault, or if one of them is there twice.
fn unique<E: std::error::Error>(
    mut found: Vec<FoundNote>,
    mut faults: Vec<NoteFault>,
) -> Result<BTreeMap<NoteName, ObjectId>, NotesError<E>> {
    // They are nearly in this order, which is faster than a search for the place of each.
    found.sort_by_key(|note| (note.name, note.folders));
    let twice = found.windows(2).filter(|pair| pair[0].name == pair[1].name);
    faults.extend(twice.map(|pair| twice_at(pair[0].name, pair[0].folders, pair[1].folders)));
    if faults.is_empty() {
        Ok(found
            .into_iter()
            .map(|note| (note.name, note.blob))
            .collect())
    } else {
        faults.truncate(MAX_FAULTS);
        Err(NotesError::Invalid(faults))
    }
}

#[cfg(test)]
mod tests;
