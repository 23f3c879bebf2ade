//! Creates repositories and pushes to them.

use crate::EmulatorError;
use crate::git::{Change, EmulatedGit, Import};
use crate::model::{BranchName, CommitSha};

use super::state::DEFAULT_BRANCH;
use super::{EmulatedWorld, FullName, WorldEvent};

/// Key of a repository, and its git directory.
#[derive(Clone)]
pub(crate) struct RepoHandle {
    pub(crate) key: String,
    pub(crate) git: EmulatedGit,
}

/// Commit to push, with its branch.
pub(crate) struct Push<'a> {
    pub(crate) branch: &'a str,
    pub(crate) changes: &'a [Change],
    /// True to replace the branch by this one commit on top of the default branch.
    pub(crate) force: bool,
}

impl EmulatedWorld {
    /// Creates a repository with one commit on `main`, owned by an organisation.
    pub(crate) async fn create_repo(
        &self,
        name: &str,
        files: &[(&str, &str)],
    ) -> Result<CommitSha, EmulatorError> {
        let name = FullName::parse(name)?;
        let _gate = self.gate.lock().await;
        let git = self.init(&name).await?;
        let changes: Vec<Change> = files
            .iter()
            .map(|(path, content)| Change::write(path, content))
            .collect();
        let by = self.signature(&self.developer);
        let branch = BranchName::new(DEFAULT_BRANCH)?;
        let import = Import {
            branch: &branch,
            parent: None,
            by: &by,
            message: "Initial commit",
            changes: &changes,
            force: false,
        };
        let sha = git.import(&import).await?;
        self.change(|state| state.add_repo(&name, None, self.now()));
        Ok(sha)
    }

    /// Copies a repository with its branches to a person and returns the new name.
    pub(crate) async fn fork(&self, name: &str, owner: &str) -> Result<String, EmulatorError> {
        let source = self.repo_handle(name)?;
        let fork = FullName::parse(&format!("{owner}/{}", self.state().repo(name)?.name.name))?;
        let _gate = self.gate.lock().await;
        let git = self.init(&fork).await?;
        for (branch, tip) in source.git.branches().await? {
            git.fetch(&source.git, &tip, &format!("refs/heads/{branch}"))
                .await?;
        }
        self.change(|state| state.add_repo(&fork, Some(source.key), self.now()));
        Ok(fork.to_string())
    }

    async fn init(&self, name: &FullName) -> Result<EmulatedGit, EmulatorError> {
        if self.state().repo(&name.key()).is_ok() {
            return Err(EmulatorError::RepoExists(name.to_string()));
        }
        let directory = self.directory.join(format!("{}.git", name.key()));
        if directory.exists() {
            return Err(EmulatorError::DirectoryInUse(directory));
        }
        Ok(EmulatedGit::init(directory, self.conventions.pull_refs).await?)
    }

    /// Returns the key and the git directory of a repository.
    pub(crate) fn repo_handle(&self, name: &str) -> Result<RepoHandle, EmulatorError> {
        let key = self.state().repo(name)?.name.key();
        let git = EmulatedGit::at(self.directory.join(format!("{key}.git")));
        Ok(RepoHandle { key, git })
    }

    /// Makes a commit on a branch. A new branch starts at the tip of `main`.
    pub(crate) async fn push(
        &self,
        name: &str,
        push: &Push<'_>,
    ) -> Result<(CommitSha, Vec<WorldEvent>), EmulatorError> {
        let _gate = self.gate.lock().await;
        let repo = self.repo_handle(name)?;
        let branch = BranchName::new(push.branch)?;
        let before = repo.git.branches().await?;
        let main = before.get(&BranchName::new(DEFAULT_BRANCH)?);
        let parent = if push.force {
            main
        } else {
            before.get(&branch).or(main)
        };
        let author = self.author_of_branch(&repo.key, &branch);
        let by = self.signature(&author);
        let message = message(push.changes);
        let import = Import {
            branch: &branch,
            parent,
            by: &by,
            message: &message,
            changes: push.changes,
            force: push.force,
        };
        let sha = repo.git.import(&import).await?;
        let events = self.after_push(&repo, &before, &author).await?;
        Ok((sha, events))
    }

    /// Returns the author of the open pull request from this branch, else the developer.
    fn author_of_branch(&self, repo: &str, branch: &BranchName) -> String {
        let state = self.state();
        let mut pulls = state.repos.values().flat_map(|repo| repo.open_pulls());
        let pull = pulls.find(|pull| pull.comes_from(repo, branch));
        pull.map_or_else(|| self.developer.clone(), |pull| pull.author.clone())
    }
}

fn message(changes: &[Change]) -> String {
    match changes.first() {
        None => "Empty commit".to_owned(),
        Some(
            Change::Write { path, .. }
            | Change::Program { path, .. }
            | Change::Symlink { path, .. }
            | Change::Submodule { path, .. },
        ) => {
            format!("Update {path}")
        }
        Some(Change::Delete { path }) => format!("Delete {path}"),
        Some(Change::Rename { from, to }) => format!("Rename {from} to {to}"),
    }
}
