//! Reads queries for accounts, in Gerrit's language: `john email:john@ -username:jdoe is:inactive limit:10`.

use lockkeeper_accounts::findings::Problem;
use lockkeeper_accounts::refs::AccountId;

use super::search::words_of;

/// Maximum number of conditions in a query.
const MAX_CONDITIONS: usize = 8;
/// Maximum number of words in a query. The database searches for each.
const MAX_WORDS: usize = 8;
/// Maximum length of a query in bytes.
const MAX_QUERY: usize = 2_000;
/// Operators, as messages name them.
const OPERATORS: &str = "name:, email:, username:, watches:, is:active, is:inactive, limit:";

/// A query for accounts. All conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccountQuery {
    pub conditions: Vec<QueryCondition>,
    /// Maximum number of accounts that the query itself asks for.
    pub limit: Option<u32>,
}

/// A condition, or its opposite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryCondition {
    pub is_negated: bool,
    pub matches: AccountMatch,
}

/// Property of an account. Texts are compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountMatch {
    /// Beginning of a word of the name, beginning of the user name or of an address, or the number.
    Anything(String),
    /// Beginnings of words of the name.
    Name(String),
    /// Beginning of an address.
    Email(String),
    /// Beginning of the user name.
    Username(String),
    /// Name of a project that the account watches.
    Watches(String),
    Active,
}

impl AccountQuery {
    /// Reads a query. Without `is:`, it finds only active accounts.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        check_length(text)?;
        let (mut query, mut names_state) = (Self::default(), false);
        for word in words(text)? {
            let (is_negated, word) = match word.strip_prefix('-') {
                Some(rest) => (true, rest),
                None => (false, word.as_str()),
            };
            let matches = match word.split_once(':') {
                Some(("limit", number)) if !is_negated => {
                    query.limit = Some(limit(number)?);
                    continue;
                }
                Some(("is", "active")) => {
                    names_state = true;
                    AccountMatch::Active
                }
                Some(("is", "inactive")) => {
                    names_state = true;
                    let matches = AccountMatch::Active;
                    query.add(!is_negated, matches)?;
                    continue;
                }
                Some(("name", text)) => AccountMatch::Name(value("name", text)?),
                Some(("email", text)) => AccountMatch::Email(value("email", text)?),
                Some(("username", text)) => AccountMatch::Username(value("username", text)?),
                Some(("watches", text)) => AccountMatch::Watches(value("watches", text)?),
                Some(("is", "starred") | ("star", _)) => {
                    let what = format!("`{word}` finds changes, not accounts");
                    let fix = "ask for GET /api/changes/?q=is:starred";
                    return Err(Problem::error(None, what, fix));
                }
                Some(("is", state)) => {
                    let what = format!("there is no `is:{state}`");
                    let fix = "write `is:active` or `is:inactive`";
                    return Err(Problem::error(None, what, fix));
                }
                Some((operator, _)) => {
                    let what = format!("there is no operator `{operator}:`");
                    return Err(Problem::error(None, what, format!("known are {OPERATORS}")));
                }
                None if word.is_empty() => {
                    let what = "a minus stands alone";
                    return Err(Problem::error(None, what, "write a condition after it"));
                }
                None => AccountMatch::Anything(word.to_owned()),
            };
            query.add(is_negated, matches)?;
        }
        if !names_state {
            query.add(false, AccountMatch::Active)?;
        }
        Ok(query)
    }

    /// Reads the beginning of a name or address that somebody types. Nothing in it is an operator.
    pub(super) fn suggest(text: &str) -> Result<Self, Problem> {
        check_length(text)?;
        let mut query = Self::default();
        for word in text.split_whitespace() {
            query.add(false, AccountMatch::Anything(word.to_owned()))?;
        }
        query.add(false, AccountMatch::Active)?;
        Ok(query)
    }

    fn add(&mut self, is_negated: bool, matches: AccountMatch) -> Result<(), Problem> {
        if self.conditions.len() >= MAX_CONDITIONS {
            let what = format!("the query has more than {MAX_CONDITIONS} conditions");
            return Err(Problem::error(None, what, "leave some out"));
        }
        let words = self.conditions.iter().map(|condition| &condition.matches);
        let words = words.chain([&matches]).map(AccountMatch::words);
        if words.sum::<usize>() > MAX_WORDS {
            let what = format!("the query has more than {MAX_WORDS} words");
            return Err(Problem::error(None, what, "leave some out"));
        }
        self.conditions.push(QueryCondition {
            is_negated,
            matches,
        });
        Ok(())
    }
}

impl AccountMatch {
    /// Returns the number of words of names in it.
    fn words(&self) -> usize {
        match self {
            Self::Anything(text) | Self::Name(text) => words_of(text).count(),
            Self::Email(_) | Self::Username(_) | Self::Watches(_) | Self::Active => 0,
        }
    }

    /// Returns the number that a word without operator can be.
    pub(super) fn number(text: &str) -> Option<AccountId> {
        text.parse().ok()
    }
}

fn check_length(text: &str) -> Result<(), Problem> {
    if text.len() <= MAX_QUERY {
        return Ok(());
    }
    let what = format!("the query has more than {MAX_QUERY} bytes");
    Err(Problem::error(None, what, "shorten it"))
}

fn value(operator: &str, text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        let what = format!("`{operator}` has no value");
        return Err(Problem::error(None, what, "write one after it"));
    }
    Ok(text.to_owned())
}

fn limit(text: &str) -> Result<u32, Problem> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        let what = format!("`limit:{text}` is no limit");
        Problem::error(None, what, "write a number from 1 on")
    })
}

/// Splits a query at spaces. Double quotes keep words together.
fn words(text: &str) -> Result<Vec<String>, Problem> {
    let (mut words, mut word, mut in_quotes) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => in_quotes = !in_quotes,
            c if c.is_whitespace() && !in_quotes => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    if in_quotes {
        let what = "the query has a quote without an end";
        return Err(Problem::error(None, what, "add a double quote"));
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(bool, AccountMatch)> {
        let query = AccountQuery::parse(text).unwrap();
        let conditions = query.conditions.into_iter();
        conditions
            .map(|condition| (condition.is_negated, condition.matches))
            .collect()
    }

    #[test]
    fn a_query_finds_active_accounts_unless_it_names_a_state() {
        use AccountMatch::{Active, Anything, Email, Name, Username};
        let word = |text: &str| Anything(text.to_owned());
        assert_eq!(parsed(""), [(false, Active)]);
        assert_eq!(parsed("john"), [(false, word("john")), (false, Active)]);
        assert_eq!(parsed("is:inactive"), [(true, Active)]);
        assert_eq!(parsed("-is:inactive"), [(false, Active)]);
        assert_eq!(
            parsed("name:\"John Doe\" -email:j@ username:jd is:active"),
            [
                (false, Name("John Doe".to_owned())),
                (true, Email("j@".to_owned())),
                (false, Username("jd".to_owned())),
                (false, Active)
            ]
        );
        assert_eq!(AccountQuery::parse("a limit:3").unwrap().limit, Some(3));
        assert_eq!(
            parsed("watches:github.com/acme/infra")[0],
            (
                false,
                AccountMatch::Watches("github.com/acme/infra".to_owned())
            )
        );
        let typed = AccountQuery::suggest("is:x \"y").unwrap();
        assert_eq!(typed.conditions[0].matches, word("is:x"));
    }

    #[test]
    fn an_unreadable_query_is_refused_with_the_way_out() {
        let refused = |text: &str| AccountQuery::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("group:x"),
            "there is no operator `group:`; known are name:, email:, username:, watches:, is:active, is:inactive, limit:"
        );
        assert_eq!(
            refused("is:foo"),
            "there is no `is:foo`; write `is:active` or `is:inactive`"
        );
        assert_eq!(
            refused("is:starred"),
            "`is:starred` finds changes, not accounts; ask for GET /api/changes/?q=is:starred"
        );
        assert_eq!(
            refused("limit:0"),
            "`limit:0` is no limit; write a number from 1 on"
        );
        assert_eq!(refused("name:"), "`name` has no value; write one after it");
        assert_eq!(
            refused("\"a"),
            "the query has a quote without an end; add a double quote"
        );
        assert!(refused(&"a ".repeat(9)).contains("more than 8 conditions"));
        assert!(refused(&"a".repeat(2_001)).contains("more than 2000 bytes"));
        // One condition, with a search of the database for each word.
        assert!(refused(&"a-".repeat(900)).contains("more than 8 words"));
        assert!(refused("name:a.b.c.d.e \"f g h i\"").contains("more than 8 words"));
        let typed = |text: &str| AccountQuery::suggest(text).unwrap_err().to_string();
        assert!(typed(&"a-".repeat(900)).contains("more than 8 words"));
        assert!(typed(&"a-".repeat(9_000)).contains("more than 2000 bytes"));
    }
}
