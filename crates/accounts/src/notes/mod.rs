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

use gix_hash::ObjectId;
use gix_object::Tree;

pub use self::compare::{NoteChange, changed_notes};
use self::node::{NoteNode, NoteWalk};
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
    let mut walk = NoteWalk::new(trees);
    let mut found: BTreeMap<NoteName, (ObjectId, usize)> = BTreeMap::new();
    let mut open: Vec<(Vec<u8>, ObjectId)> =
        root.map(|root| (Vec::new(), root)).into_iter().collect();
    while let Some((prefix, id)) = open.pop() {
        let NoteNode { notes, folders } = walk.read(&prefix, id)?;
        for (name, blob) in notes {
            if let Some((_, depth)) = found.insert(name, (blob, prefix.len())) {
                walk.twice(name, depth, prefix.len());
            }
        }
        for (byte, id) in folders {
            open.push(([prefix.as_slice(), &[byte]].concat(), id));
        }
    }
    walk.finish()?;
    Ok(found
        .into_iter()
        .map(|(name, (blob, _))| (name, blob))
        .collect())
}

#[cfg(test)]
mod tests;
