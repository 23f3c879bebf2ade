//! Signs in git clients, and says what they may see.

use gix_hash::ObjectId;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey, HashedPassword};
use lockkeeper_accounts::objects::CommitPerson;
use lockkeeper_accounts::refs::AllUsersRef;

use super::super::actions::PASSWORD_COST;
use super::super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::super::store::AccountRow;
use crate::model::{Actor, Cause, Origin};

/// A person or service that has signed in.
#[derive(Clone, Debug)]
pub(super) enum GitCaller {
    /// The web user (`--web-basic-auth`), who may read and push everything.
    Administrator(String),
    /// An account, which may read and push its own branch.
    Account {
        row: Box<AccountRow>,
        external_ids: Vec<ExternalId>,
    },
}

/// Result of checking a user name and a password.
pub(super) enum SignIn {
    Known(GitCaller),
    /// The password is right, but the account is not active.
    Inactive,
    Unknown,
}

impl GitCaller {
    /// Returns the branch that `refs/users/self` stands for.
    pub(super) fn own_ref(&self) -> Option<AllUsersRef> {
        match self {
            Self::Administrator(_) => None,
            Self::Account { row, .. } => Some(AllUsersRef::User(row.number)),
        }
    }

    /// Returns the name of the repository with what the caller may read.
    pub(super) fn view_name(&self) -> String {
        match self {
            Self::Administrator(_) => "all.git".to_owned(),
            Self::Account { row, .. } => format!("{}.git", row.number),
        }
    }

    /// Returns the refs that the caller may read, of all refs.
    pub(super) fn readable(&self, all: Vec<(String, ObjectId)>) -> Vec<(String, ObjectId)> {
        let Some(own) = self.own_ref().map(|own| own.to_string()) else {
            return all;
        };
        let defaults = AllUsersRef::UserDefault.to_string();
        let mut refs: Vec<_> = all
            .into_iter()
            .filter(|(name, _)| *name == own || *name == defaults)
            .collect();
        let tip = refs
            .iter()
            .find(|(name, _)| *name == own)
            .map(|(_, id)| *id);
        refs.extend(tip.map(|tip| (AllUsersRef::UserSelf.to_string(), tip)));
        refs.sort();
        refs
    }

    /// Returns the addresses that commits of the caller may have as committer. `host` is the name of this server.
    pub(super) fn addresses(&self, host: &str) -> Vec<String> {
        match self {
            Self::Administrator(name) => vec![format!("{name}@{host}")],
            Self::Account { row, external_ids } => {
                let emails = external_ids.iter().filter_map(|id| id.email.as_ref());
                let mut emails: Vec<String> =
                    emails.map(|email| email.as_str().to_owned()).collect();
                // The preferred one is the one that a message suggests.
                emails.sort_by_key(|email| Some(email) != row.preferred_email.as_ref());
                emails.dedup();
                if emails.is_empty() {
                    emails.push(format!("{}@{host}", row.number));
                }
                emails
            }
        }
    }

    /// Returns the caller as the author of changes.
    pub(super) fn actor(&self, host: &str, remote: Option<String>) -> AccountsActor {
        let login = match self {
            Self::Administrator(name) => name.clone(),
            Self::Account { row, .. } => match &row.username {
                Some(name) => name.clone(),
                None => row.number.to_string(),
            },
        };
        let name = match self {
            Self::Account { row, .. } => row.full_name.as_deref().unwrap_or(&login),
            Self::Administrator(_) => &login,
        };
        let address = self.addresses(host).into_iter().next().unwrap_or_default();
        let author = CommitPerson::new(name, &address);
        let actor = Actor {
            login,
            origin: Origin::Git,
        };
        let cause = Cause::new(actor, "").from_address(remote);
        AccountsActor { author, cause }
    }
}

impl AllUsers {
    /// Checks the HTTP password of an account.
    pub(super) async fn sign_in(
        &self,
        user: &str,
        password: &str,
    ) -> Result<SignIn, AccountsError> {
        let id = match ExternalIdKey::username(user) {
            Ok(key) => self.external_id(&key).await?,
            Err(_) => None,
        };
        let stored = id.as_ref().and_then(|id| id.password.as_ref());
        let hashed = stored.and_then(|stored| stored.decode().ok());
        let password = password.to_owned();
        let is_right = tokio::task::spawn_blocking(move || {
            if let Some(hashed) = hashed {
                return hashed.verify(&password);
            }
            // Takes as long as with a generated password, so that nobody learns which user names exist. An imported
            // password can have another cost, which shows.
            let _hashed = HashedPassword::new(&password, PASSWORD_COST, [0; 16]);
            false
        });
        let is_right = is_right.await.unwrap_or(false);
        let Some(id) = id.filter(|_| is_right) else {
            return Ok(SignIn::Unknown);
        };
        let Some(row) = self.store().account_get(id.account).await? else {
            return Ok(SignIn::Unknown);
        };
        if !row.active {
            return Ok(SignIn::Inactive);
        }
        Ok(SignIn::Known(GitCaller::Account {
            external_ids: self.external_ids(id.account).await?,
            row: Box::new(row),
        }))
    }
}
