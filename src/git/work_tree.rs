//! Reads the working tree of a person and lists the changes that a push would bring. Read only; for the command line.
//!
//! Unlike a mirror, a working tree belongs to the user of the program. So the user's own settings of git apply
//! (ignored files, line ends), and git refuses repositories of other users as usual.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::GitError;
use super::objects::{MAX_LIST, TreeFiles, path_of};
use crate::model::{BranchName, ChangeKind, ChangedFile, CommitSha, RepoPath};
use crate::process::{CallOutput, Cmd};

/// Deadline for listing and comparing the largest trees.
const DEADLINE: Duration = Duration::from_mins(5);

/// Variables that prevent prompts and programs of the repository.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("LC_ALL", "C"),
    ("GIT_CONFIG_COUNT", "2"),
    ("GIT_CONFIG_KEY_0", "core.hooksPath"),
    ("GIT_CONFIG_VALUE_0", "/dev/null"),
    ("GIT_CONFIG_KEY_1", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_1", "false"),
];

/// Usual target branches of pulls, the likeliest first.
const BASES: [&str; 5] = [
    "origin/HEAD",
    "origin/main",
    "origin/master",
    "main",
    "master",
];

/// Working tree on the machine of a user.
#[derive(Debug)]
pub struct WorkTree {
    root: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// Base for the comparison of a working tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Revision as requested, or as found.
    pub rev: String,
    /// Branch of the revision, if it is one.
    pub branch: Option<BranchName>,
    /// Newest commit that base and `HEAD` have in common.
    pub merge_base: CommitSha,
}

/// Differences between a commit and a working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkTreeChanges {
    pub files: Vec<ChangedFile>,
    /// Files whose current content is in no commit.
    pub uncommitted: BTreeSet<RepoPath>,
}

/// Names of files in a working tree, from its topmost directory or another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkTreeNames {
    /// Files that git tracks, and new ones that it does not ignore.
    pub all: BTreeSet<Vec<u8>>,
    /// Files among them that git does not track.
    pub untracked: BTreeSet<Vec<u8>>,
}

impl WorkTree {
    /// Finds the working tree that contains a directory; `None` when there is none. `env` is the environment for git,
    /// with `PATH` and `HOME` above all.
    pub async fn find(
        dir: &Path,
        env: Vec<(OsString, OsString)>,
    ) -> Result<Option<Self>, GitError> {
        let here = Self {
            root: dir.to_owned(),
            env,
        };
        let output = here
            .call(
                "find the repository",
                &here.git().args(["rev-parse", "--show-toplevel"]),
            )
            .await?;
        if output.is_success() {
            let root = output.stdout.text().trim_end_matches('\n').to_owned();
            return Ok(Some(Self {
                root: root.into(),
                ..here
            }));
        }
        if output.stderr.text().contains("not a git repository") {
            return Ok(None);
        }
        Err(GitError::from_output(
            "find the repository".to_owned(),
            &output,
            None,
        ))
    }

    /// Returns the topmost directory of the working tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the URL of `origin`, which may contain a password; `None` without `origin`.
    pub async fn origin(&self) -> Result<Option<String>, GitError> {
        let cmd = self.git().args(["config", "--get", "remote.origin.url"]);
        let output = self.call("look up origin", &cmd).await?;
        Ok(output
            .is_success()
            .then(|| output.stdout.text().trim().to_owned())
            .filter(|url| !url.is_empty()))
    }

    /// Finds the base for a comparison: the requested revision, or else the first of the usual branches. Returns
    /// `None` when none of them exists.
    pub async fn base(&self, wanted: Option<&str>) -> Result<Option<Base>, GitError> {
        if self.commit("HEAD").await?.is_none() {
            return Ok(None);
        }
        for rev in wanted
            .as_slice()
            .iter()
            .copied()
            .chain(BASES.into_iter().filter(|_| wanted.is_none()))
        {
            if let Some(commit) = self.commit(rev).await? {
                let merge_base = self.merge_base(rev, &commit).await?;
                return Ok(Some(Base {
                    rev: rev.to_owned(),
                    branch: self.branch(rev).await?,
                    merge_base,
                }));
            }
        }
        match wanted {
            Some(rev) => Err(GitError::other(
                format!("compare with `{rev}`"),
                "the revision does not exist",
            )),
            None => Ok(None),
        }
    }

    async fn commit(&self, rev: &str) -> Result<Option<CommitSha>, GitError> {
        let cmd = self
            .git()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let output = self
            .call("look up a revision", &cmd.arg(format!("{rev}^{{commit}}")))
            .await?;
        Ok(CommitSha::new(output.stdout.text().trim())
            .ok()
            .filter(|_| output.is_success()))
    }

    async fn merge_base(&self, rev: &str, commit: &CommitSha) -> Result<CommitSha, GitError> {
        let doing = format!("compare with `{rev}`");
        let output = self
            .call(
                &doing,
                &self.git().args(["merge-base", commit.as_str(), "HEAD"]),
            )
            .await?;
        let none = "it has no commit in common with HEAD. If this is a shallow clone, run `git fetch --unshallow` first";
        CommitSha::new(output.stdout.text().trim()).map_err(|_| GitError::other(doing, none))
    }

    /// Returns the branch that a revision names, here or at a remote.
    async fn branch(&self, rev: &str) -> Result<Option<BranchName>, GitError> {
        let cmd = self
            .git()
            .args(["rev-parse", "--symbolic-full-name", "--end-of-options"])
            .arg(rev);
        let output = self.call("look up a branch", &cmd).await?;
        let text = output.stdout.text();
        let name = text.lines().last().unwrap_or_default();
        let remote = |name: &str| {
            name.strip_prefix("refs/remotes/")?
                .split_once('/')
                .map(|(_, name)| name.to_owned())
        };
        let name = name
            .strip_prefix("refs/heads/")
            .map(str::to_owned)
            .or_else(|| remote(name));
        Ok(name
            .filter(|name| name != "HEAD")
            .and_then(|name| BranchName::new(&name).ok()))
    }

    /// Returns the files that the repository would have: those that git knows, and new ones that are not ignored.
    pub async fn files(&self) -> Result<TreeFiles, GitError> {
        let known = self
            .list("list the files", &["ls-files", "-z", "--stage"])
            .await?;
        let gone: BTreeSet<Vec<u8>> = self
            .list("list removed files", &["ls-files", "-z", "--deleted"])
            .await?
            .collect();
        let new = self.untracked().await?;
        let mut files = TreeFiles::default();
        for name in known
            .filter_map(|entry| known_file(&entry))
            .filter(|name| !gone.contains(name))
            .chain(new)
        {
            match path_of(&name) {
                Some(path) => files.paths.push(path),
                None => files.left_out += 1,
            }
        }
        Ok(files)
    }

    /// Returns the names of the files below a directory that the repository would have, from its topmost directory:
    /// those that git tracks, and new ones that are not ignored. A removed file can be among them, and so can a submodule.
    pub async fn names_below(&self, dir: &Path) -> Result<WorkTreeNames, GitError> {
        let args = [
            "ls-files",
            "-z",
            "-t",
            "--cached",
            "--others",
            "--exclude-standard",
        ];
        let below = dir.strip_prefix(&self.root).unwrap_or(dir);
        let below = Some(below).filter(|path| !path.as_os_str().is_empty());
        let cmd = self.git().cap(MAX_LIST).args(args).operands(below);
        let mut names = WorkTreeNames::default();
        for entry in self.list_with("list the files", &cmd).await? {
            // `H main.tf`, or `? new.tf` for a file that git does not track.
            let Some((tag, name)) = entry.split_at_checked(2) else {
                continue;
            };
            if tag == b"? " {
                names.untracked.insert(name.to_vec());
            }
            names.all.insert(name.to_vec());
        }
        Ok(names)
    }

    /// Returns the commit of `HEAD` if the working tree has exactly its files, apart from ignored ones. `None` also if git
    /// was told not to look at some files (`git update-index --skip-worktree` or `--assume-unchanged`).
    pub async fn clean_commit(&self) -> Result<Option<CommitSha>, GitError> {
        let args = ["status", "-z", "--porcelain", "--untracked-files=normal"];
        let mut changed = self.list("compare with HEAD", &args).await?;
        if changed.next().is_some() {
            return Ok(None);
        }
        let mut files = self
            .list(
                "list the files that git looks at",
                &["ls-files", "-v", "-z"],
            )
            .await?;
        if files.any(|file| !file.starts_with(b"H ")) {
            return Ok(None);
        }
        self.commit("HEAD").await
    }

    /// Returns the differences from a commit, committed or not.
    pub async fn changes(&self, since: &CommitSha) -> Result<WorkTreeChanges, GitError> {
        const DIFF: [&str; 5] = [
            "diff",
            "-z",
            "-M",
            "--ignore-submodules=dirty",
            "--no-ext-diff",
        ];
        let of_tree: Vec<&str> = DIFF
            .into_iter()
            .chain(["--name-status", since.as_str()])
            .collect();
        let of_head: Vec<&str> = DIFF
            .into_iter()
            .chain(["--name-only", "--no-renames", "HEAD"])
            .collect();
        let mut files = changed_files(self.list("compare the files", &of_tree).await?);
        let mut uncommitted: BTreeSet<RepoPath> = self
            .list("compare with HEAD", &of_head)
            .await?
            .filter_map(|name| path_of(&name))
            .collect();
        for path in self.untracked().await?.filter_map(|name| path_of(&name)) {
            uncommitted.insert(path.clone());
            files.push(ChangedFile {
                path,
                previous: None,
                kind: ChangeKind::Added,
            });
        }
        files.sort();
        Ok(WorkTreeChanges { files, uncommitted })
    }

    async fn untracked(&self) -> Result<impl Iterator<Item = Vec<u8>> + use<>, GitError> {
        self.list(
            "list new files",
            &["ls-files", "-z", "--others", "--exclude-standard"],
        )
        .await
    }

    /// Runs git and splits its output at the zero bytes.
    async fn list(
        &self,
        doing: &str,
        args: &[&str],
    ) -> Result<impl Iterator<Item = Vec<u8>> + use<>, GitError> {
        let cmd = self.git().cap(MAX_LIST).args(args.iter().copied());
        self.list_with(doing, &cmd).await
    }

    async fn list_with(
        &self,
        doing: &str,
        cmd: &Cmd,
    ) -> Result<impl Iterator<Item = Vec<u8>> + use<>, GitError> {
        let output = self.call(doing, cmd).await?;
        if !output.is_success() {
            return Err(GitError::from_output(doing.to_owned(), &output, None));
        }
        if output.stdout.truncated {
            return Err(GitError::other(
                doing.to_owned(),
                "the file names have more than 64 MiB in total",
            ));
        }
        let parts: Vec<Vec<u8>> = output
            .stdout
            .bytes
            .split(|byte| *byte == 0)
            .map(<[u8]>::to_vec)
            .collect();
        Ok(parts.into_iter().filter(|part| !part.is_empty()))
    }

    fn git(&self) -> Cmd {
        let env = self.env.iter().map(|(name, value)| (name, value));
        Cmd::new("git")
            .envs(env)
            .envs(VARIABLES.iter().copied())
            .dir(&self.root)
            .deadline(DEADLINE)
    }

    async fn call(&self, doing: &str, cmd: &Cmd) -> Result<CallOutput, GitError> {
        cmd.output()
            .await
            .map_err(|error| GitError::other(doing.to_owned(), error))
    }
}

/// Parses `100644 1234… 0\tpath`. Submodules are no files, and the first side of a conflict counts.
fn known_file(entry: &[u8]) -> Option<Vec<u8>> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let is_file = entry.starts_with(b"100") || entry.starts_with(b"120");
    is_file.then(|| entry[tab + 1..].to_vec())
}

/// Parses `M`, path; or `R100`, old path, new path.
fn changed_files(mut parts: impl Iterator<Item = Vec<u8>>) -> Vec<ChangedFile> {
    let mut files = Vec::new();
    while let (Some(status), Some(first)) = (parts.next(), parts.next()) {
        let (kind, name, previous) = match status.first() {
            Some(b'R') => (
                ChangeKind::Renamed,
                parts.next().unwrap_or_default(),
                path_of(&first),
            ),
            Some(b'C') => (ChangeKind::Added, parts.next().unwrap_or_default(), None),
            Some(b'A') => (ChangeKind::Added, first, None),
            Some(b'D') => (ChangeKind::Removed, first, None),
            _ => (ChangeKind::Modified, first, None),
        };
        files.extend(path_of(&name).map(|path| ChangedFile {
            path,
            previous,
            kind,
        }));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_with_both_names_of_what_moved() {
        let list = b"M\0a.tf\0R097\0old/b.tf\0new/b.tf\0D\0c.tf\0A\0d e.tf\0T\0link\0";
        let parts = list
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec);
        let told = |file: &ChangedFile| {
            let from = file
                .previous
                .as_ref()
                .map(|from| format!(" from {from}"))
                .unwrap_or_default();
            format!("{} {}{from}", file.kind, file.path)
        };
        let files: Vec<_> = changed_files(parts).iter().map(told).collect();
        assert_eq!(
            files,
            [
                "modified a.tf",
                "renamed new/b.tf from old/b.tf",
                "removed c.tf",
                "added d e.tf",
                "modified link"
            ]
        );
    }

    #[test]
    fn submodules_are_no_files() {
        let name = |entry: &[u8]| known_file(entry).map(|name| String::from_utf8(name).unwrap());
        assert_eq!(name(b"100644 aa 0\ta/b.tf").as_deref(), Some("a/b.tf"));
        assert_eq!(name(b"120000 aa 0\tlink").as_deref(), Some("link"));
        assert_eq!(name(b"160000 aa 0\tsub"), None);
    }
}
