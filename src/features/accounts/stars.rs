//! Stars of accounts, and the numbers of the changes that they name.
//!
//! A change is a pull request or an application. The database gives it the next number of one count over all
//! repositories when its row of `pulls` is inserted (migration 0012). A star is a ref with the labels that an account
//! gave a change; `account_stars` has a row for each label, written in the transaction of the ref.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use gix_hash::ObjectId;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};
use sqlx::QueryBuilder;

use super::store::{account_id, damaged};
use super::update::{AT_ONCE, execute_values};
use crate::model::{PullRef, PullState, RepoId, Subject};
use crate::store::{Result, Snapshot, Store, Tx, on_pool, on_snapshot, on_tx};

/// Maximum number of changes that an account stars. Each is a ref, which git clients are shown.
pub(super) const MAX_STARS: i64 = 10_000;

/// Labels of stars, by account and change. Most stars have the same labels, which are in memory once.
pub type IndexedStars = BTreeMap<(AccountId, ChangeNumber), Arc<BTreeSet<String>>>;

/// Sets of labels that several stars have.
#[derive(Default)]
pub(super) struct SharedLabels(HashSet<Arc<BTreeSet<String>>>);

impl SharedLabels {
    pub(super) fn share(&mut self, labels: BTreeSet<String>) -> Arc<BTreeSet<String>> {
        if let Some(known) = self.0.get(&labels) {
            return Arc::clone(known);
        }
        let labels = Arc::new(labels);
        self.0.insert(Arc::clone(&labels));
        labels
    }
}

/// Rows of a star after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedStar {
    pub account: AccountId,
    pub change: ChangeNumber,
    /// None if the star is gone.
    pub labels: BTreeSet<String>,
    /// True if the star had no ref, or no rows when tables were compared. Then no rows are removed.
    pub is_new: bool,
}

impl IndexedStar {
    /// Returns the ref of the star.
    pub(super) fn name(&self) -> AllUsersRef {
        AllUsersRef::StarredChange(self.change, self.account)
    }
}

/// A change that an account has starred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StarredChange {
    pub number: ChangeNumber,
    pub labels: BTreeSet<String>,
    /// `None`: the change was never seen here. An import has brought its star.
    pub seen: Option<SeenChange>,
}

/// A change as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenChange {
    pub at: PullRef,
    pub state: PullState,
    /// Address on the forge; empty for an application.
    pub url: String,
    /// Title of an application.
    pub title: Option<String>,
}

#[derive(sqlx::FromRow)]
struct StarColumns {
    change_number: i64,
    label: String,
    repo: Option<RepoId>,
    pull: Option<Subject>,
    state: Option<PullState>,
    url: Option<String>,
    title: Option<String>,
}

#[derive(sqlx::FromRow)]
struct ChangeColumns {
    repo: RepoId,
    pull: Subject,
}

impl Store {
    /// Returns the change with this number.
    pub async fn change_get(&self, number: ChangeNumber) -> Result<Option<PullRef>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, ChangeColumns>(
            "SELECT repo, pull FROM changes WHERE number = $1")
            .bind(i64::from(number.get())).fetch_optional(db))?;
        Ok(row.map(|row| PullRef {
            repo: row.repo,
            subject: row.pull,
        }))
    }

    /// Returns the number of a change. `None`: it was never seen.
    pub async fn change_number(&self, at: &PullRef) -> Result<Option<ChangeNumber>> {
        let number = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT number FROM changes WHERE repo = $1 AND pull = $2 ORDER BY number LIMIT 1")
            .bind(&at.repo).bind(at.subject).fetch_optional(db))?;
        number.map(change_number).transpose()
    }

    /// Returns the numbers of all changes.
    pub(super) async fn change_numbers(&self) -> Result<HashSet<ChangeNumber>> {
        let numbers = on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT number FROM changes").fetch_all(db))?;
        numbers.into_iter().map(change_number).collect()
    }

    /// Returns the changes that an account has starred, by number (`is:starred`).
    pub async fn change_list_starred(&self, account: AccountId) -> Result<Vec<StarredChange>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, StarColumns>(
            "SELECT s.change_number, s.label, c.repo, c.pull, p.state, p.url, p.title FROM account_stars s \
             LEFT JOIN changes c ON c.number = s.change_number \
             LEFT JOIN pulls p ON p.repo = c.repo AND p.number = c.pull \
             WHERE s.account = $1 ORDER BY s.change_number, s.label")
            .bind(i64::from(account.get())).fetch_all(db))?;
        let mut changes: Vec<StarredChange> = Vec::new();
        for mut row in rows {
            let number = change_number(row.change_number)?;
            let label = std::mem::take(&mut row.label);
            match changes.last_mut().filter(|last| last.number == number) {
                Some(last) => {
                    last.labels.insert(label);
                }
                None => changes.push(StarredChange {
                    number,
                    labels: BTreeSet::from([label]),
                    seen: row.seen(),
                }),
            }
        }
        Ok(changes)
    }

    /// Returns the labels that an account gave a change.
    pub async fn account_star(
        &self,
        account: AccountId,
        change: ChangeNumber,
    ) -> Result<BTreeSet<String>> {
        let labels = on_pool!(self, db => sqlx::query_scalar::<_, String>(
            "SELECT label FROM account_stars WHERE account = $1 AND change_number = $2")
            .bind(i64::from(account.get())).bind(i64::from(change.get())).fetch_all(db))?;
        Ok(labels.into_iter().collect())
    }

    /// Returns the refs of the stars of an account by name.
    pub(super) async fn account_star_refs(
        &self,
        account: AccountId,
    ) -> Result<Vec<(String, ObjectId)>> {
        let changes = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT DISTINCT change_number FROM account_stars WHERE account = $1")
            .bind(i64::from(account.get())).fetch_all(db))?;
        let names = changes.into_iter().map(|change| {
            let change = change_number(change)?;
            Ok(AllUsersRef::StarredChange(change, account).to_string())
        });
        let names: Vec<String> = names.collect::<Result<_>>()?;
        let refs = self.account_refs_named(&names).await?;
        Ok(refs.into_iter().collect())
    }
}

/// Returns the labels of all stars of the accounts from the first to the last number.
pub(super) async fn stars_in_snapshot(
    at: &mut Snapshot,
    (first, last): (i64, i64),
) -> Result<IndexedStars> {
    let rows = on_snapshot!(at, db => sqlx::query_as::<_, (i64, i64, String)>(
        "SELECT account, change_number, label FROM account_stars WHERE account BETWEEN $1 AND $2 \
         ORDER BY account, change_number")
        .bind(first).bind(last).fetch_all(db))?;
    let (mut stars, mut shared) = (IndexedStars::new(), SharedLabels::default());
    for rows in rows.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let (account, change, _) = rows[0];
        let labels = rows.iter().map(|(_, _, label)| label.clone());
        let labels = shared.share(labels.collect());
        stars.insert((account_id(account)?, change_number(change)?), labels);
    }
    Ok(stars)
}

impl StarColumns {
    fn seen(self) -> Option<SeenChange> {
        Some(SeenChange {
            at: PullRef {
                repo: self.repo?,
                subject: self.pull?,
            },
            state: self.state?,
            url: self.url?,
            title: self.title,
        })
    }
}

/// Returns the stars whose labels differ from the present ones, as they should be.
pub(super) fn changed_stars(present: &IndexedStars, wanted: &IndexedStars) -> Vec<IndexedStar> {
    let names: BTreeSet<_> = present.keys().chain(wanted.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|star| present.get(star) != wanted.get(star));
    let changed = changed.map(|star| IndexedStar {
        account: star.0,
        change: star.1,
        labels: wanted
            .get(star)
            .map(|labels| (**labels).clone())
            .unwrap_or_default(),
        is_new: !present.contains_key(star),
    });
    changed.collect()
}

/// Replaces the rows of stars.
pub(super) async fn stars_index_in_tx(tx: &mut Tx, stars: &[IndexedStar]) -> Result<()> {
    macro_rules! clear {
        ($tx:expr, $database:ty, $stars:expr) => {{
            let mut sql = QueryBuilder::<$database>::new("DELETE FROM account_stars WHERE ");
            let mut list = sql.separated(" OR ");
            for star in $stars {
                list.push("(account = ");
                list.push_bind_unseparated(i64::from(star.account.get()));
                list.push_unseparated(" AND change_number = ");
                list.push_bind_unseparated(i64::from(star.change.get()));
                list.push_unseparated(")");
            }
            let query = sql.build().persistent($stars.len() == 1);
            query.execute(&mut **$tx).await?;
        }};
    }
    let old = stars.iter().filter(|star| !star.is_new);
    for old in old.collect::<Vec<_>>().chunks(AT_ONCE) {
        match &mut *tx {
            Tx::Sqlite(tx) => clear!(tx, sqlx_sqlite::Sqlite, old),
            Tx::Postgres(tx) => clear!(tx, sqlx_postgres::Postgres, old),
        }
    }
    let labels = stars.iter().flat_map(|star| {
        let labels = star.labels.iter();
        labels.map(|label| (star.account, star.change, label.as_str()))
    });
    for labels in labels.collect::<Vec<_>>().chunks(AT_ONCE) {
        execute_values!(
            tx,
            "INSERT INTO account_stars (account, change_number, label) ",
            labels,
            |values, (account, change, label)| {
                values.push_bind(i64::from(account.get()));
                values.push_bind(i64::from(change.get()));
                values.push_bind(*label);
            },
            // Wrong rows of a star without a ref may be there. They stay until the next reindex.
            " ON CONFLICT (account, change_number, label) DO NOTHING"
        )?;
    }
    Ok(())
}

/// Returns the number of changes that an account has starred.
pub(super) async fn stars_in_tx(tx: &mut Tx, account: AccountId) -> Result<i64> {
    on_tx!(tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT COUNT(DISTINCT change_number) FROM account_stars WHERE account = $1")
        .bind(i64::from(account.get())).fetch_one(db))
}

/// Returns the ref of a star of an account, if there is one.
pub(super) async fn star_left_in_tx(tx: &mut Tx, account: AccountId) -> Result<Option<String>> {
    let left = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(
        "SELECT change_number FROM account_stars WHERE account = $1 LIMIT 1")
        .bind(i64::from(account.get())).fetch_optional(db))?;
    let left = left.map(change_number).transpose()?;
    Ok(left.map(|change| AllUsersRef::StarredChange(change, account).to_string()))
}

pub(super) fn change_number(number: i64) -> Result<ChangeNumber> {
    let change = u32::try_from(number).ok().and_then(ChangeNumber::new);
    change.ok_or_else(|| damaged(format!("{number} is not the number of a change")))
}
