//! Reads commits, file lists and files from a mirror without a checkout.

use super::{Checkout, GitError, Mirror, RefName, kept};
use crate::model::{CommitSha, RepoPath};

/// Maximum size of a file list in bytes; enough for some hundred thousand files.
pub(super) const MAX_LIST: usize = 64 * 1024 * 1024;

/// Files of a commit or checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFiles {
    /// Paths in the order of git, including symbolic links but not submodules.
    pub paths: Vec<RepoPath>,
    /// Paths that are symbolic links.
    pub links: Vec<RepoPath>,
    /// Number of names left out because they are not UTF-8, contain control characters or are too long.
    pub left_out: usize,
    /// True if the list is incomplete because it exceeds 64 MiB of names.
    pub truncated: bool,
}

/// Treatment of the files that the repository ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredFiles {
    /// Ignored files are listed as well.
    Listed,
    /// Ignored files are left out.
    LeftOut,
}

pub(super) struct ObjectEntry<'a> {
    mode: &'a str,
    pub(super) id: &'a str,
    /// Size in bytes, if the listing contains it.
    size: Option<u64>,
    pub(super) name: &'a [u8],
}

impl ObjectEntry<'_> {
    fn is_file(&self) -> bool {
        self.mode.starts_with("100")
    }

    pub(super) fn is_submodule(&self) -> bool {
        self.mode == "160000"
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode == "120000"
    }
}

impl Mirror {
    /// Returns the commit of a ref in the mirror, or `None` when the ref does not exist.
    pub async fn commit_of(&self, name: &RefName) -> Result<Option<CommitSha>, GitError> {
        let cmd = self
            .git()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let output = self
            .call("look up a ref", &cmd.arg(format!("{name}^{{commit}}")))
            .await?;
        match output.code {
            Some(0) => CommitSha::new(output.stdout.text().trim())
                .map(Some)
                .map_err(|error| GitError::other(format!("look up {name}"), error)),
            Some(1) => Ok(None),
            _ => Err(GitError::from_output(
                format!("look up {name}"),
                &output,
                None,
            )),
        }
    }

    /// Returns true if the mirror has a commit.
    pub async fn has_commit(&self, commit: &CommitSha) -> Result<bool, GitError> {
        self.has_commits(&[commit]).await
    }

    /// Returns true if the mirror has all of these commits.
    pub async fn has_commits(&self, commits: &[&CommitSha]) -> Result<bool, GitError> {
        let names = commits.iter().map(|commit| format!("{commit}^{{commit}}"));
        let cmd = self
            .git()
            .args(["rev-list", "--no-walk", "--quiet"])
            .args(names);
        let output = self.call("look up commits", &cmd).await?;
        Ok(output.is_success())
    }

    /// Counts the commits in the history of `of` that are in the history of none of the others.
    pub async fn count_missing(
        &self,
        of: &CommitSha,
        from: &[&CommitSha],
    ) -> Result<u64, GitError> {
        let doing = format!("compare {} with the base branch", of.short());
        let others = from.iter().map(|commit| commit.as_str());
        let cmd = self
            .git()
            .args(["rev-list", "--count", of.as_str(), "--not"])
            .args(others);
        let output = self.run(&doing, cmd).await?;
        output
            .stdout
            .text()
            .trim()
            .parse()
            .map_err(|error| GitError::other(doing, error))
    }

    /// Returns all files of a commit.
    pub async fn files(&self, commit: &CommitSha) -> Result<TreeFiles, GitError> {
        let cmd =
            self.git()
                .cap(MAX_LIST)
                .args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]);
        let output = self
            .run(&format!("list the files of {}", commit.short()), cmd)
            .await?;
        let mut files = TreeFiles {
            truncated: output.stdout.truncated,
            ..TreeFiles::default()
        };
        for entry in
            entries(&output.stdout.bytes).filter(|entry| entry.is_file() || entry.is_link())
        {
            match path_of(entry.name) {
                Some(path) => {
                    files.links.extend(entry.is_link().then(|| path.clone()));
                    files.paths.push(path);
                }
                None => files.left_out += 1,
            }
        }
        Ok(files)
    }

    /// Returns the id of the tree of a commit, which is the same for two commits with the same files.
    pub async fn tree_id(&self, commit: &CommitSha) -> Result<String, GitError> {
        let cmd = self
            .git()
            .args(["rev-parse", "--verify", "--end-of-options"]);
        let output = self
            .run(
                "look up the tree of a commit",
                cmd.arg(format!("{commit}^{{tree}}")),
            )
            .await?;
        Ok(output.stdout.text().trim().to_owned())
    }

    /// Returns files in a checkout that are not part of its commit, for example those that hooks made. Files that
    /// runs leave behind are left out.
    pub async fn untracked(
        &self,
        checkout: &Checkout,
        ignored: IgnoredFiles,
    ) -> Result<TreeFiles, GitError> {
        let doing = format!(
            "list the files that were created in the checkout of {}",
            checkout.head.short()
        );
        let cmd = self
            .git_in(&doing, &checkout.path)?
            .cap(MAX_LIST)
            .args(["ls-files", "--others", "-z"]);
        let cmd = cmd.args((ignored == IgnoredFiles::LeftOut).then_some("--exclude-standard"));
        let output = self
            .run(
                &doing,
                cmd.args(kept::PATTERNS.iter().flat_map(|pattern| ["-x", *pattern])),
            )
            .await?;
        let mut files = TreeFiles {
            truncated: output.stdout.truncated,
            ..TreeFiles::default()
        };
        for name in output
            .stdout
            .bytes
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            match path_of(name) {
                Some(path) => files.paths.push(path),
                None => files.left_out += 1,
            }
        }
        Ok(files)
    }

    /// Returns the content of a file, or `None` when the commit has no such file. A symbolic link is an error: its
    /// target must not be read as content.
    pub async fn read(
        &self,
        commit: &CommitSha,
        path: &RepoPath,
        max_bytes: u64,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let doing = format!("read `{path}` at {}", commit.short());
        if path.is_root() {
            return Ok(None);
        }
        let list = self
            .entries_at(&doing, commit, std::slice::from_ref(path))
            .await?;
        let Some(entry) = entries(&list).next() else {
            return Ok(None);
        };
        if entry.is_link() {
            return Err(GitError::other(
                doing,
                "it is a symbolic link. Replace it with a regular file",
            ));
        }
        let Some(size) = entry.size.filter(|_| entry.is_file()) else {
            return Ok(None);
        };
        if size > max_bytes {
            return Err(GitError::TooLarge {
                path: path.to_string(),
                size,
                limit: max_bytes,
            });
        }
        let cap = usize::try_from(size).unwrap_or(usize::MAX);
        let cmd = self.git().cap(cap).args(["cat-file", "blob", entry.id]);
        self.run(&doing, cmd)
            .await
            .map(|output| Some(output.stdout.bytes))
    }

    /// Returns true if a commit contains a file, link or directory at a path.
    pub async fn is_tracked(&self, commit: &CommitSha, path: &RepoPath) -> Result<bool, GitError> {
        Ok(path.is_root()
            || !self
                .tracked(commit, std::slice::from_ref(path))
                .await?
                .is_empty())
    }

    /// Returns the paths at which a commit has a file, link or directory. The root is left out.
    pub async fn tracked(
        &self,
        commit: &CommitSha,
        paths: &[RepoPath],
    ) -> Result<Vec<RepoPath>, GitError> {
        let paths: Vec<RepoPath> = paths
            .iter()
            .filter(|path| !path.is_root())
            .cloned()
            .collect();
        if paths.is_empty() {
            return Ok(paths);
        }
        let list = self
            .entries_at(&format!("find files at {}", commit.short()), commit, &paths)
            .await?;
        let found: Vec<RepoPath> = entries(&list)
            .filter_map(|entry| path_of(entry.name))
            .collect();
        Ok(paths
            .into_iter()
            .filter(|path| found.contains(path))
            .collect())
    }

    async fn entries_at(
        &self,
        doing: &str,
        commit: &CommitSha,
        paths: &[RepoPath],
    ) -> Result<Vec<u8>, GitError> {
        let cmd = self
            .git()
            .args(["ls-tree", "-l", "-z", "--full-tree", commit.as_str()]);
        self.run(doing, cmd.operands(paths.iter().map(RepoPath::as_str)))
            .await
            .map(|output| output.stdout.bytes)
    }
}

/// Parses `100644 blob 1234…   57\tpath\0…`, with the size if requested. An entry without its end was cut off and is
/// dropped.
pub(super) fn entries(list: &[u8]) -> impl Iterator<Item = ObjectEntry<'_>> {
    let whole = &list[..list.iter().rposition(|byte| *byte == 0).unwrap_or(0)];
    whole.split(|byte| *byte == 0).filter_map(|line| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let mut words = std::str::from_utf8(&line[..tab])
            .ok()?
            .split_ascii_whitespace();
        let (mode, _kind, id) = (words.next()?, words.next()?, words.next()?);
        Some(ObjectEntry {
            mode,
            id,
            size: words.next().and_then(|size| size.parse().ok()),
            name: &line[tab + 1..],
        })
    })
}

pub(super) fn path_of(name: &[u8]) -> Option<RepoPath> {
    let name = std::str::from_utf8(name).ok()?;
    // A name that the constructor had to clean would mean another file.
    RepoPath::new(name)
        .ok()
        .filter(|path| path.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_entry_by_entry() {
        let list =
            b"100644 blob aa 12\ta b/c\x00160000 commit bb       -\tsub\x00120000 blob cc       3\tlink\x00100644 bl";
        let found: Vec<_> = entries(list)
            .map(|e| (e.id, e.size, e.is_file(), e.is_link()))
            .collect();
        assert_eq!(
            found,
            [
                ("aa", Some(12), true, false),
                ("bb", None, false, false),
                ("cc", Some(3), false, true)
            ]
        );
        assert_eq!(entries(b"").count(), 0);
    }

    #[test]
    fn names_that_cannot_be_told_are_left_out() {
        assert_eq!(path_of(b"a/b.tf").unwrap().as_str(), "a/b.tf");
        for name in [&b"a\xFF"[..], b"a\nb", b"a//b", b""] {
            assert!(path_of(name).is_none(), "{name:?}");
        }
    }
}
