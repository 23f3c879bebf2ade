//! Tracks a file of settings that is read again while the server runs: the content in effect, and refused content.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use crate::model::Sha256Digest;

/// State of a file that is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Digest of the text in effect.
    pub digest: Sha256Digest,
    /// Time since which that text is in effect on this server.
    pub since: DateTime<Utc>,
    /// Newer content that could not be put into effect.
    pub refused: Option<RefusedContent>,
}

/// Content that did not replace the previous text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedContent {
    /// Time since which the content is refused.
    pub at: DateTime<Utc>,
    /// Reason for the refusal. For `--repo-config` it has excerpts of the file. Preformatted.
    pub error: String,
    /// Digest of the content; `None` if it could not be read.
    pub digest: Option<Sha256Digest>,
}

/// Result of a look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// Content as before, even if it was refused before.
    Same,
    /// New content, in effect from now on. The warnings name deprecated settings, one sentence each.
    Taken(Vec<String>),
    /// Invalid content, so the previous text stays in effect.
    Refused(String),
    /// Text in effect, after refused content in the meantime.
    Back,
}

/// Result of a look at the file, together with parsed content.
pub(super) enum ReloadResult<T> {
    /// New content, parsed, in effect from now on.
    Took(T),
    /// No change: the previous text stays in effect.
    Kept(FileCheck),
}

impl FileState {
    /// Tracks a file whose text is in effect from now on.
    pub(super) fn new(path: PathBuf, digest: Sha256Digest, now: DateTime<Utc>) -> Self {
        Self {
            path,
            digest,
            since: now,
            refused: None,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the digest of the text in effect.
    pub fn digest(&self) -> &Sha256Digest {
        &self.digest
    }

    /// Offers the content of the file: its text, or the reason why it cannot be read.
    pub(super) fn offer<T>(
        &mut self,
        found: Result<&str, String>,
        now: DateTime<Utc>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> ReloadResult<T> {
        let read = found.map(|text| (text, Sha256Digest::of(text.as_bytes())));
        let digest = read.as_ref().ok().map(|(_, digest)| digest.clone());
        if digest.as_ref() == Some(&self.digest) {
            return ReloadResult::Kept(
                self.refused
                    .take()
                    .map_or(FileCheck::Same, |_| FileCheck::Back),
            );
        }
        match read.and_then(|(text, digest)| Ok((parse(text)?, digest))) {
            Ok((parsed, digest)) => {
                (self.digest, self.since, self.refused) = (digest, now, None);
                ReloadResult::Took(parsed)
            }
            Err(error) => ReloadResult::Kept(self.refuse(error, digest, now)),
        }
    }

    fn refuse(
        &mut self,
        error: String,
        digest: Option<Sha256Digest>,
        now: DateTime<Utc>,
    ) -> FileCheck {
        let is_known = |known: &RefusedContent| (&known.error, &known.digest) == (&error, &digest);
        if self.refused.as_ref().is_some_and(is_known) {
            return FileCheck::Same;
        }
        self.refused = Some(RefusedContent {
            at: now,
            error: error.clone(),
            digest,
        });
        FileCheck::Refused(error)
    }
}
