//! Git objects that an update of accounts adds.

use std::collections::BTreeMap;
use std::io;

use chrono::{DateTime, Utc};
use gix_hash::ObjectId;
use gix_object::tree::{Entry, EntryKind};
use gix_object::{Commit, Kind, Tree, WriteTo as _};

use crate::text::shown;

/// A git object with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitObject {
    /// SHA-1 of kind, size and content.
    pub id: ObjectId,
    /// Blob, tree or commit.
    pub kind: Kind,
    /// The content, without the header.
    pub content: Vec<u8>,
}

/// Name and address of a person or program in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPerson {
    /// Name, without characters that have a meaning in a commit.
    name: String,
    /// Address, without such characters.
    email: String,
}

/// Everything of a commit but its tree and its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitText {
    /// Person or program that made the change.
    pub author: CommitPerson,
    /// Program that wrote the commit.
    pub committer: CommitPerson,
    /// Time of the commit, for author and committer.
    pub at: DateTime<Utc>,
    /// Message. Its first line names the kind of the change.
    pub message: String,
}

impl GitObject {
    /// Creates an object of this content.
    ///
    /// # Panics
    ///
    /// On content that was made for a collision of SHA-1. git refuses such objects when they arrive.
    pub fn new(kind: Kind, content: Vec<u8>) -> Self {
        let id = gix_object::compute_hash(gix_hash::Kind::Sha1, kind, &content)
            .expect("git has refused collisions of SHA-1");
        Self { id, kind, content }
    }

    /// Creates the object of a tree.
    pub fn tree(tree: &Tree) -> Self {
        Self::written(Kind::Tree, |content| tree.write_to(content))
    }

    /// Creates the object of a commit with at most one parent.
    pub fn commit(tree: ObjectId, parent: Option<ObjectId>, text: &CommitText) -> Self {
        let person = |person: &CommitPerson| gix_actor::Signature {
            name: person.name.as_str().into(),
            email: person.email.as_str().into(),
            time: gix_object::date::Time::new(text.at.timestamp(), 0),
        };
        let commit = Commit {
            tree,
            parents: parent.into_iter().collect(),
            author: person(&text.author),
            committer: person(&text.committer),
            encoding: None,
            message: format!("{}\n", text.message.trim_end()).into(),
            extra_headers: Vec::new(),
        };
        Self::written(Kind::Commit, |content| commit.write_to(content))
    }

    fn written(kind: Kind, write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Self {
        let mut content = Vec::new();
        write(&mut content).expect("the parts were checked, and memory takes every byte");
        Self::new(kind, content)
    }
}

impl CommitPerson {
    /// Creates a person. Characters that have a meaning in a commit are replaced.
    pub fn new(name: &str, email: &str) -> Self {
        let clean = |text: &str| {
            let text = shown(text).replace(['<', '>', '\\'], "_");
            text.trim_matches(|c: char| c.is_whitespace() || ".,:;\"'".contains(c))
                .to_owned()
        };
        Self {
            name: clean(name),
            email: clean(email).replace(char::is_whitespace, "_"),
        }
    }
}

/// Replaces files in the root directory of a tree; `None` removes one. All other entries stay as they are.
pub fn with_files(tree: &Tree, files: &BTreeMap<&str, Option<ObjectId>>) -> Tree {
    let kept = tree
        .entries
        .iter()
        .filter(|entry| !files.keys().any(|name| entry.filename == *name))
        .cloned();
    let written = files.iter().filter_map(|(name, id)| {
        Some(Entry {
            mode: EntryKind::Blob.into(),
            filename: (*name).into(),
            oid: (*id)?,
        })
    });
    let mut entries: Vec<Entry> = kept.chain(written).collect();
    entries.sort();
    Tree { entries }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(author: CommitPerson) -> CommitText {
        CommitText {
            author,
            committer: CommitPerson::new("Lockkeeper", "lockkeeper@example.com"),
            at: DateTime::from_timestamp_secs(1_700_000_000).unwrap(),
            message: "Create Account\n\n".to_owned(),
        }
    }

    #[test]
    fn objects_have_the_ids_that_git_gives_them() {
        // `git hash-object -t tree /dev/null`, and `git hash-object` of the other two.
        let tree = GitObject::tree(&Tree::empty());
        assert_eq!(
            tree.id.to_string(),
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
        );
        let blob = GitObject::new(Kind::Blob, b"1000001".to_vec());
        let commit = GitObject::commit(
            tree.id,
            Some(blob.id),
            &text(CommitPerson::new("John Doe", "john@example.com")),
        );
        assert_eq!(
            String::from_utf8(commit.content).unwrap(),
            format!(
                "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent {}\nauthor John Doe <john@example.com> \
                 1700000000 +0000\ncommitter Lockkeeper <lockkeeper@example.com> 1700000000 +0000\n\nCreate Account\n",
                blob.id
            )
        );
    }

    #[test]
    fn no_name_can_add_a_line_or_an_address_to_a_commit() {
        for name in ["a\ncommitter x", "<b@c>", "", " .,: ", "ü \0", "\\\"'"] {
            let commit = GitObject::commit(
                ObjectId::empty_tree(gix_hash::Kind::Sha1),
                None,
                &text(CommitPerson::new(name, name)),
            );
            let content = String::from_utf8(commit.content).unwrap();
            assert_eq!(content.lines().count(), 5, "{content}");
            assert_eq!(content.matches('<').count(), 2, "{content}");
        }
    }

    #[test]
    fn an_edited_tree_keeps_its_other_entries() {
        let id = |text: &str| GitObject::new(Kind::Blob, text.as_bytes().to_vec()).id;
        let empty = Tree::empty();
        let tree = with_files(
            &empty,
            &BTreeMap::from([("b", Some(id("1"))), ("a", Some(id("2")))]),
        );
        assert!(tree.entries.is_sorted());
        let edited = with_files(
            &tree,
            &BTreeMap::from([("a", None), ("c", Some(id("3"))), ("d", None)]),
        );
        let names: Vec<String> = edited
            .entries
            .iter()
            .map(|entry| entry.filename.to_string())
            .collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(edited.entries[0], tree.entries[1]);
    }
}
