//! Computes the changes of a pull request: the difference between its head and its merge base.

use std::collections::VecDeque;

use crate::model::CommitSha;

use super::{EmulatedGit, EmulatedGitError, sha};

/// Difference between base and head of a pull request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of commits that the head has and the base has not.
    pub commits: u64,
    /// All changed files, sorted by path.
    pub files: Vec<FileChange>,
}

/// Kind of the change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChangeKind {
    /// The file is new.
    Added,
    /// The file has another content.
    Modified,
    /// The file was deleted.
    Removed,
    /// The file has another path, and perhaps another content.
    Renamed,
    /// The file has another mode or type, and the same content.
    ModeChanged,
}

/// A file that differs between the merge base and the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Path at the head; for a removed file, its old path.
    pub path: String,
    /// Path at the base of a renamed file.
    pub previous: Option<String>,
    pub kind: FileChangeKind,
    /// Object id of the content.
    pub blob: String,
    /// Number of added lines.
    pub additions: u64,
    /// Number of removed lines.
    pub deletions: u64,
    /// Unified diff without file headers; none for binary files.
    pub patch: Option<String>,
}

impl EmulatedGit {
    /// Compares the head with the merge base of both, with detection of renames.
    pub(crate) async fn compare(
        &self,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Comparison, EmulatedGitError> {
        let fork = sha(
            "merge-base",
            &self
                .run(&["merge-base", base.as_str(), head.as_str()], &[])
                .await?,
        )?;
        let range = format!("{base}..{head}");
        let count = self.run(&["rev-list", "--count", &range], &[]).await?;
        let commits = String::from_utf8_lossy(&count).trim().parse().unwrap_or(0);
        let diff = [
            "diff-tree",
            "-r",
            "-M",
            "--no-abbrev",
            "--raw",
            "--numstat",
            "-p",
            "--no-color",
            "-z",
        ];
        let out = self
            .run(&[&diff[..], &[fork.as_str(), head.as_str()]].concat(), &[])
            .await?;
        Ok(Comparison {
            commits,
            files: files(&out)?,
        })
    }
}

/// Parses the output of `--raw --numstat -p -z`: first a record per file with mode, object and status, then one with
/// line counts, and after an empty one the patches.
fn files(out: &[u8]) -> Result<Vec<FileChange>, EmulatedGitError> {
    // No path is empty, so the first pair of adjacent NULs ends the records.
    let end = out
        .windows(2)
        .position(|two| two == [0, 0])
        .map_or(out.len(), |at| at + 1);
    let (out, patches) = out.split_at(end);
    let mut fields: VecDeque<String> = out
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .collect();
    let mut files = Vec::new();
    while fields.front().is_some_and(|field| field.starts_with(':')) {
        files.push(raw_record(&mut fields).ok_or_else(|| unreadable("a record of --raw"))?);
    }
    for file in &mut files {
        (file.additions, file.deletions) =
            counts(&mut fields).ok_or_else(|| unreadable("a record of --numstat"))?;
    }
    add_patches(
        &mut files,
        String::from_utf8_lossy(patches).trim_start_matches('\0'),
    );
    Ok(files)
}

fn raw_record(fields: &mut VecDeque<String>) -> Option<FileChange> {
    let meta = fields.pop_front()?;
    let meta: Vec<&str> = meta.trim_start_matches(':').split(' ').collect();
    let [_, _, old, new, letter] = meta.as_slice() else {
        return None;
    };
    let first = fields.pop_front()?;
    let (path, previous) = if letter.starts_with('R') {
        (fields.pop_front()?, Some(first))
    } else {
        (first, None)
    };
    let kind = match letter.chars().next()? {
        'A' => FileChangeKind::Added,
        'D' => FileChangeKind::Removed,
        'R' => FileChangeKind::Renamed,
        'M' if old != new => FileChangeKind::Modified,
        _ => FileChangeKind::ModeChanged,
    };
    let is_removed = kind == FileChangeKind::Removed;
    let blob = if is_removed { old } else { new };
    Some(FileChange {
        path,
        previous,
        kind,
        blob: (*blob).to_owned(),
        additions: 0,
        deletions: 0,
        patch: None,
    })
}

/// Parses `3\t1\tpath`, or `3\t1\t` followed by both paths of a renamed file; `-` stands for binary files.
fn counts(fields: &mut VecDeque<String>) -> Option<(u64, u64)> {
    let record = fields.pop_front()?;
    let mut parts = record.splitn(3, '\t');
    let mut number = || Some(parts.next()?.parse().unwrap_or(0));
    let (additions, deletions) = (number()?, number()?);
    if parts.next()?.is_empty() {
        fields.drain(..2.min(fields.len()));
    }
    Some((additions, deletions))
}

/// Adds the patches to the files. Patches are in the order of the list, and no content line starts with `diff --git`.
fn add_patches(files: &mut [FileChange], text: &str) {
    let text = format!("\n{text}");
    for (file, patch) in files.iter_mut().zip(text.split("\ndiff --git ").skip(1)) {
        file.patch = patch
            .split_once("\n@@")
            .map(|(_, hunks)| format!("@@{}", hunks.trim_end_matches('\n')));
    }
}

fn unreadable(what: &str) -> EmulatedGitError {
    EmulatedGitError::Unreadable {
        command: "diff-tree",
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_keeps_both_paths_and_its_counts() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let out = format!(
            ":100644 100644 {a} {b} R080\0old.tf\0new.tf\0:100644 100755 {a} {a} M\0run\0:100644 000000 {a} {b} D\0gone\0\
             2\t1\t\0old.tf\0new.tf\00\t0\trun\0-\t-\tgone\0\0\
             diff --git a/old.tf b/new.tf\n--- a/old.tf\n+++ b/new.tf\n@@ -1 +1,2 @@\n-a\n+b\n+c\n\
             diff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
             diff --git a/gone b/gone\nBinary files a/gone and /dev/null differ\n"
        );
        let files = files(out.as_bytes()).unwrap();
        let seen: Vec<_> = files
            .iter()
            .map(|f| (f.kind, f.path.as_str(), f.previous.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                (FileChangeKind::Renamed, "new.tf", Some("old.tf")),
                (FileChangeKind::ModeChanged, "run", None),
                (FileChangeKind::Removed, "gone", None)
            ]
        );
        assert_eq!((files[0].additions, files[0].deletions), (2, 1));
        assert_eq!(files[2].blob, a);
        let patches: Vec<_> = files.iter().map(|file| file.patch.as_deref()).collect();
        assert_eq!(patches, [Some("@@ -1 +1,2 @@\n-a\n+b\n+c"), None, None]);
    }

    #[test]
    fn output_that_is_cut_off_is_an_error() {
        assert!(files(b":100644 100644 a b R080\0old.tf").is_err());
    }
}
