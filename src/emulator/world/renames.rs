//! Renames, transfers, archives and deletes repositories.

use serde_json::{Value, json};

use crate::emulator::EmulatorError;
use crate::emulator::github::views::{WireView, repository_event};

use super::{EmulatedWorld, FullName, User, UserKind, WorldEvent};

impl EmulatedWorld {
    /// Gives a repository another name, or another owner, or both. Requests with the old name are redirected.
    pub(in crate::emulator) async fn rename_repo(
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
            let before = std::mem::replace(&mut repo.name, new.clone());
            let owner = User {
                login: new.owner.clone(),
                kind: UserKind::Organization,
            };
            let old_owner = std::mem::replace(&mut repo.owner, owner);
            let id = repo.id;
            state.moved.remove(&new.key());
            if new.key() != handle.key {
                state.moved.insert(handle.key.clone(), id);
            }
            state.repos.insert(new.key(), repo);
            for pull in state
                .repos
                .values_mut()
                .flat_map(|repo| repo.pulls.values_mut())
            {
                if pull.head_repo == handle.key {
                    pull.head_repo = new.key();
                }
            }
            let (action, changes) = changes(&before, &old_owner, &new);
            let view = WireView { world: self, state };
            Ok(vec![repository_event(
                &view,
                state.repo(&new.key())?,
                action,
                by,
                json!({ "changes": changes }),
            )])
        })
    }

    /// Deletes a repository with everything in it.
    pub(in crate::emulator) async fn delete_repo(
        &self,
        name: &str,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        let _gate = self.gate.lock().await;
        let handle = self.repo_handle(name)?;
        std::fs::remove_dir_all(handle.git.directory()).map_err(EmulatorError::Start)?;
        self.change(|state| {
            let view = WireView { world: self, state };
            let event = repository_event(&view, state.repo(&handle.key)?, "deleted", by, json!({}));
            let gone = state.repos.remove(&handle.key);
            state
                .moved
                .retain(|_, id| gone.as_ref().is_none_or(|gone| gone.id != *id));
            Ok(vec![event])
        })
    }

    /// Archives a repository: nothing in it can be changed any more, and its pull requests stay open.
    pub(in crate::emulator) fn archive_repo(
        &self,
        name: &str,
        by: &str,
    ) -> Result<Vec<WorldEvent>, EmulatorError> {
        self.change(|state| {
            state.repo_mut(name)?.archived = true;
            let view = WireView { world: self, state };
            Ok(vec![repository_event(
                &view,
                state.repo(name)?,
                "archived",
                by,
                json!({}),
            )])
        })
    }
}

/// Describes a rename for the webhook. GitHub reports another owner as a transfer, even if the name changes too.
fn changes(before: &FullName, owner: &User, now: &FullName) -> (&'static str, Value) {
    if before.owner.eq_ignore_ascii_case(&now.owner) {
        return (
            "renamed",
            json!({ "repository": { "name": { "from": before.name } } }),
        );
    }
    let kind = if owner.kind == UserKind::Organization {
        "organization"
    } else {
        "user"
    };
    let mut changes =
        json!({ "owner": { "from": { kind: { "login": owner.login, "id": owner.id() } } } });
    if before.name != now.name {
        changes["repository"] = json!({ "name": { "from": before.name } });
    }
    ("transferred", changes)
}
