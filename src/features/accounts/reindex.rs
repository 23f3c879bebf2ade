//! Compares the tables of accounts with the branches that they are made from, and makes them again.

use std::collections::BTreeSet;

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::import::indexed;
use super::stars::changed_stars;
use super::store::{AccountIndex, AccountRows, IndexedAccount};
use super::update::{AccountsChange, AccountsUpdated};
use crate::git::LocalCopy;
use crate::model::Cause;

/// Number of times that a look at all tables begins again because of an update.
const ATTEMPTS: usize = 10;

/// All accounts of the server at one moment: the branches, and the tables.
pub(super) struct WholeState {
    pub copy: AccountsCopy,
    pub tables: AccountIndex,
    refs: Vec<(String, ObjectId)>,
    /// Number of the newest update.
    number: i64,
}

impl AllUsers {
    /// Reads all branches and all tables, as they were at one moment.
    pub(super) async fn whole_state(&self) -> Result<WholeState, AccountsError> {
        let (refs, number, tables) = self.refs_and_tables().await?;
        // Objects are only ever added, so those of that moment are among them.
        let objects = self.store().account_objects().await?;
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
            let after = self.store().account_update_number().await?;
            if before == after {
                return Ok((refs, before, tables));
            }
        }
        Err(AccountsError::Busy)
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
            if self.reindex(actor, &state, Some(account)).await?.is_some() {
                return Ok(());
            }
        }
        Err(AccountsError::Busy)
    }

    /// Makes the tables of those accounts again whose rows are wrong, or of one of them, in one update. Returns how many
    /// they are. `None` if another update came in between.
    pub(super) async fn reindex(
        &self,
        actor: &AccountsActor,
        state: &WholeState,
        only: Option<AccountId>,
    ) -> Result<Option<usize>, AccountsError> {
        let is_wanted = |account: AccountId| only.is_none_or(|only| only == account);
        let mut stars = changed_stars(&state.tables.stars, &state.copy.read_stars());
        stars.retain(|star| is_wanted(star.account));
        let mut there = state.tables.by_account();
        let refs = state.refs.iter().map(|(name, id)| (name.as_str(), *id));
        let mut wrong = rows(&state.copy, refs)?;
        wrong.retain(|account| there.remove(&account.row.number) != Some(AccountRows::of(account)));
        wrong.retain(|account| is_wanted(account.row.number));
        // An account whose branch cannot be read keeps its rows.
        for (name, _) in &state.refs {
            if let Ok(AllUsersRef::User(account)) = name.parse() {
                there.remove(&account);
            }
        }
        let gone: Vec<AccountId> = there.into_keys().filter(|of| is_wanted(*of)).collect();
        let rows = wrong.iter().map(|account| account.row.number);
        let changed = rows.chain(gone.iter().copied());
        let changed: BTreeSet<AccountId> = changed
            .chain(stars.iter().map(|star| star.account))
            .collect();
        let many = changed.len();
        if many == 0 {
            return Ok(Some(0));
        }
        let change = AccountsChange {
            seen: Some(state.number),
            objects: Vec::new(),
            refs: Vec::new(),
            accounts: wrong,
            deleted: gone,
            stars,
            starless: BTreeSet::new(),
            starring: BTreeSet::new(),
            cause: Cause {
                reason: match only {
                    None => format!("Reindex {many} accounts"),
                    Some(account) => format!("Reindex account {account}"),
                },
                ..actor.cause.clone()
            },
        };
        let updated = self.store().account_update(&change).await;
        match updated? {
            AccountsUpdated::Done(_) => Ok(Some(many)),
            AccountsUpdated::Moved(_) | AccountsUpdated::Overtaken => Ok(None),
            AccountsUpdated::Refused(why) => Err(why.into()),
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
