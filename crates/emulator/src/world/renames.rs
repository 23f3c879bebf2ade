//! Renames, transfers, archives and deletes repositories.

use std::sync::Arc;

use crate::EmulatorError;
use crate::model::PullNumber;

use super::{EmulatedWorld, FullName, User, UserKind, WorldChange, WorldEvent, WorldState};

impl EmulatedWorld {
    /// Gives a repository another name, or another owner, or both. Requests with the old name are redirected.
    pub(crate) async fn rename_repo(
        &self,
        old: &str,
        new: &str,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let new = FullName::parse(new)?;
        let _gate = self.gate.lock().await;
        let handle = self.repo_handle(old)?;
        if new.key() != handle.key && self.state().repo(&new.key()).is_ok() {
            return Err(EmulatorError::RepoExists(new.to_string()));
        }
        let to = self.directory.join(format!("{}.git", new.key()));
        let parent = to.parent().unwrap_or(&to).to_owned();
        std::fs::create_dir_all(&parent)
            .and_then(|()| std::fs::rename(handle.git.directory(), &to))
            .map_err(EmulatorError::Start)?;
        self.change(|state| {
            let mut repo = state
                .repos
                .remove(&handle.key)
                .ok_or_else(|| EmulatorError::NoRepo(old.to_owned()))?;
            let renamed = Arc::make_mut(&mut repo);
            let old_name = std::mem::replace(&mut renamed.name, new.clone());
            let owner = User {
                login: new.owner.clone(),
                kind: UserKind::Organization,
            };
            let old_owner = std::mem::replace(&mut renamed.owner, owner);
            state.moved.remove(&new.key());
            if new.key() != handle.key {
                state.moved.insert(handle.key.clone(), repo.id);
            }
            state.repos.insert(new.key(), repo);
            state.rename_heads(&handle.key, &new.key());
            let change = WorldChange::RepositoryRenamed {
                old_name,
                old_owner,
            };
            Ok(vec![state.repository_event(&new.key(), by, change)?])
        })
    }

    /// Deletes a repository with everything in it.
    pub(crate) async fn delete_repo(
        &self,
        name: &str,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let _gate = self.gate.lock().await;
        let handle = self.repo_handle(name)?;
        std::fs::remove_dir_all(handle.git.directory()).map_err(EmulatorError::Start)?;
        self.change(|state| {
            let deleted = WorldChange::RepositoryDeleted;
            let event = state.repository_event(&handle.key, by, deleted)?;
            state.repos.remove(&handle.key);
            state.moved.retain(|_, id| *id != event.repo.id);
            Ok(vec![event])
        })
    }

    /// Archives a repository: nothing in it can be changed any more, and its pull requests stay open.
    pub(crate) fn archive_repo(
        &self,
        name: &str,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        self.change(|state| {
            state.repo_mut(name)?.archived = true;
            let archived = WorldChange::RepositoryArchived;
            Ok(vec![state.repository_event(name, by, archived)?])
        })
    }
}

impl WorldState {
    /// Gives pull requests from a repository the new name of that repository.
    fn rename_heads(&mut self, old: &str, new: &str) {
        for repo in self.repos.values_mut() {
            let from: Vec<PullNumber> = repo
                .pulls
                .values()
                .filter(|pull| pull.head_repo == old)
                .map(|pull| pull.number)
                .collect();
            for number in from {
                if let Some(pull) = Arc::make_mut(repo).pulls.get_mut(&number) {
                    new.clone_into(&mut Arc::make_mut(pull).head_repo);
                }
            }
        }
    }
}
