//! What a branch changes.

use super::objects::MAX_LIST;
use super::{GitError, Mirror};
use crate::model::{ChangeKind, ChangedFile, CommitSha, RepoPath};

impl Mirror {
    /// The files in which a head differs from the commit at which it left its base, as the forge shows them on a pull
    /// request, but all of them, and of exactly this head. `None`: there are more names than can be listed (64 MiB).
    ///
    /// What moved counts as removed in one place and added in the other: to find out more, git would have to read files,
    /// which a mirror need not have.
    pub async fn changed(&self, base: &CommitSha, head: &CommitSha) -> Result<Option<Vec<ChangedFile>>, GitError> {
        let doing = format!("list what {} changes", head.short());
        let left_at = self.merge_base(&doing, base, head).await?;
        let cmd = self.git().cap(MAX_LIST).args(["diff-tree", "-r", "-z", "--no-renames", "--name-status"]);
        let output = self.run(&doing, cmd.args([left_at.as_str(), head.as_str()])).await?;
        Ok((!output.stdout.truncated).then(|| changed_files(&output.stdout.bytes)))
    }

    /// The commit at which one left the other; where they have nothing in common, the other itself.
    async fn merge_base(&self, doing: &str, base: &CommitSha, head: &CommitSha) -> Result<CommitSha, GitError> {
        let output = self.call(doing, &self.git().args(["merge-base", base.as_str(), head.as_str()])).await?;
        match output.code {
            Some(0) => CommitSha::new(output.stdout.text().trim()).map_err(|error| GitError::other(doing, error)),
            Some(1) => Ok(base.clone()),
            _ => Err(GitError::from_output(doing, &output, None)),
        }
    }
}

/// `M`, path, `A`, path, …
fn changed_files(list: &[u8]) -> Vec<ChangedFile> {
    let mut parts = list.split(|byte| *byte == 0);
    let mut files = Vec::new();
    while let (Some(status), Some(name)) = (parts.next(), parts.next()) {
        let kind = match status {
            b"A" => ChangeKind::Added,
            b"D" => ChangeKind::Removed,
            // A change of the kind, to a link for example, is one like any other.
            _ => ChangeKind::Modified,
        };
        files.extend(named(name).map(|path| ChangedFile { path, previous: None, kind }));
    }
    files
}

/// A name that is no text still says in which directory something changed. Left out, code could be changed under such a
/// name, and nobody would plan it.
fn named(name: &[u8]) -> Option<RepoPath> {
    let text = String::from_utf8_lossy(name);
    RepoPath::new(&text).or_else(|_| RepoPath::new(&text.replace(char::is_control, "\u{FFFD}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_counts_whatever_its_name() {
        let list = b"M\0a/main.tf\0A\0d e.tf\0D\0c.tf\0T\0link\0A\0net/\x07\n.tf\0M\0net/\xff.tf\0";
        let told: Vec<String> = changed_files(list).iter().map(|file| format!("{} {}", file.kind, file.path)).collect();
        assert_eq!(
            told.join(", "),
            "modified a/main.tf, added d e.tf, removed c.tf, modified link, added net/\u{FFFD}\u{FFFD}.tf, modified net/\u{FFFD}.tf"
        );
    }
}
