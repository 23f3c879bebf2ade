//! Compares the tables of accounts with the branches that they are made from, and makes them again.
//!
//! Everything is read as it was at one moment, and updates go on meanwhile. So an account may have changed when its rows
//! are written. Rows are made from the branch of the account, whose external IDs change only together with it, and the
//! row of a star from its ref. In a transaction in which no ref can move, rows are written if their ref is still where it
//! was. Rows of the other accounts are left for the next time.
//!
//! A ref that cannot be read keeps nobody else's rows from being made again (`wanted.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::all_users::{AccountsActor, AccountsError, AllUsers, links};
use super::copy::AccountsCopy;
use super::import::indexed;
use super::stars::changed_stars;
use super::store::{AccountIndex, AccountRows, IndexedAccount};
use super::update::AccountsChange;
use super::wanted::WantedTables;
use crate::git::LocalCopy;

/// Number of times that the rows of an account are made again because the account changes.
const ATTEMPTS: usize = 10;

/// Maximum number of objects that one statement reads.
const OBJECTS_AT_ONCE: usize = 5_000;

/// Objects by id, with kind and content.
type Objects = HashMap<ObjectId, (Kind, Vec<u8>)>;

/// Accounts of the server at one moment, all or a single one: the branches, and the tables.
pub struct BranchesAndTables {
    pub(super) copy: AccountsCopy,
    pub(super) tables: AccountIndex,
}

/// Outcome of making tables again.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReindexedTables {
    /// Number of accounts whose rows were written again.
    pub written: usize,
    /// Number of accounts that have changed since they were read, so that some of their rows stayed as they were.
    pub left: usize,
    /// Refs that cannot be read, at least not all of them, so that the rows that come from there stayed as they were.
    pub kept: BTreeSet<AllUsersRef>,
}

impl AllUsers {
    /// Reads all branches and all tables, as they were at one moment.
    pub async fn branches_and_tables(&self) -> Result<BranchesAndTables, AccountsError> {
        let tables = self.store().account_index().await?;
        // Objects are only ever added, so those of that moment are among them. A branch can have any number of commits, so
        // they are read at once and not one after the other.
        let commits = self.store().account_commits(outline).await?;
        let objects = self.objects_of(&tables.refs, commits).await?;
        Ok(BranchesAndTables::read(tables, objects).await)
    }

    /// Reads the branch and the tables of one account, as they were at one moment.
    async fn state_of(&self, account: AccountId) -> Result<BranchesAndTables, AccountsError> {
        let tables = self.store().account_index_of(Some(account)).await?;
        let objects = self.objects_of(&tables.refs, HashMap::new()).await?;
        Ok(BranchesAndTables::read(tables, objects).await)
    }

    /// Reads everything from which the rows of accounts with these refs are made: files, commits, stars, and all external
    /// IDs, because only the notes themselves say whose they are. Old files are not among it: anybody can push and remove as
    /// many as they like. `commits` were read before: all of them, or none.
    async fn objects_of(
        &self,
        refs: &BTreeMap<String, ObjectId>,
        commits: Objects,
    ) -> Result<Objects, AccountsError> {
        let tips: BTreeSet<ObjectId> = refs.values().copied().collect();
        let external_ids = refs.get(&AllUsersRef::ExternalIds.to_string());
        let first = tips.iter().map(|tip| match commits.get(tip) {
            Some((_, commit)) => root_of(commit).unwrap_or(*tip),
            None => *tip,
        });
        let mut open: BTreeSet<ObjectId> = first.collect();
        let mut objects = commits;
        while !open.is_empty() {
            let ids: Vec<ObjectId> = std::mem::take(&mut open).into_iter().collect();
            for ids in ids.chunks(OBJECTS_AT_ONCE) {
                // An object that is missing or damaged concerns only the refs that lead to it.
                let read = self.store().account_readable_objects(ids.iter().copied());
                for object in read.await? {
                    let id = object.id;
                    let mut links = links(&object).unwrap_or_default();
                    if object.kind == Kind::Commit {
                        // Old files of a branch do not count, and neither do old external IDs.
                        let parents = links.split_off(links.len().min(1));
                        if !tips.contains(&id) {
                            links.clear();
                        }
                        if external_ids != Some(&id) {
                            links.extend(parents);
                        }
                    }
                    open.extend(links);
                    let content = match object.kind {
                        Kind::Commit => outline(object.content),
                        Kind::Blob | Kind::Tree | Kind::Tag => object.content,
                    };
                    objects.insert(id, (object.kind, content));
                }
            }
            open.retain(|id| !objects.contains_key(id));
        }
        Ok(objects)
    }

    /// Makes the tables of an account again.
    pub(super) async fn index(
        &self,
        actor: &AccountsActor,
        account: AccountId,
    ) -> Result<(), AccountsError> {
        // All external IDs are in memory meanwhile, and only once.
        let _turn = self.indexing.lock().await;
        for _ in 0..ATTEMPTS {
            let state = self.state_of(account).await?;
            let reindexed = self.reindex(actor, &state).await?;
            if reindexed.kept.contains(&AllUsersRef::User(account)) {
                return Err(AccountsError::Unreadable(account));
            }
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
        state: &BranchesAndTables,
    ) -> Result<ReindexedTables, AccountsError> {
        let BranchesAndTables { copy, tables } = state;
        let WantedTables {
            accounts,
            stars,
            mut kept,
        } = WantedTables::of(copy, tables);
        let mut there = tables.by_account();
        let mut wrong: Vec<IndexedAccount> = accounts.into_values().collect();
        wrong.retain(|account| there.remove(&account.row.number) != Some(AccountRows::of(account)));
        // An account whose branch cannot be read keeps its rows.
        for name in tables.refs.keys() {
            if let Ok(AllUsersRef::User(account)) = name.parse() {
                there.remove(&account);
            }
        }
        let mut change = AccountsChange {
            objects: Vec::new(),
            refs: Vec::new(),
            accounts: wrong,
            deleted: there.into_keys().collect(),
            stars: changed_stars(&tables.stars, &stars),
            starless: BTreeSet::new(),
            starring: BTreeSet::new(),
            cause: actor.cause.clone(),
        };
        loop {
            let written = self.store().account_reindex(change.clone(), &tables.refs);
            let refusal = match written.await? {
                Ok(done) => {
                    return Ok(ReindexedTables {
                        written: done.written,
                        left: done.left,
                        kept,
                    });
                }
                Err(refusal) => refusal,
            };
            // An account whose rows stay as they are has the name in the tables.
            let many = change.accounts.len();
            change.accounts.retain(|account| {
                let is_refused = refusal.refuses(account);
                if is_refused {
                    kept.insert(AllUsersRef::User(account.row.number));
                }
                !is_refused
            });
            if change.accounts.len() == many {
                return Err(refusal.into());
            }
        }
    }
}

impl BranchesAndTables {
    /// Reads the branches of these refs, on another thread.
    async fn read(tables: AccountIndex, objects: Objects) -> Self {
        let names = tables.refs.clone();
        let read = move || AccountsCopy::of(&LocalCopy::of_objects(objects, names));
        match tokio::task::spawn_blocking(read).await {
            Ok(copy) => Self { copy, tables },
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Returns a commit without its text and its people, which do not matter here and can be long. One that cannot be read stays as
/// it is.
fn outline(commit: Vec<u8>) -> Vec<u8> {
    let iter = || CommitRefIter::from_bytes(&commit, gix_hash::Kind::Sha1);
    let committed = iter().committer().and_then(|by| by.time());
    let (Some(tree), Ok(time)) = (root_of(&commit), committed) else {
        return commit;
    };
    let parents = iter()
        .parent_ids()
        .map(|parent| format!("parent {parent}\n"));
    let parents: Vec<String> = parents.collect();
    let who = format!("x <x> {} +0000", time.seconds);
    let parents = parents.concat();
    format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\n").into_bytes()
}

fn root_of(commit: &[u8]) -> Option<ObjectId> {
    CommitRefIter::from_bytes(commit, gix_hash::Kind::Sha1)
        .tree_id()
        .ok()
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
