//! Renders accounts for people and as JSON, which is also that of the API.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::config_text::{ConfigEntry, ConfigText};
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::preferences::{Preferences, TABLE};
use lockkeeper_accounts::refs::{AccountId, ChangeNumber};
use lockkeeper_accounts::ssh_keys::{AccountSshKey, AuthorizedKeys, KeySlot};
use lockkeeper_accounts::watches::{Watch, Watches};
use serde::Serialize;

use super::actions::AccountCommit;
use super::check::KEYS;
use super::copy::{AccountsCopy, UserBranch};
use super::store::AccountRow;
use crate::kit::term::{safe, time};
use crate::kit::web::text::shown;

/// The sections with a meaning.
const SECTIONS: [&str; 3] = ["general", "diff", "edit"];

type PreferencesJson = BTreeMap<&'static str, BTreeMap<String, String>>;

/// All accounts of a copy.
#[derive(Serialize)]
pub(super) struct AccountsJson {
    accounts: Vec<AccountJson>,
    default_preferences: PreferencesJson,
    /// Next free account number; `null` if the copy has no sequence.
    next_account: Option<u32>,
}

/// An account. Fields without a value are left out.
#[derive(Serialize)]
pub(crate) struct AccountJson {
    #[serde(rename = "_account_id")]
    account_id: u32,
    registered_on: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    inactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    preferences: PreferencesJson,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    watches: Vec<ProjectWatchesJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ssh_keys: Vec<SshKeyJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    external_ids: Vec<ExternalIdJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    starred_changes: Vec<StarsJson>,
}

/// Watches of a project.
#[derive(Serialize)]
struct ProjectWatchesJson {
    project: String,
    notify: Vec<WatchJson>,
}

#[derive(Serialize)]
struct WatchJson {
    filter: String,
    types: Vec<&'static str>,
}

/// SSH key as a part of its account.
#[derive(Serialize)]
struct SshKeyJson {
    seq: usize,
    key: String,
    /// False if the file marks the key as invalid, or if it is none that the server accepts.
    valid: bool,
}

#[derive(Serialize)]
struct ExternalIdJson {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    has_password: bool,
}

#[derive(Serialize)]
struct StarsJson {
    change: u32,
    labels: BTreeSet<String>,
}

/// SSH key on its own, with its parts.
#[derive(Serialize)]
pub(super) struct AccountKeyJson {
    pub(super) seq: usize,
    ssh_public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoded_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    /// False if the file marks the key as invalid, or if it is none that the server accepts.
    valid: bool,
}

/// Group. A list of the groups of an account has only their names.
#[derive(Serialize)]
pub(super) struct GroupJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<GroupMemberJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    includes: Option<Vec<Self>>,
}

#[derive(Serialize)]
struct GroupMemberJson {
    #[serde(rename = "_account_id")]
    account_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
}

/// Commit of an account.
#[derive(Serialize)]
pub(super) struct AccountCommitJson {
    commit: String,
    time: String,
    author: String,
    message: String,
}

impl AccountsJson {
    /// Renders everything that can be read. The check says what cannot.
    pub(super) fn of(copy: &AccountsCopy) -> Self {
        let mut external_ids = copy.external_ids();
        let mut stars: BTreeMap<AccountId, Vec<_>> = BTreeMap::new();
        for ((account, change), labels) in copy.read_stars() {
            let own = stars.entry(account).or_default();
            own.push((change, (*labels).clone()));
        }
        let accounts = copy.users.iter().map(|(account, branch)| {
            let ids = external_ids.remove(account).unwrap_or_default();
            let UserBranch { files, history, .. } = branch;
            AccountJson::new(
                *account,
                files,
                history.began_at,
                &ids,
                stars.remove(account).unwrap_or_default(),
            )
        });
        Self {
            accounts: accounts.collect(),
            default_preferences: preferences(&copy.defaults),
            next_account: copy.next_account().map(AccountId::get),
        }
    }

    /// Returns a line for each account.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.accounts.iter().map(AccountJson::line)
    }
}

impl AccountJson {
    /// Renders the files of a branch with what belongs to the account elsewhere.
    pub(super) fn new(
        account: AccountId,
        files: &BTreeMap<String, Vec<u8>>,
        began_at: DateTime<Utc>,
        external_ids: &[ExternalId],
        stars: Vec<(ChangeNumber, BTreeSet<String>)>,
    ) -> Self {
        let properties = config(files, AccountConfig::FILE)
            .map_or_else(AccountConfig::default, |text| AccountConfig::read(&text).0);
        let watches = config(files, Watches::FILE)
            .map_or_else(Watches::default, |text| Watches::read(&text).0);
        let username = external_ids.iter().find_map(|id| id.key.as_username());
        let email = properties.own_email(external_ids);
        let email = email.map(|email| email.as_str().to_owned());
        Self {
            account_id: account.get(),
            registered_on: time(began_at),
            name: properties.full_name,
            email,
            status: properties.status,
            inactive: !properties.active,
            username: username.map(str::to_owned),
            preferences: preferences(files),
            watches: watches.iter().map(ProjectWatchesJson::new).collect(),
            ssh_keys: ssh_keys(files),
            external_ids: external_ids.iter().map(ExternalIdJson::new).collect(),
            starred_changes: stars.into_iter().map(StarsJson::new).collect(),
        }
    }

    /// Renders what the list of all accounts knows of one.
    pub(super) fn of_row(row: &AccountRow) -> Self {
        Self {
            account_id: row.number.get(),
            registered_on: time(row.registered_at),
            name: row.full_name.clone(),
            email: row.preferred_email.clone(),
            status: row.status.clone(),
            inactive: !row.active,
            username: row.username.clone(),
            preferences: PreferencesJson::new(),
            watches: Vec::new(),
            ssh_keys: Vec::new(),
            external_ids: Vec::new(),
            starred_changes: Vec::new(),
        }
    }

    /// Returns true if everything that the list of all accounts knows is the same in both.
    pub(super) fn has_properties_of(&self, other: &Self) -> bool {
        let listed = |account: &Self| {
            (
                account.account_id,
                account.registered_on.clone(),
                account.name.clone(),
                account.email.clone(),
                account.status.clone(),
                account.inactive,
                account.username.clone(),
            )
        };
        listed(self) == listed(other)
    }

    /// Returns the number of projects that the account watches.
    pub(crate) fn watched_projects(&self) -> usize {
        self.watches.len()
    }

    /// Returns a line for each external ID.
    pub(super) fn external_id_lines(&self) -> impl Iterator<Item = String> {
        self.external_ids.iter().map(|id| {
            let mut line = format!("  {}", shown(&id.key));
            if let Some(email) = &id.email {
                line = format!("{line} <{}>", shown(email));
            }
            if id.has_password {
                line.push_str(", with a password");
            }
            line
        })
    }

    /// Returns number, names, address and state in one line.
    pub(super) fn line(&self) -> String {
        let mut line = self.account_id.to_string();
        for part in [&self.username, &self.name].into_iter().flatten() {
            line = format!("{line} {}", shown(part));
        }
        if let Some(email) = &self.email {
            line = format!("{line} <{}>", shown(email));
        }
        if let Some(status) = &self.status {
            line = format!("{line} ({})", shown(status));
        }
        if self.inactive {
            line.push_str(", inactive");
        }
        line
    }
}

impl ProjectWatchesJson {
    fn new((project, watches): (&str, &[Watch])) -> Self {
        let notify = watches.iter().map(|watch| WatchJson {
            filter: watch
                .filter
                .as_ref()
                .map_or_else(|| "*".to_owned(), ToString::to_string),
            types: watch.types.iter().map(|word| word.as_str()).collect(),
        });
        Self {
            project: project.to_owned(),
            notify: notify.collect(),
        }
    }
}

impl ExternalIdJson {
    fn new(id: &ExternalId) -> Self {
        Self {
            key: id.key.as_str().to_owned(),
            email: id.email.as_ref().map(|email| email.as_str().to_owned()),
            has_password: id.password.is_some(),
        }
    }
}

impl StarsJson {
    fn new((change, labels): (ChangeNumber, BTreeSet<String>)) -> Self {
        Self {
            change: change.get(),
            labels,
        }
    }
}

impl AccountKeyJson {
    /// Renders all keys of a branch.
    pub(super) fn all(files: &BTreeMap<String, Vec<u8>>) -> Vec<Self> {
        let keys = authorized_keys(files);
        keys.slots().filter_map(Self::new).collect()
    }

    fn new((seq, slot): (usize, KeySlot<'_>)) -> Option<Self> {
        let (line, is_key) = match slot {
            KeySlot::Key(line) => (line, true),
            KeySlot::Invalid(line) => (line, false),
            KeySlot::Deleted => return None,
        };
        let parsed = AccountSshKey::parse(line, KEYS).ok();
        let comment = parsed.as_ref().map(|key| key.comment().to_owned());
        Some(Self {
            seq,
            ssh_public_key: line.to_owned(),
            encoded_key: parsed.as_ref().map(|key| key.encoded().to_owned()),
            algorithm: parsed.as_ref().map(AccountSshKey::algorithm),
            comment: comment.filter(|comment| !comment.is_empty()),
            valid: is_key && parsed.is_some(),
        })
    }

    /// Returns number, key and validity in one line.
    pub(super) fn line(&self) -> String {
        let mark = if self.valid { "" } else { ", invalid" };
        format!("{}  {}{mark}", self.seq, shown(&self.ssh_public_key))
    }
}

impl GroupJson {
    /// Renders the name alone.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            members: None,
            includes: None,
        }
    }

    /// Renders a group with its members and their user names, and with the groups that it includes.
    pub(super) fn new<'a>(
        name: &str,
        members: impl IntoIterator<Item = (AccountId, Option<String>)>,
        includes: impl Iterator<Item = &'a str>,
    ) -> Self {
        let members = members
            .into_iter()
            .map(|(account, username)| GroupMemberJson {
                account_id: account.get(),
                username,
            });
        Self {
            name: name.to_owned(),
            members: Some(members.collect()),
            includes: Some(includes.map(Self::named).collect()),
        }
    }

    /// Returns name, members and included groups in one line.
    pub(super) fn line(&self) -> String {
        let members = self.members.iter().flatten().map(|member| {
            let username = member.username.as_ref().map(|name| format!(" {name}"));
            format!("{}{}", member.account_id, username.unwrap_or_default())
        });
        let includes = self.includes.iter().flatten();
        let includes = includes.map(|group| format!("group {}", group.name));
        let mut parts: Vec<String> = members.chain(includes).collect();
        if parts.is_empty() {
            parts.push("no members".to_owned());
        }
        safe(&format!("{}: {}", self.name, parts.join(", ")))
    }
}

impl AccountCommitJson {
    pub(super) fn new(commit: &AccountCommit) -> Self {
        Self {
            commit: commit.id.to_string(),
            time: time(commit.at),
            author: commit.author.clone(),
            message: commit.message.clone(),
        }
    }
}

fn config(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Option<ConfigText> {
    ConfigText::parse(files.get(name)?).ok()
}

/// Returns what a file says, also about keys that mean nothing here.
fn preferences(files: &BTreeMap<String, Vec<u8>>) -> PreferencesJson {
    let mut sections = PreferencesJson::new();
    let Some(text) = config(files, Preferences::FILE) else {
        return sections;
    };
    for entry in text.entries().filter(|entry| entry.subsection.is_none()) {
        if let Some(section) = SECTIONS.into_iter().find(|name| *name == entry.section) {
            let value = entry.value.unwrap_or("true").to_owned();
            let values = sections.entry(section).or_default();
            values.insert(spelling(section, entry), value);
        }
    }
    sections
}

/// Returns a key in the spelling of the documentation, or in lower case if it has no meaning.
fn spelling(section: &str, entry: ConfigEntry<'_>) -> String {
    let known = TABLE
        .iter()
        .find(|row| row.section.as_str() == section && row.name.eq_ignore_ascii_case(entry.key));
    known.map_or_else(|| entry.key.to_ascii_lowercase(), |row| row.name.to_owned())
}

/// Returns the keys of a branch. An imported file may be one that cannot be read. It has no keys.
fn authorized_keys(files: &BTreeMap<String, Vec<u8>>) -> AuthorizedKeys {
    files
        .get(AuthorizedKeys::FILE)
        .and_then(|file| AuthorizedKeys::parse(file).ok())
        .unwrap_or_default()
}

fn ssh_keys(files: &BTreeMap<String, Vec<u8>>) -> Vec<SshKeyJson> {
    let keys = authorized_keys(files);
    let keys = keys.slots().filter_map(|(seq, slot)| {
        let (key, valid) = match slot {
            KeySlot::Key(key) => (key, AccountSshKey::parse(key, KEYS).is_ok()),
            KeySlot::Invalid(key) => (key, false),
            KeySlot::Deleted => return None,
        };
        Some(SshKeyJson {
            seq,
            key: key.to_owned(),
            valid,
        })
    });
    keys.collect()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
