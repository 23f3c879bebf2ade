//! Reads and writes files of policies, within limits.

use std::fs::{self, File, Permissions};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use crate::git::FileLimits;
use crate::model::{RunUser, Sha256Digest};
use crate::workflow::file_owner;

/// Limits of the policies of one set.
pub(super) const LIMITS: FileLimits = FileLimits {
    entries: 5_000,
    bytes: 32 << 20,
};

/// Maximum depth of directories.
const DEEPEST: usize = 20;

/// Maximum number of files and directories that are searched for Rego.
const SEARCHED: usize = 100_000;

/// Policies of one set.
pub(in crate::workflow) enum PolicyFiles {
    /// A directory or file of the server, which was checked, and which conftest reads itself.
    Here(PathBuf),
    /// Files in memory. They are written only where no program of the pull request can change them.
    Read(Vec<PolicyFile>),
}

/// A file of policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::workflow) struct PolicyFile {
    /// Path in the directory of the policies.
    pub path: String,
    pub content: Vec<u8>,
}

impl PolicyFile {
    /// Returns true for a file with policies in Rego.
    pub fn is_rego(&self) -> bool {
        is_rego(Path::new(&self.path))
    }
}

/// Returns a digest of the paths and contents of files.
pub(super) fn digest(files: &[PolicyFile]) -> Sha256Digest {
    let mut lines: Vec<String> = files
        .iter()
        .map(|file| {
            let content = Sha256Digest::of(&file.content);
            format!("{content} {}:{}\n", file.path.len(), file.path)
        })
        .collect();
    lines.sort_unstable();
    Sha256Digest::of(lines.concat().as_bytes())
}

/// Reads the files of a directory of the server, or one file. Links are followed, because the administrator made them.
/// Hidden files are left out: the directories of a mounted `ConfigMap` have each file a second time below a hidden name.
pub(super) fn read_local(top: &Path) -> Result<Vec<PolicyFile>> {
    LocalReading::default().of(top)
}

/// Reads the files with Rego that conftest loads from a directory of the server, or one file. Hidden files are among them.
pub(in crate::workflow) fn read_rego(top: &Path) -> Result<Vec<PolicyFile>> {
    let search = LocalReading {
        is_search: true,
        ..LocalReading::default()
    };
    search.of(top)
}

fn is_rego(path: &Path) -> bool {
    let is_ending = path.extension().is_some_and(|end| end == "rego");
    is_ending || path.file_name().is_some_and(|name| name == ".rego")
}

/// Files that were read so far.
#[derive(Default)]
struct LocalReading {
    files: Vec<PolicyFile>,
    entries: usize,
    bytes: u64,
    /// True if only files with Rego are read, but hidden ones as well.
    is_search: bool,
}

impl LocalReading {
    fn of(mut self, top: &Path) -> Result<Vec<PolicyFile>> {
        let meta = fs::metadata(top)?;
        if meta.is_dir() {
            self.dir(top, "", 0)?;
        } else if meta.is_file() {
            let name = top.file_name().unwrap_or_default().to_string_lossy();
            self.file(top, name.into_owned())?;
        } else {
            let what = "it is neither a directory nor a regular file";
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        self.files
            .sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(self.files)
    }

    fn dir(&mut self, dir: &Path, prefix: &str, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(too_much(format!(
                "{} has directories deeper than {DEEPEST} levels",
                dir.display()
            )));
        }
        let most = if self.is_search {
            SEARCHED
        } else {
            LIMITS.entries
        };
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > most {
                return Err(too_much(format!(
                    "it has more than {most} files and directories"
                )));
            }
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                let what = format!("the name of {} is not UTF-8", entry.path().display());
                Error::new(ErrorKind::InvalidData, what)
            })?;
            if name.starts_with('.') && !self.is_search {
                continue;
            }
            let (path, shown) = (entry.path(), format!("{prefix}{name}"));
            let meta = match fs::metadata(&path) {
                // A link to nothing, such as the mark of an editor, has no rules.
                Err(error) if self.is_search && error.kind() == ErrorKind::NotFound => continue,
                meta => meta?,
            };
            if meta.is_dir() {
                self.dir(&path, &format!("{shown}/"), depth + 1)?;
            } else if meta.is_file() && (is_rego(&path) || !self.is_search) {
                self.file(&path, shown)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, shown: String) -> Result<()> {
        let mut content = Vec::new();
        let left = LIMITS.bytes - self.bytes;
        let length = File::open(path)?.take(left + 1).read_to_end(&mut content)? as u64;
        if length > left {
            return Err(too_much(format!(
                "its files have more than {} MiB",
                LIMITS.bytes >> 20
            )));
        }
        self.bytes += length;
        self.files.push(PolicyFile {
            path: shown,
            content,
        });
        Ok(())
    }
}

fn too_much(what: String) -> Error {
    Error::new(ErrorKind::FileTooLarge, what)
}

/// Writes files into a new directory.
pub(in crate::workflow) fn write(dir: &Path, files: &[PolicyFile]) -> Result<()> {
    fs::create_dir(dir)?;
    for file in files {
        let path = dir.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create_new(path)?.write_all(&file.content)?;
    }
    Ok(())
}

/// Lets the user of runs read a directory of the server below `top`, and all that is below.
pub(in crate::workflow) fn share(top: &Path, dir: &Path, user: RunUser) -> Result<()> {
    let (top, dir) = (top.canonicalize()?, dir.canonicalize()?);
    file_owner::allow_search(&top, &dir, user)?;
    share_below(&dir, user)
}

fn share_below(path: &Path, user: RunUser) -> Result<()> {
    let is_dir = fs::symlink_metadata(path)?.is_dir();
    chown(path, None, Some(user.gid))?;
    let mode = if is_dir { 0o750 } else { 0o440 };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    if is_dir {
        for entry in fs::read_dir(path)? {
            share_below(&entry?.path(), user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn paths(files: &[PolicyFile]) -> Vec<&str> {
        files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn a_directory_of_the_server_is_read_with_its_links_and_without_hidden_files() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("policies");
        fs::create_dir_all(top.join("aws")).unwrap();
        fs::create_dir_all(top.join("..data")).unwrap();
        fs::write(top.join("aws/s3.rego"), "package main").unwrap();
        fs::write(top.join("..data/main.rego"), "package main").unwrap();
        symlink("..data/main.rego", top.join("main.rego")).unwrap();
        let files = read_local(&top).unwrap();
        assert_eq!(paths(&files), ["aws/s3.rego", "main.rego"]);
        fs::write(top.join(".hidden.rego"), "package main").unwrap();
        fs::write(top.join("README.md"), "text").unwrap();
        symlink("absent", top.join(".#lock.rego")).unwrap();
        assert_eq!(
            paths(&read_rego(&top).unwrap()),
            [
                "..data/main.rego",
                ".hidden.rego",
                "aws/s3.rego",
                "main.rego"
            ]
        );
        let one = read_local(&top.join("aws/s3.rego")).unwrap();
        assert_eq!(paths(&one), ["s3.rego"]);
        assert!(read_local(&top.join("absent")).is_err());
        symlink(".", top.join("loop")).unwrap();
        assert!(read_local(&top).is_err(), "a loop of links has an end");
    }

    #[test]
    fn files_are_written_as_they_were_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.rego", "1"), ("b/c.rego", "2")].map(|(path, content)| PolicyFile {
            path: path.to_owned(),
            content: content.into(),
        });
        write(&dir.path().join("set"), &files).unwrap();
        assert_eq!(read_local(&dir.path().join("set")).unwrap(), files);
    }

    #[test]
    fn the_digest_depends_on_paths_and_contents_and_not_on_the_order() {
        let file = |path: &str, content: &str| PolicyFile {
            path: path.to_owned(),
            content: content.into(),
        };
        let one = digest(&[file("a", "1"), file("b", "2")]);
        assert_eq!(one, digest(&[file("b", "2"), file("a", "1")]));
        for other in [
            vec![file("a", "1"), file("b", "3")],
            vec![file("a", "1"), file("c", "2")],
            vec![file("a", "2"), file("b", "1")],
            vec![file("a", "1")],
        ] {
            assert_ne!(one, digest(&other));
        }
    }
}
