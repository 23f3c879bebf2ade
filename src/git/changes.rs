//! Lists the files and commits that a branch changes.

use super::object_db::{Difference, ObjectError};
use super::{GitError, Mirror};
use crate::model::{ChangeKind, ChangedFile, CommitSha, RepoPath};

/// Files that a branch changes, and its starting point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchChanges {
    pub files: Vec<ChangedFile>,
    /// Commit at which the branch left its base.
    pub left_at: CommitSha,
}

/// Commit of a base branch in a form for people. Usually it is the result of a merged pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseCommit {
    pub commit: CommitSha,
    /// First line of the commit message, without control characters; at most 100 characters.
    pub title: String,
}

/// Maximum length of a commit title, in characters.
const TITLE: usize = 100;

impl Mirror {
    /// Returns the files that differ between a head and the commit at which it left its base. A forge shows the same
    /// files on a pull request, but this list is complete and belongs to exactly this head. Returns `None` when there
    /// are more names than can be listed (64 MiB).
    ///
    /// A moved file counts as removed in one place and added in the other. Git would have to read files to detect the
    /// move, and a mirror need not have them.
    pub async fn changed(
        &self,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Option<BranchChanges>, GitError> {
        let doing = format!("list the changes of {}", head.short());
        let left_at = self.merge_base(&doing, base, head).await?;
        let files = self.changed_since(&left_at, head).await?;
        Ok(files.map(|files| BranchChanges { files, left_at }))
    }

    /// Returns the files in which two commits differ, or `None` when there are more names than can be listed (64
    /// MiB).
    pub async fn changed_since(
        &self,
        old: &CommitSha,
        new: &CommitSha,
    ) -> Result<Option<Vec<ChangedFile>>, GitError> {
        let doing = format!("list the changes of {}", new.short());
        let (old, new) = (old.clone(), new.clone());
        self.read_objects(&doing, move |objects| {
            let (old, new) = (objects.tree_of(&old)?, objects.tree_of(&new)?);
            let mut files = Vec::new();
            let listed = objects.differences(old, new, |path, difference| {
                let kind = match difference {
                    Difference::Added => ChangeKind::Added,
                    Difference::Removed => ChangeKind::Removed,
                    // Also for a file that became a link.
                    Difference::Modified => ChangeKind::Modified,
                };
                files.extend(changed_file(path, kind));
            });
            match listed {
                Ok(()) => Ok(Some(files)),
                Err(ObjectError::TooLarge) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Returns the commits merged into a branch between two of its commits that change files in one of the
    /// directories. The newest comes first, and there are at most `most` commits.
    pub async fn merged_between(
        &self,
        (old, new): (&CommitSha, &CommitSha),
        dirs: &[RepoPath],
        most: usize,
    ) -> Result<Vec<BaseCommit>, GitError> {
        let doing = format!("list the merges before {}", new.short());
        let cmd = self.git().args([
            "--literal-pathspecs",
            "log",
            "--first-parent",
            "-z",
            "--format=%H %s",
        ]);
        let cmd =
            cmd.arg(format!("--max-count={most}"))
                .args([new.as_str(), &format!("^{old}"), "--"]);
        // The root includes everything and has no path.
        let dirs: &[RepoPath] = if dirs.contains(&RepoPath::root()) {
            &[]
        } else {
            dirs
        };
        let output = self
            .run(&doing, cmd.args(dirs.iter().map(RepoPath::as_str)))
            .await?;
        Ok(output
            .stdout
            .text()
            .split('\0')
            .filter_map(base_commit)
            .collect())
    }

    /// Returns the commit at which `head` left `base`, or `base` itself when they have no common commit.
    async fn merge_base(
        &self,
        doing: &str,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<CommitSha, GitError> {
        let (one, other) = (base.clone(), head.clone());
        let common = self
            .read_objects(doing, move |objects| objects.merge_base(&one, &other))
            .await?;
        Ok(common.unwrap_or_else(|| base.clone()))
    }
}

/// Parses the id of a commit, a space and its title.
fn base_commit(line: &str) -> Option<BaseCommit> {
    let (commit, title) = line.split_once(' ')?;
    let title = title
        .chars()
        .filter(|c| !c.is_control())
        .take(TITLE)
        .collect();
    Some(BaseCommit {
        commit: CommitSha::new(commit).ok()?,
        title,
    })
}

fn changed_file(name: &[u8], kind: ChangeKind) -> Option<ChangedFile> {
    let path = named(name)?;
    Some(ChangedFile {
        path,
        previous: None,
        kind,
    })
}

/// Converts a name to a path even when it is not valid text: it still shows in which directory something changed. If
/// such names were left out, a pull could change code under one of them, and no plan would run.
fn named(name: &[u8]) -> Option<RepoPath> {
    let text = String::from_utf8_lossy(name);
    RepoPath::new(&text)
        .or_else(|_| RepoPath::new(&text.replace(char::is_control, "\u{FFFD}")))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_whatever_its_name() {
        let told: Vec<String> = [
            &b"a/main.tf"[..],
            b"d e.tf",
            b"net/\x07\n.tf",
            b"net/\xff.tf",
        ]
        .into_iter()
        .filter_map(|name| changed_file(name, ChangeKind::Modified))
        .map(|file| file.path.to_string())
        .collect();
        assert_eq!(
            told,
            [
                "a/main.tf",
                "d e.tf",
                "net/\u{FFFD}\u{FFFD}.tf",
                "net/\u{FFFD}.tf"
            ]
        );
    }
}
