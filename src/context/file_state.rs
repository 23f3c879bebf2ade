//! A file of settings that is read again while the server runs: what holds of it, and what does not.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use crate::model::Sha256Digest;

/// How it stands about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Where it is; absolute.
    pub path: PathBuf,
    /// Of the text that holds.
    pub digest: Sha256Digest,
    /// Since when that holds on this server.
    pub since: DateTime<Utc>,
    /// What was found there later and could not be taken.
    pub refused: Option<Refused>,
}

/// A text that did not take the place of the one of before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Since when it is refused.
    pub at: DateTime<Utc>,
    /// Why; of `--repo-config` with excerpts of the file; preformatted.
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

/// What became of a text that was found.
pub(super) enum Offer<T> {
    /// It holds from now on, and was read as this.
    Took(T),
    /// The one of before goes on to hold.
    Kept(Look),
}

impl FileState {
    /// A file whose text holds from now on.
    pub(super) fn new(path: PathBuf, digest: Sha256Digest, now: DateTime<Utc>) -> Self {
        Self {
            path,
            digest,
            since: now,
            refused: None,
        }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Of the text that holds.
    pub fn digest(&self) -> &Sha256Digest {
        &self.digest
    }

    /// What was found at the place of the file: its text, or why it cannot be read.
    pub(super) fn offer<T>(
        &mut self,
        found: Result<&str, String>,
        now: DateTime<Utc>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Offer<T> {
        let read = found.map(|text| (text, Sha256Digest::of(text.as_bytes())));
        let digest = read.as_ref().ok().map(|(_, digest)| digest.clone());
        if digest.as_ref() == Some(&self.digest) {
            return Offer::Kept(self.refused.take().map_or(Look::Same, |_| Look::Back));
        }
        match read.and_then(|(text, digest)| Ok((parse(text)?, digest))) {
            Ok((parsed, digest)) => {
                (self.digest, self.since, self.refused) = (digest, now, None);
                Offer::Took(parsed)
            }
            Err(error) => Offer::Kept(self.refuse(error, digest, now)),
        }
    }

    fn refuse(&mut self, error: String, digest: Option<Sha256Digest>, now: DateTime<Utc>) -> Look {
        let is_known = |known: &Refused| (&known.error, &known.digest) == (&error, &digest);
        if self.refused.as_ref().is_some_and(is_known) {
            return Look::Same;
        }
        self.refused = Some(Refused {
            at: now,
            error: error.clone(),
            digest,
        });
        Look::Refused(error)
    }
}
