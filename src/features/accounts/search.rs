//! Searches the rows of accounts.

use lockkeeper_accounts::refs::AccountId;

use super::query::{AccountMatch, QueryCondition};
use super::store::{AccountColumns, AccountRow};
use crate::store::{Result, Store, on_pool};

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
    /// Operator that compares without case. That of SQLite knows the case of ASCII letters only.
    like: &'static str,
}

impl Store {
    /// Finds accounts, in the order of their numbers.
    pub(super) async fn account_search(
        &self,
        search: AccountSearch<'_>,
    ) -> Result<Vec<AccountRow>> {
        let mut sql = SearchSql {
            text: "SELECT number, full_name, preferred_email, status, active, username, registered_at, commit_id \
                   FROM accounts WHERE "
                .to_owned(),
            values: Vec::new(),
            like: self.either("LIKE", "ILIKE"),
        };
        for condition in search.conditions {
            let not = if condition.is_negated { "NOT (" } else { "(" };
            sql.add(not);
            sql.condition(&condition.matches, &search);
            sql.add(") AND ");
        }
        // Both are numbers of ours.
        let (limit, skip) = (search.limit, search.skip);
        sql.add(&format!(
            "1 = 1 ORDER BY number LIMIT {limit} OFFSET {skip}"
        ));
        let SearchSql { text, values, .. } = sql;
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

    fn condition(&mut self, matches: &AccountMatch, search: &AccountSearch<'_>) {
        let sees_addresses = search.sees_addresses;
        match matches {
            AccountMatch::Active => self.add("active"),
            AccountMatch::Name(text) => self.like("full_name", &format!("%{}%", quoted(text))),
            AccountMatch::Username(text) => self.like("username", &format!("{}%", quoted(text))),
            AccountMatch::Email(text) => self.email(text, sees_addresses),
            AccountMatch::Watches(project) => {
                self.values
                    .push(project.replace('\0', "\u{fffd}").to_lowercase());
                let value = self.values.len();
                self.add(&format!(
                    "number IN (SELECT account FROM account_watches WHERE project = ${value})"
                ));
                if let Some(own) = search.watches_of {
                    self.add(&format!(" AND number = {own}"));
                }
            }
            AccountMatch::Anything(text) => {
                if let Some(number) = AccountMatch::number(text) {
                    self.add(&format!("number = {number} OR "));
                }
                let part = format!("%{}%", quoted(text));
                self.like("full_name", &part);
                self.add(" OR ");
                self.like("username", &part);
                self.add(" OR ");
                self.email(text, sees_addresses);
            }
        }
    }

    fn email(&mut self, text: &str, sees_addresses: bool) {
        let beginning = format!("{}%", quoted(text));
        if sees_addresses {
            self.add("number IN (SELECT account FROM account_emails WHERE ");
            self.like("email", &beginning);
            self.add(")");
        } else {
            self.like("preferred_email", &beginning);
        }
    }

    /// Compares without case. A column without a value fits no pattern, so its opposite holds.
    fn like(&mut self, column: &str, pattern: &str) {
        self.values.push(pattern.to_owned());
        let (like, value) = (self.like, self.values.len());
        self.add(&format!(
            "COALESCE({column} {like} ${value} ESCAPE '!', FALSE)"
        ));
    }
}

/// Quotes what means something in a pattern. PostgreSQL keeps no NUL.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        match c {
            '!' | '%' | '_' => quoted.extend(['!', c]),
            '\0' => quoted.push('\u{fffd}'),
            c => quoted.push(c),
        }
    }
    quoted
}
