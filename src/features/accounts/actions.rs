//! Creates, changes and finds accounts, for every surface.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use gix_object::{CommitRefIter, Kind};
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{
    ExternalId, ExternalIdKey, HashedPassword, StoredPassword,
};
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::store::AccountRow;
use crate::secret::Secret;

/// Cost of the hash of a generated password. Nobody can guess 256 random bits, however fast the hash is, and git sends
/// the password with each of its requests.
pub(super) const PASSWORD_COST: u32 = 4;
/// Maximum number of commits that a history shows.
const MOST_COMMITS: usize = 1_000;

/// Everything that a new account can begin with.
#[derive(Clone, Debug, Default)]
pub struct NewAccount {
    pub username: Option<ExternalIdKey>,
    pub full_name: Option<String>,
    pub email: Option<AccountEmail>,
    /// More names by which the account is known elsewhere.
    pub external_ids: Vec<ExternalIdKey>,
}

/// Changes of the properties of an account. `None` leaves one alone, and an empty text removes it.
#[derive(Clone, Debug, Default)]
pub(super) struct PropertyChanges {
    pub full_name: Option<String>,
    pub preferred_email: Option<String>,
    pub status: Option<String>,
}

/// Commit of a user branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccountCommit {
    pub id: String,
    pub at: DateTime<Utc>,
    pub author: String,
    pub message: String,
}

impl AllUsers {
    /// Finds an account by its number, its user name or one of its addresses.
    pub async fn find(&self, name: &str) -> Result<Option<AccountRow>, AccountsError> {
        let store = self.store();
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
        let update = self.update(actor, "Create Account").await;
        loop {
            let mut edit = update.begin();
            let account = edit.create().await?;
            let id = |key: &ExternalIdKey, email: Option<&AccountEmail>| ExternalId {
                key: key.clone(),
                account,
                email: email.cloned(),
                password: None,
            };
            for key in new.username.iter().chain(&new.external_ids) {
                edit.put_external_id(id(key, None)).await?;
            }
            if let Some(email) = &new.email {
                let key = ExternalIdKey::mailto(email)?;
                edit.put_external_id(id(&key, Some(email))).await?;
            }
            let created = edit.account(account).await?;
            created.edit_properties(|config| {
                config.full_name.clone_from(&new.full_name);
                config.preferred_email.clone_from(&new.email);
            })?;
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
        let text = |value: &String| Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        let email = match changes.preferred_email.as_ref().map(text) {
            None => None,
            Some(None) => Some(None),
            Some(Some(email)) => Some(Some(read_email(&email)?)),
        };
        let update = self.update(actor, "Change Properties").await;
        loop {
            let mut edit = update.begin();
            edit.account(account).await?.edit_properties(|config| {
                if let Some(name) = &changes.full_name {
                    config.full_name = text(name);
                }
                if let Some(email) = &email {
                    config.preferred_email.clone_from(email);
                }
                if let Some(status) = &changes.status {
                    config.status = text(status);
                }
            })?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
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
        let update = self.update(actor, message).await;
        loop {
            let mut edit = update.begin();
            let account = edit.account(account).await?;
            if active {
                account.edit_properties(|config| config.active = true)?;
            } else {
                account.lock_out()?;
            }
            if update.store(edit).await? {
                return Ok(());
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
        let update = self.update(actor, "Link External ID").await;
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

    /// Takes an external ID away from an account.
    pub async fn unlink(
        &self,
        actor: &AccountsActor,
        account: AccountId,
        key: &ExternalIdKey,
    ) -> Result<(), AccountsError> {
        let update = self.update(actor, "Unlink External ID").await;
        loop {
            let mut edit = update.begin();
            edit.account(account).await?.remove_external_id(key)?;
            if update.store(edit).await? {
                return Ok(());
            }
        }
    }

    /// Generates an HTTP password, in place of an old one. It can be seen only now.
    pub(super) async fn generate_password(
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
        let update = self.update(actor, message).await;
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

    /// Returns the commits of an account, newest first, up to [`MOST_COMMITS`].
    pub(super) async fn history(
        &self,
        account: AccountId,
    ) -> Result<Vec<AccountCommit>, AccountsError> {
        let name = AllUsersRef::User(account).to_string();
        let mut next = self.store().account_ref(&name).await?;
        let mut commits = Vec::new();
        while let Some(id) = next.filter(|_| commits.len() < MOST_COMMITS) {
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
                id: id.to_string(),
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

/// Reads an address that somebody gave.
pub(super) fn read_email(text: &str) -> Result<AccountEmail, Problem> {
    text.parse().map_err(|error| {
        let what = format!("`{text}` is {error}");
        Problem::error(None, what, "correct the address")
    })
}
