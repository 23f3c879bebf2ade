//! Accounts beside what people did. A row has the number of the account; its name and status are read from `accounts`,
//! so that they are the present ones.

use super::{Result, Tx, on_tx};
use crate::model::{AccountId, NamedAccount, Person};

/// Selects the name and the status of the account in the column `$account`.
macro_rules! account_names {
    ($account:literal) => {
        concat!(
            "(SELECT named.full_name FROM accounts named WHERE named.number = ",
            $account,
            ") AS account_name, (SELECT named.status FROM accounts named WHERE named.number = ",
            $account,
            ") AS account_status"
        )
    };
}

/// Selects an account, with its name and status, by the column `$account`.
macro_rules! account_columns {
    ($account:literal) => {
        concat!(
            $account,
            " AS account, ",
            $crate::store::people::account_names!($account)
        )
    };
}

pub(crate) use {account_columns, account_names};

/// Account of a row, as [`account_columns!`] selects it.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct NamedAccountRow {
    pub account: Option<i64>,
    account_name: Option<String>,
    account_status: Option<String>,
}

impl NamedAccountRow {
    /// Returns the account. `None` also for a number that no account can have.
    pub fn named(self) -> Option<NamedAccount> {
        named(self.account, self.account_name, self.account_status)
    }

    /// Returns the person with this login.
    pub fn person(self, login: String) -> Person {
        Person {
            login,
            account: self.named(),
        }
    }
}

/// Returns an account of the columns of a row.
pub(super) fn named(
    account: Option<i64>,
    name: Option<String>,
    status: Option<String>,
) -> Option<NamedAccount> {
    Some(NamedAccount {
        number: account_of_column(account)?,
        name,
        status,
    })
}

/// Returns the stored form of the account of an actor.
pub(crate) fn account_column(account: Option<AccountId>) -> Option<i64> {
    account.map(|account| i64::from(account.get()))
}

/// Reads the number that [`account_column`] stored. `None` also for one that no account can have.
pub(super) fn account_of_column(number: Option<i64>) -> Option<AccountId> {
    AccountId::new(u32::try_from(number?).ok()?)
}

/// Returns an account with its present name, as a part of a transaction.
pub(crate) async fn account_named_in_tx(
    tx: &mut Tx,
    account: Option<AccountId>,
) -> Result<Option<NamedAccount>> {
    let Some(number) = account else {
        return Ok(None);
    };
    let row = on_tx!(tx, db => sqlx::query_as::<_, (Option<String>, Option<String>)>(
        "SELECT full_name, status FROM accounts WHERE number = $1").bind(account_column(account)).fetch_optional(db))?;
    let (name, status) = row.unwrap_or_default();
    Ok(Some(NamedAccount {
        number,
        name,
        status,
    }))
}
