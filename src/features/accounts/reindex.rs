//! Compares the tables of accounts with the branches that they are made from, and makes them again.

use std::collections::HashMap;

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::import::indexed;
use super::store::{AccountIndex, AccountRows, AccountsChange, AccountsUpdated, IndexedAccount};
use crate::git::LocalCopy;
use crate::model::Cause;

/// Number of times that a look at all tables begins again because of an update.
const ATTEMPTS: usize = 10;
/// Number of objects that are read from the database at once.
const AT_ONCE: i64 = 1_000;

/// All accounts of the server at one moment: the branches, and the tables.
pub(super) struct WholeState {
    pub copy: AccountsCopy,
    pub tables: AccountIndex,
    refs: Vec<(String, ObjectId)>,
    /// Number of the newest update.
    number: i64,
}

/// Everything could not be read or made again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReindexError {
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(
        "the accounts were changed during each attempt; run the command when fewer people change them"
    )]
    Busy,
}

impl AllUsers {
    /// Reads all branches and all tables, as they were at one moment.
    pub(super) async fn whole_state(&self) -> Result<WholeState, AccountsError> {
        let (refs, number, tables) = self.refs_and_tables().await?;
        // Objects are only ever added, so those of that moment are among them.
        let mut objects = HashMap::new();
        let mut after = (0, ObjectId::null(gix_hash::Kind::Sha1));
        loop {
            let more = self.store().account_objects_after(after, AT_ONCE).await?;
            let Some((newest, last)) = more.last() else {
                break;
            };
            after = (*newest, last.id);
            let more = more.into_iter();
            objects.extend(more.map(|(_, object)| (object.id, (object.kind, object.content))));
        }
        let names = refs.iter().cloned().collect();
        let read = move || AccountsCopy::of(&LocalCopy::of_objects(objects, names));
        let copy = match tokio::task::spawn_blocking(read).await {
            Ok(copy) => copy,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        Ok(WholeState {
            copy,
            tables,
            refs,
            number,
        })
    }

    /// Reads all refs, and the tables that belong to them.
    async fn refs_and_tables(
        &self,
    ) -> Result<(Vec<(String, ObjectId)>, i64, AccountIndex), AccountsError> {
        for _ in 0..ATTEMPTS {
            let (refs, before) = self.store().account_refs().await?;
            let tables = self.store().account_index().await?;
            let (_, after) = self.store().account_refs().await?;
            if before == after {
                return Ok((refs, before, tables));
            }
        }
        Err(AccountsError::Busy)
    }

    /// Makes the tables of those accounts again whose rows are wrong, in one update, and returns how many they are. `None`
    /// if another update came in between.
    pub(super) async fn reindex(
        &self,
        actor: &AccountsActor,
        state: &WholeState,
    ) -> Result<Option<usize>, ReindexError> {
        let mut there = state.tables.by_account();
        let refs = state.refs.iter().map(|(name, id)| (name.as_str(), *id));
        let mut wrong = rows(&state.copy, refs)?;
        wrong.retain(|account| there.remove(&account.row.number) != Some(AccountRows::of(account)));
        // An account whose branch cannot be read keeps its rows.
        for (name, _) in &state.refs {
            if let Ok(AllUsersRef::User(account)) = name.parse() {
                there.remove(&account);
            }
        }
        let gone: Vec<AccountId> = there.into_keys().collect();
        let many = wrong.len() + gone.len();
        if many == 0 {
            return Ok(Some(0));
        }
        let change = AccountsChange {
            seen: Some(state.number),
            objects: Vec::new(),
            refs: Vec::new(),
            accounts: wrong,
            deleted: gone,
            cause: Cause {
                reason: format!("Reindex {many} accounts"),
                ..actor.cause.clone()
            },
        };
        let updated = self.store().account_update(&change).await;
        match updated.map_err(AccountsError::from)? {
            AccountsUpdated::Done(_) => Ok(Some(many)),
            AccountsUpdated::Moved(_) | AccountsUpdated::Overtaken => Ok(None),
            AccountsUpdated::EmailTaken(email, by) => {
                Err(AccountsError::EmailTaken(email, by).into())
            }
            AccountsUpdated::ExternalIdTaken(key, by) => {
                Err(AccountsError::ExternalIdTaken(key, by).into())
            }
        }
    }
}

/// Returns the rows of all accounts of a copy with these refs.
pub(super) fn rows<'a>(
    copy: &AccountsCopy,
    refs: impl Iterator<Item = (&'a str, ObjectId)>,
) -> Result<Vec<IndexedAccount>, AccountsError> {
    let external_ids = copy.external_ids();
    let mut accounts = Vec::new();
    for (name, tip) in refs {
        let Ok(AllUsersRef::User(account)) = name.parse() else {
            continue;
        };
        let Some(branch) = copy.users.get(&account) else {
            continue;
        };
        let ids = external_ids.get(&account).map_or(&[][..], Vec::as_slice);
        accounts.push(indexed(account, tip, branch, ids, copy)?);
    }
    Ok(accounts)
}
