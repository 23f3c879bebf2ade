//! Compares the tables of accounts with the branches that they are made from, and makes them again.

use std::collections::HashMap;

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::AllUsersRef;

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::import::indexed;
use super::store::{AccountIndex, AccountsChange, AccountsUpdated, IndexedAccount, RefUpdate};
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
}

/// Everything could not be read or made again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReindexError {
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(
        "the accounts were changed during each of {ATTEMPTS} attempts; run the command when fewer people change them"
    )]
    Busy,
}

impl AllUsers {
    /// Reads all branches and all tables, as they were at one moment.
    pub(super) async fn whole_state(&self) -> Result<WholeState, AccountsError> {
        let (refs, tables) = self.refs_and_tables().await?;
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
        Ok(WholeState { copy, tables, refs })
    }

    /// Reads all refs, and the tables that belong to them.
    async fn refs_and_tables(
        &self,
    ) -> Result<(Vec<(String, ObjectId)>, AccountIndex), AccountsError> {
        for _ in 0..ATTEMPTS {
            let (refs, before) = self.store().account_refs().await?;
            let tables = self.store().account_index().await?;
            let (_, after) = self.store().account_refs().await?;
            if before == after {
                return Ok((refs, tables));
            }
        }
        Err(AccountsError::Busy)
    }

    /// Makes the tables of all accounts again, in one update. Returns false if an update came in between.
    pub(super) async fn reindex(
        &self,
        actor: &AccountsActor,
        state: &WholeState,
    ) -> Result<bool, ReindexError> {
        let copy = &state.copy;
        let refs = || state.refs.iter().map(|(name, id)| (name.as_str(), *id));
        let rows = rows(copy, refs())?;
        let gone = state.tables.numbers();
        let gone = gone
            .into_iter()
            .filter(|number| !copy.users.contains_key(number));
        let refs = refs().map(|(name, id)| RefUpdate {
            name: name.to_owned(),
            from: Some(id),
            to: Some(id),
        });
        let change = AccountsChange {
            objects: Vec::new(),
            refs: refs.collect(),
            deleted: gone.collect(),
            cause: Cause {
                reason: format!("Reindex {} accounts", rows.len()),
                ..actor.cause.clone()
            },
            accounts: rows,
        };
        let updated = self.store().account_update(&change).await;
        match updated.map_err(AccountsError::from)? {
            AccountsUpdated::Done(_) => Ok(true),
            AccountsUpdated::Moved(_) => Ok(false),
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
