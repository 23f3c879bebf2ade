//! Creates, changes and finds accounts, for every surface.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind};
use lockkeeper_accounts::access::AccountGroups;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{
    ExternalId, ExternalIdKey, HashedPassword, StoredPassword,
};
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::preferences::{Preference, PreferenceValue, Preferences};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};
use lockkeeper_accounts::watches::{NotifyType, Watch, WatchFilter, Watches};

use super::all_users::{AccountsActor, AccountsError, AllUsers, EditedAccount};
use super::check::KEYS;
use super::store::AccountRow;
use crate::secret::Secret;

/// Cost of the hash of a generated password. Nobody can guess 256 random bits, however fast the hash is, and git sends
/// the password with each of its requests.
pub(super) const PASSWORD_COST: u32 = 4;
/// Cost of the hash of a password that a person has chosen, some 50 milliseconds. An attacker with a copy of the accounts
/// can guess at it.
pub(super) const CHOSEN_PASSWORD_COST: u32 = 10;

/// Everything that a new account can begin with.
#[derive(Clone, Debug, Default)]
pub struct NewAccount {
    pub username: Option<ExternalIdKey>,
    /// HTTP password. There is none without a user name.
    pub password: Option<StoredPassword>,
    pub full_name: Option<String>,
    pub email: Option<AccountEmail>,
    /// More names by which the account is known elsewhere.
    pub external_ids: Vec<ExternalIdKey>,
    /// First SSH key, as it stands in `authorized_keys`.
    pub ssh_key: Option<String>,
    /// Groups to become a member of.
    pub groups: Vec<String>,
}

/// Changes of the properties of an account. `None` leaves one alone, and an empty text removes it.
#[derive(Clone, Debug, Default)]
pub(super) struct PropertyChanges {
    pub full_name: Option<String>,
    pub preferred_email: Option<String>,
    pub status: Option<String>,
}

/// Change of the watch with this project and filter.
#[derive(Clone, Debug)]
pub(super) struct WatchChange {
    pub project: String,
    pub filter: Option<WatchFilter>,
    /// New types. `None` removes the watch.
    pub types: Option<BTreeSet<NotifyType>>,
}

/// Changes of the labels that an account gives a change.
#[derive(Clone, Debug, Default)]
pub struct LabelChanges {
    pub add: BTreeSet<String>,
    pub remove: BTreeSet<String>,
}

/// Commit of a user branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccountCommit {
    pub id: ObjectId,
    pub at: DateTime<Utc>,
    pub author: String,
    pub message: String,
}

impl AllUsers {
    /// Finds an account by its number, its user name, one of its addresses, or `Name <address>`.
    pub async fn find(&self, name: &str) -> Result<Option<AccountRow>, AccountsError> {
        let store = self.store();
        let name = address_in(name);
        let mut found = None;
        if let Ok(number) = name.parse::<AccountId>() {
            found = store.account_get(number).await?;
        }
        if found.is_none()
            && let Ok(email) = name.parse::<AccountEmail>()
            && let Some(number) = store.account_of_email(&email).await?
        {
            found = store.account_get(number).await?;
        }
        if found.is_none()
            && let Ok(key) = ExternalIdKey::username(name)
            && let Some(id) = store.account_external_id(key.as_str()).await?
        {
            found = store.account_get(id.account).await?;
        }
        Ok(found)
    }

    /// Creates an account with the next free number, which is returned.
    pub async fn create(
        &self,
        actor: &AccountsActor,
        new: &NewAccount,
    ) -> Result<AccountId, AccountsError> {
        let update = self.update(actor, "Create Account").await?;
        loop {
            let mut edit = update.begin();
            let account = edit.create().await?;
            let id = |key: &ExternalIdKey, email: Option<&AccountEmail>| ExternalId {
                key: key.clone(),
                account,
                email: email.cloned(),
                password: None,
            };
            if let Some(key) = &new.username {
                let password = new.password.clone();
                edit.put_external_id(ExternalId {
                    password,
                    ..id(key, None)
                })
                .await?;
            }
            for key in &new.external_ids {
                edit.put_external_id(id(key, None)).await?;
            }
            if let Some(email) = &new.email {
                let key = ExternalIdKey::mailto(email)?;
                edit.put_external_id(id(&key, Some(email))).await?;
            }
            let created = edit.account(account).await?;
            created.edit_properties(|config| {
                config.full_name = new.full_name.as_deref().and_then(text);
                config.preferred_email.clone_from(&new.email);
            })?;
            if let Some(line) = &new.ssh_key {
                created.edit_keys(|keys| keys.add(line, KEYS))?;
            }
            for group in &new.groups {
                edit.edit_groups(|text| {
                    AccountGroups::read(text).0.check(group)?;
                    AccountGroups::add_member(text, group, account)
                })
                .await?;
            }
            if update.store(edit).await? {
                return Ok(account);
            }
        }
    }

    /// Changes name, preferred address and status.
    pub(super) async fn set_properties(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        changes: &PropertyChanges,
    ) -> Result<(), AccountsError> {
        let email = match changes.preferred_email.as_deref().map(text) {
            None => None,
            Some(None) => Some(None),
            Some(Some(email)) => Some(Some(read_email(&email)?)),
        };
        self.edit(actor, account, "Change Properties", |account| {
            account.edit_properties(|config| {
                if let Some(name) = &changes.full_name {
                    config.full_name = text(name);
                }
                if let Some(email) = &email {
                    config.preferred_email.clone_from(email);
                }
                if let Some(status) = &changes.status {
                    config.status = text(status);
                }
            })
        })
        .await
    }

    /// Activates or deactivates an account.
    pub async fn set_active(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        active: bool,
    ) -> Result<(), AccountsError> {
        let message = if active {
            "Activate Account"
        } else {
            "Deactivate Account"
        };
        self.edit(actor, account, message, |account| {
            if active {
                account.edit_properties(|config| config.active = true)
            } else {
                account.lock_out()
            }
        })
        .await
    }

    /// Changes an account alone.
    async fn edit<T>(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        message: &str,
        change: impl Fn(&mut EditedAccount) -> Result<T, AccountsError>,
    ) -> Result<T, AccountsError> {
        let update = self.update(actor, message).await?;
        loop {
            let mut edit = update.begin();
            let changed = change(edit.account(account).await?)?;
            if update.store(edit).await? {
                return Ok(changed);
            }
        }
    }

    /// Adds an SSH key, and returns its number; that of the same key if there is one.
    pub(super) async fn add_ssh_key(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        line: &str,
    ) -> Result<usize, AccountsError> {
        self.edit(actor, account, "Add SSH Key", |account| {
            account.edit_keys(|keys| keys.add(line, KEYS))
        })
        .await
    }

    /// Deletes an SSH key. Returns false if no key has this number.
    pub(super) async fn delete_ssh_key(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        number: usize,
    ) -> Result<bool, AccountsError> {
        self.edit(actor, account, "Delete SSH Key", |account| {
            account.edit_keys(|keys| keys.delete(number))
        })
        .await
    }

    /// Sets preferences. `None` as a value restores the default.
    pub(super) async fn set_preferences(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        values: &[(&'static Preference, Option<PreferenceValue>)],
    ) -> Result<(), AccountsError> {
        let defaults = self.default_preferences().await?;
        self.edit(actor, account, "Change Preferences", |account| {
            account.edit_config(Preferences::FILE, |text| {
                for (row, value) in values {
                    let default = Preferences::default().get(row, &defaults);
                    let value = value.as_ref().unwrap_or(&default);
                    Preferences::set(text, row, value, &defaults)?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Returns the preferences of accounts that set none: `refs/users/default`.
    pub(super) async fn default_preferences(&self) -> Result<Preferences, AccountsError> {
        let name = AllUsersRef::UserDefault.to_string();
        let Some(tip) = self.store().account_ref(&name).await? else {
            return Ok(Preferences::default());
        };
        let files = self.files(tip).await?;
        // An imported file may be one that cannot be read. It has no effect.
        let text = files
            .get(Preferences::FILE)
            .and_then(|file| ConfigText::parse(file).ok());
        Ok(text.map_or_else(Preferences::default, |text| Preferences::read(&text).0))
    }

    /// Changes watches of projects.
    pub(super) async fn edit_watches(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        changes: &[WatchChange],
    ) -> Result<(), AccountsError> {
        if changes.len() > Watches::MAX_WATCHES {
            let what = format!("there are {} watches", changes.len());
            let fix = format!("send {} at most", Watches::MAX_WATCHES);
            return Err(Problem::error(None, what, fix).into());
        }
        let mut by_project: BTreeMap<&str, Vec<&WatchChange>> = BTreeMap::new();
        for change in changes {
            let same = by_project.entry(&change.project).or_default();
            same.push(change);
        }
        self.edit(actor, account, "Change Watches", |account| {
            account.edit_config(Watches::FILE, |text| {
                let (there, _) = Watches::read(text);
                for (project, changes) in &by_project {
                    let own = there.iter().find(|(name, _)| name == project);
                    let mut watches = own.map_or_else(Vec::new, |(_, own)| own.to_vec());
                    for change in changes {
                        watches.retain(|watch| watch.filter != change.filter);
                        if let Some(types) = &change.types {
                            watches.push(Watch {
                                filter: change.filter.clone(),
                                types: types.clone(),
                            });
                        }
                    }
                    Watches::set_project(text, project, &watches)?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Gives an account an address.
    pub(super) async fn add_email(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        email: &AccountEmail,
        is_preferred: bool,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, "Add Address").await?;
        loop {
            let mut edit = update.begin();
            let id = ExternalId {
                key: ExternalIdKey::mailto(email)?,
                account,
                email: Some(email.clone()),
                password: None,
            };
            edit.put_external_id(id).await?;
            if is_preferred {
                edit.account(account).await?.edit_properties(|config| {
                    config.preferred_email = Some(email.clone());
                })?;
            }
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Takes an address away from an account: the external ID that is nothing but this address, and the address of
    /// others. Returns false if no external ID has it.
    pub(super) async fn remove_email(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        email: &AccountEmail,
    ) -> Result<bool, AccountsError> {
        let update = self.update(actor, "Remove Address").await?;
        loop {
            let mut edit = update.begin();
            let edited = edit.account(account).await?;
            let has_email = |id: &&ExternalId| {
                let own = id.email.as_ref();
                own.is_some_and(|own| own.key() == email.key())
            };
            let ids: Vec<ExternalId> = edited.external_ids().filter(has_email).cloned().collect();
            if ids.is_empty() {
                return Ok(false);
            }
            edited.edit_properties(|config| {
                let preferred = &mut config.preferred_email;
                preferred.take_if(|preferred| preferred.key() == email.key());
            })?;
            for id in ids {
                if id.key.as_str().starts_with("mailto:") {
                    edit.account(account).await?.remove_external_id(&id.key)?;
                } else {
                    edit.put_external_id(ExternalId { email: None, ..id })
                        .await?;
                }
            }
            if update.store(edit).await? {
                return Ok(true);
            }
        }
    }

    /// Gives an account another external ID, or another address to one that it has.
    pub async fn link(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        key: &ExternalIdKey,
        email: Option<&AccountEmail>,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, "Link External ID").await?;
        loop {
            let mut edit = update.begin();
            let there = edit.account(account).await?.external_id(key);
            let password = there.and_then(|id| id.password);
            edit.put_external_id(ExternalId {
                key: key.clone(),
                account,
                email: email.cloned(),
                password,
            })
            .await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Takes external IDs away from an account.
    pub async fn unlink(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        keys: &[ExternalIdKey],
    ) -> Result<(), AccountsError> {
        self.edit(actor, account, "Unlink External ID", |account| {
            keys.iter()
                .try_for_each(|key| account.remove_external_id(key))
        })
        .await
    }

    /// Generates an HTTP password, in place of an old one. It can be seen only now.
    pub(crate) async fn generate_password(
        &self,
        actor: &AccountsActor,
        account: AccountId,
    ) -> Result<Secret, AccountsError> {
        let password = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let hashed = HashedPassword::new(&password, PASSWORD_COST, rand::random());
        let hashed = hashed.map(|hashed| hashed.to_stored());
        self.change_password(actor, account, "Generate HTTP Password", hashed.as_ref())
            .await?;
        Ok(Secret::new(&password))
    }

    /// Removes the HTTP password.
    pub(super) async fn remove_password(
        &self,
        actor: &AccountsActor,
        account: AccountId,
    ) -> Result<(), AccountsError> {
        self.change_password(actor, account, "Remove HTTP Password", None)
            .await
    }

    async fn change_password(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        message: &str,
        password: Option<&StoredPassword>,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, message).await?;
        loop {
            let mut edit = update.begin();
            let mut id = edit.account(account).await?.username().ok_or_else(|| {
                let fix = "link `username:NAME` first";
                Problem::error(None, "the account has no user name", fix)
            })?;
            id.password = password.cloned();
            edit.put_external_id(id).await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Moves external IDs, SSH keys, watches, stars and memberships from one account to another one of the same person, and
    /// locks the first one out.
    pub async fn merge(
        &self,
        actor: &AccountsActor,
        from: AccountId,
        into: AccountId,
    ) -> Result<(), AccountsError> {
        let update = self
            .update(actor, &format!("Merge Account {from} into {into}"))
            .await?;
        loop {
            let mut edit = update.begin();
            edit.merge(from, into).await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Removes an account. Its number is never given again.
    pub async fn delete(
        &self,
        actor: &AccountsActor,
        account: AccountId,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, "Delete Account").await?;
        loop {
            let mut edit = update.begin();
            edit.delete(account).await?;
            edit.leave_groups(account, None).await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Adds and removes labels of a change, and returns all that it has then.
    pub async fn change_labels(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        change: ChangeNumber,
        labels: &LabelChanges,
    ) -> Result<BTreeSet<String>, AccountsError> {
        if !labels.add.is_empty() && self.store().change_get(change).await?.is_none() {
            return Err(AccountsError::NoChange(change));
        }
        let update = self.update(actor, "Change Stars").await?;
        loop {
            let mut edit = update.begin();
            let star = edit.star(account, change).await?;
            let is_new = star.is_empty();
            star.retain(|label| !labels.remove.contains(label));
            star.extend(labels.add.iter().cloned());
            let changed = star.clone();
            if is_new && !changed.is_empty() {
                edit.limit_stars(account);
            }
            if update.store(edit).await? {
                return Ok(changed);
            }
        }
    }

    /// Makes the files of an earlier commit the newest ones. `active` stays as it is, so that nobody gets back in this
    /// way. External IDs are not part of a branch.
    pub(super) async fn restore(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        commit: ObjectId,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, &format!("Restore {commit}")).await?;
        loop {
            let mut edit = update.begin();
            edit.restore(account, commit).await?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Returns the commits of an account, newest first, at most `most`.
    pub(super) async fn history(
        &self,
        account: AccountId,
        most: usize,
    ) -> Result<Vec<AccountCommit>, AccountsError> {
        let name = AllUsersRef::User(account).to_string();
        let mut next = self.store().account_ref(&name).await?;
        let mut commits = Vec::new();
        while let Some(id) = next.filter(|_| commits.len() < most) {
            let object = self.store().account_object(id).await?;
            if object.kind != Kind::Commit {
                return Err(AccountsError::Damaged(format!("{id} is no commit")));
            }
            let bad = |error: &dyn std::fmt::Display| {
                AccountsError::Damaged(format!("the commit {id}: {error}"))
            };
            let iter = || CommitRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1);
            let author = iter().author().map_err(|error| bad(&error))?;
            let time = iter().committer().and_then(|committer| committer.time());
            let seconds = time.map_err(|error| bad(&error))?.seconds;
            let message = iter().message().map_err(|error| bad(&error))?;
            commits.push(AccountCommit {
                id,
                at: DateTime::from_timestamp_secs(seconds).unwrap_or_default(),
                author: format!("{} <{}>", author.name, author.email),
                message: message
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            });
            next = iter().parent_ids().next();
        }
        Ok(commits)
    }
}

/// Returns a value as it is kept. An empty one is none.
fn text(value: &str) -> Option<String> {
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Returns the address in `Name <address>`, or the whole text.
pub(super) fn address_in(name: &str) -> &str {
    let address = name
        .strip_suffix('>')
        .and_then(|name| name.rsplit_once('<'));
    address.map_or(name, |(_, address)| address)
}

/// Reads an address that somebody gave.
pub(super) fn read_email(text: &str) -> Result<AccountEmail, Problem> {
    text.parse().map_err(|error| {
        let what = format!("`{text}` is {error}");
        Problem::error(None, what, "correct the address")
    })
}
