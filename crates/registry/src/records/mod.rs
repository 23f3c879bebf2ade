//! Records of the log. A record says that a version was added, deprecated or deleted, and who says so.
//!
//! A record is made and signed once, and then travels unchanged between deployments, so that nobody who relays it can
//! change it or make one up. Its text is a leaf of the log, which the `go` command reads as well: for Go modules it has the
//! two lines of `go.sum`, and `go` passes over the others. No other line begins like one of these, because the first
//! element of a module path has a dot.
//!
//! # Grammar
//!
//! A record is text in UTF-8 of at most [`MAX_RECORD_BYTES`]. Each line ends in a line feed, and none is empty. Words are
//! separated by one space. Every record has one spelling: numbers have no leading zeros, digits of hashes are in lower
//! case, and versions are canonical.
//!
//! ```text
//! record      = (add / deprecate / delete) maker signature
//! add         = "add" SP subject LF checksums 1*64package [commit] [fetched] time
//! deprecate   = "deprecate" SP subject LF [fetched] time reason [replacement]
//! delete      = "delete" SP subject LF [fetched] time takedown reason [replacement]
//! subject     = "module" SP NAME SP VERSION / "go" SP PATH SP VERSION
//! checksums   = "files" SP H1 LF                     ; of a module: all files of its package
//!             / PATH SP VERSION SP H1 LF             ; of a Go module: its zip
//!               PATH SP VERSION "/go.mod" SP H1 LF   ;   and its go.mod
//! package     = "package" SP SHA256 SP SIZE SP FILE LF       ; sorted by FILE
//! commit      = "commit" SP 40HEX LF / "commit" SP 64HEX LF
//! fetched     = "fetched" SP TIME LF                 ; nobody has published the version. TIME is that of its commit
//! time        = "time" SP TIME LF                    ; 2026-11-03T10:00:00Z
//! takedown    = "takedown" SP ("legal" / "security" / "mistake") LF
//! reason      = "reason" SP TEXT LF
//! replacement = "replacement" SP NAME SP VERSION LF  ; another version of the same kind
//! maker       = "maker" SP DEPLOYMENT SP ID LF       ; ID in the log of that deployment
//! signature   = "signature" SP BASE64 LF             ; Ed25519, of everything before this line
//! ```
//!
//! The text of no signed head of a log begins like a record, so one key can sign both.

mod content;
mod fields;
mod read;

use std::fmt;

use lockkeeper_model::model::{Reason, text_enum};

pub use self::content::{
    Checksums, InvalidPackages, PackageFile, PackageFileName, PackageFiles, VersionContent,
};
pub use self::fields::{DeploymentName, InvalidField, LogId, RecordTime};
pub use self::read::InvalidRecord;
use crate::encoding::base64;
use crate::signed_note::{NoteSigner, NoteVerifier};
use crate::versions::VersionKey;

/// Maximum length of a record. The longest that the other limits allow is shorter.
pub const MAX_RECORD_BYTES: usize = 32 * 1024;

text_enum! {
    /// Change of a version that a record describes.
    pub enum LogAction {
        /// The version was published, or fetched from outside for the first time.
        Add = "add",
        /// The version is still served, but should not be chosen again.
        Deprecate = "deprecate",
        /// The version is not served again.
        Delete = "delete",
    }
}

text_enum! {
    /// Kind of a takedown. Clients get status 451 after a legal one, and 403 after the others.
    pub enum TakedownKind {
        /// The law demands it.
        Legal = "legal",
        /// The version endangers those who use it.
        Security = "security",
        /// The version should never have been published.
        Mistake = "mistake",
    }
}

/// Reason of a deprecation or deletion, and the version to use instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordNotice {
    /// Reason, for the people who use the version.
    pub reason: Reason,
    /// Version to use instead, of the same kind.
    pub replacement: Option<VersionKey>,
}

/// The change that a record describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// The version was added with this content.
    Add(VersionContent),
    /// The version was deprecated.
    Deprecate(RecordNotice),
    /// The version was deleted.
    Delete(TakedownKind, RecordNotice),
}

impl RecordChange {
    /// Returns the action that the first line names.
    pub fn action(&self) -> LogAction {
        match self {
            Self::Add(_) => LogAction::Add,
            Self::Deprecate(_) => LogAction::Deprecate,
            Self::Delete(..) => LogAction::Delete,
        }
    }

    /// Checks that the change can be one of a version.
    fn check_key(&self, key: &VersionKey) -> Result<(), InconsistentRecord> {
        match self {
            Self::Add(content) if content.checksums.kind() != key.kind() => {
                Err(InconsistentRecord::Checksums)
            }
            Self::Deprecate(notice) | Self::Delete(_, notice) => {
                let replaces = |other: &VersionKey| other != key && other.kind() == key.kind();
                let is_valid = notice.replacement.as_ref().is_none_or(replaces);
                is_valid
                    .then_some(())
                    .ok_or(InconsistentRecord::Replacement)
            }
            Self::Add(_) => Ok(()),
        }
    }
}

/// The deployment that made a record, and the place of the record in its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordMaker {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Place in the log of that deployment.
    pub id: LogId,
}

/// A record before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsignedRecord {
    key: VersionKey,
    change: RecordChange,
    fetched: Option<RecordTime>,
    time: RecordTime,
    maker: RecordMaker,
}

/// A record of the log, with the signature of its maker. [`Self::verify`] checks the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    unsigned: UnsignedRecord,
    signature: [u8; 64],
}

/// The parts of a record do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InconsistentRecord {
    /// The checksums are those of another kind of name.
    #[error("the checksums are not those of this kind of name")]
    Checksums,
    /// The replacement is the version itself, or of another kind.
    #[error("the replacement is another version of the same kind")]
    Replacement,
}

/// The signature of a record is not by the key of its maker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of {key} is not signed by {maker}")]
pub struct BadRecordSignature {
    /// Version that the record is about.
    pub key: VersionKey,
    /// Deployment that did not sign the record.
    pub maker: DeploymentName,
}

impl UnsignedRecord {
    /// Puts a record together.
    pub fn new(
        key: VersionKey,
        change: RecordChange,
        time: RecordTime,
        maker: RecordMaker,
    ) -> Result<Self, InconsistentRecord> {
        change.check_key(&key)?;
        Ok(Self {
            key,
            change,
            fetched: None,
            time,
            maker,
        })
    }

    /// Says that the maker has fetched the version from a repository, whose commit has this time. `None`: somebody has
    /// published the version there.
    #[must_use]
    pub fn fetched(self, committed: Option<RecordTime>) -> Self {
        Self {
            fetched: committed,
            ..self
        }
    }

    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(committed) = self.fetched {
            writeln!(f, "fetched {committed}")?;
        }
        writeln!(f, "time {}", self.time)
    }

    /// Signs the record with the key of its maker, which also signs the heads of the log.
    #[must_use]
    pub fn sign(self, key: &NoteSigner) -> Record {
        Record {
            signature: key.sign(self.to_string().as_bytes()),
            unsigned: self,
        }
    }
}

impl Record {
    /// Parses the text of a record. The signature is read and not yet checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        read::record(bytes)
    }

    /// Checks the signature with the known keys that are named like the maker. One of them is enough, because a key may
    /// have been replaced since.
    pub fn verify(&self, known: &[NoteVerifier]) -> Result<(), BadRecordSignature> {
        let text = self.unsigned.to_string();
        let maker = &self.maker().deployment;
        let mut keys = known.iter().filter(|key| key.name() == maker.as_str());
        if keys.any(|key| key.verify(text.as_bytes(), &self.signature)) {
            return Ok(());
        }
        Err(BadRecordSignature {
            key: self.key().clone(),
            maker: maker.clone(),
        })
    }

    /// Returns the version that the record is about.
    pub fn key(&self) -> &VersionKey {
        &self.unsigned.key
    }

    /// Returns the change that the record describes.
    pub fn change(&self) -> &RecordChange {
        &self.unsigned.change
    }

    /// Returns the time of the commit of a version that the maker has fetched from a repository. Such a record says nothing
    /// about what the owner of the name has published. `None`: somebody has published the version.
    pub fn fetched(&self) -> Option<RecordTime> {
        self.unsigned.fetched
    }

    /// Returns the time of the change at the maker.
    pub fn time(&self) -> RecordTime {
        self.unsigned.time
    }

    /// Returns the deployment that made the record, and its ID there.
    pub fn maker(&self) -> &RecordMaker {
        &self.unsigned.maker
    }
}

impl fmt::Display for UnsignedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.change.action(), self.key)?;
        match &self.change {
            RecordChange::Add(content) => {
                write_content(f, &self.key, content)?;
                self.write_times(f)?;
            }
            RecordChange::Deprecate(notice) => {
                self.write_times(f)?;
                write_notice(f, notice)?;
            }
            RecordChange::Delete(kind, notice) => {
                self.write_times(f)?;
                writeln!(f, "takedown {kind}")?;
                write_notice(f, notice)?;
            }
        }
        let RecordMaker { deployment, id } = &self.maker;
        writeln!(f, "maker {deployment} {id}")
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature {}", self.unsigned, base64(&self.signature))
    }
}

fn write_content(
    f: &mut fmt::Formatter<'_>,
    key: &VersionKey,
    content: &VersionContent,
) -> fmt::Result {
    match &content.checksums {
        Checksums::Module { files } => writeln!(f, "files {files}")?,
        Checksums::Go { zip, go_mod } => {
            let (name, version) = (key.name(), key.version());
            writeln!(f, "{} {version} {zip}", name.as_str())?;
            writeln!(f, "{} {version}/go.mod {go_mod}", name.as_str())?;
        }
    }
    for PackageFile { name, digest, size } in &content.packages {
        writeln!(f, "package {digest} {size} {name}")?;
    }
    if let Some(commit) = &content.commit {
        writeln!(f, "commit {commit}")?;
    }
    Ok(())
}

fn write_notice(f: &mut fmt::Formatter<'_>, notice: &RecordNotice) -> fmt::Result {
    writeln!(f, "reason {}", notice.reason.as_str())?;
    if let Some(key) = &notice.replacement {
        writeln!(f, "replacement {} {}", key.name().as_str(), key.version())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
