//! Reads commits, branches and files of a repository.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::model::{BranchName, CommitSha};

use super::{EmulatedGit, EmulatedGitError};

/// Entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) mode: String,
    pub(crate) sha: String,
    pub(crate) size: u64,
    pub(crate) path: String,
}

/// File or directory at a path.
pub(crate) enum Content {
    /// A file or a symbolic link with its bytes.
    File(Blob, Vec<u8>),
    /// The entries of a directory.
    Directory(Vec<Blob>),
}

/// A commit as a push event describes it.
#[derive(Clone, Debug)]
pub(crate) struct CommitInfo {
    pub(crate) sha: String,
    pub(crate) tree: String,
    pub(crate) author: (String, String),
    pub(crate) committer: (String, String),
    pub(crate) date: String,
    pub(crate) message: String,
    /// Status letter and path of every changed file.
    pub(crate) files: Vec<(char, String)>,
}

impl EmulatedGit {
    /// Returns the commit that a branch, tag or commit id names.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Option<CommitSha>, EmulatedGitError> {
        if let Some(commit) = self.loose(name).await {
            return Ok(Some(commit));
        }
        let name = format!("{name}^{{commit}}");
        let args = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ];
        let out = self.output(self.command(&args), &[]).await?;
        Ok(CommitSha::new(String::from_utf8_lossy(&out.stdout).trim()).ok())
    }

    /// Reads the tip of a branch from its own file, as most branches have here. Such a file takes precedence over
    /// packed refs.
    async fn loose(&self, name: &str) -> Option<CommitSha> {
        let branch = BranchName::new(name.strip_prefix("refs/heads/")?).ok()?;
        let file = self.directory().join("refs/heads").join(branch.as_str());
        CommitSha::new(tokio::fs::read_to_string(file).await.ok()?.trim_end()).ok()
    }

    /// Returns every branch with its tip.
    pub(crate) async fn branches(
        &self,
    ) -> Result<BTreeMap<BranchName, CommitSha>, EmulatedGitError> {
        if self.has_packed_refs().await? {
            return self.listed_branches().await;
        }
        let heads = self.directory().join("refs/heads");
        tokio::task::spawn_blocking(move || loose_branches(&heads))
            .await
            .expect("reading files does not panic")
            .map_err(EmulatedGitError::from)
    }

    async fn listed_branches(&self) -> Result<BTreeMap<BranchName, CommitSha>, EmulatedGitError> {
        let out = self
            .run(
                &[
                    "for-each-ref",
                    "--format=%(objectname) %(refname:lstrip=2)",
                    "refs/heads",
                ],
                &[],
            )
            .await?;
        let text = String::from_utf8_lossy(&out);
        let branch = |line: &str| {
            let (sha, name) = line.split_once(' ')?;
            Some((BranchName::new(name).ok()?, CommitSha::new(sha).ok()?))
        };
        Ok(text.lines().filter_map(branch).collect())
    }

    /// Returns true if the first commit is part of the history of the second.
    pub(crate) async fn is_ancestor(
        &self,
        old: &CommitSha,
        new: &CommitSha,
    ) -> Result<bool, EmulatedGitError> {
        let args = ["merge-base", "--is-ancestor", old.as_str(), new.as_str()];
        Ok(self
            .output(self.command(&args), &[])
            .await?
            .status
            .success())
    }

    /// Returns the content at a path of a commit; `None` if the path does not exist.
    pub(crate) async fn content(
        &self,
        commit: &CommitSha,
        path: &str,
    ) -> Result<Option<Content>, EmulatedGitError> {
        let path = path.trim_matches('/');
        if !path.is_empty() {
            match self.tree(commit, path).await?.pop() {
                None => return Ok(None),
                Some(entry) if entry.mode != "040000" => {
                    let bytes = self.run(&["cat-file", "blob", &entry.sha], &[]).await?;
                    return Ok(Some(Content::File(entry, bytes)));
                }
                Some(_) => {}
            }
        }
        let folder = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        Ok(Some(Content::Directory(self.tree(commit, &folder).await?)))
    }

    async fn tree(&self, commit: &CommitSha, path: &str) -> Result<Vec<Blob>, EmulatedGitError> {
        let mut args = vec!["ls-tree", "-z", "--long", "--full-tree", commit.as_str()];
        if !path.is_empty() {
            args.extend(["--", path]);
        }
        let out = self.run(&args, &[]).await?;
        Ok(out
            .split(|byte| *byte == 0)
            .filter_map(|line| entry(&String::from_utf8_lossy(line)))
            .collect())
    }

    /// Returns the commits that `new` has and `old` has not, oldest first, at most 2048 as in GitHub's push event.
    pub(crate) async fn log(
        &self,
        old: Option<&CommitSha>,
        new: &CommitSha,
    ) -> Result<Vec<CommitInfo>, EmulatedGitError> {
        let without = old.map(|old| format!("^{old}"));
        let mut args = vec!["rev-list", "--reverse", "--max-count=2048", new.as_str()];
        args.extend(without.as_deref());
        let out = self.run(&args, &[]).await?;
        let mut commits = Vec::new();
        for sha in String::from_utf8_lossy(&out).lines() {
            commits.push(self.commit(sha).await?);
        }
        Ok(commits)
    }

    /// Returns a commit with the files that it changes.
    pub(crate) async fn commit(&self, sha: &str) -> Result<CommitInfo, EmulatedGitError> {
        let format = "--format=%H%x00%T%x00%an%x00%ae%x00%cn%x00%ce%x00%cI%x00%B";
        let diff = [
            "--always",
            "--root",
            "-r",
            "-z",
            "-m",
            "--first-parent",
            "--name-status",
        ];
        let out = self
            .run(&[&["diff-tree"], &diff[..], &[format, sha]].concat(), &[])
            .await?;
        let text = String::from_utf8_lossy(&out);
        let fields: Vec<&str> = text.splitn(9, '\0').collect();
        let [sha, tree, an, ae, cn, ce, date, message, files] = fields.as_slice() else {
            return Err(EmulatedGitError::Unreadable {
                command: "diff-tree",
                what: text.chars().take(200).collect(),
            });
        };
        Ok(CommitInfo {
            sha: (*sha).to_owned(),
            tree: (*tree).to_owned(),
            author: ((*an).to_owned(), (*ae).to_owned()),
            committer: ((*cn).to_owned(), (*ce).to_owned()),
            date: (*date).to_owned(),
            message: message.trim_end().to_owned(),
            files: touched(files),
        })
    }
}

/// Reads the tips of branches from their own files, which are all of them in a repository without packed refs. A process of
/// git before and after each push takes longer than the rest of the push.
fn loose_branches(heads: &Path) -> io::Result<BTreeMap<BranchName, CommitSha>> {
    let mut branches = BTreeMap::new();
    let mut folders = vec![heads.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Deleted with its last branch since the folder above was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder != heads => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(heads).ok().and_then(Path::to_str);
            let name = name.and_then(|name| BranchName::new(name).ok());
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                // Deleted since the folder was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if let (Some(name), Ok(tip)) = (name, CommitSha::new(text.trim_end())) {
                branches.insert(name, tip);
            }
        }
    }
    Ok(branches)
}

/// Parses an empty line, followed by status and path of each file, with a NUL after each.
fn touched(text: &str) -> Vec<(char, String)> {
    let fields: Vec<&str> = text
        .trim_start_matches('\n')
        .split_terminator('\0')
        .collect();
    let pair = |pair: &[&str]| Some((pair.first()?.chars().next()?, (*pair.get(1)?).to_owned()));
    fields.chunks(2).filter_map(pair).collect()
}

/// Parses a line such as `100644 blob <sha>     12\tpath`.
fn entry(line: &str) -> Option<Blob> {
    let (meta, path) = line.split_once('\t')?;
    let mut words = meta.split_whitespace();
    let (mode, _, sha, size) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Blob {
        mode: mode.to_owned(),
        sha: sha.to_owned(),
        size: size.parse().unwrap_or(0),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_tree_are_read() {
        let blob = entry("100644 blob 0123     12\ta dir/main.tf").unwrap();
        assert_eq!((blob.size, blob.path.as_str()), (12, "a dir/main.tf"));
        assert_eq!(entry("040000 tree 0123       -\tmodules").unwrap().size, 0);
        assert_eq!(entry(""), None);
    }
}
