//! Fills an empty server with the accounts of a copy of `All-Users`.
//!
//! Branches of accounts and external IDs are taken whole, with the same commits, so parts that have no effect here come
//! along: a watch with a filter of another system, a key that is too short, an external ID of a deleted account. Every reader
//! passes over them, and the check that comes before the import names each. Other refs without effect stay away. Refused is
//! what could be read in two ways: whom an address or a password belongs to, who is locked out, which number is free.

use std::collections::{BTreeMap, BTreeSet};

use gix_hash::ObjectId;
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::blobs::AccountSequence;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey};
use lockkeeper_accounts::findings::{Problem, check_access};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber, InvalidAllUsersRef};
use lockkeeper_accounts::watches::Watches;

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::check::star_problems;
use super::copy::{AccountsCopy, UserBranch};
use super::reindex::rows;
use super::stars::{IndexedStars, changed_stars};
use super::store::{AccountRow, IndexedAccount, WrittenTables, watched_projects};
use super::update::{AccountsChange, AccountsUpdated, RefUpdate};
use crate::git::{LocalCopy, LocalCopyError};
use crate::model::Cause;

/// Result of an import.
pub(super) struct ImportedAccounts {
    pub accounts: usize,
    /// Refs that are not on the server, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// An import did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImportAccountsError {
    #[error("the copy cannot be read")]
    Copy(#[from] LocalCopyError),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// A ref of the copy is on the server already.
    #[error("the server already has {0}; accounts are imported into a server without any")]
    NotEmpty(String),
    /// The copy has none of the branches that are accounts.
    #[error(
        "the copy has no accounts: it has no ref such as refs/users/56/1000856. A plain `git clone` leaves these out; make the \
         copy with `git clone --mirror`"
    )]
    NoAccounts,
}

impl AllUsers {
    /// Stores everything of a copy in one update. The copy was checked: it has no errors.
    pub(super) async fn import(
        &self,
        actor: &AccountsActor,
        repository: &LocalCopy,
        copy: &AccountsCopy,
    ) -> Result<ImportedAccounts, ImportAccountsError> {
        if copy.users.is_empty() {
            return Err(ImportAccountsError::NoAccounts);
        }
        let (mut refs, mut left_out) = (Vec::new(), Vec::new());
        for (name, id) in repository.refs() {
            let known = name.parse::<AllUsersRef>();
            let unusable = match &known {
                Ok(AllUsersRef::Config) => unusable_access(copy).or_else(|| bad_ref(copy, name)),
                Ok(AllUsersRef::StarredChange(change, account)) => {
                    unusable_star(copy, name, *account, *change)
                }
                Ok(AllUsersRef::UserSelf) => bad_ref(copy, name),
                Ok(
                    AllUsersRef::User(_)
                    | AllUsersRef::UserDefault
                    | AllUsersRef::ExternalIds
                    | AllUsersRef::AccountSequence,
                ) => None,
                Err(InvalidAllUsersRef::Unknown(_)) => {
                    Some("this version does not use it".to_owned())
                }
                Err(error) => Some(error.to_string()),
            };
            match unusable {
                Some(why) => left_out.push((name.to_owned(), why)),
                // The branch that it stands for is imported.
                None if known == Ok(AllUsersRef::UserSelf) => {}
                None => refs.push((name.to_owned(), id)),
            }
        }
        let objects = repository.reachable(refs.iter().map(|(_, id)| *id))?;
        let objects =
            objects
                .into_iter()
                .map(|(id, kind, content)| GitObject { id, kind, content });
        let mut objects: Vec<GitObject> = objects.collect();
        let accounts = rows(copy, repository.refs())?;
        let many = accounts.len();
        let updates = refs.into_iter().map(|(name, id)| RefUpdate {
            name,
            from: None,
            to: Some(id),
        });
        let mut refs: Vec<RefUpdate> = updates.collect();
        // Every server with accounts has a sequence, so this also makes sure that there are none.
        if copy.sequence.is_none() {
            let sequence = sequence_after(copy)?;
            refs.push(RefUpdate {
                name: AllUsersRef::AccountSequence.to_string(),
                from: None,
                to: Some(sequence.id),
            });
            objects.push(sequence);
        }
        let mut stars = copy.read_stars();
        stars.retain(|(account, _), _| copy.users.contains_key(account));
        let change = AccountsChange {
            objects,
            refs,
            accounts,
            deleted: Vec::new(),
            stars: changed_stars(&IndexedStars::new(), &stars),
            starless: BTreeSet::new(),
            starring: BTreeSet::new(),
            cause: Cause {
                reason: format!("Import {many} accounts"),
                ..actor.cause.clone()
            },
        };
        match self
            .store()
            .account_update(&change)
            .await
            .map_err(AccountsError::from)?
        {
            AccountsUpdated::Done => Ok(ImportedAccounts {
                accounts: many,
                left_out,
            }),
            AccountsUpdated::Moved(name) => Err(ImportAccountsError::NotEmpty(name)),
            AccountsUpdated::Refused(why) => Err(AccountsError::from(why).into()),
        }
    }
}

/// Returns why the access control of a copy cannot be used: that of another system has other rules and groups.
fn unusable_access(copy: &AccountsCopy) -> Option<String> {
    let files = copy.access.as_ref()?;
    let findings = check_access(files, |account| copy.users.contains_key(&account));
    let first = findings.refusals().next()?;
    Some(format!(
        "{first}. The rules of a new installation are in effect"
    ))
}

/// Returns why a star cannot be used.
fn unusable_star(
    copy: &AccountsCopy,
    name: &str,
    account: AccountId,
    change: ChangeNumber,
) -> Option<String> {
    match copy.stars.get(&(account, change)) {
        None => bad_ref(copy, name),
        Some(labels) => {
            let problems = star_problems(copy, account, labels);
            problems.first().map(ToString::to_string)
        }
    }
}

/// Returns why a ref cannot be read.
fn bad_ref(copy: &AccountsCopy, name: &str) -> Option<String> {
    let mut bad = copy.bad_refs.iter();
    let (_, problem) = bad.find(|(bad, _)| bad == name)?;
    Some(problem.to_string())
}

/// Returns the sequence for a copy without one: the next number is above that of every account.
fn sequence_after(copy: &AccountsCopy) -> Result<GitObject, AccountsError> {
    let next = match copy.highest_number() {
        None => AccountId::FIRST,
        Some(highest) => highest.next().ok_or_else(|| {
            let fix = "no number is left for new accounts";
            let what = format!("account {highest} has the last number");
            AccountsError::Sequence(Problem::error(None, what, fix))
        })?,
    };
    let content = AccountSequence(next).to_string().into_bytes();
    Ok(GitObject::new(gix_object::Kind::Blob, content))
}

/// Returns the rows of an account.
pub(super) fn indexed(
    account: AccountId,
    commit: ObjectId,
    branch: &UserBranch,
    ids: &[ExternalId],
    copy: &AccountsCopy,
) -> Result<IndexedAccount, AccountsError> {
    let empty = BTreeMap::new();
    let notes = copy.notes.as_ref().unwrap_or(&empty);
    let notes = ids.iter().filter_map(|id| {
        let content = notes.get(&id.key.note_name())?;
        let note = GitObject::new(gix_object::Kind::Blob, content.clone());
        Some((id.key.clone(), note.id))
    });
    let notes: Vec<(ExternalIdKey, ObjectId)> = notes.collect();
    let config = branch.files.get(AccountConfig::FILE);
    let since = branch.history.began_at;
    Ok(IndexedAccount {
        row: AccountRow::new(account, commit, since, config, ids.iter())?,
        external_ids: notes,
        emails: ids.iter().filter_map(|id| id.email.clone()).collect(),
        watches: watched_projects(branch.files.get(Watches::FILE)),
        written: WrittenTables::ALL,
    })
}
