//! Changes `All-Users`. An update is a function of the state that it reads: when a ref has moved since, the function
//! runs again on the new state. What it leaves behind is checked like a push, and stored in one transaction.

mod edit;
mod edit_access;
mod finish;
mod numbers;
mod objects;

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, TreeRefIter};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey, StoredPassword};
use lockkeeper_accounts::findings::{AccountFindings, Problem};
use lockkeeper_accounts::objects::{CommitPerson, CommitText, GitObject};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};
use rand::RngExt as _;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};
use tokio::time::{Instant, timeout_at};

pub(super) use self::edit::{
    AccountsEdit, BranchRights, EditedAccount, PushedBranch, check_new_username,
};
pub(super) use self::edit_access::check_new_access;
use self::numbers::AccountNumbers;
use self::objects::AccountObjects;
use super::access::SeenAccess;
use super::stars::MAX_STARS;
use super::store::AccountRow;
use super::update::{AccountsUpdated, UpdateRefusal};
use super::view::{AccountJson, AccountKeyJson};
use crate::kit::web::answer::REQUEST_TIME;
use crate::model::Cause;
use crate::store::Store;

/// Time in which an update has to find a moment without another one. After it, the caller gets an error.
const PATIENCE: Duration = Duration::from_secs(25);
// A request that is stopped first does not know if the update was stored.
const _: () = assert!(PATIENCE.as_secs() < REQUEST_TIME.as_secs());
/// Maximum number of updates that are stored at the same time. The pool has 20 connections, and others need some.
const MAX_STORING: usize = 8;

/// The accounts of this server.
pub struct AllUsers {
    store: Store,
    objects: AccountObjects,
    /// Name of the server in its commits.
    committer: CommitPerson,
    /// Updates of this process are made side by side. One that has been overtaken is made again alone, so that those of
    /// one ref do not make each other run again and again.
    turn: RwLock<()>,
    /// Updates that are stored at the same time. Each has a connection to the database, and in PostgreSQL they wait for each
    /// other with it.
    storing: Semaphore,
    numbers: AccountNumbers,
    /// The access control that was read last.
    pub(super) access: std::sync::Mutex<Option<SeenAccess>>,
    /// Requests that make tables again queue up here.
    pub(super) indexing: Mutex<()>,
}

/// Person or program that changes accounts.
#[derive(Clone, Debug)]
pub struct AccountsActor {
    /// Author of the commits.
    pub author: CommitPerson,
    /// Actor of the event. Its reason is replaced by what changed.
    pub cause: Cause,
    /// Newest commit of each changed account, as the actor saw it. `None`: any.
    pub expected: Option<ObjectId>,
    /// Account that the actor has signed in as. It must still be able to sign in when the update is stored.
    pub signed_in: Option<SignedInAccount>,
}

/// An account that has signed in, with the password that was right.
#[derive(Clone, Debug)]
pub struct SignedInAccount {
    pub account: AccountId,
    pub password: Option<StoredPassword>,
    /// Newest commit of the access control, by which it may do this.
    pub access: Option<ObjectId>,
}

/// Reason why accounts could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The new state would break rules.
    #[error("{}", .0.lines().join("\n"))]
    Refused(AccountFindings),
    /// A value cannot be written.
    #[error(transparent)]
    Invalid(#[from] Problem),
    #[error("there is no account {0}")]
    NoAccount(AccountId),
    #[error("there is no change {0}; the page of a lock shows the number of its change")]
    NoChange(ChangeNumber),
    #[error("the account has no external ID `{0}`")]
    NoExternalId(ExternalIdKey),
    #[error("`{0}` belongs to account {1}; remove it there first")]
    EmailTaken(AccountEmail, AccountId),
    #[error("`{0}` belongs to account {1}; remove it there first")]
    ExternalIdTaken(ExternalIdKey, AccountId),
    /// The sequence does not lead to a free number.
    #[error("no account can be created: {0}")]
    Sequence(Problem),
    /// A stored object cannot be read.
    #[error("All-Users is damaged: {0}")]
    Damaged(String),
    /// The rows of an account cannot be made from its branch.
    #[error("{} cannot be read, so its tables stay as they are; correct the branch first", AllUsersRef::User(*.0))]
    Unreadable(AccountId),
    /// The ref is not where the caller of a push saw it.
    #[error("somebody else was faster; fetch first")]
    Moved,
    /// The actor has lost the way in since they signed in.
    #[error("the account was locked out, or has another password now")]
    LockedOut,
    /// The actor was permitted to do this by an access control that is no longer in effect.
    #[error("the access control was changed at this moment; try again")]
    RightsChanged,
    /// The account is not as the actor saw it.
    #[error("account {0} has changed since you read it; read it again")]
    Changed(AccountId),
    #[error("other changes of accounts did not let this one through within {} seconds; try again", PATIENCE.as_secs())]
    Busy,
}

/// An update, for as long as it is made.
pub(super) struct UpdateTurn<'a> {
    store: &'a Store,
    objects: &'a AccountObjects,
    turns: &'a RwLock<()>,
    storing: &'a Semaphore,
    numbers: &'a AccountNumbers,
    commit: CommitText,
    cause: Cause,
    expected: Option<ObjectId>,
    signed_in: Option<SignedInAccount>,
    /// `None` once the deadline has passed.
    turn: std::sync::Mutex<Option<Turn<'a>>>,
    deadline: Instant,
}

/// Share of an update in the turn of this process.
enum Turn<'a> {
    WithOthers(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl AccountsError {
    /// Returns true if the request cannot be granted as it is. Otherwise something failed.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Invalid(_)
            | Self::NoAccount(_)
            | Self::NoChange(_)
            | Self::NoExternalId(_)
            | Self::EmailTaken(..)
            | Self::ExternalIdTaken(..)
            | Self::Unreadable(_)
            | Self::Moved
            | Self::LockedOut
            | Self::RightsChanged
            | Self::Changed(_) => true,
            Self::Database(_) | Self::Sequence(_) | Self::Damaged(_) | Self::Busy => false,
        }
    }
}

impl From<UpdateRefusal> for AccountsError {
    fn from(why: UpdateRefusal) -> Self {
        match why {
            UpdateRefusal::EmailTaken(email, by) => Self::EmailTaken(email, by),
            UpdateRefusal::ExternalIdTaken(key, by) => Self::ExternalIdTaken(key, by),
            UpdateRefusal::TooManyStars => {
                let what = format!("the account has starred {MAX_STARS} changes");
                Problem::error(None, what, "remove one of these stars first").into()
            }
        }
    }
}

impl AllUsers {
    /// Creates the service. `host` is the name of the server in the address of its commits.
    pub fn new(store: Store, host: &str) -> Self {
        let committer = CommitPerson::new("Lockkeeper", &format!("lockkeeper@{host}"));
        Self {
            objects: AccountObjects::new(store.clone()),
            store,
            committer,
            turn: RwLock::new(()),
            storing: Semaphore::new(MAX_STORING),
            numbers: AccountNumbers::new(1),
            access: std::sync::Mutex::default(),
            indexing: Mutex::new(()),
        }
    }

    /// Takes this many numbers for new accounts at a time.
    #[must_use]
    pub fn with_batches_of(self, numbers: u32) -> Self {
        Self {
            numbers: AccountNumbers::new(numbers),
            ..self
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Begins an update. `message` names the kind of the change in the commits.
    ///
    /// ```text
    /// let update = users.update(actor, "Activate Account").await?;
    /// loop {
    ///     let mut edit = update.begin();
    ///     // read and change accounts in `edit`
    ///     if update.store(edit).await? {
    ///         return Ok(());
    ///     }
    /// }
    /// ```
    pub(super) async fn update(
        &self,
        actor: &AccountsActor,
        message: &str,
    ) -> Result<UpdateTurn<'_>, AccountsError> {
        let deadline = Instant::now() + PATIENCE;
        let turn = timeout_at(deadline, self.turn.read()).await;
        let turn = turn.map_err(|_| AccountsError::Busy)?;
        Ok(UpdateTurn {
            store: &self.store,
            objects: &self.objects,
            turns: &self.turn,
            storing: &self.storing,
            numbers: &self.numbers,
            commit: CommitText {
                author: actor.author.clone(),
                committer: self.committer.clone(),
                at: self.store.now(),
                message: message.to_owned(),
            },
            cause: actor.cause.clone(),
            expected: actor.expected,
            signed_in: actor.signed_in.clone(),
            turn: std::sync::Mutex::new(Some(Turn::WithOthers(turn))),
            deadline,
        })
    }

    /// Returns the external IDs of an account.
    pub async fn external_ids(&self, account: AccountId) -> Result<Vec<ExternalId>, AccountsError> {
        let rows = self.store.account_external_ids(account).await?;
        let notes = rows.iter().map(|row| row.note);
        let notes = self.objects.get_all(notes).await?;
        let ids = rows.iter().map(|row| Ok(read_note(&notes[&row.note])?.0));
        ids.collect()
    }

    /// Returns the external IDs of several accounts, with as many statements as for one.
    pub(super) async fn external_ids_of(
        &self,
        accounts: &[AccountId],
    ) -> Result<BTreeMap<AccountId, Vec<ExternalId>>, AccountsError> {
        let rows = self.store.account_external_ids_of(accounts).await?;
        let notes = rows.iter().map(|row| row.note);
        let notes = self.objects.get_all(notes).await?;
        let mut ids: BTreeMap<AccountId, Vec<ExternalId>> = BTreeMap::new();
        for row in &rows {
            let id = read_note(&notes[&row.note])?.0;
            ids.entry(row.account).or_default().push(id);
        }
        Ok(ids)
    }

    /// Returns the external ID of the user name of an account, which has the password.
    pub(super) async fn username_of_account(
        &self,
        account: AccountId,
    ) -> Result<Option<ExternalId>, AccountsError> {
        for row in self.store.account_external_ids(account).await? {
            if row.key.starts_with("username:") {
                return Ok(Some(read_note(&*self.objects.get(row.note).await?)?.0));
            }
        }
        Ok(None)
    }

    /// Renders an account with everything that belongs to it.
    pub(crate) async fn json(&self, row: &AccountRow) -> Result<AccountJson, AccountsError> {
        let files = self.files(row.commit).await?;
        let ids = self.external_ids(row.number).await?;
        let stars = self.store.change_list_starred(row.number).await?;
        let stars = stars.into_iter().map(|star| (star.number, star.labels));
        let (number, since) = (row.number, row.registered_at);
        Ok(AccountJson::new(
            number,
            &files,
            since,
            &ids,
            stars.collect(),
        ))
    }

    /// Renders the SSH keys of an account.
    pub(super) async fn ssh_keys(
        &self,
        row: &AccountRow,
    ) -> Result<Vec<AccountKeyJson>, AccountsError> {
        Ok(AccountKeyJson::all(&self.files(row.commit).await?))
    }

    /// Renders the SSH key of an account with a number.
    pub(super) async fn ssh_key(
        &self,
        row: &AccountRow,
        number: usize,
    ) -> Result<Option<AccountKeyJson>, AccountsError> {
        let keys = self.ssh_keys(row).await?;
        Ok(keys.into_iter().find(|key| key.seq == number))
    }

    /// Returns the files in the root directory of a commit.
    pub(super) async fn files(
        &self,
        commit: ObjectId,
    ) -> Result<BTreeMap<String, Vec<u8>>, AccountsError> {
        let root = self.objects.root(commit).await?;
        self.objects.files_in(&root).await
    }

    /// Returns the external ID with this key.
    pub(super) async fn external_id(
        &self,
        key: &ExternalIdKey,
    ) -> Result<Option<ExternalId>, AccountsError> {
        match self.store.account_external_id(key.as_str()).await? {
            None => Ok(None),
            Some(row) => Ok(Some(read_note(&*self.objects.get(row.note).await?)?.0)),
        }
    }
}

impl<'a> UpdateTurn<'a> {
    /// Begins with the present state.
    pub(super) fn begin(&self) -> AccountsEdit<'_> {
        AccountsEdit::new(
            self.objects,
            self.numbers,
            self.expected,
            self.signed_in.as_ref(),
        )
    }

    /// Stores what was edited. Returns false if a ref has moved since it was read: nothing was stored, and the caller edits
    /// the new state, without other updates of this process.
    pub(super) async fn store(&self, edit: AccountsEdit<'_>) -> Result<bool, AccountsError> {
        let (refs, taken) = (edit.refs.clone(), edit.taken.clone());
        let change = match edit.finish(&self.commit, &self.cause).await {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(true),
            // What was read before and after another update may not fit together.
            Err(AccountsError::Refused(_)) if self.have_moved(&refs).await? => {
                return self.wait_before_retry().await.map(|()| false);
            }
            Err(error) => return Err(error),
        };
        let storing = timeout_at(self.deadline, self.storing.acquire()).await;
        let storing = storing.map_err(|_| AccountsError::Busy)?;
        let updated = self.store.account_update(&change).await?;
        drop(storing);
        match updated {
            AccountsUpdated::Done => {
                self.numbers.keep(taken);
                self.objects.keep(change.objects);
                return Ok(true);
            }
            AccountsUpdated::Refused(why) => return Err(why.into()),
            AccountsUpdated::Moved(_) => {}
        }
        self.wait_before_retry().await.map(|()| false)
    }

    async fn have_moved(
        &self,
        refs: &BTreeMap<AllUsersRef, Option<ObjectId>>,
    ) -> Result<bool, AccountsError> {
        let names = refs.keys().map(AllUsersRef::to_string);
        let now = self
            .store
            .account_refs_named(&names.collect::<Vec<_>>())
            .await?;
        Ok(refs
            .iter()
            .any(|(name, id)| now.get(&name.to_string()) != id.as_ref()))
    }

    /// Waits until the update can be made again: first until no other update of this process is in progress. An update that
    /// was alone already has met another process, so it waits for a random time.
    async fn wait_before_retry(&self) -> Result<(), AccountsError> {
        let held = self.turn().take();
        match held {
            Some(Turn::Alone(held)) => {
                *self.turn() = Some(Turn::Alone(held));
                let pause = Duration::from_millis(rand::rng().random_range(5..100));
                if Instant::now() + pause > self.deadline {
                    return Err(AccountsError::Busy);
                }
                tokio::time::sleep(pause).await;
            }
            // Two updates that both kept their share would wait for each other.
            Some(Turn::WithOthers(held)) => {
                drop(held);
                let alone = timeout_at(self.deadline, self.turns.write()).await;
                *self.turn() = Some(Turn::Alone(alone.map_err(|_| AccountsError::Busy)?));
            }
            None => return Err(AccountsError::Busy),
        }
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn<'a>>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the external ID of a note, with its text.
fn read_note(blob: &GitObject) -> Result<(ExternalId, ConfigText), AccountsError> {
    let text = ConfigText::parse(&blob.content).map_err(|problem| damaged(blob.id, &problem))?;
    match ExternalId::read(&text) {
        (Some(id), _) => Ok((id, text)),
        (None, problems) => Err(AccountsError::Damaged(format!(
            "the note {} is no external ID: {problems:?}",
            blob.id
        ))),
    }
}

/// Returns the objects that an object leads to. Of a commit, the root directory is the first one.
pub(super) fn links(object: &GitObject) -> Result<Vec<ObjectId>, AccountsError> {
    let bad = |error: &dyn std::fmt::Display| damaged(object.id, error);
    match object.kind {
        Kind::Blob | Kind::Tag => Ok(Vec::new()),
        Kind::Tree => TreeRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1)
            // A submodule is a commit of another repository.
            .filter(|entry| !matches!(entry, Ok(entry) if entry.mode.is_commit()))
            .map(|entry| Ok(entry.map_err(|error| bad(&error))?.oid.to_owned()))
            .collect(),
        Kind::Commit => {
            let iter = || CommitRefIter::from_bytes(&object.content, gix_hash::Kind::Sha1);
            let tree = iter().tree_id().map_err(|error| bad(&error))?;
            Ok(std::iter::once(tree).chain(iter().parent_ids()).collect())
        }
    }
}

fn damaged(id: ObjectId, why: &dyn std::fmt::Display) -> AccountsError {
    AccountsError::Damaged(format!("the object {id}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::DateTime;

    use super::*;
    use crate::clock::{CountingIds, ManualClock};
    use crate::model::{Actor, Origin};
    use crate::store::DatabaseUrl;

    #[tokio::test]
    async fn an_update_waits_for_those_that_are_stored_until_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let store = Store::open(&url, clock, Arc::new(CountingIds::default()));
        let users = AllUsers::new(store.await.unwrap(), "localhost");
        let actor = AccountsActor {
            author: CommitPerson::new("Ops", "ops@example.com"),
            cause: Cause::new(Actor::new("ops", Origin::Cli), ""),
            expected: None,
            signed_in: None,
        };
        let mut update = users.update(&actor, "Create Account").await.unwrap();
        update.deadline = Instant::now();
        let others = users.storing.acquire_many(8).await.unwrap();
        let mut edit = update.begin();
        edit.create().await.unwrap();
        let refused = update.store(edit).await.unwrap_err();
        assert!(matches!(refused, AccountsError::Busy), "{refused}");
        drop(others);
        let mut edit = update.begin();
        edit.create().await.unwrap();
        assert!(update.store(edit).await.unwrap());
    }
}
