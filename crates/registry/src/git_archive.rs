//! Archives that `git archive --format=tar` writes.

use std::io::{self, Read};

use tar::Archive;

use crate::tree::{TreeFile, TreeMode};

/// A file or link of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Path from the top of the repository.
    pub path: Vec<u8>,
    /// Kind of the entry. Submodules are empty folders of an archive, so they are left out.
    pub mode: TreeMode,
    /// Content of a file, or the target of a link.
    pub content: Vec<u8>,
}

impl ArchivedFile {
    /// Returns the entry of the tree.
    pub fn entry(&self) -> TreeFile<'_> {
        TreeFile {
            path: &self.path,
            mode: self.mode,
            content: &self.content,
        }
    }
}

/// Reads all files and links of an archive. `most` is the number of bytes that they can have together; more is an error of
/// the kind [`io::ErrorKind::FileTooLarge`].
pub fn read_git_archive(archive: impl Read, most: u64) -> io::Result<Vec<ArchivedFile>> {
    let (mut files, mut left) = (Vec::new(), most);
    for entry in Archive::new(archive).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let mode = if kind.is_symlink() {
            TreeMode::Link
        } else if !kind.is_file() {
            // Folders, and the comment with the commit.
            continue;
        } else if entry.header().mode()? & 0o100 != 0 {
            TreeMode::Executable
        } else {
            TreeMode::File
        };
        let path = entry.path_bytes().into_owned();
        let content = if mode == TreeMode::Link {
            let target = entry.link_name_bytes();
            target.map(std::borrow::Cow::into_owned).unwrap_or_default()
        } else {
            let mut content = Vec::new();
            (&mut entry).take(left + 1).read_to_end(&mut content)?;
            content
        };
        let size = content.len() as u64;
        let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
        left = left.checked_sub(size).ok_or_else(too_large)?;
        files.push(ArchivedFile {
            path,
            mode,
            content,
        });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn header(kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header
    }

    fn archive() -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        let mut folder = header(EntryType::Directory, 0o775, 0);
        tar.append_data(&mut folder, "a/", &b""[..]).unwrap();
        for (path, mode) in [("a/x.tf", 0o664), ("a/run", 0o775)] {
            let mut file = header(EntryType::Regular, mode, 3);
            tar.append_data(&mut file, path, &b"abc"[..]).unwrap();
        }
        let mut link = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut link, "b", "a/x.tf").unwrap();
        tar.into_inner().unwrap()
    }

    #[test]
    fn files_and_links_are_read_and_folders_are_not() {
        let files = read_git_archive(archive().as_slice(), 12).unwrap();
        let shown = files.iter().map(|file| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(&file.path), file.mode, text(&file.content))
        });
        let expected = [
            ("a/x.tf", TreeMode::File, "abc"),
            ("a/run", TreeMode::Executable, "abc"),
            ("b", TreeMode::Link, "a/x.tf"),
        ];
        let expected = expected.map(|(path, mode, text)| (path.to_owned(), mode, text.to_owned()));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn more_bytes_than_allowed_are_refused() {
        let error = read_git_archive(archive().as_slice(), 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
