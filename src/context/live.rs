//! Settings that can change while the server runs: the file of `--repo-config` is read again, and what it says takes the
//! place of what it said, as a whole or not at all. A command goes by one of the two from its start to its end.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use super::Settings;
use crate::config::repos::ServerRepos;
use crate::config::server::ReposFile;
use crate::model::Sha256Digest;

/// The settings as they are now.
pub struct Live(RwLock<State>);

struct State {
    settings: Arc<Settings>,
    /// `None`: nothing is read again.
    file: Option<FileState>,
}

/// What holds of the file of `--repo-config`, and what does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Where it is, and of which text the settings are.
    pub file: ReposFile,
    /// Since when they hold on this server.
    pub since: DateTime<Utc>,
    /// What was found there later and could not be taken.
    pub refused: Option<Refused>,
}

/// A text that did not take the place of the one of before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Since when it is refused.
    pub at: DateTime<Utc>,
    /// Why, with excerpts of the file; preformatted.
    pub error: String,
    /// Its digest; `None`: it could not be read.
    pub digest: Option<Sha256Digest>,
}

/// What became of a look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is what it was, or was refused before.
    Same,
    /// It holds from now on; with what it says in a way that will go, a sentence each.
    Taken(Vec<String>),
    /// It is wrong, so the one of before goes on to hold.
    Refused(String),
    /// What was refused is gone, and the text that holds is there again.
    Back,
}

impl Live {
    /// Settings made at `now`, and the file they are made from.
    pub fn new(settings: Settings, file: Option<ReposFile>, now: DateTime<Utc>) -> Self {
        let file = file.map(|file| FileState { file, since: now, refused: None });
        Self(RwLock::new(State { settings: Arc::new(settings), file }))
    }

    /// The settings of this moment.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).settings)
    }

    /// How it stands about the file; `None`: there is none.
    pub fn file(&self) -> Option<FileState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).file.clone()
    }

    /// Other settings from now on.
    pub(super) fn put(&self, settings: Arc<Settings>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).settings = settings;
    }

    /// What was found at the place of the file: its text, or why it cannot be read.
    pub fn offer(&self, found: Result<&str, String>, now: DateTime<Utc>) -> Look {
        let state = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut state.file else { return Look::Same };
        let read = found.map(|text| (text, Sha256Digest::of(text.as_bytes())));
        let digest = read.as_ref().ok().map(|(_, digest)| digest.clone());
        if digest.as_ref() == Some(&file.file.digest) {
            return file.refused.take().map_or(Look::Same, |_| Look::Back);
        }
        match read.and_then(|(text, digest)| Ok((parse(&file.file, text)?, digest))) {
            Ok((repos, digest)) => {
                file.file.digest = digest;
                (file.since, file.refused) = (now, None);
                let warnings = repos.warnings();
                state.settings = Arc::new(state.settings.with_repos(repos));
                Look::Taken(warnings)
            }
            Err(error) => {
                let is_known = |known: &Refused| (&known.error, &known.digest) == (&error, &digest);
                if file.refused.as_ref().is_some_and(is_known) {
                    return Look::Same;
                }
                file.refused = Some(Refused { at: now, error: error.clone(), digest });
                Look::Refused(error)
            }
        }
    }
}

fn parse(file: &ReposFile, text: &str) -> Result<ServerRepos, String> {
    let repos = ServerRepos::parse(&file.path.display().to_string(), text).map_err(|errors| errors.to_string())?;
    Ok(if file.without_locking { repos.without_locking() } else { repos })
}

impl FileState {
    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Of the text that holds.
    pub fn digest(&self) -> &Sha256Digest {
        &self.file.digest
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("file", &self.file()).finish_non_exhaustive()
    }
}
