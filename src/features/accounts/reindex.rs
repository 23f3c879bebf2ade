//! Compares the tables of accounts with the branches that they are made from, and makes them again.

use std::path::{Path, PathBuf};

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::AllUsersRef;

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::git::{ViewError, copy_to};
use super::import::indexed;
use super::store::{AccountIndex, AccountsChange, AccountsUpdated, IndexedAccount, RefUpdate};
use crate::git::{LocalCopy, LocalCopyError};
use crate::model::Cause;

/// Number of times that a look at everything begins again because of an update.
const ATTEMPTS: usize = 5;

/// All accounts of the server at one moment: the branches, and the tables.
pub(super) struct WholeState {
    pub copy: AccountsCopy,
    pub tables: AccountIndex,
    refs: Vec<(String, ObjectId)>,
}

/// Everything could not be read or made again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReindexError {
    #[error("there is no place for a copy of All-Users in {}", .0.display())]
    NoPlace(PathBuf, #[source] std::io::Error),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error("the copy of All-Users cannot be read")]
    Copy(#[from] LocalCopyError),
    #[error("the copy of All-Users was not read to its end")]
    Panicked(#[source] tokio::task::JoinError),
    #[error(
        "the accounts were changed during each of {ATTEMPTS} attempts; run the command when fewer people change them"
    )]
    Busy,
}

impl AllUsers {
    /// Reads all branches and all tables. A copy of the branches is made in `within` meanwhile.
    pub(super) async fn whole_state(&self, within: &Path) -> Result<WholeState, ReindexError> {
        for _ in 0..ATTEMPTS {
            let (_, before) = self
                .store()
                .account_refs()
                .await
                .map_err(AccountsError::from)?;
            let dir = tempfile::tempdir_in(within)
                .map_err(|error| ReindexError::NoPlace(within.to_owned(), error))?;
            copy_to(self, dir.path()).await?;
            let tables = self
                .store()
                .account_index()
                .await
                .map_err(AccountsError::from)?;
            let (_, after) = self
                .store()
                .account_refs()
                .await
                .map_err(AccountsError::from)?;
            if before == after {
                let read = tokio::task::spawn_blocking(move || read_copy(&dir));
                let (copy, refs) = read.await.map_err(ReindexError::Panicked)??;
                return Ok(WholeState { copy, tables, refs });
            }
        }
        Err(ReindexError::Busy)
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

/// Reads a copy and its refs. Only the directory of the copy is needed for that, and it is removed.
fn read_copy(
    dir: &tempfile::TempDir,
) -> Result<(AccountsCopy, Vec<(String, ObjectId)>), LocalCopyError> {
    let repository = LocalCopy::open(dir.path())?;
    let refs = repository.refs().map(|(name, id)| (name.to_owned(), id));
    Ok((AccountsCopy::of(&repository), refs.collect()))
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
