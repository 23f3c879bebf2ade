use std::cell::Cell;
use std::collections::HashMap;

use gix_object::tree::{Entry, EntryKind};
use proptest::prelude::*;
use sha1::{Digest as _, Sha1};

use super::*;
use crate::testing::fixed_seed;

/// Trees in memory, which counts how many are read.
#[derive(Clone, Default)]
struct MemoryTrees {
    trees: HashMap<ObjectId, Tree>,
    reads: Cell<usize>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("there is no tree {0}")]
struct NoTree(ObjectId);

impl NoteTrees for MemoryTrees {
    type Error = NoTree;

    fn tree(&self, id: ObjectId) -> Result<Tree, NoTree> {
        self.reads.set(self.reads.get() + 1);
        self.trees.get(&id).cloned().ok_or(NoTree(id))
    }
}

impl MemoryTrees {
    fn put(&mut self, mut entries: Vec<(String, EntryKind, ObjectId)>) -> ObjectId {
        entries.sort();
        let text = format!("{entries:?}");
        let id = ObjectId::Sha1(Sha1::digest(text).into());
        let entry = |(name, kind, oid): (String, EntryKind, ObjectId)| Entry {
            mode: kind.into(),
            filename: name.into(),
            oid,
        };
        let entries = entries.into_iter().map(entry).collect();
        self.trees.insert(id, Tree { entries });
        id
    }

    /// Writes a tree with folders wherever `fan_out` says so for the digits up to there.
    fn mixed(
        &mut self,
        notes: &[(NoteName, ObjectId)],
        depth: usize,
        fan_out: &[bool],
    ) -> ObjectId {
        let mut folders: BTreeMap<u8, Vec<(NoteName, ObjectId)>> = BTreeMap::new();
        let mut entries = Vec::new();
        for (name, blob) in notes {
            let byte = name.as_bytes()[depth];
            let choice = fan_out.get((depth * 7 + usize::from(byte)) % fan_out.len().max(1));
            if depth < 19 && choice.copied().unwrap_or(false) {
                folders.entry(byte).or_default().push((*name, *blob));
            } else {
                let rest = hex::encode(&name.as_bytes()[depth..]);
                entries.push((rest, EntryKind::Blob, *blob));
            }
        }
        for (byte, notes) in folders {
            let folder = self.mixed(&notes, depth + 1, fan_out);
            entries.push((hex::encode([byte]), EntryKind::Tree, folder));
        }
        self.put(entries)
    }

    fn write(
        &mut self,
        root: Option<ObjectId>,
        changes: &BTreeMap<NoteName, Option<ObjectId>>,
    ) -> WrittenNotes {
        let written = write_notes(self, root, changes).unwrap();
        self.trees.extend(written.trees.iter().cloned());
        written
    }

    /// Reads all notes with three readers.
    fn read_on_threads(
        &self,
        root: ObjectId,
    ) -> Result<BTreeMap<NoteName, ObjectId>, NotesError<NoTree>> {
        read_notes_on_threads(vec![self.clone(), self.clone(), self.clone()], root)
    }

    fn count_reads<R>(&self, read: impl FnOnce(&Self) -> R) -> (R, usize) {
        let before = self.reads.get();
        let result = read(self);
        (result, self.reads.get() - before)
    }
}

fn blob(number: u8) -> ObjectId {
    ObjectId::Sha1([number; 20])
}

fn name(start: &[u8]) -> NoteName {
    let mut bytes = [0x11; 20];
    bytes[..start.len()].copy_from_slice(start);
    NoteName::from_bytes(bytes)
}

fn faults<R: std::fmt::Debug>(result: Result<R, NotesError<NoTree>>) -> Vec<String> {
    let NotesError::Invalid(faults) = result.unwrap_err() else {
        panic!("a tree is missing");
    };
    faults
        .iter()
        .map(|fault| fault.to_problem().to_string())
        .collect()
}

#[test]
fn a_note_at_two_places_is_an_error_that_names_both() {
    let mut trees = MemoryTrees::default();
    let note = name(&[0xe0, 0xb7]);
    let rest = hex::encode(&note.as_bytes()[1..]);
    let folder = trees.put(vec![(rest.clone(), EntryKind::Blob, blob(1))]);
    let flat = (note.to_string(), EntryKind::Blob, blob(1));
    let in_folder = ("e0".to_owned(), EntryKind::Tree, folder);
    let both = trees.put(vec![flat.clone(), in_folder.clone()]);
    let expected = [format!(
        "the note {note} is there twice, as `{note}` and `e0/{rest}`; remove one of them"
    )];
    assert_eq!(faults(read_notes(&trees, Some(both))), expected);
    for old in [vec![flat], vec![in_folder]] {
        let old = trees.put(old);
        assert_eq!(
            faults(changed_notes(&trees, Some(old), Some(both))),
            expected
        );
    }
}

#[test]
fn what_is_not_a_note_is_an_error() {
    let mut trees = MemoryTrees::default();
    let note = name(&[0xe0]).to_string();
    let inner = trees.put(vec![(note.clone(), EntryKind::Blob, blob(1))]);
    let root = trees.put(vec![
        ("README".to_owned(), EntryKind::Blob, blob(1)),
        ("E1".to_owned(), EntryKind::Tree, inner),
        ("e0".to_owned(), EntryKind::Tree, inner),
        ("e0b7".to_owned(), EntryKind::Tree, inner),
        (note.clone(), EntryKind::Link, blob(1)),
        (note[..38].to_owned(), EntryKind::Blob, blob(1)),
    ]);
    let found = faults(read_notes(&trees, Some(root)));
    assert_eq!(faults(trees.read_on_threads(root)), found);
    for path in [
        "README",
        "E1",
        &format!("e0/{note}"),
        "e0b7",
        &note,
        &note[..38],
    ] {
        let start = format!("`{path}` is not a note; remove it;");
        assert!(
            found.iter().any(|fault| fault.starts_with(&start)),
            "{path}: {found:?}"
        );
    }
    assert_eq!(found.len(), 6);
    let missing = read_notes(&trees, Some(blob(9)));
    assert!(matches!(missing, Err(NotesError::Read(NoTree(id))) if id == blob(9)));
}

#[test]
fn folders_inside_themselves_are_not_followed_without_end() {
    let mut trees = MemoryTrees::default();
    let mut inner = trees.put(vec![]);
    for _ in 0..19 {
        let folders = (0..3_u8).map(|byte| (hex::encode([byte]), EntryKind::Tree, inner));
        inner = trees.put(folders.collect());
    }
    let read = read_notes(&trees, Some(inner));
    assert!(faults(read)[0].starts_with("there are more than 2000000 notes or 250000 folders"));
    assert_eq!(
        faults(trees.read_on_threads(inner)),
        faults(read_notes(&trees, Some(inner)))
    );
}

#[test]
fn a_change_of_one_note_costs_its_path() {
    let mut trees = MemoryTrees::default();
    let names = (0..70_000_u32)
        .map(|number| NoteName::from_bytes(Sha1::digest(number.to_be_bytes()).into()));
    let all: BTreeMap<NoteName, Option<ObjectId>> =
        names.map(|name| (name, Some(blob(1)))).collect();
    let first = trees.write(None, &all);
    assert!(
        first
            .trees
            .iter()
            .all(|(_, tree)| tree.entries.len() <= MAX_ENTRIES)
    );
    let (note, _) = all.iter().nth(35_000).unwrap();
    for change in [Some(blob(2)), None] {
        let changes = BTreeMap::from([(*note, change)]);
        let second = trees.write(Some(first.root), &changes);
        assert!(second.trees.len() <= 3, "{}", second.trees.len());
        let (found, reads) = trees.count_reads(|trees| {
            changed_notes(trees, Some(first.root), Some(second.root)).unwrap()
        });
        assert!(reads <= 6, "{reads}");
        let expected = NoteChange {
            before: Some(blob(1)),
            after: change,
        };
        assert_eq!(found, BTreeMap::from([(*note, expected)]));
        let (_, reads) =
            trees.count_reads(|trees| write_notes(trees, Some(first.root), &changes).unwrap());
        assert!(reads <= 3, "{reads}");
    }
    let (same, reads) = trees
        .count_reads(|trees| changed_notes(trees, Some(first.root), Some(first.root)).unwrap());
    assert_eq!((same.len(), reads), (0, 0));
}

#[test]
fn a_tree_splits_at_257_notes() {
    let mut trees = MemoryTrees::default();
    let notes = |number: u16| {
        (0..number)
            .map(|number| (name(&number.to_be_bytes()), Some(blob(1))))
            .collect()
    };
    let full = trees.write(None, &notes(256));
    assert_eq!(full.trees.len(), 1);
    let split = trees.write(Some(full.root), &notes(257));
    // All notes begin with `00`, and one with `01`.
    let sizes: Vec<usize> = split
        .trees
        .iter()
        .map(|(_, tree)| tree.entries.len())
        .collect();
    assert_eq!(sizes, [256, 1, 2]);
    let removed = notes(257).into_keys().map(|name| (name, None)).collect();
    let empty = trees.write(Some(split.root), &removed);
    assert_eq!(empty.root, ObjectId::empty_tree(gix_hash::Kind::Sha1));
    assert_eq!(
        read_notes(&trees, Some(empty.root)).unwrap(),
        BTreeMap::new()
    );
    assert_eq!(read_notes(&trees, None).unwrap(), BTreeMap::new());
    assert_eq!(trees.write(Some(empty.root), &removed).trees, []);
}

fn any_name() -> impl Strategy<Value = NoteName> {
    // Few values, so that many notes begin alike.
    proptest::collection::vec(proptest::sample::select(vec![0_u8, 1, 0xe0]), 3..5)
        .prop_map(|start| name(&start))
}

fn any_notes() -> impl Strategy<Value = BTreeMap<NoteName, ObjectId>> {
    proptest::collection::btree_map(any_name(), (0..3_u8).prop_map(blob), 0..25)
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn notes_are_a_map_with_any_fan_out(
        old in any_notes(),
        new in any_notes(),
        fan_out in proptest::collection::vec(any::<bool>(), 1..9),
        other_fan_out in proptest::collection::vec(any::<bool>(), 1..9),
    ) {
        let mut trees = MemoryTrees::default();
        let list = |notes: &BTreeMap<NoteName, ObjectId>| notes.iter().map(|(name, blob)| (*name, *blob)).collect::<Vec<_>>();
        let old_root = trees.mixed(&list(&old), 0, &fan_out);
        let new_root = trees.mixed(&list(&new), 0, &other_fan_out);
        prop_assert_eq!(&read_notes(&trees, Some(old_root)).unwrap(), &old);
        prop_assert_eq!(&trees.read_on_threads(old_root).unwrap(), &old);

        let names: std::collections::BTreeSet<NoteName> = old.keys().chain(new.keys()).copied().collect();
        let expected: BTreeMap<NoteName, NoteChange> = names
            .into_iter()
            .map(|name| (name, NoteChange { before: old.get(&name).copied(), after: new.get(&name).copied() }))
            .filter(|(_, change)| change.before != change.after)
            .collect();
        prop_assert_eq!(&changed_notes(&trees, Some(old_root), Some(new_root)).unwrap(), &expected);

        let edits = expected.iter().map(|(name, change)| (*name, change.after)).collect();
        let written = trees.write(Some(old_root), &edits);
        prop_assert_eq!(&read_notes(&trees, Some(written.root)).unwrap(), &new);
        prop_assert_eq!(&changed_notes(&trees, Some(old_root), Some(written.root)).unwrap(), &expected);
        prop_assert_eq!(trees.write(Some(written.root), &edits).root, written.root);
    }

    #[test]
    fn a_note_at_two_places_is_always_found(
        old in any_notes(),
        new in any_notes(),
        twice in any_name(),
        folder in 1..4_usize,
        fan_out in proptest::collection::vec(any::<bool>(), 1..9),
    ) {
        let mut trees = MemoryTrees::default();
        let list = |notes: &BTreeMap<NoteName, ObjectId>| notes.iter().map(|(name, blob)| (*name, *blob)).collect::<Vec<_>>();
        let old_root = trees.mixed(&list(&old), 0, &fan_out);
        let mut with_note = new;
        with_note.insert(twice, blob(7));
        let new_root = trees.mixed(&list(&with_note), 0, &fan_out);
        let folder = (folder..6).find(|folder| is_elsewhere(&trees, new_root, twice, *folder)).unwrap();
        let both = add_at(&mut trees, new_root, twice, folder, 0);
        prop_assert_eq!(faults(read_notes(&trees, Some(both))).len(), 1);
        prop_assert_eq!(faults(trees.read_on_threads(both)), faults(read_notes(&trees, Some(both))));
        prop_assert_eq!(faults(changed_notes(&trees, Some(old_root), Some(both))).len(), 1);
        prop_assert_eq!(faults(changed_notes(&trees, Some(new_root), Some(both))).len(), 1);
    }

    #[test]
    fn no_entries_make_it_panic(
        entries in proptest::collection::vec(("[0-9a-fE]{0,3}|[0-9a-f]{38,40}", 0..5_usize), 0..6),
    ) {
        let kinds = [EntryKind::Tree, EntryKind::Blob, EntryKind::BlobExecutable, EntryKind::Link, EntryKind::Commit];
        let mut trees = MemoryTrees::default();
        let inner = trees.put(vec![]);
        let root = trees.put(entries.into_iter().map(|(name, kind)| (name, kinds[kind], inner)).collect());
        drop(read_notes(&trees, Some(root)));
        drop(changed_notes(&trees, None, Some(root)));
        drop(write_notes(&trees, Some(root), &BTreeMap::from([(name(&[0]), None)])));
    }
}

/// Returns true if the note is not in a folder of this depth.
fn is_elsewhere(trees: &MemoryTrees, root: ObjectId, note: NoteName, depth: usize) -> bool {
    let mut id = root;
    for (index, byte) in note.as_bytes().iter().enumerate() {
        let tree = &trees.trees[&id];
        let rest = hex::encode(&note.as_bytes()[index..]);
        if tree.entries.iter().any(|entry| entry.filename == rest) {
            return index != depth;
        }
        let folder = hex::encode([*byte]);
        match tree.entries.iter().find(|entry| entry.filename == folder) {
            Some(entry) => id = entry.oid,
            None => return true,
        }
    }
    true
}

/// Adds a note in a folder of this depth, with the folders up to there.
fn add_at(
    trees: &mut MemoryTrees,
    root: ObjectId,
    note: NoteName,
    depth: usize,
    at: usize,
) -> ObjectId {
    let tree = trees.trees.get(&root).cloned().unwrap_or_else(Tree::empty);
    let mut entries: Vec<(String, EntryKind, ObjectId)> = tree
        .entries
        .into_iter()
        .map(|entry| (entry.filename.to_string(), entry.mode.kind(), entry.oid))
        .collect();
    if at == depth {
        entries.push((
            hex::encode(&note.as_bytes()[at..]),
            EntryKind::Blob,
            blob(8),
        ));
    } else {
        let folder = hex::encode([note.as_bytes()[at]]);
        let known = entries.iter().position(|(name, ..)| *name == folder);
        let inner = known.map_or(blob(9), |known| entries.remove(known).2);
        let inner = add_at(trees, inner, note, depth, at + 1);
        entries.push((folder, EntryKind::Tree, inner));
    }
    trees.put(entries)
}
