//! Reads the files of a search, each once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Attribute, Block, Body, Structure};

use super::limits::{MAX_ALL_BYTES, MAX_ALL_STEPS, MAX_FILE_BYTES, MAX_UNRESOLVED};
use super::source::local_modules;
use crate::discovery::FileTree;
use crate::discovery::code::{UnreadFile, has_word, is_editor_file, unmarked};
use crate::model::RepoPath;

/// A parsed file in Terragrunt's language.
pub(super) struct ParsedFile {
    pub(super) file: RepoPath,
    pub(super) body: Body,
    /// Offsets at which the lines begin.
    lines: Vec<usize>,
    /// Position of each local: the block, and the attribute in it.
    locals: HashMap<String, (usize, usize)>,
}

/// Result of reading a file.
#[derive(Clone)]
pub(super) enum Parsed {
    /// The file does not exist, or cannot be read.
    Missing,
    /// The file is not in the language: line and message.
    Broken(usize, Rc<str>),
    /// The file was read and parsed.
    Read(Rc<ParsedFile>),
}

/// A tree, its files, and the remaining work for all units.
pub(super) struct UnitFiles<'a> {
    pub(super) tree: &'a FileTree,
    read: &'a dyn Fn(&RepoPath) -> Option<String>,
    parsed: RefCell<HashMap<RepoPath, Parsed>>,
    texts: RefCell<HashMap<RepoPath, Option<Rc<str>>>>,
    modules: RefCell<HashMap<RepoPath, Rc<Vec<RepoPath>>>>,
    /// Code that may call modules, but cannot be read.
    unread: RefCell<Vec<UnreadFile>>,
    bytes: Cell<usize>,
    pub(super) steps: Cell<usize>,
}

impl<'a> UnitFiles<'a> {
    pub(super) fn new(tree: &'a FileTree, read: &'a dyn Fn(&RepoPath) -> Option<String>) -> Self {
        Self {
            tree,
            read,
            parsed: RefCell::default(),
            texts: RefCell::default(),
            modules: RefCell::default(),
            unread: RefCell::default(),
            bytes: Cell::new(MAX_ALL_BYTES),
            steps: Cell::new(MAX_ALL_STEPS),
        }
    }

    /// Returns the text of a file; `None` if the file does not exist, is not text or is too large.
    pub(super) fn text(&self, file: &RepoPath) -> Option<Rc<str>> {
        if let Some(text) = self.texts.borrow().get(file) {
            return text.clone();
        }
        let text = self.load(file).map(Rc::from);
        self.texts.borrow_mut().insert(file.clone(), text.clone());
        text
    }

    fn load(&self, file: &RepoPath) -> Option<String> {
        if !self.tree.has_file(file) {
            return None;
        }
        let text =
            (self.read)(file).filter(|text| text.len() <= MAX_FILE_BYTES.min(self.bytes.get()))?;
        self.bytes.set(self.bytes.get() - text.len());
        Some(text)
    }

    /// Returns a file in Terragrunt's language.
    pub(super) fn source(&self, file: &RepoPath) -> Parsed {
        if let Some(parsed) = self.parsed.borrow().get(file) {
            return parsed.clone();
        }
        let parsed = self
            .load(file)
            .map_or(Parsed::Missing, |text| parse(file, &text));
        self.parsed
            .borrow_mut()
            .insert(file.clone(), parsed.clone());
        parsed
    }

    /// Returns the directories of the local modules that the code of a directory calls.
    pub(super) fn modules(&self, dir: &RepoPath) -> Rc<Vec<RepoPath>> {
        if let Some(modules) = self.modules.borrow().get(dir) {
            return Rc::clone(modules);
        }
        let mut modules = Vec::new();
        for file in self.tree.files_in(dir) {
            if is_editor_file(file.file_name()) {
                continue;
            }
            let Some(text) = self.load(file).filter(|text| has_word(text, "module")) else {
                continue;
            };
            match local_modules(file, &text) {
                Ok(called) => modules.extend(called),
                Err(unread) => self.unread.borrow_mut().push(unread),
            }
        }
        let modules = Rc::new(modules);
        self.modules
            .borrow_mut()
            .insert(dir.clone(), Rc::clone(&modules));
        modules
    }

    /// Returns the unreadable code in some directories, sorted.
    pub(super) fn into_unread(self, is_in: impl Fn(&RepoPath) -> bool) -> Vec<UnreadFile> {
        let mut unread = self.unread.into_inner();
        unread.retain(|one| is_in(&one.file.parent()));
        unread.sort_unstable();
        unread.truncate(MAX_UNRESOLVED);
        unread
    }
}

fn parse(file: &RepoPath, text: &str) -> Parsed {
    let text = unmarked(text);
    match hcl_edit::parser::parse_body(text) {
        Ok(body) => Parsed::Read(Rc::new(ParsedFile::new(file.clone(), body, text))),
        Err(error) => Parsed::Broken(error.location().line(), error.message().into()),
    }
}

impl ParsedFile {
    fn new(file: RepoPath, body: Body, text: &str) -> Self {
        let newlines = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(newlines).collect();
        let mut locals = HashMap::new();
        for (block_at, structure) in body.iter().enumerate() {
            let Some(block) = structure
                .as_block()
                .filter(|block| block.has_ident("locals"))
            else {
                continue;
            };
            for (at, inner) in block.body.iter().enumerate() {
                if let Some(attribute) = inner.as_attribute() {
                    locals.insert(attribute.key.as_str().to_owned(), (block_at, at));
                }
            }
        }
        Self {
            file,
            body,
            lines,
            locals,
        }
    }

    /// Returns the line (from 1) on which a part of the file begins.
    pub(super) fn line(&self, place: &impl Span) -> usize {
        let at = place.span().map_or(0, |span| span.start);
        self.lines.partition_point(|begin| *begin <= at).max(1)
    }

    /// Returns the expression of a local.
    pub(super) fn local(&self, name: &str) -> Option<&Expression> {
        let (block, at) = *self.locals.get(name)?;
        let block = self.body.get(block).and_then(Structure::as_block)?;
        block
            .body
            .get(at)
            .and_then(Structure::as_attribute)
            .map(|attribute| &attribute.value)
    }

    /// Returns the names of all locals, in order.
    pub(super) fn local_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.locals.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn blocks<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Block> {
        self.body.get_blocks(name)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.body.get_attribute(name)
    }
}

/// Returns the first label of a block; empty if it has none.
pub(super) fn label(block: &Block) -> &str {
    block.labels.first().map_or("", |label| label.as_str())
}
