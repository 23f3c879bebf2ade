//! The repository on this machine: its files, and what changed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::origin;
use crate::config::text_of;
use crate::git::{Base, WorkTree};
use crate::model::{BranchName, ChangeKind, ChangedFile, HostName, RepoId, RepoPath};

/// Files of a directory without git; more than that is not a checkout.
const MAX_FILES: usize = 500_000;

/// What of a file is read.
const MAX_BYTES: u64 = 1 << 20;

/// A repository on this machine.
#[derive(Debug)]
pub(super) struct Local {
    /// Its topmost directory.
    pub root: PathBuf,
    /// Every file.
    pub files: Vec<RepoPath>,
    /// Files whose names cannot be told.
    pub left_out: usize,
    /// What changed.
    pub change: Change,
    origin: Option<RepoId>,
}

/// What changed.
#[derive(Debug)]
pub(super) enum Change {
    /// Compared with something.
    Since {
        /// With what.
        base: Base,
        /// The files.
        files: Vec<ChangedFile>,
        /// Those that no commit has as they are.
        uncommitted: BTreeSet<RepoPath>,
    },
    /// There is nothing to compare with, and every file was asked for.
    Everything(Vec<ChangedFile>),
    /// There is nothing to compare with.
    Unknown {
        /// Whether it is a repository of git at all.
        is_git: bool,
    },
}

impl Change {
    /// The files that changed; `None` when that is not known.
    pub fn files(&self) -> Option<&[ChangedFile]> {
        match self {
            Self::Since { files, .. } | Self::Everything(files) => Some(files),
            Self::Unknown { .. } => None,
        }
    }
}

impl Local {
    /// Looks at a directory. `all`: without anything to compare with, every file counts as changed.
    pub async fn read(
        dir: &Path,
        base: Option<&str>,
        env: Vec<(OsString, OsString)>,
        all: bool,
    ) -> anyhow::Result<Self> {
        match WorkTree::find(dir, env).await? {
            Some(tree) => Self::of_git(&tree, base, all).await,
            None if base.is_some() => bail!(
                "`{}` is in no repository of git, so there is no --base",
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
                Change::Since {
                    base,
                    files: changes.files,
                    uncommitted: changes.uncommitted,
                }
            }
            None if all => Change::Everything(added(&files.paths)),
            None => Change::Unknown { is_git: true },
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
            Change::Everything(added(&files))
        } else {
            Change::Unknown { is_git: false }
        };
        Ok(Self {
            root: dir.to_owned(),
            files,
            left_out,
            change,
            origin: None,
        })
    }

    /// What the server would call it, as far as that can be told.
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

    /// The branch that it is compared with, if it is one.
    pub fn branch(&self) -> Option<BranchName> {
        match &self.change {
            Change::Since { base, .. } => base.branch.clone(),
            Change::Everything(_) | Change::Unknown { .. } => None,
        }
    }

    /// Whether `origin` says which repository it is.
    pub fn knows_its_origin(&self) -> bool {
        self.origin.is_some()
    }

    /// Symbolic links, and what they say.
    pub fn links(&self) -> Vec<(RepoPath, String)> {
        let link = |file: &RepoPath| {
            let target = std::fs::read_link(self.root.join(file.as_str())).ok()?;
            Some((file.clone(), target.to_str()?.to_owned()))
        };
        self.files.iter().filter_map(link).collect()
    }

    /// The text of a file, if it is a regular one of bearable size.
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

/// Every file below a directory, but for what tools keep for themselves. No link is followed.
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
                "`{}` has more than {MAX_FILES} files, so it is hardly one repository",
                at.display()
            );
        } else {
            files.push(path);
        }
    }
    Ok(())
}
