//! Files of a commit, as the packages of both kinds are made from them.

/// Entry of a tree in Git, with its path from the top of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFile<'a> {
    /// Path as Git has it, which can be any bytes.
    pub path: &'a [u8],
    /// Kind of the entry.
    pub mode: TreeMode,
    /// Content of a file, or the target of a link. For files it is the content that `git archive` writes, because
    /// attributes of the repository such as `eol=crlf` and `ident` change what clients find.
    pub content: &'a [u8],
}

/// Kind of an entry of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TreeMode {
    /// A file that is not executable.
    File,
    /// A file that is executable.
    Executable,
    /// A symbolic link, whose content is its target.
    Link,
    /// A commit of another repository.
    Submodule,
}

impl TreeMode {
    /// Returns true for files, executable or not.
    pub fn is_file(self) -> bool {
        match self {
            Self::File | Self::Executable => true,
            Self::Link | Self::Submodule => false,
        }
    }
}
