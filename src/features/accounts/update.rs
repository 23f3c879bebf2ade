//! Stores an update of `All-Users` in one transaction: new objects, all refs, the rows of the accounts it concerns, and
//! its event. It begins with the row of `account_updates`, which only one writer holds at a time. So each object has the
//! number of its update, and a reader of all updates up to a number has missed nothing.
//!
//! An update is mostly small, and an import is one update of everything. So rows are written many at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use flate2::{Compress, Compression, FlushCompress, Status};
use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use sqlx::QueryBuilder;

use super::search::AccountWords;
use super::stars::{IndexedStar, MAX_STARS, star_left_in_tx, stars_in_tx, stars_index_in_tx};
use super::store::{
    IndexedAccount, REFS_NAMED_POSTGRES, REFS_NAMED_SQLITE, WrittenTables, account_id, damaged,
    json_list, object_id,
};
use crate::model::{Cause, LockEventKind, NewLockEvent};
use crate::store::{Result, Store, Tx, execute, kept_time, on_tx};

/// Maximum number of rows that one statement writes. Each has eight values at most, and SQLite takes 32,766 of them.
pub(super) const AT_ONCE: usize = 500;

/// Maximum number of rows of a statement that the database prepares once. An update of an external ID stores seven objects.
pub(super) const FEW_ROWS: usize = 8;

/// Maximum number of refs that are compared and moved by one statement.
const FEW_REFS: usize = 4;

/// Maximum size of the objects that one statement writes, in bytes. A single larger one is written alone.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Executes a statement with a row of values for each of `$rows`. Returns the number of affected rows.
macro_rules! execute_values {
    ($tx:expr, $head:literal, $rows:expr, |$values:ident, $row:pat_param| $push:block, $tail:expr) => {{
        let rows = $rows.into_iter();
        // The text differs by the number of rows. Only statements with a small number are used again.
        let is_kept = rows.len() <= $crate::features::accounts::update::FEW_ROWS;
        match &mut *$tx {
            $crate::store::Tx::Sqlite(tx) => {
                let mut sql = sqlx::QueryBuilder::<sqlx_sqlite::Sqlite>::new($head);
                sql.push_values(rows, |mut $values, $row| $push);
                let query = sql.push($tail).build().persistent(is_kept);
                query
                    .execute(&mut **tx)
                    .await
                    .map(|done| done.rows_affected())
            }
            $crate::store::Tx::Postgres(tx) => {
                let mut sql = sqlx::QueryBuilder::<sqlx_postgres::Postgres>::new($head);
                sql.push_values(rows, |mut $values, $row| $push);
                let query = sql.push($tail).build().persistent(is_kept);
                query
                    .execute(&mut **tx)
                    .await
                    .map(|done| done.rows_affected())
            }
        }
    }};
}
pub(super) use execute_values;

/// Wanted place of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    pub name: String,
    /// Object that the ref pointed to when the update was made. `None`: it did not exist.
    pub from: Option<ObjectId>,
    /// New object; the same one if the ref was only read. `None` removes the ref.
    pub to: Option<ObjectId>,
}

impl RefUpdate {
    /// Returns true if the ref gets another object, and false if it stays or is removed.
    fn is_written(&self) -> bool {
        self.to.is_some() && self.to != self.from
    }

    /// Returns true if there is a ref to remove.
    fn is_removed(&self) -> bool {
        self.to.is_none() && self.from.is_some()
    }
}

/// Everything that an update changes.
#[derive(Clone, Debug)]
pub struct AccountsChange {
    pub objects: Vec<GitObject>,
    pub refs: Vec<RefUpdate>,
    pub accounts: Vec<IndexedAccount>,
    /// Accounts that are gone.
    pub deleted: Vec<AccountId>,
    pub stars: Vec<IndexedStar>,
    /// Accounts that have no star after the update. Another update may have added one since this one was made.
    pub starless: BTreeSet<AccountId>,
    /// Accounts that star one more change. They have at most [`MAX_STARS`] after the update.
    pub starring: BTreeSet<AccountId>,
    /// Actor, and what changed.
    pub cause: Cause,
}

/// Outcome of an update.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountsUpdated {
    /// The whole update was stored.
    Done,
    /// Nothing was stored, because this ref has moved since it was read.
    Moved(String),
    /// Nothing was stored, because the update breaks a rule that only the tables tell.
    Refused(UpdateRefusal),
}

/// Outcome of a reindex.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reindexed {
    /// Number of accounts whose rows were written again.
    pub written: usize,
    /// Number of accounts that have changed since they were read, so that some of their rows stayed as they were.
    pub left: usize,
}

/// Rule that an update would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateRefusal {
    /// The address belongs to the account with this number.
    EmailTaken(AccountEmail, AccountId),
    /// The external ID belongs to the account with this number.
    ExternalIdTaken(ExternalIdKey, AccountId),
    /// The account would have more than [`MAX_STARS`] stars.
    TooManyStars,
}

impl UpdateRefusal {
    /// Returns true if the rows of this account are refused.
    pub(super) fn refuses(&self, account: &IndexedAccount) -> bool {
        match self {
            Self::EmailTaken(email, _) => {
                let mut own = account.emails.iter();
                own.any(|own| own.key() == email.key())
            }
            Self::ExternalIdTaken(key, _) => {
                let mut own = account.external_ids.iter();
                own.any(|(own, _)| own == key)
            }
            Self::TooManyStars => false,
        }
    }
}

impl Store {
    /// Stores an update, all of it or nothing.
    pub async fn account_update(&self, change: &AccountsChange) -> Result<AccountsUpdated> {
        // Those that share a commit wait for all parts of it.
        let is_small = change.accounts.len() + change.refs.len() <= AT_ONCE;
        let mut tx = self.account_update_begin(is_small).await?;
        if let Some(name) = refs_move_in_tx(&mut tx, &change.refs).await? {
            return tx.roll_back().await.map(|()| AccountsUpdated::Moved(name));
        }
        objects_add_in_tx(&mut tx, &change.objects).await?;
        accounts_clear_in_tx(&mut tx, change).await?;
        if let Some(taken) = accounts_index_in_tx(&mut tx, &change.accounts).await? {
            let refused = AccountsUpdated::Refused(taken);
            return tx.roll_back().await.map(|()| refused);
        }
        stars_index_in_tx(&mut tx, &change.stars).await?;
        for account in &change.starless {
            if let Some(name) = star_left_in_tx(&mut tx, *account).await? {
                return tx.roll_back().await.map(|()| AccountsUpdated::Moved(name));
            }
        }
        // Other updates add stars side by side with this one, so only here their number is certain.
        for account in &change.starring {
            if stars_in_tx(&mut tx, *account).await? > MAX_STARS {
                let refused = AccountsUpdated::Refused(UpdateRefusal::TooManyStars);
                return tx.roll_back().await.map(|()| refused);
            }
        }
        self.lock_events_in_tx(&mut tx, vec![event(change.cause.clone())])
            .await?;
        tx.commit().await.map(|()| AccountsUpdated::Done)
    }

    /// Begins an update, as the only one until the transaction ends.
    async fn account_update_begin(&self, is_shared: bool) -> Result<Tx> {
        macro_rules! number_sql {
            () => {
                "UPDATE account_updates SET number = number + 1 WHERE id = 1"
            };
        }
        let begin = concat!("BEGIN; ", number_sql!());
        self.begin_with(is_shared, number_sql!(), begin).await
    }

    /// Writes rows again that were made from these refs. Rows of an account or a star whose ref has moved since stay as
    /// they are.
    pub(super) async fn account_reindex(
        &self,
        mut change: AccountsChange,
        made_from: &BTreeMap<String, ObjectId>,
    ) -> Result<Result<Reindexed, UpdateRefusal>> {
        let all = change.accounts_with_rows().len();
        let mut tx = self.account_update_begin(false).await?;
        // No ref can move from here on.
        let names: Vec<String> = change.refs_of_rows().map(|name| name.to_string()).collect();
        let mut now = HashMap::new();
        for names in names.chunks(AT_ONCE) {
            now.extend(refs_named_in_tx(&mut tx, names).await?);
        }
        let mut left = BTreeSet::new();
        let mut is_current = |account, name: AllUsersRef| {
            let name = name.to_string();
            let is_current = now.get(&name) == made_from.get(&name);
            if !is_current {
                left.insert(account);
            }
            is_current
        };
        let (rows, stars) = (&mut change.accounts, &mut change.stars);
        rows.retain(|rows| is_current(rows.row.number, AllUsersRef::User(rows.row.number)));
        let deleted = &mut change.deleted;
        deleted.retain(|account| is_current(*account, AllUsersRef::User(*account)));
        stars.retain(|star| is_current(star.account, star.name()));
        let (written, left) = (change.accounts_with_rows(), left.len());
        change.cause.reason = match written.first() {
            None => {
                let nothing = Reindexed { written: 0, left };
                return tx.roll_back().await.map(|()| Ok(nothing));
            }
            Some(account) if written.len() == 1 => format!("Reindex account {account}"),
            Some(_) => format!("Reindex {} accounts", written.len()),
        };
        accounts_clear_in_tx(&mut tx, &change).await?;
        if let Some(taken) = accounts_index_in_tx(&mut tx, &change.accounts).await? {
            tx.roll_back().await?;
            // The rows of an account that was left may still have the name.
            return Ok(match left {
                0 => Err(taken),
                _ => Ok(Reindexed {
                    written: 0,
                    left: all,
                }),
            });
        }
        stars_index_in_tx(&mut tx, &change.stars).await?;
        self.lock_events_in_tx(&mut tx, vec![event(change.cause)])
            .await?;
        let written = written.len();
        tx.commit().await.map(|()| Ok(Reindexed { written, left }))
    }
}

impl AccountsChange {
    /// Returns the accounts whose rows, or those of their stars, are written.
    fn accounts_with_rows(&self) -> BTreeSet<AccountId> {
        let rows = self.accounts.iter().map(|account| account.row.number);
        let stars = self.stars.iter().map(|star| star.account);
        let deleted = self.deleted.iter().copied();
        rows.chain(deleted).chain(stars).collect()
    }

    /// Returns the refs that the rows are made from. External IDs change only together with the branch of their account.
    fn refs_of_rows(&self) -> impl Iterator<Item = AllUsersRef> {
        let rows = self.accounts.iter().map(|account| account.row.number);
        let rows = rows.chain(self.deleted.iter().copied());
        let stars = self.stars.iter().map(IndexedStar::name);
        rows.map(AllUsersRef::User).chain(stars)
    }
}

/// Returns the event of an update.
fn event(cause: Cause) -> NewLockEvent {
    NewLockEvent {
        kind: LockEventKind::AccountChanged,
        key: None,
        scope: None,
        pull: None,
        concern: None,
        cause,
    }
}

/// Moves refs, or checks that they are where they were. Returns the name of one that is not.
async fn refs_move_in_tx(tx: &mut Tx, refs: &[RefUpdate]) -> Result<Option<String>> {
    // Most updates need one statement.
    if refs.len() <= FEW_REFS {
        let set = refs.iter().filter(|update| update.is_written()).count() as u64;
        let gone = refs.iter().filter(|update| update.is_removed()).count() as u64;
        let is_done = match (set, gone) {
            (1.., 0) => refs_set_if_unmoved_in_tx(tx, refs).await? == set,
            (0, 1..) => refs_remove_if_unmoved_in_tx(tx, refs).await? == gone,
            _ => false,
        };
        if is_done {
            return Ok(None);
        }
    }
    for refs in refs.chunks(AT_ONCE) {
        let names: Vec<String> = refs.iter().map(|update| update.name.clone()).collect();
        let there = refs_named_in_tx(tx, &names).await?;
        let moved = refs
            .iter()
            .find(|update| there.get(&update.name) != update.from.as_ref());
        if let Some(moved) = moved {
            return Ok(Some(moved.name.clone()));
        }
        let set = refs.iter().filter(|update| update.is_written());
        let set = set.filter_map(|update| Some((&update.name, update.to?)));
        let set: Vec<(&String, ObjectId)> = set.collect();
        if !set.is_empty() {
            execute_values!(
                tx,
                "INSERT INTO account_refs (name, object_id) ",
                &set,
                |values, (name, id)| {
                    values.push_bind(name.as_str()).push_bind(id.as_bytes());
                },
                " ON CONFLICT (name) DO UPDATE SET object_id = excluded.object_id"
            )?;
        }
        for gone in refs.iter().filter(|update| update.is_removed()) {
            execute!(tx, "DELETE FROM account_refs WHERE name = $1", &gone.name)?;
        }
    }
    Ok(None)
}

/// Executes a statement on `wanted`, which has a row for each ref with its old and its new object. `$statement` ends with its
/// `WHERE` clause, to which the condition is added that all refs are where they were. `$old` is the old object.
macro_rules! wanted_sql {
    ($statement:expr, $old:literal, $tail:literal) => {
        concat!(
            ") ",
            $statement,
            " AND NOT EXISTS (SELECT 1 FROM wanted w LEFT JOIN account_refs r ON r.name = w.name \
             WHERE r.object_id IS DISTINCT FROM ",
            $old,
            ")",
            $tail
        )
    };
}

macro_rules! set_sql {
    ($new:literal, $old:literal) => {
        wanted_sql!(
            concat!(
                "INSERT INTO account_refs (name, object_id) SELECT name, ",
                $new,
                " FROM wanted WHERE new IS DISTINCT FROM old"
            ),
            $old,
            " ON CONFLICT (name) DO UPDATE SET object_id = excluded.object_id"
        )
    };
}

macro_rules! remove_sql {
    ($old:literal) => {
        wanted_sql!(
            "DELETE FROM account_refs WHERE name IN (SELECT name FROM wanted WHERE new IS NULL)",
            $old,
            ""
        )
    };
}

/// Ends of the statements after the rows of `wanted`. PostgreSQL takes values without a type for texts.
const SET: [&str; 2] = [
    set_sql!("new", "w.old"),
    set_sql!("CAST(new AS BYTEA)", "CAST(w.old AS BYTEA)"),
];
const REMOVE: [&str; 2] = [remove_sql!("w.old"), remove_sql!("CAST(w.old AS BYTEA)")];

/// Creates and moves refs if all of them are where they were. Returns their number, and 0 if one has moved.
async fn refs_set_if_unmoved_in_tx(tx: &mut Tx, refs: &[RefUpdate]) -> Result<u64> {
    wanted_in_tx(tx, refs, SET).await
}

/// Removes refs if all of them are where they were. Returns their number, and 0 if one has moved.
async fn refs_remove_if_unmoved_in_tx(tx: &mut Tx, refs: &[RefUpdate]) -> Result<u64> {
    wanted_in_tx(tx, refs, REMOVE).await
}

async fn wanted_in_tx(
    tx: &mut Tx,
    refs: &[RefUpdate],
    [sqlite, postgres]: [&'static str; 2],
) -> Result<u64> {
    let end = match tx {
        Tx::Sqlite(_) => sqlite,
        Tx::Postgres(_) => postgres,
    };
    execute_values!(
        tx,
        "WITH wanted (name, old, new) AS (",
        refs,
        |values, update| {
            values.push_bind(update.name.as_str());
            values.push_bind(update.from.as_ref().map(|id| id.as_bytes()));
            values.push_bind(update.to.as_ref().map(|id| id.as_bytes()));
        },
        end
    )
}

async fn refs_named_in_tx(tx: &mut Tx, names: &[String]) -> Result<HashMap<String, ObjectId>> {
    let sql = match tx {
        Tx::Sqlite(_) => REFS_NAMED_SQLITE,
        Tx::Postgres(_) => REFS_NAMED_POSTGRES,
    };
    let names = json_list(names);
    let rows = on_tx!(&mut *tx, db => sqlx::query_as::<_, (String, Vec<u8>)>(sql).bind(&names).fetch_all(db))?;
    let refs = rows
        .into_iter()
        .map(|(name, id)| Ok((name, object_id(&id)?)));
    refs.collect()
}

/// Adds objects with the number of the update.
async fn objects_add_in_tx(tx: &mut Tx, objects: &[GitObject]) -> Result<()> {
    let mut bytes = 0;
    let small = objects.chunk_by(|_, next| {
        bytes += next.content.len();
        let fits = bytes <= MAX_BYTES;
        bytes = if fits { bytes } else { next.content.len() };
        fits
    });
    for objects in small.flat_map(|objects| objects.chunks(AT_ONCE)) {
        let mut rows = Vec::new();
        for object in objects {
            let kind = match object.kind {
                Kind::Blob => "blob",
                Kind::Tree => "tree",
                Kind::Commit => "commit",
                Kind::Tag => return Err(damaged("All-Users has no tags".to_owned())),
            };
            let size = i64::try_from(object.content.len()).unwrap_or(i64::MAX);
            rows.push((object.id, kind, size, packed(&object.content)?));
        }
        execute_values!(
            tx,
            "INSERT INTO account_objects (id, update_number, kind, size, packed) ",
            rows,
            |values, (id, kind, size, packed)| {
                values.push_bind(id.as_bytes().to_vec());
                values.push("(SELECT number FROM account_updates WHERE id = 1)");
                values.push_bind(kind);
                values.push_bind(size).push_bind(packed);
            },
            " ON CONFLICT (id) DO NOTHING"
        )?;
    }
    Ok(())
}

thread_local! {
    /// Setting this up takes longer than compressing a small object. Most bytes are hashes and short lines, which higher levels
    /// do not make smaller.
    static ZLIB: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
}

/// Compresses the content of an object.
fn packed(content: &[u8]) -> Result<Vec<u8>> {
    ZLIB.with_borrow_mut(|zlib| packed_by(zlib, content))
}

fn packed_by(zlib: &mut Compress, content: &[u8]) -> Result<Vec<u8>> {
    zlib.reset();
    let mut packed = Vec::with_capacity(content.len() + 64);
    loop {
        let read = usize::try_from(zlib.total_in()).unwrap_or(usize::MAX);
        let status = zlib.compress_vec(&content[read..], &mut packed, FlushCompress::Finish);
        if status.map_err(std::io::Error::other)? == Status::StreamEnd {
            return Ok(packed);
        }
        packed.reserve(content.len() + 64);
    }
}

/// Removes all rows of deleted accounts, and rows of others that do not stay. Those of stars are left alone.
async fn accounts_clear_in_tx(tx: &mut Tx, change: &AccountsChange) -> Result<()> {
    macro_rules! clear {
        ($tx:expr, $database:ty, $table:expr, $rows:expr) => {{
            let mut sql = QueryBuilder::<$database>::new($table);
            let mut list = sql.separated(", ");
            for row in $rows {
                list.push_bind(*row);
            }
            let query = sql.push(")").build();
            let query = query.persistent($rows.len() == 1);
            query.execute(&mut **$tx).await?;
        }};
    }
    macro_rules! clear_all {
        ($table:expr, $rows:expr) => {
            for rows in $rows.chunks(AT_ONCE) {
                match &mut *tx {
                    Tx::Sqlite(tx) => clear!(tx, sqlx_sqlite::Sqlite, $table, rows),
                    Tx::Postgres(tx) => clear!(tx, sqlx_postgres::Postgres, $table, rows),
                }
            }
        };
    }
    let number = |account: AccountId| i64::from(account.get());
    let deleted: Vec<i64> = change.deleted.iter().copied().map(number).collect();
    let cleared = |is_cleared: fn(&WrittenTables) -> bool| -> Vec<i64> {
        let accounts = change.accounts.iter();
        let cleared = accounts.filter(|account| is_cleared(&account.written));
        let cleared = cleared.map(|account| number(account.row.number));
        cleared.chain(deleted.iter().copied()).collect()
    };
    let all_names_of = cleared(|written| written.names_before.is_none());
    clear_all!(
        "DELETE FROM account_emails WHERE account IN (",
        all_names_of
    );
    clear_all!(
        "DELETE FROM account_external_ids WHERE account IN (",
        all_names_of
    );
    let accounts = change.accounts.iter();
    let emails: Vec<&str> = accounts.flat_map(IndexedAccount::old_emails).collect();
    clear_all!("DELETE FROM account_emails WHERE email IN (", emails);
    let accounts = change.accounts.iter();
    let external_ids = accounts.flat_map(IndexedAccount::old_external_ids);
    let external_ids: Vec<&str> = external_ids.collect();
    clear_all!(
        "DELETE FROM account_external_ids WHERE external_id IN (",
        external_ids
    );
    let watches = cleared(|written| written.watches);
    clear_all!("DELETE FROM account_watches WHERE account IN (", watches);
    let words = cleared(|written| written.words);
    clear_all!("DELETE FROM account_words WHERE account IN (", words);
    // The row of an account that stays is replaced.
    clear_all!("DELETE FROM accounts WHERE number IN (", deleted);
    Ok(())
}

/// Writes the rows of accounts. Returns why they cannot be, if another account has one of their names.
async fn accounts_index_in_tx(
    tx: &mut Tx,
    accounts: &[IndexedAccount],
) -> Result<Option<UpdateRefusal>> {
    for accounts in accounts.chunks(AT_ONCE) {
        execute_values!(
            tx,
            "INSERT INTO accounts (number, full_name, preferred_email, status, active, username, registered_at, commit_id) ",
            accounts.iter().map(|account| &account.row),
            |values, row| {
                values.push_bind(i64::from(row.number.get()));
                values.push_bind(row.full_name.as_deref());
                values.push_bind(row.preferred_email.as_deref());
                values.push_bind(row.status.as_deref());
                values.push_bind(row.active);
                values.push_bind(row.username.as_deref());
                values.push_bind(kept_time(row.registered_at));
                values.push_bind(row.commit.as_bytes());
            },
            " ON CONFLICT (number) DO UPDATE SET full_name = excluded.full_name, \
             preferred_email = excluded.preferred_email, status = excluded.status, active = excluded.active, \
             username = excluded.username, registered_at = excluded.registered_at, commit_id = excluded.commit_id"
        )?;
    }
    let external_ids = accounts.iter().flat_map(|account| {
        let ids = account.new_external_ids();
        ids.map(|(key, note)| (account.row.number, key, note))
    });
    let external_ids: Vec<_> = external_ids.collect();
    for ids in external_ids.chunks(AT_ONCE) {
        if let Some((key, owner)) = external_ids_add_in_tx(tx, ids).await? {
            return Ok(Some(UpdateRefusal::ExternalIdTaken(key, owner)));
        }
    }
    let emails = accounts.iter().flat_map(|account| {
        let emails = account.new_emails();
        emails.map(|email| (account.row.number, email))
    });
    let emails: Vec<_> = emails.collect();
    for emails in emails.chunks(AT_ONCE) {
        if let Some((email, owner)) = emails_add_in_tx(tx, emails).await? {
            return Ok(Some(UpdateRefusal::EmailTaken(email, owner)));
        }
    }
    let watching = accounts.iter().filter(|account| account.written.watches);
    let watches = watching.flat_map(|account| {
        let number = i64::from(account.row.number.get());
        account.watches.iter().map(move |project| (number, project))
    });
    for watches in watches.collect::<Vec<_>>().chunks(AT_ONCE) {
        execute_values!(
            tx,
            "INSERT INTO account_watches (account, project) ",
            watches,
            |values, (account, project)| {
                values.push_bind(*account).push_bind(project.as_str());
            },
            ""
        )?;
    }
    let mut words = Vec::new();
    for account in accounts.iter().filter(|account| account.written.words) {
        let number = i64::from(account.row.number.get());
        let own = AccountWords::of(&account.row).into_iter();
        words.extend(own.map(|(field, word)| (field, word, number)));
    }
    for words in words.chunks(AT_ONCE) {
        execute_values!(
            tx,
            "INSERT INTO account_words (field, word, account) ",
            words,
            |values, (field, word, account)| {
                values.push_bind(field.as_str());
                values.push_bind(word.as_str()).push_bind(*account);
            },
            ""
        )?;
    }
    Ok(None)
}

/// Adds external IDs. Returns one that another account has.
async fn external_ids_add_in_tx(
    tx: &mut Tx,
    ids: &[(AccountId, &ExternalIdKey, ObjectId)],
) -> Result<Option<(ExternalIdKey, AccountId)>> {
    let added = execute_values!(
        tx,
        "INSERT INTO account_external_ids (external_id, account, note_id) ",
        ids,
        |values, (account, key, note)| {
            values.push_bind(key.as_str());
            values.push_bind(i64::from(account.get()));
            values.push_bind(note.as_bytes());
        },
        // A reindex may have made the row since the account was read.
        " ON CONFLICT (external_id) DO UPDATE SET note_id = excluded.note_id \
         WHERE account_external_ids.account = excluded.account"
    )?;
    if added == ids.len() as u64 {
        return Ok(None);
    }
    for (account, key, _) in ids {
        let owner = on_tx!(&mut *tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT account FROM account_external_ids WHERE external_id = $1").bind(key.as_str()).fetch_one(db))?;
        let owner = account_id(owner)?;
        if owner != *account {
            return Ok(Some(((*key).clone(), owner)));
        }
    }
    Err(damaged("an external ID is there twice".to_owned()))
}

/// Adds addresses, which may be on several external IDs of an account. Returns one that another account has.
async fn emails_add_in_tx(
    tx: &mut Tx,
    emails: &[(AccountId, &AccountEmail)],
) -> Result<Option<(AccountEmail, AccountId)>> {
    let mut owners: HashMap<String, AccountId> = HashMap::new();
    for (account, email) in emails {
        let owner = *owners.entry(email.key()).or_insert(*account);
        if owner != *account {
            return Ok(Some(((*email).clone(), owner)));
        }
    }
    let many = owners.len() as u64;
    let added = execute_values!(
        tx,
        "INSERT INTO account_emails (email, account) ",
        &owners,
        |values, (email, account)| {
            values.push_bind(email.as_str());
            values.push_bind(i64::from(account.get()));
        },
        " ON CONFLICT (email) DO NOTHING"
    )?;
    if added == many {
        return Ok(None);
    }
    for (account, email) in emails {
        let owner = on_tx!(&mut *tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT account FROM account_emails WHERE email = $1").bind(email.key()).fetch_one(db))?;
        let owner = account_id(owner)?;
        if owner != *account {
            return Ok(Some(((*email).clone(), owner)));
        }
    }
    // The account has the address from a chunk before this one.
    Ok(None)
}
