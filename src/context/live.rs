//! Holds settings that can change while the server runs. The file of `--repo-config` is read again, and its new
//! content replaces the old one, as a whole or not at all. A command uses the same settings from its start to its
//! end.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use super::Settings;
use super::file_state::{FileCheck, FileState, ReloadResult};
use crate::config::repos::ServerRepos;

/// Holder of the current settings.
pub struct Live(RwLock<LiveState>);

struct LiveState {
    settings: Arc<Settings>,
    /// State of the file; `None` if no file is read again.
    file: Option<FileState>,
}

impl Live {
    /// Starts with settings made at `now`.
    pub fn new(settings: Settings, now: DateTime<Utc>) -> Self {
        let file = settings.repo_rules.file.clone();
        let file = file.map(|file| FileState::new(file.path, file.digest, now));
        Self(RwLock::new(LiveState {
            settings: Arc::new(settings),
            file,
        }))
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(
            &self
                .0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .settings,
        )
    }

    /// Returns the state of the file; `None` if there is none.
    pub fn file(&self) -> Option<FileState> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .clone()
    }

    /// Replaces the settings from now on.
    pub(super) fn put(&self, settings: Arc<Settings>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .settings = settings;
    }

    /// Offers the content of the file: its text, or the reason why it cannot be read.
    pub fn offer(&self, found: Result<&str, String>, now: DateTime<Utc>) -> FileCheck {
        let state = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut state.file else {
            return FileCheck::Same;
        };
        let path = file.path.clone();
        let settings = &state.settings;
        match file.offer(found, now, |text| parse(text, &path, settings)) {
            ReloadResult::Took(repos) => {
                let warnings = repos.warnings();
                state.settings = Arc::new(state.settings.with_repos(repos));
                FileCheck::Taken(warnings)
            }
            ReloadResult::Kept(look) => look,
        }
    }
}

fn parse(text: &str, path: &Path, settings: &Settings) -> Result<ServerRepos, String> {
    let before = &settings.repo_rules.repos;
    let repos = ServerRepos::parse(&path.display().to_string(), text)
        .map_err(|errors| errors.to_string())?;
    if repos.environment_profiles() != before.environment_profiles() {
        return Err(
            "`environment_profiles` has changed, but the server reads the variables of runs only at its start. \
                    Restart the server"
                .to_owned(),
        );
    }
    // The switches stay in effect for every content of the file.
    let repos = if settings.planning.policy_checks {
        repos
            .with_policy_checks()
            .map_err(|error| error.to_string())?
    } else {
        repos
    };
    Ok(if settings.locking.is_off {
        repos.without_locking()
    } else {
        repos
    })
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("file", &self.file())
            .finish_non_exhaustive()
    }
}
