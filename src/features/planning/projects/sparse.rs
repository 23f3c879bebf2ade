//! Computes the extent of checkouts (`--sparse-checkout`): the directories of all projects of the command and the
//! files that their code reaches. So projects that share a checkout never have to wait until it is extended.

use std::collections::HashMap;

use tokio::sync::Mutex;

use super::Work;
use super::view::CommitFiles;
use crate::config::repo::{ProjectConfig, ProjectDir};
use crate::discovery::{FileTree, ProjectReach, Start, reach};
use crate::features::planning::{CommandCx, hooks};
use crate::git::{Extent, GitError};
use crate::model::{CommitSha, ProjectKey, RepoPath, WorkspaceName};
use crate::workflow::{CheckoutError, RunError, Source};

/// Extents of checkouts for the projects of a command, as far as they were computed.
#[derive(Default)]
pub(super) struct ComputedExtents {
    /// Planned projects, for an apply.
    planned: Vec<ProjectKey>,
    /// Files that the search has listed, so that they need not be listed again.
    seen: std::sync::Mutex<Option<CommitListing>>,
    known: Mutex<HashMap<Source, Extent>>,
}

/// Files of a commit, and perhaps others.
pub(super) struct CommitListing {
    commit: CommitSha,
    tree: FileTree,
}

impl CommitListing {
    pub fn new(commit: &CommitSha, tree: FileTree) -> Self {
        Self {
            commit: commit.clone(),
            tree,
        }
    }
}

impl ComputedExtents {
    pub fn of(planned: impl Iterator<Item = ProjectKey>) -> Self {
        Self {
            planned: planned.collect(),
            ..Self::default()
        }
    }

    pub fn with_seen(self, seen: CommitListing) -> Self {
        Self {
            seen: std::sync::Mutex::new(Some(seen)),
            ..self
        }
    }

    fn take_seen(&self, commit: &CommitSha) -> Option<FileTree> {
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.take()
            .filter(|seen| seen.commit == *commit)
            .map(|seen| seen.tree)
    }
}

impl Work {
    /// Returns the extent of the checkout for a workspace. Hooks run in the checkout of the default workspace, and
    /// may read any file.
    pub(super) async fn extent(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        workspace: &WorkspaceName,
    ) -> Result<Extent, CheckoutError> {
        let rules = self.policies.of_operator();
        let is_of_search = cx.ctx.settings.planning.untracked_files || hooks::any(cx, rules);
        if !cx.ctx.checkouts.is_sparse() || (workspace.is_default() && is_of_search) {
            return Ok(Extent::Whole);
        }
        let mut known = self.reached.known.lock().await;
        if let Some(extent) = known.get(source) {
            return Ok(extent.clone());
        }
        let extent = self.reach(cx, source).await?;
        tracing::debug!(pull = %source.pull, ?extent, "What is checked out");
        known.insert(source.clone(), extent.clone());
        Ok(extent)
    }

    async fn reach(&self, cx: &CommandCx<'_>, source: &Source) -> Result<Extent, CheckoutError> {
        let objects = CommitFiles::of(cx, source).await?;
        let (tree, links) = if let Some(tree) = self.reached.take_seen(&objects.commit) {
            (tree, Vec::new())
        } else {
            let files = cx.ctx.checkouts.files(source, &objects.commit).await?;
            if files.truncated {
                return Ok(Extent::Whole);
            }
            (FileTree::new(files.paths), files.links)
        };
        let starts: Vec<Start> = self.keys().map(|key| self.start(key)).collect();
        let config_file = self
            .policies
            .of_operator()
            .config_file()
            .map(|file| file.value.clone());
        let extent = tokio::task::spawn_blocking(move || {
            extent_of(&objects, tree, &links, &starts, config_file)
        });
        Ok(extent.await.map_err(broke_off)??)
    }

    /// Returns the files that one project reaches, independent of the checkout.
    pub(super) async fn reached_by(
        &self,
        cx: &CommandCx<'_>,
        source: &Source,
        project: &ProjectKey,
    ) -> Result<ProjectReach, CheckoutError> {
        let objects = CommitFiles::of(cx, source).await?;
        let files = cx.ctx.checkouts.files(source, &objects.commit).await?;
        let (tree, links, starts) = (
            FileTree::new(files.paths),
            files.links,
            [self.start(project)],
        );
        let reached =
            tokio::task::spawn_blocking(move || reach_of(&objects, tree, &links, &starts));
        let (_, reached) = reached.await.map_err(broke_off)??;
        Ok(reached)
    }

    fn keys(&self) -> impl Iterator<Item = &ProjectKey> {
        self.projects
            .iter()
            .map(|project| &project.key)
            .chain(&self.reached.planned)
    }

    /// Builds the starting point of the search: the directory of a project, and the texts of its steps and
    /// configuration that may name other places.
    fn start(&self, key: &ProjectKey) -> Start {
        let workflow = self.policies(key).workflow(key);
        let is_about = |project: &&ProjectConfig| match &project.dir {
            ProjectDir::Path(dir) => *dir == key.dir,
            ProjectDir::Glob(glob) => glob.arrives_at(&key.dir),
        };
        let configured = self
            .policies(key)
            .config()
            .into_iter()
            .flat_map(|config| &config.projects)
            .filter(is_about);
        let patterns = configured.flat_map(|project| project.autoplan.when_modified.texts());
        Start {
            dir: key.dir.clone(),
            texts: workflow
                .texts()
                .chain(patterns)
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Computes the extent. It reads files, so it needs a thread of its own.
fn extent_of(
    objects: &CommitFiles,
    tree: FileTree,
    links: &[RepoPath],
    starts: &[Start],
    config_file: Option<RepoPath>,
) -> Result<Extent, GitError> {
    let (tree, reached) = reach_of(objects, tree, links, starts)?;
    Ok(match reached {
        ProjectReach::Everything => Extent::Whole,
        ProjectReach::These { dirs, files } => {
            let config_file = config_file.filter(|file| tree.has_file(file));
            Extent::of_dirs(dirs).with_files(files.iter().chain(&config_file))
        }
    })
}

/// Computes the reached files. It reads files, so it needs a thread of its own.
fn reach_of(
    objects: &CommitFiles,
    tree: FileTree,
    links: &[RepoPath],
    starts: &[Start],
) -> Result<(FileTree, ProjectReach), GitError> {
    let tree = if links.is_empty() {
        tree
    } else {
        let targets = links
            .iter()
            .filter_map(|link| Some((link.clone(), objects.link_target(link)?)));
        tree.with_links(targets.collect::<Vec<_>>())
    };
    let reached = reach(&tree, &|path| objects.read(&tree, path), starts);
    objects.trouble()?;
    Ok((tree, reached))
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn broke_off(error: tokio::task::JoinError) -> GitError {
    GitError::Other {
        doing: "find what projects reach".to_owned(),
        message: error.to_string(),
    }
}

/// Returns true if the output of a tool complains about a missing file.
pub(super) fn may_lack_files(output: &str) -> bool {
    const PHRASES: [&str; 5] = [
        "no such file or directory",
        "unreadable module directory",
        "no file exists at",
        "can't cd to",
        "unable to evaluate directory symlink",
    ];
    let output = output.to_lowercase();
    PHRASES.iter().any(|phrase| output.contains(phrase))
}

/// Returns a hint if a step misses a file and the submodules of the repository are not checked out.
pub(super) async fn hint_of_submodules(cx: &CommandCx<'_>, error: &RunError) -> Option<String> {
    let lacks_files = matches!(error, RunError::Step(_)) && may_lack_files(error.output());
    if !lacks_files
        || !cx
            .ctx
            .checkouts
            .leaves_submodules_out(&cx.pull.at.repo, &cx.pull.head)
            .await
    {
        return None;
    }
    Some(
        "The submodules of this repository are not checked out. If the file is in one of them, ask an administrator \
         to enable `--checkout-submodules`, then plan again."
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_told_from_other_failures() {
        assert!(may_lack_files("sh: 1: ../x.sh: No such file or directory"));
        assert!(may_lack_files("│ Error: Unreadable module directory"));
        assert!(!may_lack_files("Error: Unsupported argument"));
    }
}
