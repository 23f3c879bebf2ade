//! Names of the refs of `All-Users`, as types.

use std::fmt;
use std::str::FromStr;

use crate::text::shown;

pub use lockkeeper_model::model::{AccountId, InvalidNumber};

/// Number of a change on this server. Written in plain digits without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeNumber(u32);

/// A ref that `All-Users` can have. There are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllUsersRef {
    /// `refs/users/56/1000856`, the branch of an account.
    User(AccountId),
    /// `refs/users/self`, which stands for the branch of the caller.
    UserSelf,
    /// `refs/users/default`, the preferences for everybody.
    UserDefault,
    /// `refs/meta/external-ids`, the external IDs as notes.
    ExternalIds,
    /// `refs/meta/config`, the access control.
    Config,
    /// `refs/starred-changes/YY/XXXX/ZZZZZZZ`, the labels that an account gave a change.
    StarredChange(ChangeNumber, AccountId),
    /// `refs/sequences/accounts`, the next free account number.
    AccountSequence,
}

/// A name is not a ref of `All-Users`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllUsersRef {
    /// Only the names of [`AllUsersRef`] exist.
    #[error("`{0}` is not a ref of All-Users")]
    Unknown(String),
    /// The number of an account or a change is invalid.
    #[error("`{0}`: {InvalidNumber}")]
    Number(String),
    /// The folder is not made of the last two digits.
    #[error("`{0}` has the wrong folder: write `{1}`")]
    Shard(String, AllUsersRef),
}

impl ChangeNumber {
    /// Creates the number of a change. Returns `None` outside of 1 to [`AccountId::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        AccountId::new(number).map(|number| Self(number.get()))
    }

    /// Returns the number as an integer.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl FromStr for ChangeNumber {
    type Err = InvalidNumber;

    fn from_str(text: &str) -> Result<Self, InvalidNumber> {
        text.parse().map(|number: AccountId| Self(number.get()))
    }
}

impl fmt::Display for ChangeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AllUsersRef {
    /// Returns the prefix of all refs with stars of a change.
    pub fn stars_of(change: ChangeNumber) -> String {
        format!("refs/starred-changes/{:02}/{change}/", change.0 % 100)
    }
}

impl fmt::Display for AllUsersRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(account) => write!(f, "refs/users/{:02}/{account}", account.get() % 100),
            Self::UserSelf => f.write_str("refs/users/self"),
            Self::UserDefault => f.write_str("refs/users/default"),
            Self::ExternalIds => f.write_str("refs/meta/external-ids"),
            Self::Config => f.write_str("refs/meta/config"),
            Self::StarredChange(change, account) => {
                write!(f, "{}{account}", Self::stars_of(*change))
            }
            Self::AccountSequence => f.write_str("refs/sequences/accounts"),
        }
    }
}

impl FromStr for AllUsersRef {
    type Err = InvalidAllUsersRef;

    fn from_str(name: &str) -> Result<Self, InvalidAllUsersRef> {
        let number = |_| InvalidAllUsersRef::Number(shown(name));
        let parts: Vec<&str> = name.split('/').collect();
        let parsed = match parts.as_slice() {
            ["refs", "users", "self"] => Self::UserSelf,
            ["refs", "users", "default"] => Self::UserDefault,
            ["refs", "meta", "external-ids"] => Self::ExternalIds,
            ["refs", "meta", "config"] => Self::Config,
            ["refs", "sequences", "accounts"] => Self::AccountSequence,
            ["refs", "users", _, account] => Self::User(account.parse().map_err(number)?),
            ["refs", "starred-changes", _, change, account] => Self::StarredChange(
                change.parse().map_err(number)?,
                account.parse().map_err(number)?,
            ),
            _ => return Err(InvalidAllUsersRef::Unknown(shown(name))),
        };
        if parsed.to_string() == name {
            Ok(parsed)
        } else {
            Err(InvalidAllUsersRef::Shard(shown(name), parsed))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn account(number: u32) -> AccountId {
        AccountId::new(number).unwrap()
    }

    #[test]
    fn a_name_is_read_and_written_alike() {
        let change = ChangeNumber::new(7).unwrap();
        for (name, expected) in [
            (
                "refs/users/56/1000856",
                AllUsersRef::User(account(1_000_856)),
            ),
            ("refs/users/05/5", AllUsersRef::User(account(5))),
            ("refs/users/00/100", AllUsersRef::User(account(100))),
            ("refs/users/self", AllUsersRef::UserSelf),
            ("refs/users/default", AllUsersRef::UserDefault),
            ("refs/meta/external-ids", AllUsersRef::ExternalIds),
            ("refs/meta/config", AllUsersRef::Config),
            (
                "refs/starred-changes/07/7/1000856",
                AllUsersRef::StarredChange(change, account(1_000_856)),
            ),
            ("refs/sequences/accounts", AllUsersRef::AccountSequence),
        ] {
            assert_eq!(name.parse(), Ok(expected));
            assert_eq!(expected.to_string(), name);
        }
        assert_eq!(AllUsersRef::stars_of(change), "refs/starred-changes/07/7/");
    }

    #[test]
    fn other_names_are_refused_with_a_reason() {
        let error = |name: &str| name.parse::<AllUsersRef>().unwrap_err().to_string();
        assert_eq!(
            error("refs/users/57/1000856"),
            "`refs/users/57/1000856` has the wrong folder: write `refs/users/56/1000856`"
        );
        let number = "not a number from 1 to 2147483647 in plain digits without leading zeros";
        for name in [
            "refs/users/05/05",
            "refs/users/00/0",
            "refs/users/48/2147483648",
            "refs/users/05/+5",
            "refs/starred-changes/07/07/5",
            "refs/users/05/",
        ] {
            assert_eq!(error(name), format!("`{name}`: {number}"));
        }
        for name in ["refs/users/5/5", "refs/users/005/5", "refs/users//5"] {
            assert!(error(name).ends_with("write `refs/users/05/5`"), "{name}");
        }
        for name in [
            "",
            "refs/users/5",
            "refs/heads/main",
            "refs/users/05/5/",
            "refs/users/Self",
        ] {
            assert!(error(name).ends_with("is not a ref of All-Users"), "{name}");
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn a_name_that_is_read_is_written_alike(name in "refs/(users|starred-changes)(/[0-9]{0,3}){1,3}|.{0,20}") {
            if let Ok(parsed) = name.parse::<AllUsersRef>() {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }
    }
}
