//! Checks the HTTP passwords of accounts for the pages and the API of the bot. Who may sign in there is decided by the file
//! of `--web-accounts-file`.

use async_trait::async_trait;
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::refs::AccountId;

use super::all_users::AllUsers;
use super::store::AccountRow;
use super::verified::{VerifiedPasswords, pretend};
use crate::kit::web::{AccountPasswords, PasswordMark, PasswordVerdict};
use crate::store::Store;

/// The passwords of all accounts.
pub struct WebPasswords {
    users: AllUsers,
    verified: VerifiedPasswords,
}

impl WebPasswords {
    /// Creates the checker of the accounts in a database.
    pub fn new(store: Store) -> Self {
        Self {
            users: AllUsers::new(store, "localhost"),
            verified: VerifiedPasswords::default(),
        }
    }

    /// Returns an account with its user name, which has the password.
    async fn read(&self, account: AccountId) -> anyhow::Result<Option<(AccountRow, ExternalId)>> {
        let Some(row) = self.users.store().account_get(account).await? else {
            return Ok(None);
        };
        let username = self.users.username_of_account(account).await?;
        Ok(username.map(|username| (row, username)))
    }

    fn verdict(&self, row: &AccountRow, username: &ExternalId) -> PasswordVerdict {
        match &username.password {
            Some(stored) if row.active => {
                PasswordVerdict::Right(PasswordMark(self.verified.mark(stored)))
            }
            Some(_) => PasswordVerdict::Inactive,
            None => PasswordVerdict::Wrong,
        }
    }
}

#[async_trait]
impl AccountPasswords for WebPasswords {
    async fn check(
        &self,
        account: Option<AccountId>,
        password: &str,
    ) -> anyhow::Result<PasswordVerdict> {
        let read = match account {
            Some(account) => self.read(account).await?,
            None => None,
        };
        let Some((row, username)) = read else {
            pretend(password).await;
            return Ok(PasswordVerdict::Wrong);
        };
        if !self.verified.verify(&username, password).await {
            return Ok(PasswordVerdict::Wrong);
        }
        // The password may have been replaced, and the account locked out, during the slow hash.
        Ok(match self.read(row.number).await? {
            Some((row, now)) if now.password == username.password => self.verdict(&row, &now),
            Some(_) | None => PasswordVerdict::Wrong,
        })
    }

    async fn recall(
        &self,
        account: AccountId,
        password: &str,
    ) -> anyhow::Result<Option<PasswordVerdict>> {
        let read = self.read(account).await?;
        let known = read.filter(|(_, username)| self.verified.recalls(username, password));
        Ok(known.map(|(row, username)| self.verdict(&row, &username)))
    }

    async fn mark(&self, account: AccountId) -> anyhow::Result<Option<PasswordMark>> {
        let read = self.read(account).await?;
        Ok(
            read.and_then(|(row, username)| match self.verdict(&row, &username) {
                PasswordVerdict::Right(mark) => Some(mark),
                PasswordVerdict::Inactive | PasswordVerdict::Wrong => None,
            }),
        )
    }
}
