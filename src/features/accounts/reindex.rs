//! Compares the tables of accounts with the branches that they are made from, and makes them again.
//!
//! Everything is read as it was at one moment, and updates go on meanwhile. So an account may have changed when its rows
//! are written. Rows are made from the branch of the account, whose external IDs change only together with it, and the
//! row of a star from its ref. In a transaction in which no ref can move, rows are written if their ref is still where it
//! was. Rows of the other accounts are left for the next time.

use std::collections::BTreeSet;

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::import::indexed;
use super::stars::changed_stars;
use super::store::{AccountIndex, AccountRows, IndexedAccount};
use super::update::{AccountsChange, Reindexed};
use crate::git::LocalCopy;

/// Number of times that the rows of an account are made again because the account changes.
const ATTEMPTS: usize = 10;

/// All accounts of the server at one moment: the branches, and the tables.
pub struct WholeState {
    pub(super) copy: AccountsCopy,
    pub(super) tables: AccountIndex,
}

impl AllUsers {
    /// Reads all branches and all tables, as they were at one moment.
    pub async fn whole_state(&self) -> Result<WholeState, AccountsError> {
        let tables = self.store().account_index().await?;
        // Objects are only ever added, so those of that moment are among them.
        let objects = self.store().account_objects().await?;
        let names = tables.refs.clone();
        let read = move || AccountsCopy::of(&LocalCopy::of_objects(objects, names));
        let copy = match tokio::task::spawn_blocking(read).await {
            Ok(copy) => copy,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        Ok(WholeState { copy, tables })
    }

    /// Makes the tables of an account again.
    pub(super) async fn index(
        &self,
        actor: &AccountsActor,
        account: AccountId,
    ) -> Result<(), AccountsError> {
        // Everything is in memory meanwhile, and only once.
        let _turn = self.indexing.lock().await;
        for _ in 0..ATTEMPTS {
            let state = self.whole_state().await?;
            let reindexed = self.reindex_of(actor, &state, Some(account)).await?;
            if reindexed.left == 0 {
                return Ok(());
            }
        }
        Err(AccountsError::Busy)
    }

    /// Makes the tables of those accounts again whose rows were wrong, in one update.
    pub async fn reindex(
        &self,
        actor: &AccountsActor,
        state: &WholeState,
    ) -> Result<Reindexed, AccountsError> {
        self.reindex_of(actor, state, None).await
    }

    async fn reindex_of(
        &self,
        actor: &AccountsActor,
        state: &WholeState,
        only: Option<AccountId>,
    ) -> Result<Reindexed, AccountsError> {
        let WholeState { copy, tables } = state;
        let is_wanted = |account: AccountId| only.is_none_or(|only| only == account);
        let mut stars = changed_stars(&tables.stars, &copy.read_stars());
        stars.retain(|star| is_wanted(star.account));
        let mut there = tables.by_account();
        let refs = tables.refs.iter().map(|(name, id)| (name.as_str(), *id));
        let mut wrong = rows(copy, refs)?;
        wrong.retain(|account| there.remove(&account.row.number) != Some(AccountRows::of(account)));
        wrong.retain(|account| is_wanted(account.row.number));
        // An account whose branch cannot be read keeps its rows.
        for name in tables.refs.keys() {
            if let Ok(AllUsersRef::User(account)) = name.parse() {
                there.remove(&account);
            }
        }
        let change = AccountsChange {
            objects: Vec::new(),
            refs: Vec::new(),
            accounts: wrong,
            deleted: there.into_keys().filter(|of| is_wanted(*of)).collect(),
            stars,
            starless: BTreeSet::new(),
            starring: BTreeSet::new(),
            cause: actor.cause.clone(),
        };
        let reindexed = self.store().account_reindex(change, &tables.refs);
        Ok(reindexed.await??)
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
