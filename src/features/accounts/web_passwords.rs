//! Checks the HTTP passwords of accounts for the pages and the API of the bot. Who may sign in there is decided by the file
//! of `--web-accounts-file`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper_accounts::external_ids::StoredPassword;
use lockkeeper_accounts::refs::AccountId;
use sha2::Sha256;

use super::all_users::AllUsers;
use super::sign_in::{password_of, verify};
use crate::config::access::WebAccounts;
use crate::kit::web::{AccountPasswords, PasswordVerdict};
use crate::store::Store;

/// The passwords of all accounts.
pub struct WebPasswords {
    users: AllUsers,
    /// Random key of this process.
    key: [u8; 32],
    /// Authentication code of the last right password of each account, together with the stored hash. A page consists of
    /// several requests, and the hash of a password that people choose is slow on purpose.
    verified: Mutex<HashMap<AccountId, Vec<u8>>>,
}

impl WebPasswords {
    /// Creates the checker of the accounts in a database.
    pub fn new(store: Store) -> Self {
        Self {
            users: AllUsers::new(store, "localhost"),
            key: rand::random(),
            verified: Mutex::default(),
        }
    }

    fn code(&self, stored: &StoredPassword, password: &str) -> Hmac<Sha256> {
        let mut code = Hmac::new_from_slice(&self.key).expect("a key of any length is fine");
        code.update(stored.expose().as_bytes());
        code.update(b"\n");
        code.update(password.as_bytes());
        code
    }

    fn was_verified(&self, account: AccountId, code: Hmac<Sha256>) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let known = verified.get(&account);
        known.is_some_and(|known| code.verify_slice(known).is_ok())
    }

    fn remember(&self, account: AccountId, code: Hmac<Sha256>) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        // The file cannot name more accounts at once.
        if verified.len() >= WebAccounts::MOST {
            verified.clear();
        }
        verified.insert(account, code.finalize().into_bytes().to_vec());
    }
}

#[async_trait]
impl AccountPasswords for WebPasswords {
    async fn check(
        &self,
        account: Option<AccountId>,
        password: &str,
    ) -> anyhow::Result<PasswordVerdict> {
        let row = match account {
            Some(account) => self.users.store().account_get(account).await?,
            None => None,
        };
        let Some(row) = row else {
            verify(None, password).await;
            return Ok(PasswordVerdict::Wrong);
        };
        let ids = self.users.external_ids(row.number).await?;
        let stored = password_of(&ids);
        let code = || stored.map(|stored| self.code(stored, password));
        if !code().is_some_and(|code| self.was_verified(row.number, code)) {
            if !verify(stored, password).await {
                return Ok(PasswordVerdict::Wrong);
            }
            if let Some(code) = code() {
                self.remember(row.number, code);
            }
        }
        Ok(if row.active {
            PasswordVerdict::Right
        } else {
            PasswordVerdict::Inactive
        })
    }
}
