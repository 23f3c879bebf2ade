//! People as they stand beside what they did: a login, and their account on this server.

use std::fmt;
use std::str::FromStr;

use super::actor::{Actor, Origin};

/// Number of an account. Written in plain digits without leading zeros.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "u32", into = "u32")]
pub struct AccountId(u32);

/// A text or an integer is not the number of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number from 1 to {max} in plain digits without leading zeros", max = AccountId::MAX.0)]
pub struct InvalidNumber;

impl AccountId {
    /// First number that an empty server gives an account.
    pub const FIRST: Self = Self(1_000_000);
    /// Highest number, the limit of a signed 32-bit integer.
    pub const MAX: Self = Self(i32::MAX.unsigned_abs());

    /// Creates the number of an account. Returns `None` outside of 1 to [`Self::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::MAX.0).contains(&number).then_some(Self(number))
    }

    /// Returns the number as an integer.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the number after this one. `None` after [`Self::MAX`].
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl FromStr for AccountId {
    type Err = InvalidNumber;

    fn from_str(text: &str) -> Result<Self, InvalidNumber> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = if is_plain { text.parse().ok() } else { None };
        number.and_then(Self::new).ok_or(InvalidNumber)
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u32> for AccountId {
    type Error = InvalidNumber;

    fn try_from(number: u32) -> Result<Self, InvalidNumber> {
        Self::new(number).ok_or(InvalidNumber)
    }
}

impl From<AccountId> for u32 {
    fn from(account: AccountId) -> Self {
        account.0
    }
}

/// An account, and what it says of itself at present.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NamedAccount {
    /// Number of the account.
    pub number: AccountId,
    /// Full name. `None` if the account has none, or is deleted.
    pub name: Option<String>,
    /// Availability in the words of the person, such as `OOO`.
    pub status: Option<String>,
}

/// Holder or requester of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Login on the forge, name of the web user, or `lockkeeper`.
    pub login: String,
    /// Account of the person on this server, if there is one.
    pub account: Option<NamedAccount>,
}

impl Person {
    /// Returns somebody without an account. For tests: in the product, a person comes from a row that names the
    /// account.
    pub fn of_login(login: impl Into<String>) -> Self {
        Self {
            login: login.into(),
            account: None,
        }
    }

    /// Returns the person as an actor.
    pub fn actor(&self, origin: Origin) -> Actor {
        let account = self.account.as_ref().map(|account| account.number);
        Actor::new(&self.login, origin).with_account(account)
    }
}

impl fmt::Display for Person {
    /// Formats the person for people: `jdoe (John Doe, OOO)`. Everybody chooses their own name and status, so the login
    /// comes first, and the other two are short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.login)?;
        let account = self.account.as_ref();
        let said = account.map(|account| [&account.name, &account.status]);
        let said = said.into_iter().flatten().flatten();
        let said: Vec<String> = said.map(|text| short(text)).collect();
        if said.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", said.join(", "))
        }
    }
}

/// Maximum number of characters that are shown of a name or a status.
const SHOWN_CHARS: usize = 60;

/// Shortens a text, and makes one blank of several.
fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    if text.chars().count() <= SHOWN_CHARS {
        return text;
    }
    let mut short: String = text.chars().take(SHOWN_CHARS - 1).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_called_by_login_and_then_by_name_and_status() {
        let called = |name: Option<&str>, status: Option<&str>| {
            let account = NamedAccount {
                number: AccountId::FIRST,
                name: name.map(str::to_owned),
                status: status.map(str::to_owned),
            };
            Person {
                account: Some(account),
                ..Person::of_login("jdoe")
            }
            .to_string()
        };
        assert_eq!(
            called(Some("John Doe"), Some("OOO")),
            "jdoe (John Doe, OOO)"
        );
        assert_eq!(called(Some("John Doe"), None), "jdoe (John Doe)");
        assert_eq!(called(None, Some("OOO")), "jdoe (OOO)");
        assert_eq!(called(None, None), "jdoe");
        // However long they are, the login is there, and nothing pushes what follows off the page.
        let long = format!("alice{}x", " y".repeat(200));
        let shown = called(Some(&long), Some(&long));
        assert!(
            shown.starts_with("jdoe (alice y y") && shown.chars().count() < 140,
            "{shown}"
        );
        assert_eq!(called(Some("alice \t   bob"), None), "jdoe (alice bob)");
        assert_eq!(Person::of_login("jdoe").to_string(), "jdoe");
    }

    #[test]
    fn a_stored_number_is_a_valid_one() {
        let read = serde_json::from_str::<AccountId>;
        assert_eq!(read("1000856").unwrap().get(), 1_000_856);
        assert_eq!(serde_json::to_string(&AccountId::FIRST).unwrap(), "1000000");
        for invalid in ["0", "2147483648", "-1", "\"1\""] {
            assert!(read(invalid).is_err(), "{invalid}");
        }
    }
}
