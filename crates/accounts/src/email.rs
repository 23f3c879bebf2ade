//! E-mail addresses of accounts and external IDs.

use std::fmt;
use std::str::FromStr;

use email_address::{EmailAddress, Options};

/// An e-mail address as it was written. [`Self::key`] compares addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountEmail(String);

/// A text is not a usable e-mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address such as `john@example.com`")]
pub struct InvalidEmail;

impl AccountEmail {
    /// Returns the address as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the address in lower case. Two addresses with the same key belong to the same account.
    pub fn key(&self) -> String {
        self.0.to_lowercase()
    }
}

impl FromStr for AccountEmail {
    type Err = InvalidEmail;

    fn from_str(text: &str) -> Result<Self, InvalidEmail> {
        let options = Options::default()
            .without_display_text()
            .without_domain_literal();
        // Addresses are written into commits between angle brackets, so nothing in quotes is usable.
        let is_usable = |c: char| !c.is_control() && !c.is_whitespace() && !"<>\"".contains(c);
        if text.chars().all(is_usable) && EmailAddress::parse_with_options(text, options).is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidEmail)
        }
    }
}

impl fmt::Display for AccountEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn addresses_are_compared_without_case() {
        let address: AccountEmail = "John.Doe@Example.com".parse().unwrap();
        assert_eq!(address.to_string(), "John.Doe@Example.com");
        assert_eq!(address.key(), "john.doe@example.com");
    }

    #[test]
    fn what_could_not_receive_a_mail_is_refused() {
        for text in [
            "",
            "john",
            "john@",
            "@example.com",
            "John <john@example.com>",
            "\"a b\"@example.com",
            "john@[127.0.0.1]",
            "a@b@example.com",
            "john@example.com\n",
            "john @example.com",
        ] {
            assert_eq!(text.parse::<AccountEmail>(), Err(InvalidEmail), "{text}");
        }
        for text in ["jörg@exämple.de", "a+b@localhost", "o'neil@x-y.example"] {
            assert!(text.parse::<AccountEmail>().is_ok(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_makes_it_panic(text in "[a-b@.\"<> \\[\\]é()\\\\]{0,20}|.{0,20}") {
            drop(text.parse::<AccountEmail>());
        }
    }
}
