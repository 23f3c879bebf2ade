//! Defines the few fields of GitHub's payloads that Lockkeeper reads.
//!
//! GitHub's own recordings break its published schemas. So only needed fields are required, and every field that
//! GitHub may send as `null` is optional.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Fields that decide whether a payload requests something.
#[derive(Deserialize)]
pub(super) struct ActionFields {
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub changes: Option<EditChanges>,
    #[serde(default)]
    pub issue: Option<MaybePull>,
}

/// Changes of an edit.
#[derive(Deserialize)]
pub(super) struct EditChanges {
    #[serde(default)]
    pub base: Option<IgnoredAny>,
}

/// Issue, which GitHub marks when it is a pull request.
#[derive(Deserialize)]
pub(super) struct MaybePull {
    #[serde(default)]
    pub pull_request: Option<IgnoredAny>,
}

/// Payload of a `pull_request` event.
#[derive(Deserialize)]
pub(super) struct PullPayload {
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub changes: Option<EditChanges>,
    pub pull_request: PullPart,
    pub repository: Repository,
    #[serde(default)]
    pub sender: Option<WebhookUser>,
    #[serde(default)]
    pub installation: Option<SendingInstallation>,
}

#[derive(Deserialize)]
pub(super) struct PullPart {
    pub number: i64,
    #[serde(default)]
    pub draft: Option<bool>,
    #[serde(default)]
    pub head: Option<PullEnd>,
    #[serde(default)]
    pub base: Option<PullEnd>,
}

/// Head or base of a pull request.
#[derive(Deserialize)]
pub(super) struct PullEnd {
    #[serde(default, rename = "ref")]
    pub branch: Option<String>,
    #[serde(default)]
    pub sha: Option<String>,
}

/// Payload of an `issue_comment` event.
#[derive(Deserialize)]
pub(super) struct CommentPayload {
    #[serde(default)]
    pub action: Option<String>,
    pub issue: NumberedPull,
    pub comment: WebhookComment,
    pub repository: Repository,
    #[serde(default)]
    pub installation: Option<SendingInstallation>,
}

#[derive(Deserialize)]
pub(super) struct NumberedPull {
    pub number: i64,
    #[serde(default)]
    pub pull_request: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct WebhookComment {
    pub id: u64,
    #[serde(default)]
    pub body: Option<String>,
    #[serde(default)]
    pub user: Option<WebhookUser>,
    #[serde(default)]
    pub created_at: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Repository {
    #[serde(default)]
    pub id: Option<u64>,
    pub full_name: String,
}

/// Payload of a `push` or `repository` event.
#[derive(Deserialize)]
pub(super) struct RepositoryPayload {
    #[serde(default)]
    pub action: Option<String>,
    pub repository: Repository,
    #[serde(default)]
    pub changes: Option<RepositoryChanges>,
    #[serde(default)]
    pub installation: Option<SendingInstallation>,
}

/// Previous name and owner of a repository.
#[derive(Deserialize)]
pub(super) struct RepositoryChanges {
    #[serde(default)]
    pub repository: Option<Renaming>,
    #[serde(default)]
    pub owner: Option<Transfer>,
}

#[derive(Deserialize)]
pub(super) struct Renaming {
    #[serde(default)]
    pub name: Option<PreviousValues>,
}

#[derive(Deserialize)]
pub(super) struct PreviousValues {
    pub from: String,
}

#[derive(Deserialize)]
pub(super) struct Transfer {
    #[serde(default)]
    pub from: Option<PreviousOwner>,
}

/// Previous owner; only one of the fields is set.
#[derive(Deserialize)]
pub(super) struct PreviousOwner {
    #[serde(default)]
    pub user: Option<WebhookUser>,
    #[serde(default)]
    pub organization: Option<WebhookUser>,
}

/// Payload of an `installation_repositories` event.
#[derive(Deserialize)]
pub(super) struct GrantPayload {
    #[serde(default)]
    pub repositories_added: Vec<Repository>,
    #[serde(default)]
    pub repositories_removed: Vec<Repository>,
    #[serde(default)]
    pub installation: Option<SendingInstallation>,
}

/// Payload of an `installation` event.
#[derive(Deserialize)]
pub(super) struct InstallPayload {
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub repositories: Vec<Repository>,
    #[serde(default)]
    pub installation: Option<SendingInstallation>,
}

/// Installation of the App that sent a delivery.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct SendingInstallation {
    pub id: u64,
}

/// Person, bot or organisation; GitHub sends `null` once the account is deleted.
#[derive(Deserialize)]
pub(super) struct WebhookUser {
    pub login: String,
    #[serde(default)]
    pub id: Option<u64>,
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}
