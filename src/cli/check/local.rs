//! The repository on this machine: its files and its changes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::origin;
use crate::config::text_of;
use crate::git::{Base, WorkTree};
use crate::model::{BranchName, ChangeKind, ChangedFile, HostName, RepoId, RepoPath};

/// Maximum number of files in a directory without git; a larger one is not a checkout.
const MAX_FILES: usize = 500_000;

/// Maximum number of bytes that are read from a file.
const MAX_BYTES: u64 = 1 << 20;

/// A repository on this machine.
#[derive(Debug)]
pub(super) struct Local {
    /// The top directory of the working tree.
    pub root: PathBuf,
    /// All files, relative to `root`.
    pub files: Vec<RepoPath>,
    /// Number of files whose names are not UTF-8 or too long.
    pub left_out: usize,
    /// Changed files of the working tree.
    pub change: LocalChange,
    origin: Option<RepoId>,
}

/// Changed files, or the reason that they are not known.
#[derive(Debug)]
pub(super) enum LocalChange {
    /// The files that differ from a base revision.
    Since {
        /// The revision that the working tree is compared with.
        base: Base,
        /// All changed files, committed or not.
        files: Vec<ChangedFile>,
        /// Changed files that are not committed as they are.
        uncommitted: BTreeSet<RepoPath>,
    },
    /// All files, requested because there is no revision to compare with.
    Everything(Vec<ChangedFile>),
    /// No revision to compare with.
    Unknown {
        /// Tells a git repository without a base revision from a plain directory.
        is_git: bool,
    },
}

impl LocalChange {
    /// Returns the changed files; `None` when they are not known.
    pub fn files(&self) -> Option<&[ChangedFile]> {
        match self {
            Self::Since { files, .. } | Self::Everything(files) => Some(files),
            Self::Unknown { .. } => None,
        }
    }
}

impl Local {
    /// Reads a directory. With `all`, all files count as changed if there is no revision to compare with.
    pub async fn read(
        dir: &Path,
        base: Option<&str>,
        env: Vec<(OsString, OsString)>,
        all: bool,
    ) -> anyhow::Result<Self> {
        match WorkTree::find(dir, env).await? {
            Some(tree) => Self::of_git(&tree, base, all).await,
            None if base.is_some() => bail!(
                "`{}` is not in a git repository, so --base cannot be used",
                dir.display()
            ),
            None => Self::of_dir(dir, all),
        }
    }

    async fn of_git(tree: &WorkTree, base: Option<&str>, all: bool) -> anyhow::Result<Self> {
        let files = tree.files().await?;
        let change = match tree.base(base).await? {
            Some(base) => {
                let changes = tree.changes(&base.merge_base).await?;
                LocalChange::Since {
                    base,
                    files: changes.files,
                    uncommitted: changes.uncommitted,
                }
            }
            None if all => LocalChange::Everything(added(&files.paths)),
            None => LocalChange::Unknown { is_git: true },
        };
        let origin = tree.origin().await?.and_then(|url| origin::repo_of(&url));
        Ok(Self {
            root: tree.root().to_owned(),
            files: files.paths,
            left_out: files.left_out,
            change,
            origin,
        })
    }

    fn of_dir(dir: &Path, all: bool) -> anyhow::Result<Self> {
        let (mut files, mut left_out) = (Vec::new(), 0);
        walk(dir, &RepoPath::root(), &mut files, &mut left_out)?;
        files.sort();
        let change = if all {
            LocalChange::Everything(added(&files))
        } else {
            LocalChange::Unknown { is_git: false }
        };
        Ok(Self {
            root: dir.to_owned(),
            files,
            left_out,
            change,
            origin: None,
        })
    }

    /// Returns the server's name of the repository, as far as it is known.
    pub fn repo(&self) -> RepoId {
        let name = self
            .root
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let localhost = || HostName::new("localhost").expect("it is a name");
        let unknown = || RepoId::new(localhost(), "unknown/unknown").expect("it is a repository");
        let named =
            || RepoId::new(localhost(), &format!("unknown/{name}")).unwrap_or_else(|_| unknown());
        self.origin.clone().unwrap_or_else(named)
    }

    /// Returns the branch that the working tree is compared with, if the revision is a branch.
    pub fn branch(&self) -> Option<BranchName> {
        match &self.change {
            LocalChange::Since { base, .. } => base.branch.clone(),
            LocalChange::Everything(_) | LocalChange::Unknown { .. } => None,
        }
    }

    /// Returns `true` if the URL of `origin` names the repository.
    pub fn knows_its_origin(&self) -> bool {
        self.origin.is_some()
    }

    /// Returns the symbolic links with their targets.
    pub fn links(&self) -> Vec<(RepoPath, String)> {
        let link = |file: &RepoPath| {
            let target = std::fs::read_link(self.root.join(file.as_str())).ok()?;
            Some((file.clone(), target.to_str()?.to_owned()))
        };
        self.files.iter().filter_map(link).collect()
    }

    /// Reads the text of a file, if it is a regular file and not too large.
    pub fn text(&self, file: &RepoPath) -> std::io::Result<String> {
        let invalid =
            |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
        let path = self.root.join(file.as_str());
        let meta = path.symlink_metadata()?;
        if !meta.is_file() {
            return Err(invalid("it is not a regular file"));
        }
        if meta.len() > MAX_BYTES + 1 {
            return Err(invalid("it is larger than 1 MiB"));
        }
        text_of(std::fs::read(path)?).map_err(std::io::Error::from)
    }
}

fn added(files: &[RepoPath]) -> Vec<ChangedFile> {
    files
        .iter()
        .map(|path| ChangedFile {
            path: path.clone(),
            previous: None,
            kind: ChangeKind::Added,
        })
        .collect()
}

/// Lists all files below a directory, except those of tools. Does not follow links.
fn walk(
    at: &Path,
    dir: &RepoPath,
    files: &mut Vec<RepoPath>,
    left_out: &mut usize,
) -> anyhow::Result<()> {
    const SKIPPED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];
    let context = || format!("cannot list `{}`", at.display());
    for entry in std::fs::read_dir(at).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name();
        let Some(path) = name.to_str().and_then(|name| dir.join(name).ok()) else {
            *left_out += 1;
            continue;
        };
        if entry.file_type().with_context(context)?.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                walk(&entry.path(), &path, files, left_out)?;
            }
        } else if files.len() >= MAX_FILES {
            bail!(
                "`{}` has more than {MAX_FILES} files; name the directory of one repository",
                at.display()
            );
        } else {
            files.push(path);
        }
    }
    Ok(())
}
