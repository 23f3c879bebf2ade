//! Creates commits from a list of changes: one `git fast-import` per commit, no working tree.

use crate::model::{BranchName, CommitSha};

use super::{CommitSignature, EmulatedGit, EmulatedGitError, sha};

/// One change of one file in a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates a file or replaces its content.
    Write {
        /// Path from the root of the repository.
        path: String,
        /// Complete content of the file.
        content: String,
    },
    /// Creates an executable file.
    Program {
        /// Path from the root of the repository.
        path: String,
        /// Complete content of the file.
        content: String,
    },
    /// Removes a file or a directory.
    Delete {
        /// Path from the root of the repository.
        path: String,
    },
    /// Moves a file or a directory without changes.
    Rename {
        /// Path before the move.
        from: String,
        /// Path after the move.
        to: String,
    },
    /// Creates a symbolic link, as a hostile pull request would.
    Symlink {
        /// Path from the root of the repository.
        path: String,
        /// Target of the link.
        target: String,
    },
    /// Adds a commit of another repository as a submodule. Its entry in `.gitmodules` is an ordinary file.
    Submodule {
        /// Path from the root of the repository.
        path: String,
        /// Commit of the submodule, which need not exist.
        commit: CommitSha,
    },
}

impl Change {
    /// Creates the change that writes a file.
    pub fn write(path: &str, content: &str) -> Self {
        Self::Write {
            path: path.to_owned(),
            content: content.to_owned(),
        }
    }

    /// Creates the change that removes a file or a directory.
    pub fn delete(path: &str) -> Self {
        Self::Delete {
            path: path.to_owned(),
        }
    }

    /// Creates the change that moves a file or a directory.
    pub fn rename(from: &str, to: &str) -> Self {
        Self::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        }
    }

    /// Creates the change that writes an executable file.
    pub fn program(path: &str, content: &str) -> Self {
        Self::Program {
            path: path.to_owned(),
            content: content.to_owned(),
        }
    }

    /// Creates the change that adds a symbolic link.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self::Symlink {
            path: path.to_owned(),
            target: target.to_owned(),
        }
    }

    /// Creates the change that adds a submodule.
    pub fn submodule(path: &str, commit: &CommitSha) -> Self {
        Self::Submodule {
            path: path.to_owned(),
            commit: commit.clone(),
        }
    }

    fn write_to(&self, stream: &mut Vec<u8>) {
        match self {
            Self::Write { path, content } => blob(stream, "100644", path, content),
            Self::Program { path, content } => blob(stream, "100755", path, content),
            Self::Symlink { path, target } => blob(stream, "120000", path, target),
            Self::Submodule { path, commit } => {
                stream.extend(format!("M 160000 {commit} {}\n", quoted(path)).bytes());
            }
            Self::Delete { path } => stream.extend(format!("D {}\n", quoted(path)).bytes()),
            Self::Rename { from, to } => {
                stream.extend(format!("R {} {}\n", quoted(from), quoted(to)).bytes());
            }
        }
    }
}

/// A commit to create, and the branch to move to it.
pub(crate) struct Import<'a> {
    pub(crate) branch: &'a BranchName,
    pub(crate) parent: Option<&'a CommitSha>,
    pub(crate) by: &'a CommitSignature,
    pub(crate) message: &'a str,
    pub(crate) changes: &'a [Change],
    /// True if the new commit need not be a descendant of the branch.
    pub(crate) force: bool,
}

impl EmulatedGit {
    /// Creates the commit and moves the branch.
    pub(crate) async fn import(&self, import: &Import<'_>) -> Result<CommitSha, EmulatedGitError> {
        let force: &[&str] = if import.force { &["--force"] } else { &[] };
        let args = [&["fast-import", "--quiet"], force].concat();
        sha("fast-import", &self.run(&args, &stream(import)).await?)
    }
}

fn stream(import: &Import<'_>) -> Vec<u8> {
    let Import {
        branch,
        by,
        message,
        ..
    } = import;
    let who = format!("{} <{}> {} +0000", by.login, by.email, by.at.timestamp());
    let mut out = format!("commit refs/heads/{branch}\nmark :1\nauthor {who}\ncommitter {who}\n")
        .into_bytes();
    data(&mut out, message);
    if let Some(parent) = import.parent {
        out.extend(format!("from {parent}\n").bytes());
    }
    for change in import.changes {
        change.write_to(&mut out);
    }
    out.extend(b"\nget-mark :1\n");
    out
}

fn blob(stream: &mut Vec<u8>, mode: &str, path: &str, content: &str) {
    stream.extend(format!("M {mode} inline {}\n", quoted(path)).bytes());
    data(stream, content);
}

fn data(stream: &mut Vec<u8>, text: &str) {
    stream.extend(format!("data {}\n{text}\n", text.len()).bytes());
}

/// Quotes a path in C style, so that no character of it can end the line.
fn quoted(path: &str) -> String {
    format!(
        "\"{}\"",
        path.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_can_become_a_command() {
        assert_eq!(quoted("a b\"\\\nD ."), r#""a b\"\\\nD .""#);
    }

    #[test]
    fn a_commit_is_written_with_everything_it_depends_on() {
        let by = CommitSignature {
            login: "alice".into(),
            email: "a@example.com".into(),
            at: chrono::DateTime::UNIX_EPOCH,
        };
        let branch = BranchName::new("main").unwrap();
        let changes = [
            Change::write("a.tf", "x\n"),
            Change::delete("b"),
            Change::rename("c", "d"),
        ];
        let import = Import {
            branch: &branch,
            parent: None,
            by: &by,
            message: "Start",
            changes: &changes,
            force: false,
        };
        insta::assert_snapshot!(String::from_utf8(stream(&import)).unwrap(), @r#"
        commit refs/heads/main
        mark :1
        author alice <a@example.com> 0 +0000
        committer alice <a@example.com> 0 +0000
        data 5
        Start
        M 100644 inline "a.tf"
        data 2
        x

        D "b"
        R "c" "d"

        get-mark :1
        "#);
    }
}
