//! Versions, names, the key and the outcome of a verification, as the API and the command line show them.

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::records::{Checksums, TakedownKind, VersionContent};
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;
use serde_json::{Value, json};

use super::input::shown_key;
use super::store::{RegistryVersion, VersionNotice, VersionOrigin};
use super::tags::TagMove;
use super::verify::{VerifyFault, VerifyReport};
use crate::kit::web::text::rfc3339;
use crate::model::CommitSha;

/// A name with its newest version.
#[derive(Serialize)]
pub(super) struct NameView {
    kind: NameKind,
    name: String,
    /// Highest version that is neither deprecated nor taken down.
    pub newest: Option<String>,
    /// Number of versions in any state.
    pub versions: usize,
}

impl NameView {
    /// Takes all versions of a name, in any order.
    pub(super) fn new<'a>(
        name: &RegistryName,
        versions: impl IntoIterator<Item = (&'a VersionKey, VersionState)>,
    ) -> Self {
        let mut newest: Option<&VersionKey> = None;
        let mut count = 0;
        for (key, state) in versions {
            count += 1;
            if state == VersionState::Added {
                newest = newest.max(Some(key));
            }
        }
        Self {
            kind: name.kind(),
            name: name.as_str().to_owned(),
            newest: newest.map(VersionKey::version),
            versions: count,
        }
    }
}

/// A version in any state but absent.
#[derive(Serialize)]
pub(super) struct VersionView {
    kind: NameKind,
    name: String,
    version: String,
    state: VersionState,
    /// Hash of the files of the package, as `go.sum` and lock files have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<String>,
    /// Hash of the `go.mod` file.
    #[serde(skip_serializing_if = "Option::is_none")]
    go_mod: Option<String>,
    packages: Vec<PackageView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<CommitSha>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<VersionOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added_at: Option<String>,
    /// Last deprecation or takedown.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<NoticeView>,
    /// Moves and removals of the tag that the version was published from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tag_moves: Vec<TagMoveView>,
}

#[derive(Serialize)]
struct TagMoveView {
    repository: String,
    tag: String,
    from: CommitSha,
    /// Commit that the tag leads to. Not there if the tag was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<CommitSha>,
    at: String,
}

/// A version, as an answer to its publication.
#[derive(Serialize)]
pub(super) struct PublishedView {
    /// ID of the record in the log, if the version is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(flatten)]
    pub version: VersionView,
}

#[derive(Serialize)]
struct PackageView {
    file: String,
    sha256: String,
    size: u64,
}

#[derive(Serialize)]
struct NoticeView {
    /// Kind of the takedown. Not there for a deprecation.
    #[serde(skip_serializing_if = "Option::is_none")]
    takedown: Option<TakedownKind>,
    reason: String,
    /// Version to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement: Option<String>,
    at: DateTime<Utc>,
}

impl From<&RegistryVersion> for VersionView {
    fn from(version: &RegistryVersion) -> Self {
        let content = version.known.content().map(|located| &located.content);
        let (files, go_mod) = match content.map(|content| content.checksums) {
            Some(Checksums::Module { files }) => (Some(files.to_string()), None),
            Some(Checksums::Go { zip, go_mod }) => {
                (Some(zip.to_string()), Some(go_mod.to_string()))
            }
            None => (None, None),
        };
        let packages = content.into_iter().flat_map(|content| &content.packages);
        Self {
            kind: version.key.kind(),
            name: version.key.name().as_str().to_owned(),
            version: version.key.version(),
            state: version.known.state(),
            files,
            go_mod,
            packages: packages
                .map(|package| PackageView {
                    file: package.name.to_string(),
                    sha256: package.digest.to_string(),
                    size: package.size,
                })
                .collect(),
            commit: content.and_then(|content| content.commit.clone()),
            origin: version.origin,
            published_by: version.publisher().map(str::to_owned),
            added_at: version.added_at.map(rfc3339),
            notice: version.notice.as_ref().map(NoticeView::from),
            tag_moves: Vec::new(),
        }
    }
}

impl VersionView {
    /// Adds the moves of the tag of this version, among those of other versions.
    pub(super) fn with_moves(mut self, version: &RegistryVersion, moves: &[TagMove]) -> Self {
        let own = moves.iter().filter(|one| one.key == version.key);
        self.tag_moves = own
            .map(|one| TagMoveView {
                repository: one.repo.to_string(),
                tag: one.tag.to_string(),
                from: one.from.clone(),
                to: one.to.clone(),
                at: rfc3339(one.at),
            })
            .collect();
        self
    }

    /// Describes a version without its origin and the name of the person or token that has published it. Who reads or changes
    /// a name need not know them.
    pub fn of_client(version: &RegistryVersion) -> Self {
        Self {
            origin: None,
            published_by: None,
            ..Self::from(version)
        }
    }
}

/// Returns a sentence about a tag that does not lead to the commit of its version any more.
pub(super) fn move_sentence(one: &TagMove) -> String {
    let (tag, repo, from) = (&one.tag, &one.repo, one.from.short());
    let at = one.at.format("%Y-%m-%d");
    match &one.to {
        Some(to) => format!(
            "On {at} it was found that the tag {tag} of {repo} was moved from {from} to {}. The version stays as it was published.",
            to.short()
        ),
        None => format!(
            "On {at} it was found that the tag {tag} of {repo} at {from} was removed. The version stays as it was published."
        ),
    }
}

impl From<&VersionNotice> for NoticeView {
    fn from(notice: &VersionNotice) -> Self {
        Self {
            takedown: notice.takedown,
            reason: notice.notice.reason.as_str().to_owned(),
            replacement: notice.notice.replacement.as_ref().map(shown_key),
            at: notice.at,
        }
    }
}

/// Describes the public key of the log for programs.
pub(super) fn key_json(key: &NoteVerifier) -> Value {
    json!({ "name": key.name(), "key": key.to_string() })
}

/// Describes the outcome of a verification for programs. `packages`: it has read the packages as well.
pub(super) fn verified_json(verified: &Result<VerifyReport, VerifyFault>, packages: bool) -> Value {
    match verified {
        Ok(report) => json!({
            "records": report.head.size,
            "root": report.head.root.to_string(),
            "versions": report.versions,
            "packages": packages.then_some(report.packages),
        }),
        Err(fault) => json!({ "fault": fault.to_string() }),
    }
}

/// Returns the checksums of files, for people.
pub(super) fn checksums_of(content: &VersionContent) -> String {
    match content.checksums {
        Checksums::Module { files } => files.to_string(),
        Checksums::Go { zip, go_mod } => format!("{zip} (go.mod: {go_mod})"),
    }
}

/// Returns the reason of a deprecation or takedown in a sentence.
pub(super) fn notice_sentence(notice: &VersionNotice) -> String {
    let event = match notice.takedown {
        Some(kind) => format!("taken down ({kind})"),
        None => "deprecated".to_owned(),
    };
    let at = notice.at.format("%Y-%m-%d");
    let reason = notice.notice.reason.as_str();
    let end = if reason.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    let instead = match &notice.notice.replacement {
        Some(key) => format!(" Use {} instead.", shown_key(key)),
        None => String::new(),
    };
    format!("It was {event} on {at}: {reason}{end}{instead}")
}
