//! Searches accounts by words.
//!
//! Words are rows, so that a search is a look into an index for each word. A word is found by its beginning, and compared
//! in lower case.

use std::collections::BTreeSet;

use lockkeeper_accounts::refs::AccountId;

use super::all_users::{AccountsError, AllUsers};
use super::query::{AccountMatch, AccountQuery, QueryCondition};
use super::store::{AccountColumns, AccountRow, MOST_ACCOUNTS};
use crate::store::{Result, Store, on_pool};

/// Maximum length of a word in bytes. Of a longer one, the beginning is kept.
const MAX_WORD: usize = 200;
/// Fields of `account_words`: where a word comes from.
const NAME: &str = "name";
const USERNAME: &str = "username";
const EMAIL: &str = "email";

/// Words by which an account is found: those of the name of the person, the user name, and the preferred address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountWords(BTreeSet<(String, String)>);

impl AccountWords {
    /// Returns the words of an account.
    pub(super) fn of(row: &AccountRow) -> Self {
        let mut words = Self::default();
        for word in words_of(row.full_name.as_deref().unwrap_or_default()) {
            words.add(NAME.to_owned(), word);
        }
        for (field, text) in [(USERNAME, &row.username), (EMAIL, &row.preferred_email)] {
            if let Some(text) = text {
                words.add(field.to_owned(), lower(text));
            }
        }
        words
    }

    pub(super) fn add(&mut self, field: String, word: String) {
        self.0.insert((field, word));
    }
}

impl IntoIterator for AccountWords {
    type Item = (String, String);
    type IntoIter = std::collections::btree_set::IntoIter<(String, String)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Splits a text where it has neither letters nor digits.
pub(super) fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(lower)
}

/// Returns a word in lower case, as it is compared.
fn lower(text: &str) -> String {
    // At the end of a word, a capital sigma becomes another letter than within.
    let mut lower = without_nul(text).to_lowercase().replace('ς', "σ");
    lower.truncate(lower.floor_char_boundary(MAX_WORD));
    lower
}

/// Replaces NUL characters, which PostgreSQL cannot store.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A search, by the conditions of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccountSearch<'a> {
    pub conditions: &'a [QueryCondition],
    /// False: of the addresses of an account, only the preferred one is known.
    pub sees_addresses: bool,
    /// Account whose watches alone are known. `None`: those of all accounts.
    pub watches_of: Option<AccountId>,
    /// Number of accounts to skip.
    pub skip: i64,
    /// Maximum number of accounts to return.
    pub limit: i64,
}

/// A statement that is being written: fixed texts, and the values in it.
struct SearchSql {
    text: String,
    values: Vec<String>,
    /// Column of the addresses, compared by bytes.
    email: &'static str,
    is_shared: bool,
}

impl AllUsers {
    /// Finds accounts by a query of an administrator, in the order of their numbers. Skips some, and returns up to
    /// [`MOST_ACCOUNTS`] of the others.
    pub async fn search(&self, query: &str, skip: i64) -> Result<Vec<AccountRow>, AccountsError> {
        let query = AccountQuery::parse(query)?;
        let left = query.limit.map_or(i64::MAX, i64::from) - skip;
        let search = AccountSearch {
            conditions: &query.conditions,
            sees_addresses: true,
            watches_of: None,
            skip,
            limit: left.clamp(0, MOST_ACCOUNTS),
        };
        Ok(self.store().account_search(search).await?)
    }
}

impl Store {
    /// Finds accounts, in the order of their numbers.
    pub(super) async fn account_search(
        &self,
        search: AccountSearch<'_>,
    ) -> Result<Vec<AccountRow>> {
        let mut sql = SearchSql {
            text: "SELECT number, full_name, preferred_email, status, active, username, registered_at, commit_id FROM "
                .to_owned(),
            values: Vec::new(),
            email: self.either("email", "email COLLATE \"C\""),
            is_shared: self.is_shared(),
        };
        let number = sql.conditions(&search);
        // Both are numbers of ours.
        let (limit, skip) = (search.limit, search.skip);
        sql.add(&format!(
            "1 = 1 ORDER BY {number} LIMIT {limit} OFFSET {skip}"
        ));
        let SearchSql {
            text,
            values,
            email: _,
            is_shared: _,
        } = sql;
        let rows = on_pool!(self, db => {
            // All of the text is written here; what somebody has typed is in the values.
            let query = sqlx::query_as::<_, AccountColumns>(sqlx::AssertSqlSafe(text));
            values.iter().fold(query, sqlx::query::QueryAs::bind).fetch_all(db)
        })?;
        rows.into_iter().map(AccountColumns::read).collect()
    }
}

impl SearchSql {
    fn add(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds the rows of accounts and all conditions. Returns the column with the numbers of the accounts in order.
    fn conditions(&mut self, search: &AccountSearch<'_>) -> &'static str {
        let (mut named, mut excluded, mut states) = (Vec::new(), Vec::new(), String::new());
        for condition in search.conditions {
            match self.accounts(&condition.matches, search) {
                Some(set) if condition.is_negated => excluded.push(set),
                Some(set) => named.push(set),
                None if condition.is_negated => states.push_str("NOT active AND "),
                None => states.push_str("active AND "),
            }
        }
        let number = if self.is_shared && !named.is_empty() {
            // PostgreSQL would read the rows of all accounts that are named, or of all there are, and sort them. `OFFSET` keeps
            // it from that: it looks the accounts up one by one, in the order of their numbers, and ends at the limit.
            let named = named.join(") INTERSECT (");
            let excluded = excluded.iter().map(|set| format!(" EXCEPT ({set})"));
            let excluded: String = excluded.collect();
            self.add(&format!(
                "(SELECT DISTINCT account FROM (({named}){excluded}) AS sets (account) ORDER BY account) AS named \
                 CROSS JOIN LATERAL (SELECT * FROM accounts WHERE number = named.account OFFSET 0) AS found WHERE "
            ));
            "account"
        } else {
            self.add("accounts WHERE ");
            for set in named {
                self.add(&format!("number IN ({set}) AND "));
            }
            for set in excluded {
                self.add(&format!("NOT number IN ({set}) AND "));
            }
            "number"
        };
        self.add(&states);
        number
    }

    /// Returns a query for the accounts that a condition names. `None`: it looks at the row of the account.
    fn accounts(&mut self, matches: &AccountMatch, search: &AccountSearch<'_>) -> Option<String> {
        Some(match matches {
            AccountMatch::Active => return None,
            AccountMatch::Name(text) => self.name(text),
            AccountMatch::Username(text) => self.words(USERNAME, &lower(text)),
            AccountMatch::Email(text) => self.emails(text, search.sees_addresses),
            AccountMatch::Watches(project) => {
                let value = self.value(without_nul(project).to_lowercase());
                let own = search.watches_of;
                let own = own.map_or_else(String::new, |own| format!(" AND account = {own}"));
                format!("SELECT account FROM account_watches WHERE project = {value}{own}")
            }
            AccountMatch::Anything(text) => {
                let mut sets = vec![
                    self.name(text),
                    self.words(USERNAME, &lower(text)),
                    self.emails(text, search.sees_addresses),
                ];
                if let Some(number) = AccountMatch::number(text) {
                    sets.push(format!(
                        "SELECT number FROM accounts WHERE number = {number}"
                    ));
                }
                // One set, so that the search begins with it. An account that is there twice costs less than looking for it.
                sets.join(" UNION ALL ")
            }
        })
    }

    /// Returns a query for the accounts whose names have all words of a text, each at least in its beginning.
    fn name(&mut self, text: &str) -> String {
        let words: BTreeSet<String> = words_of(text).collect();
        let sets: Vec<String> = words.iter().map(|word| self.words(NAME, word)).collect();
        match sets.split_first() {
            None => "SELECT number FROM accounts WHERE FALSE".to_owned(),
            Some((first, more)) => {
                let more = more.iter().map(|set| format!(" AND account IN ({set})"));
                first.clone() + &more.collect::<String>()
            }
        }
    }

    fn emails(&mut self, text: &str, sees_addresses: bool) -> String {
        if sees_addresses {
            // As the key of an address is written.
            let beginning = without_nul(text).to_lowercase();
            let range = self.range(self.email, &beginning);
            format!("SELECT account FROM account_emails WHERE {range}")
        } else {
            self.words(EMAIL, &lower(text))
        }
    }

    fn words(&mut self, field: &str, beginning: &str) -> String {
        let range = self.range("word", beginning);
        format!("SELECT account FROM account_words WHERE field = '{field}' AND {range}")
    }

    /// Returns a condition for the texts with this beginning, which an index answers.
    fn range(&mut self, column: &str, beginning: &str) -> String {
        let from = self.value(beginning.to_owned());
        let to = self.value(format!("{beginning}{}", char::MAX));
        format!("{column} >= {from} AND {column} < {to}")
    }

    /// Adds a value. Returns the text that stands for it.
    fn value(&mut self, value: String) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use gix_hash::ObjectId;

    use super::*;

    fn words(row: &AccountRow) -> Vec<String> {
        let words = AccountWords::of(row).into_iter();
        words
            .map(|(field, word)| format!("{field} {word}"))
            .collect()
    }

    #[test]
    fn an_account_is_found_by_the_words_of_its_name_its_user_name_and_its_address() {
        let row = AccountRow {
            number: AccountId::FIRST,
            full_name: Some("Dr. Ünal O'Neil-Straße  3rd".to_owned()),
            preferred_email: Some("Ünal@Example.com".to_owned()),
            status: Some("OOO".to_owned()),
            active: true,
            username: Some("unal-o".to_owned()),
            registered_at: DateTime::UNIX_EPOCH,
            commit: ObjectId::null(gix_hash::Kind::Sha1),
        };
        let expected = [
            "email ünal@example.com",
            "name 3rd",
            "name dr",
            "name neil",
            "name o",
            "name straße",
            "name ünal",
            "username unal-o",
        ];
        assert_eq!(words(&row), expected);
        let nobody = AccountRow {
            full_name: Some("--- \u{1f600}".to_owned()),
            preferred_email: None,
            username: None,
            ..row.clone()
        };
        assert_eq!(words(&nobody), [""; 0]);
        let long = AccountRow {
            full_name: Some("ü".repeat(500)),
            preferred_email: None,
            username: None,
            ..row
        };
        assert_eq!(words(&long), [format!("name {}", "ü".repeat(100))]);
    }
}
