//! Finds the accounts of people who act on a forge.

use lockkeeper_accounts::external_ids::{ExternalIdKey, ForgeScheme};

use super::store::AccountRow;
use crate::context::Ctx;
use crate::model::HostName;

/// Returns the account of a user of a forge, found by the number of the user there, if the forge named it. A login can be
/// given up and taken by somebody else.
pub(crate) async fn of_forge_user(
    ctx: &Ctx,
    host: &HostName,
    number: Option<u64>,
) -> Result<Option<AccountRow>, sqlx::Error> {
    let Some(number) = number else {
        return Ok(None);
    };
    // All configured forges are GitHub's so far. A number that makes no key has no account.
    match ExternalIdKey::forge(ForgeScheme::GitHub, host.as_str(), number) {
        Ok(key) => ctx.store.account_of_external_id(key.as_str()).await,
        Err(_) => Ok(None),
    }
}

/// Returns the reply to a command of somebody whose account is inactive.
pub(crate) fn inactive_reply(account: &AccountRow) -> String {
    let number = account.number;
    format!(
        "**Your account on this server is inactive**, so your commands are not carried out. It has the number {number}. \
         An administrator can activate it with `lockkeeper accounts activate {number}`."
    )
}
