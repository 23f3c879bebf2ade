//! Reads commits, file lists and files from a mirror without a checkout.

use gix_object::Kind;

use super::disk::run_blocking;
pub(super) use super::object_db::MAX_LIST;
use super::object_db::{Dirs, ObjectError};
use super::{Checkout, GitError, Mirror, RefName, ref_file};
use crate::model::{CommitSha, RepoPath};

/// Files that the tools create, as patterns of git. They are not listed as untracked.
const OF_TOOLS: &[&str] = &[
    ".terraform/",
    ".terragrunt-cache/",
    ".terraform.lock.hcl",
    "*.tfstate",
    "*.tfstate.*",
    "terraform.tfstate.d/",
];

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

impl Mirror {
    /// Returns true if a ref of the mirror certainly leads to another commit. Reads one small file at most.
    pub fn leads_elsewhere(&self, name: &RefName, commit: &CommitSha) -> bool {
        ref_file::loose(self.dir(), name).is_some_and(|at| at != *commit)
    }

    /// Returns the commit of a ref, if the mirror has both. `None` means only that git has to be asked.
    pub async fn commit_if_known(&self, name: &RefName) -> Option<CommitSha> {
        let (dir, ref_name) = (self.dir().to_owned(), name.clone());
        let found = self
            .read_objects(&format!("look up {name}"), move |objects| {
                let Some(commit) = ref_file::read(&dir, &ref_name) else {
                    return Ok(None);
                };
                Ok(objects.has_commit(&commit)?.then_some(commit))
            })
            .await;
        found.ok().flatten()
    }

    /// Returns the commit of a ref in the mirror, or `None` when the ref does not exist.
    pub async fn commit_of(&self, name: &RefName) -> Result<Option<CommitSha>, GitError> {
        if let Some(commit) = self.commit_if_known(name).await {
            return Ok(Some(commit));
        }
        // There is no such ref, it names a tag, or its object is missing. Git tells these apart.
        let doing = format!("look up {name}");
        let cmd = self
            .git()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let output = self
            .call("look up a ref", &cmd.arg(format!("{name}^{{commit}}")))
            .await?;
        match output.code {
            Some(0) => CommitSha::new(output.stdout.text().trim())
                .map(Some)
                .map_err(|error| GitError::other(doing, error)),
            Some(1) => Ok(None),
            _ => Err(GitError::from_output(doing, &output, None)),
        }
    }

    /// Returns true if the mirror has a commit.
    pub async fn has_commit(&self, commit: &CommitSha) -> Result<bool, GitError> {
        self.has_commits(&[commit]).await
    }

    /// Returns true if the mirror has all of these commits.
    pub async fn has_commits(&self, commits: &[&CommitSha]) -> Result<bool, GitError> {
        let commits: Vec<CommitSha> = commits.iter().map(|commit| (*commit).clone()).collect();
        let found = self
            .read_objects("look up commits", move |objects| {
                for commit in &commits {
                    if !objects.has_commit(commit)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            })
            .await;
        match found {
            // A commit that cannot be read is not there: a fetch brings it, or finds the damage.
            Err(GitError::Corrupt { .. } | GitError::NotFound { .. }) => Ok(false),
            found => found,
        }
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
        let doing = format!("list the files of {}", commit.short());
        let listing = self.commit_listing(&doing, commit).await?;
        let made = run_blocking(move || {
            let mut files = TreeFiles {
                truncated: !listing.is_whole,
                ..TreeFiles::default()
            };
            for (path, entry) in &listing.entries {
                if !entry.is_file() && !entry.is_link() {
                    continue;
                }
                match path_of(path) {
                    Some(path) => {
                        files.links.extend(entry.is_link().then(|| path.clone()));
                        files.paths.push(path);
                    }
                    None => files.left_out += 1,
                }
            }
            files
        });
        made.await.map_err(GitError::from_io(doing))
    }

    /// Returns the id of the tree of a commit, which is the same for two commits with the same files.
    pub async fn tree_id(&self, commit: &CommitSha) -> Result<String, GitError> {
        let commit = commit.clone();
        self.read_objects("look up the tree of a commit", move |objects| {
            objects.tree_of(&commit).map(|id| id.to_string())
        })
        .await
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
                cmd.args(OF_TOOLS.iter().flat_map(|pattern| ["-x", *pattern])),
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
        let shown_path = path.to_string();
        let (at, path) = (commit.clone(), path.clone());
        let found = self
            .read_objects(&doing, move |objects| {
                let root = objects.tree_of(&at)?;
                let Some(entry) = Dirs::default().entry_at(objects, root, &path)? else {
                    return Ok(FoundFile::None);
                };
                if entry.is_link() {
                    return Ok(FoundFile::Link);
                }
                if !entry.is_file() {
                    return Ok(FoundFile::None);
                }
                let (_, size) = objects
                    .header(entry.id)?
                    .ok_or(ObjectError::Missing(entry.id))?;
                if size > max_bytes {
                    return Ok(FoundFile::TooLarge(size));
                }
                objects.read(entry.id, Kind::Blob).map(FoundFile::Bytes)
            })
            .await?;
        match found {
            FoundFile::Bytes(bytes) => Ok(Some(bytes)),
            FoundFile::None => Ok(None),
            FoundFile::Link => Err(GitError::other(
                doing,
                "it is a symbolic link. Replace it with a regular file",
            )),
            FoundFile::TooLarge(size) => Err(GitError::TooLarge {
                path: shown_path,
                size,
                limit: max_bytes,
            }),
        }
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
        let doing = format!("find files at {}", commit.short());
        let listing = self.commit_listing(&doing, commit).await?;
        if listing.is_whole {
            return Ok(paths.into_iter().filter(|path| listing.has(path)).collect());
        }
        let commit = commit.clone();
        self.read_objects(&doing, move |objects| {
            let (root, mut dirs) = (objects.tree_of(&commit)?, Dirs::default());
            let mut found = Vec::new();
            for path in paths {
                if dirs.entry_at(objects, root, &path)?.is_some() {
                    found.push(path);
                }
            }
            Ok(found)
        })
        .await
    }
}

/// Result of looking for a regular file in a commit.
enum FoundFile {
    Bytes(Vec<u8>),
    None,
    Link,
    /// The size exceeds the limit.
    TooLarge(u64),
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
    fn names_that_cannot_be_told_are_left_out() {
        assert_eq!(path_of(b"a/b.tf").unwrap().as_str(), "a/b.tf");
        for name in [&b"a\xFF"[..], b"a\nb", b"a//b", b""] {
            assert!(path_of(name).is_none(), "{name:?}");
        }
    }
}
