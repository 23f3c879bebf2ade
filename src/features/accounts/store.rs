//! Reads the objects and refs of `All-Users`, and the rows that are derived from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;

use chrono::{DateTime, SubsecRound as _, Utc};
use flate2::bufread::ZlibDecoder;
use futures::TryStreamExt as _;
use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey};
use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use lockkeeper_accounts::watches::Watches;

use super::search::AccountWords;
use super::stars::{IndexedStars, stars_in_snapshot};
use crate::store::{Result, Store, on_pool, on_snapshot};

/// Maximum number of accounts that are listed at once.
pub(crate) const MOST_ACCOUNTS: i64 = 10_000;

/// Maximum length of the name of a watched project in bytes. A repository has at most 255 for its host and 512 for its
/// path.
const MAX_PROJECT: usize = 768;

macro_rules! account_sql {
    ($rest:literal) => {
        concat!(
            "SELECT number, full_name, preferred_email, status, active, username, registered_at, commit_id FROM accounts ",
            $rest
        )
    };
}

/// Statements for the refs with names in a JSON list.
pub(super) const REFS_NAMED_SQLITE: &str = "SELECT name, object_id FROM account_refs \
    WHERE name IN (SELECT value FROM json_each($1))";
pub(super) const REFS_NAMED_POSTGRES: &str = "SELECT name, object_id FROM account_refs \
    WHERE name = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))";

/// Row of an account, derived from its branch and its external IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    pub number: AccountId,
    pub full_name: Option<String>,
    pub preferred_email: Option<String>,
    /// Text of the person about their state, such as `OOO`.
    pub status: Option<String>,
    pub active: bool,
    pub username: Option<String>,
    /// Committer time of the first commit.
    pub registered_at: DateTime<Utc>,
    /// Newest commit of the branch.
    pub commit: ObjectId,
}

impl AccountRow {
    /// Makes the row of an account from its `account.config` and its external IDs.
    pub(super) fn new<'a>(
        number: AccountId,
        commit: ObjectId,
        registered_at: DateTime<Utc>,
        config: Option<&Vec<u8>>,
        mut external_ids: impl Iterator<Item = &'a ExternalId> + Clone,
    ) -> Result<Self, Problem> {
        let config = match config {
            None => AccountConfig::default(),
            Some(content) => AccountConfig::read(&ConfigText::parse(content)?).0,
        };
        let preferred_email = config.own_email(external_ids.clone()).cloned();
        let username = external_ids.find_map(|id| id.key.as_username());
        Ok(Self {
            number,
            full_name: config.full_name,
            preferred_email: preferred_email.map(|email| email.as_str().to_owned()),
            status: config.status,
            active: config.active,
            username: username.map(str::to_owned),
            registered_at,
            commit,
        })
    }
}

/// External ID in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIdRow {
    pub key: String,
    pub account: AccountId,
    /// Blob with the content of the note.
    pub note: ObjectId,
}

/// Account as it is before an update, with the refs that it comes from. All of it is of one moment.
pub(super) struct AccountState {
    /// Committer time of the first commit.
    pub registered_at: DateTime<Utc>,
    pub external_ids: Vec<ExternalIdRow>,
    /// Newest commit of its branch.
    pub branch: Option<ObjectId>,
    /// Newest commit of all external IDs.
    pub notes: Option<ObjectId>,
}

/// Rows of an account after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedAccount {
    pub row: AccountRow,
    pub external_ids: Vec<(ExternalIdKey, ObjectId)>,
    /// Addresses of the external IDs.
    pub emails: Vec<AccountEmail>,
    /// Watched projects, as [`watched_projects`] returns them.
    pub watches: BTreeSet<String>,
    pub written: WrittenTables,
}

/// Rows of an account that an update writes again, besides that in `accounts`. The others are as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenTables {
    /// External IDs and addresses before the update. Only what differs from them is written. `None`: nothing is known about the
    /// rows, so all of them are. The addresses come from the notes. If their rows differ, the reconciler makes them again.
    pub names_before: Option<AccountNames>,
    pub watches: bool,
    pub words: bool,
}

impl WrittenTables {
    /// All tables, because nothing is known about their rows.
    pub(super) const ALL: Self = Self {
        names_before: None,
        watches: true,
        words: true,
    };
}

/// External IDs and addresses of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountNames {
    /// Blobs of the notes by key.
    pub external_ids: BTreeMap<String, ObjectId>,
    /// Addresses in lower case.
    pub emails: BTreeSet<String>,
}

impl IndexedAccount {
    /// Returns the external IDs that had no row with this note.
    pub(super) fn new_external_ids(&self) -> impl Iterator<Item = (&ExternalIdKey, ObjectId)> {
        let before = self.written.names_before.as_ref();
        let ids = self.external_ids.iter().map(|(key, note)| (key, *note));
        ids.filter(move |(key, note)| {
            before.is_none_or(|before| before.external_ids.get(key.as_str()) != Some(note))
        })
    }

    /// Returns the addresses that the account did not have.
    pub(super) fn new_emails(&self) -> impl Iterator<Item = &AccountEmail> {
        let before = self.written.names_before.as_ref();
        let emails = self.emails.iter();
        emails
            .filter(move |email| before.is_none_or(|before| !before.emails.contains(&email.key())))
    }

    /// Returns the keys of external IDs that the account has no more.
    pub(super) fn old_external_ids(&self) -> impl Iterator<Item = &str> {
        let before = self.written.names_before.iter();
        let before = before.flat_map(|before| before.external_ids.keys());
        let stays = |key: &str| self.external_ids.iter().any(|(own, _)| own.as_str() == key);
        before.map(String::as_str).filter(move |key| !stays(key))
    }

    /// Returns the addresses that the account has no more.
    pub(super) fn old_emails(&self) -> impl Iterator<Item = &str> {
        let before = self.written.names_before.iter();
        let before = before.flat_map(|before| &before.emails);
        let stays = |email: &str| self.emails.iter().any(|own| own.key() == email);
        let old = before.filter(move |email| !stays(email));
        old.map(String::as_str)
    }
}

/// All refs, and all rows that are derived from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountIndex {
    /// Objects that the refs point to, by name.
    pub refs: BTreeMap<String, ObjectId>,
    pub accounts: Vec<AccountRow>,
    /// Accounts by the key of an external ID, with the blob of the note.
    pub external_ids: BTreeMap<String, (AccountId, ObjectId)>,
    /// Accounts by address, in lower case.
    pub emails: BTreeMap<String, AccountId>,
    /// Watched projects of each account that has some.
    pub watches: BTreeMap<AccountId, BTreeSet<String>>,
    /// Words by which searches find each account.
    pub words: BTreeMap<AccountId, AccountWords>,
    pub stars: IndexedStars,
}

/// All rows of an account, without those of its stars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccountRows {
    row: Option<AccountRow>,
    /// Blobs of the notes by key.
    external_ids: BTreeMap<String, ObjectId>,
    /// Addresses in lower case.
    emails: BTreeSet<String>,
    watches: BTreeSet<String>,
    words: AccountWords,
}

impl AccountRows {
    /// Returns the rows that an account should have.
    pub fn of(account: &IndexedAccount) -> Self {
        let ids = account.external_ids.iter();
        Self {
            row: Some(in_seconds(&account.row)),
            external_ids: ids
                .map(|(key, note)| (key.as_str().to_owned(), *note))
                .collect(),
            emails: account.emails.iter().map(AccountEmail::key).collect(),
            watches: account.watches.clone(),
            words: AccountWords::of(&account.row),
        }
    }
}

/// Returns the names by which the projects in a `watch.config` are found: in lower case, because names of repositories are
/// compared without case. Left out is what cannot be read, and a name that no repository can have, which may be too long
/// for an index of PostgreSQL.
pub(super) fn watched_projects(file: Option<&Vec<u8>>) -> BTreeSet<String> {
    let text = file.and_then(|content| ConfigText::parse(content).ok());
    let watches = text.map_or_else(Watches::default, |text| Watches::read(&text).0);
    let names = watches.iter().map(|(project, _)| project.to_lowercase());
    names.filter(|name| name.len() <= MAX_PROJECT).collect()
}

/// Returns a row with the time as a commit has it.
fn in_seconds(row: &AccountRow) -> AccountRow {
    AccountRow {
        registered_at: row.registered_at.trunc_subsecs(0),
        ..row.clone()
    }
}

impl AccountIndex {
    /// Returns everything that the rows say about each account.
    pub(super) fn by_account(&self) -> BTreeMap<AccountId, AccountRows> {
        let mut all: BTreeMap<AccountId, AccountRows> = BTreeMap::new();
        for row in &self.accounts {
            all.entry(row.number).or_default().row = Some(in_seconds(row));
        }
        for (key, (account, note)) in &self.external_ids {
            let rows = all.entry(*account).or_default();
            rows.external_ids.insert(key.clone(), *note);
        }
        for (email, account) in &self.emails {
            all.entry(*account)
                .or_default()
                .emails
                .insert(email.clone());
        }
        for (account, projects) in &self.watches {
            let rows = all.entry(*account).or_default();
            rows.watches.clone_from(projects);
        }
        for (account, words) in &self.words {
            all.entry(*account).or_default().words = words.clone();
        }
        all
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct AccountColumns {
    number: i64,
    full_name: Option<String>,
    preferred_email: Option<String>,
    status: Option<String>,
    active: bool,
    username: Option<String>,
    registered_at: DateTime<Utc>,
    commit_id: Vec<u8>,
}

#[derive(sqlx::FromRow)]
struct StateColumns {
    registered_at: DateTime<Utc>,
    branch: Option<Vec<u8>>,
    notes: Option<Vec<u8>>,
    external_id: Option<String>,
    note_id: Option<Vec<u8>>,
}

#[derive(sqlx::FromRow)]
struct ObjectColumns {
    id: Vec<u8>,
    kind: String,
    size: i64,
    packed: Vec<u8>,
}

impl Store {
    /// Returns the object that a ref points to.
    pub async fn account_ref(&self, name: &str) -> Result<Option<ObjectId>> {
        let id = on_pool!(self, db => sqlx::query_scalar::<_, Vec<u8>>("SELECT object_id FROM account_refs WHERE name = $1")
            .bind(name).fetch_optional(db))?;
        id.map(|id| object_id(&id)).transpose()
    }

    /// Returns the objects that refs with these names point to. A ref that does not exist is left out.
    pub(super) async fn account_refs_named(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<String, ObjectId>> {
        let names = json_list(names);
        let sql = self.either(REFS_NAMED_SQLITE, REFS_NAMED_POSTGRES);
        let rows = on_pool!(self, db => sqlx::query_as::<_, (String, Vec<u8>)>(sql).bind(&names).fetch_all(db))?;
        let refs = rows
            .into_iter()
            .map(|(name, id)| Ok((name, object_id(&id)?)));
        refs.collect()
    }

    /// Returns the number of the newest update.
    pub async fn account_update_number(&self) -> Result<i64> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT number FROM account_updates WHERE id = 1").fetch_one(db))
    }

    /// Returns all refs by name, and the number of the newest update that they come from.
    pub async fn account_refs(&self) -> Result<(Vec<(String, ObjectId)>, i64)> {
        // One statement sees one state.
        let rows = on_pool!(self, db => sqlx::query_as::<_, (String, Vec<u8>, i64)>(
            "SELECT r.name, r.object_id, u.number FROM account_refs r CROSS JOIN account_updates u ORDER BY r.name")
            .fetch_all(db))?;
        let number = rows.first().map_or(0, |(_, _, number)| *number);
        let refs = rows
            .into_iter()
            .map(|(name, id, _)| Ok((name, object_id(&id)?)));
        Ok((refs.collect::<Result<_>>()?, number))
    }

    /// Returns an object. The error says if it does not exist, because everything that a ref leads to is stored.
    pub async fn account_object(&self, id: ObjectId) -> Result<GitObject> {
        let row = on_pool!(self, db => sqlx::query_as::<_, ObjectColumns>(
            "SELECT id, kind, size, packed FROM account_objects WHERE id = $1")
            .bind(id.as_bytes()).fetch_optional(db))?;
        match row {
            Some(row) => row.read(),
            None => Err(missing(id)),
        }
    }

    /// Returns several objects, each once. The error names one that does not exist, as [`Self::account_object`] does.
    pub(super) async fn account_objects_of(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<HashMap<ObjectId, GitObject>> {
        let ids: BTreeSet<ObjectId> = ids.into_iter().collect();
        let mut objects = HashMap::new();
        for row in self.account_object_rows(&ids).await? {
            let object = row.read()?;
            objects.insert(object.id, object);
        }
        match ids.iter().find(|id| !objects.contains_key(*id)) {
            None => Ok(objects),
            Some(id) => Err(missing(*id)),
        }
    }

    /// Returns those of several objects that can be read. The others are missing or damaged.
    pub(super) async fn account_readable_objects(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<Vec<GitObject>> {
        let rows = self.account_object_rows(&ids.into_iter().collect()).await?;
        Ok(rows.into_iter().filter_map(|row| row.read().ok()).collect())
    }

    async fn account_object_rows(&self, ids: &BTreeSet<ObjectId>) -> Result<Vec<ObjectColumns>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let list = json_list(&ids.iter().map(ObjectId::to_string).collect::<Vec<_>>());
        let sql = self.either(
            "SELECT id, kind, size, packed FROM account_objects WHERE id IN (SELECT unhex(value) FROM json_each($1))",
            "SELECT id, kind, size, packed FROM account_objects \
             WHERE id = ANY(ARRAY(SELECT decode(jsonb_array_elements_text($1::jsonb), 'hex')))",
        );
        on_pool!(self, db => sqlx::query_as::<_, ObjectColumns>(sql).bind(&list).fetch_all(db))
    }

    /// Returns the number of the update that added an object. `None`: it does not exist.
    pub async fn account_object_update(&self, id: ObjectId) -> Result<Option<i64>> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT update_number FROM account_objects WHERE id = $1")
            .bind(id.as_bytes()).fetch_optional(db))
    }

    /// Returns up to `limit` objects that were added after an update, in a fixed order, with the number of their update.
    pub async fn account_objects_after(
        &self,
        (number, id): (i64, ObjectId),
        limit: i64,
    ) -> Result<Vec<(i64, GitObject)>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, (i64, Vec<u8>, String, i64, Vec<u8>)>(
            "SELECT update_number, id, kind, size, packed FROM account_objects \
             WHERE (update_number, id) > ($1, $2) ORDER BY update_number, id LIMIT $3")
            .bind(number).bind(id.as_bytes()).bind(limit).fetch_all(db))?;
        let objects = rows.into_iter().map(|(number, id, kind, size, packed)| {
            let row = ObjectColumns {
                id,
                kind,
                size,
                packed,
            };
            Ok((number, row.read()?))
        });
        objects.collect()
    }

    /// Returns all commits that can be read, with what `kept` keeps of their content.
    pub(super) async fn account_commits(
        &self,
        kept: fn(Vec<u8>) -> Vec<u8>,
    ) -> Result<HashMap<ObjectId, (Kind, Vec<u8>)>> {
        let add = |mut all: HashMap<ObjectId, (Kind, Vec<u8>)>, row: ObjectColumns| {
            if let Ok(object) = row.read() {
                all.insert(object.id, (object.kind, kept(object.content)));
            }
            std::future::ready(Ok(all))
        };
        // Without an order, both databases read the table from its beginning to its end.
        on_pool!(self, db => sqlx::query_as::<_, ObjectColumns>(
            "SELECT id, kind, size, packed FROM account_objects WHERE kind = 'commit'")
            .fetch(db).try_fold(HashMap::new(), add))
    }

    /// Returns the account with this number.
    pub async fn account_get(&self, number: AccountId) -> Result<Option<AccountRow>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, AccountColumns>(account_sql!("WHERE number = $1"))
            .bind(i64::from(number.get())).fetch_optional(db))?;
        row.map(AccountColumns::read).transpose()
    }

    /// Returns everything about an account that an update of it needs.
    pub(super) async fn account_state(&self, number: AccountId) -> Result<Option<AccountState>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, StateColumns>(
            "SELECT a.registered_at, e.external_id, e.note_id, \
             (SELECT object_id FROM account_refs WHERE name = $2) AS branch, \
             (SELECT object_id FROM account_refs WHERE name = 'refs/meta/external-ids') AS notes \
             FROM accounts a LEFT JOIN account_external_ids e ON e.account = a.number WHERE a.number = $1")
            .bind(i64::from(number.get())).bind(AllUsersRef::User(number).to_string()).fetch_all(db))?;
        let mut state: Option<AccountState> = None;
        for row in rows {
            let state = match &mut state {
                Some(state) => state,
                None => state.insert(AccountState {
                    registered_at: row.registered_at,
                    external_ids: Vec::new(),
                    branch: row.branch.map(|id| object_id(&id)).transpose()?,
                    notes: row.notes.map(|id| object_id(&id)).transpose()?,
                }),
            };
            if let (Some(key), Some(note)) = (row.external_id, row.note_id) {
                state.external_ids.push(ExternalIdRow {
                    key,
                    account: number,
                    note: object_id(&note)?,
                });
            }
        }
        Ok(state)
    }

    /// Returns the account that has this external ID.
    pub async fn account_of_external_id(&self, key: &str) -> Result<Option<AccountRow>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, AccountColumns>(account_sql!(
            "WHERE number = (SELECT account FROM account_external_ids WHERE external_id = $1)"))
            .bind(key).fetch_optional(db))?;
        row.map(AccountColumns::read).transpose()
    }

    /// Returns the accounts after this number, up to [`MOST_ACCOUNTS`].
    pub async fn account_list(&self, after: u32) -> Result<Vec<AccountRow>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, AccountColumns>(
            account_sql!("WHERE number > $1 ORDER BY number LIMIT $2"))
            .bind(i64::from(after)).bind(MOST_ACCOUNTS).fetch_all(db))?;
        rows.into_iter().map(AccountColumns::read).collect()
    }

    /// Returns all refs and all rows of accounts, as they were at one moment.
    pub async fn account_index(&self) -> Result<AccountIndex> {
        self.account_index_of(None).await
    }

    /// Returns the refs and rows of one account or of all, as they were at one moment. The ref of external IDs belongs to
    /// each account.
    pub(super) async fn account_index_of(&self, only: Option<AccountId>) -> Result<AccountIndex> {
        let number = only.map(|only| i64::from(only.get()));
        let (first, last) = (number.unwrap_or(i64::MIN), number.unwrap_or(i64::MAX));
        // Names of branches and stars end with the account.
        let names = only.map_or("refs/%".to_owned(), |only| format!("refs/%/{only}"));
        let mut at = self.begin_snapshot().await?;
        let refs = on_snapshot!(&mut at, db => sqlx::query_as::<_, (String, Vec<u8>)>(
            "SELECT name, object_id FROM account_refs WHERE name LIKE $1 OR name = 'refs/meta/external-ids'")
            .bind(names).fetch_all(db))?;
        let accounts = on_snapshot!(&mut at, db => sqlx::query_as::<_, AccountColumns>(
            account_sql!("WHERE number BETWEEN $1 AND $2 ORDER BY number"))
            .bind(first).bind(last).fetch_all(db))?;
        let external_ids = on_snapshot!(&mut at, db => sqlx::query_as::<_, (String, i64, Vec<u8>)>(
            "SELECT external_id, account, note_id FROM account_external_ids WHERE account BETWEEN $1 AND $2")
            .bind(first).bind(last).fetch_all(db))?;
        let emails = on_snapshot!(&mut at, db => sqlx::query_as::<_, (String, i64)>(
            "SELECT email, account FROM account_emails WHERE account BETWEEN $1 AND $2")
            .bind(first).bind(last).fetch_all(db))?;
        let pairs = on_snapshot!(&mut at, db => sqlx::query_as::<_, (i64, String)>(
            "SELECT account, project FROM account_watches WHERE account BETWEEN $1 AND $2")
            .bind(first).bind(last).fetch_all(db))?;
        let rows = on_snapshot!(&mut at, db => sqlx::query_as::<_, (i64, String, String)>(
            "SELECT account, field, word FROM account_words WHERE account BETWEEN $1 AND $2")
            .bind(first).bind(last).fetch_all(db))?;
        let stars = stars_in_snapshot(&mut at, (first, last)).await?;
        at.end().await?;
        let mut watches: BTreeMap<AccountId, BTreeSet<String>> = BTreeMap::new();
        for (account, project) in pairs {
            let projects = watches.entry(account_id(account)?).or_default();
            projects.insert(project);
        }
        let mut words: BTreeMap<AccountId, AccountWords> = BTreeMap::new();
        for (account, field, word) in rows {
            let of = words.entry(account_id(account)?).or_default();
            of.add(field, word);
        }
        let refs = refs.into_iter();
        let refs = refs.map(|(name, id)| Ok((name, object_id(&id)?)));
        let accounts = accounts.into_iter().map(AccountColumns::read);
        let external_ids = external_ids.into_iter().map(|row| {
            let row = external_id(row)?;
            Ok((row.key, (row.account, row.note)))
        });
        let emails = emails
            .into_iter()
            .map(|(email, account)| Ok((email, account_id(account)?)));
        Ok(AccountIndex {
            refs: refs.collect::<Result<_>>()?,
            accounts: accounts.collect::<Result<_>>()?,
            external_ids: external_ids.collect::<Result<_>>()?,
            emails: emails.collect::<Result<_>>()?,
            watches,
            words,
            stars,
        })
    }

    /// Returns the highest account number.
    pub async fn account_highest(&self) -> Result<Option<AccountId>> {
        let highest = on_pool!(self, db => sqlx::query_scalar::<_, Option<i64>>("SELECT MAX(number) FROM accounts").fetch_one(db))?;
        highest.map(account_id).transpose()
    }

    /// Returns the highest account that has a branch, with or without a row.
    pub(super) async fn account_highest_branch(&self) -> Result<Option<AccountId>> {
        // `0` is the character after `/`. SQLite reads a range from the index, and for `LIKE` all refs.
        let sql = self.either(
            "SELECT name FROM account_refs WHERE name >= 'refs/users/' AND name < 'refs/users0'",
            "SELECT name FROM account_refs \
             WHERE name COLLATE \"C\" >= 'refs/users/' AND name COLLATE \"C\" < 'refs/users0'",
        );
        let names = on_pool!(self, db => sqlx::query_scalar::<_, String>(sql).fetch_all(db))?;
        let accounts = names.iter().filter_map(|name| match name.parse() {
            Ok(AllUsersRef::User(account)) => Some(account),
            _ => None,
        });
        Ok(accounts.max())
    }

    /// Returns the external ID with this key.
    pub async fn account_external_id(&self, key: &str) -> Result<Option<ExternalIdRow>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, (String, i64, Vec<u8>)>(
            "SELECT external_id, account, note_id FROM account_external_ids WHERE external_id = $1")
            .bind(key).fetch_optional(db))?;
        row.map(external_id).transpose()
    }

    /// Returns the external IDs of an account by key.
    pub async fn account_external_ids(&self, account: AccountId) -> Result<Vec<ExternalIdRow>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, (String, i64, Vec<u8>)>(
            "SELECT external_id, account, note_id FROM account_external_ids WHERE account = $1 ORDER BY external_id")
            .bind(i64::from(account.get())).fetch_all(db))?;
        rows.into_iter().map(external_id).collect()
    }

    /// Returns the external IDs of several accounts by key.
    pub(super) async fn account_external_ids_of(
        &self,
        accounts: &[AccountId],
    ) -> Result<Vec<ExternalIdRow>> {
        let numbers: Vec<u32> = accounts.iter().map(|account| account.get()).collect();
        let list = serde_json::to_string(&numbers).expect("numbers are JSON");
        let sql = self.either(
            "SELECT external_id, account, note_id FROM account_external_ids \
             WHERE account IN (SELECT value FROM json_each($1)) ORDER BY external_id",
            "SELECT external_id, account, note_id FROM account_external_ids \
             WHERE account = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)::bigint)) ORDER BY external_id",
        );
        let rows = on_pool!(self, db => sqlx::query_as::<_, (String, i64, Vec<u8>)>(sql)
            .bind(&list).fetch_all(db))?;
        rows.into_iter().map(external_id).collect()
    }

    /// Returns the account with this address, compared without case.
    pub async fn account_of_email(&self, email: &AccountEmail) -> Result<Option<AccountId>> {
        let account = on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT account FROM account_emails WHERE email = $1")
            .bind(email.key()).fetch_optional(db))?;
        account.map(account_id).transpose()
    }
}

impl AccountColumns {
    pub(super) fn read(self) -> Result<AccountRow> {
        Ok(AccountRow {
            number: account_id(self.number)?,
            full_name: self.full_name,
            preferred_email: self.preferred_email,
            status: self.status,
            active: self.active,
            username: self.username,
            registered_at: self.registered_at,
            commit: object_id(&self.commit_id)?,
        })
    }
}

impl ObjectColumns {
    fn read(self) -> Result<GitObject> {
        let id = object_id(&self.id)?;
        let kind = Kind::from_bytes(self.kind.as_bytes())
            .map_err(|error| damaged(format!("the object {id} of All-Users: {error}")))?;
        let size = usize::try_from(self.size).unwrap_or_default();
        let mut content = Vec::with_capacity(size);
        // One byte more shows a wrong size.
        ZlibDecoder::new(self.packed.as_slice())
            .take(size as u64 + 1)
            .read_to_end(&mut content)?;
        let object = GitObject::new(kind, content);
        if object.id == id {
            Ok(object)
        } else {
            Err(damaged(format!(
                "the object {id} of All-Users has another content"
            )))
        }
    }
}

fn external_id((key, account, note): (String, i64, Vec<u8>)) -> Result<ExternalIdRow> {
    Ok(ExternalIdRow {
        key,
        account: account_id(account)?,
        note: object_id(&note)?,
    })
}

pub(super) fn account_id(number: i64) -> Result<AccountId> {
    let account = u32::try_from(number).ok().and_then(AccountId::new);
    account.ok_or_else(|| damaged(format!("{number} is not an account number")))
}

pub(super) fn object_id(bytes: &[u8]) -> Result<ObjectId> {
    ObjectId::try_from(bytes).map_err(|error| damaged(error.to_string()))
}

fn missing(id: ObjectId) -> sqlx::Error {
    damaged(format!("the object {id} of All-Users is missing"))
}

/// Returns a list as JSON, for a parameter of a statement.
pub(super) fn json_list(texts: &[String]) -> String {
    serde_json::to_string(texts).expect("texts are always JSON")
}

pub(super) fn damaged(what: String) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}
