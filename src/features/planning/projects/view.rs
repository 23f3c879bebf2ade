//! Gives the search for projects its files: from a checkout, or from a commit that is not checked out.
//!
//! With `--sparse-checkout`, only the search decides which files have to be on the disk, so it reads files from the
//! mirror. Hooks may change and make files before the search, and a setting can include files that nobody committed.
//! In both cases the search needs a whole checkout.

use std::cell::RefCell;
use std::sync::Arc;

use super::Work;
use super::files::{MAX_CODE_BYTES, MAX_LINK_BYTES, link_target, read_code};
use crate::config::repos::RepoRules;
use crate::discovery::FileTree;
use crate::features::planning::{CommandCx, hooks};
use crate::git::{Checkout, GitError, TreeReader};
use crate::model::{CommitSha, RepoPath, WorkspaceName};
use crate::workflow::{CheckoutError, Source};

/// Source of the files for a search.
pub(super) enum SearchFiles {
    /// Files on the disk, including the changes of hooks.
    Checkout(Arc<Checkout>),
    /// Files of a commit in the mirror.
    Commit(Box<CommitFiles>),
}

impl SearchFiles {
    /// Returns true if nothing is checked out for the search.
    pub fn is_of_commit(cx: &CommandCx<'_>, rules: &RepoRules) -> bool {
        cx.ctx.checkouts.is_sparse()
            && !cx.ctx.settings.planning.untracked_files
            && !hooks::any(cx, rules)
    }

    pub async fn of(cx: &CommandCx<'_>, work: &Work) -> Result<Self, CheckoutError> {
        if Self::is_of_commit(cx, work.policies.of_operator()) {
            return Ok(Self::Commit(Box::new(
                CommitFiles::of(cx, work.source()).await?,
            )));
        }
        Ok(Self::Checkout(
            work.checkout(cx, &WorkspaceName::default()).await?,
        ))
    }

    pub fn checkout(&self) -> Option<&Arc<Checkout>> {
        match self {
            Self::Checkout(checkout) => Some(checkout),
            Self::Commit(_) => None,
        }
    }

    pub fn commit(&self) -> &CommitSha {
        match self {
            Self::Checkout(checkout) => &checkout.commit,
            Self::Commit(objects) => &objects.commit,
        }
    }

    /// Returns the text of a file of code. It blocks, so it needs a thread of its own.
    pub fn read(&self, tree: &FileTree, path: &RepoPath) -> Option<String> {
        match self {
            Self::Checkout(checkout) => read_code(checkout, path),
            Self::Commit(objects) => objects.read(tree, path),
        }
    }

    /// Returns the target of a symbolic link. It blocks, so it needs a thread of its own.
    pub fn link_target(&self, link: &RepoPath) -> Option<String> {
        match self {
            Self::Checkout(checkout) => link_target(checkout, link),
            Self::Commit(objects) => objects.link_target(link),
        }
    }

    /// Returns the error if an existing file could not be read.
    pub fn trouble(&self) -> Result<(), GitError> {
        match self {
            Self::Checkout(_) => Ok(()),
            Self::Commit(objects) => objects.trouble(),
        }
    }
}

/// Files of a commit, read in a thread of its own.
pub(super) struct CommitFiles {
    pub commit: CommitSha,
    reader: RefCell<TreeReader>,
    /// First error. Readers do not see it, because a file is only readable or unreadable for them.
    trouble: RefCell<Option<GitError>>,
}

impl CommitFiles {
    /// Opens the commit that would be checked out of a source.
    pub async fn of(cx: &CommandCx<'_>, source: &Source) -> Result<Self, CheckoutError> {
        let commit = cx.ctx.checkouts.commit(source).await?;
        let reader = RefCell::new(cx.ctx.checkouts.reader(source, &commit));
        Ok(Self {
            commit,
            reader,
            trouble: RefCell::default(),
        })
    }

    /// Returns the text of a file of code. Like a checkout, it follows no link.
    pub fn read(&self, tree: &FileTree, path: &RepoPath) -> Option<String> {
        if tree.is_link(path) {
            return None;
        }
        String::from_utf8(self.bytes(path, MAX_CODE_BYTES)?).ok()
    }

    pub fn link_target(&self, link: &RepoPath) -> Option<String> {
        String::from_utf8(self.bytes(link, MAX_LINK_BYTES as u64)?).ok()
    }

    fn bytes(&self, path: &RepoPath, most: u64) -> Option<Vec<u8>> {
        if self.trouble.borrow().is_some() {
            return None;
        }
        let read = self.reader.borrow_mut().read(path, most);
        read.unwrap_or_else(|error| {
            self.trouble.replace(Some(error));
            None
        })
    }

    pub fn trouble(&self) -> Result<(), GitError> {
        self.trouble.take().map_or(Ok(()), Err)
    }
}
