//! External IDs, the names by which accounts are known elsewhere. Each one is a note, whose content is a config file:
//!
//! ```text
//! [externalId "username:jdoe"]
//!   accountId = 1003407
//!   email = jdoe@example.com
//!   password = bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7
//! ```

mod key;
mod password;

pub use self::key::{ExternalIdKey, ForgeScheme, NoteName};
pub use self::password::{HashedPassword, InvalidPassword, StoredPassword};
use crate::config_text::{ConfigText, KeyPath};
use crate::email::AccountEmail;
use crate::findings::Problem;
use crate::refs::AccountId;
use crate::text::shown;

/// An external ID with the account that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalId {
    /// Scheme and ID. They decide the name of the note.
    pub key: ExternalIdKey,
    /// Account that owns the external ID.
    pub account: AccountId,
    /// Address that the provider or a mail has confirmed.
    pub email: Option<AccountEmail>,
    /// Password of a user name.
    pub password: Option<StoredPassword>,
}

const SECTION: &str = "externalId";
const ACCOUNT_ID: &str = "accountId";
const EMAIL: &str = "email";
const PASSWORD: &str = "password";

impl ExternalId {
    /// Reads a note, and lists its problems. Returns no external ID if key or account cannot be read, or if there are several.
    pub fn read(text: &ConfigText) -> (Option<Self>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut sections = text
            .sections()
            .filter(|header| header.section == "externalid");
        let header = sections.next();
        let second = sections.next();
        if let Some(second) = second {
            let what = "there is a second `externalId` section";
            problems.push(Problem::error(
                second.line,
                what,
                "write each external ID into its own note",
            ));
        }
        let Some(header) = header else {
            let what = "there is no `externalId` section";
            problems.push(Problem::error(
                None,
                what,
                "write `[externalId \"<scheme>:<id>\"]`",
            ));
            return (None, problems);
        };
        let name = header.subsection.unwrap_or_default();
        let key = name.parse::<ExternalIdKey>();
        let key = key.map_err(|problem| Problem {
            line: Some(header.line),
            ..problem
        });
        let path = |key| KeyPath::within(SECTION, name, key);
        let unknown = text.entries().filter_map(|entry| {
            let known = [ACCOUNT_ID, EMAIL, PASSWORD];
            if entry.section != "externalid" {
                Some(entry.unknown_section(&[SECTION]))
            } else if known.iter().any(|key| entry.key.eq_ignore_ascii_case(key)) {
                None
            } else {
                Some(entry.unknown_key(&known))
            }
        });
        problems.extend(unknown);

        let account = read_account(text, path(ACCOUNT_ID), header.line);
        let email = match text.value(path(EMAIL)) {
            None => Ok(None),
            Some(entry) => entry.text().and_then(|value| {
                value.parse().map(Some).map_err(|error| {
                    let what = format!("`{EMAIL}`: `{}` is {error}", shown(value));
                    Problem::error(entry.line, what, "correct the address, or remove the line")
                })
            }),
        };
        let password = text.value(path(PASSWORD)).map(|entry| entry.text());
        let mut keep = |problem: Problem| problems.push(problem);
        let key = key.map_err(&mut keep).ok();
        let account = account.map_err(&mut keep).ok();
        let email = email.map_err(&mut keep).ok().flatten();
        let password = password.transpose().map_err(&mut keep).ok().flatten();
        let read = key.zip(account).filter(|_| second.is_none());
        let external_id = read.map(|(key, account)| Self {
            key,
            account,
            email,
            password: password.map(StoredPassword::new),
        });
        (external_id, problems)
    }

    /// Writes the external ID into its note, which is empty if it is new. Unknown keys and comments stay.
    pub fn write(&self, text: &mut ConfigText) -> Result<(), Problem> {
        let (old, _) = Self::read(text);
        let mut edited = text.clone();
        let mut put = |key, old: Option<&str>, new: Option<&str>| {
            let path = KeyPath::within(SECTION, self.key.as_str(), key);
            match new {
                _ if old == new => Ok(()),
                Some(value) => edited.set(path, value),
                None => edited.unset(path),
            }
        };
        let old = old.as_ref().filter(|old| old.key == self.key);
        let account = |id: &Self| id.account.to_string();
        put(
            ACCOUNT_ID,
            old.map(account).as_deref(),
            Some(&account(self)),
        )?;
        put(EMAIL, old.and_then(Self::email_text), self.email_text())?;
        put(
            PASSWORD,
            old.and_then(Self::password_text),
            self.password_text(),
        )?;
        let (read, _) = Self::read(&edited);
        if read.as_ref() != Some(self) {
            let what = "the note already has another external ID";
            return Err(Problem::error(
                None,
                what,
                "write each external ID into its own note",
            ));
        }
        *text = edited;
        Ok(())
    }

    fn email_text(&self) -> Option<&str> {
        self.email.as_ref().map(AccountEmail::as_str)
    }

    fn password_text(&self) -> Option<&str> {
        self.password.as_ref().map(StoredPassword::expose)
    }
}

fn read_account(text: &ConfigText, path: KeyPath<'_>, line: usize) -> Result<AccountId, Problem> {
    let entry = text.value(path).ok_or_else(|| {
        let what = format!("`{ACCOUNT_ID}` is missing");
        Problem::error(line, what, "write the number of the account")
    })?;
    let value = entry.text()?;
    value.parse().map_err(|error| {
        let what = format!("`{ACCOUNT_ID}`: `{}` is {error}", shown(value));
        Problem::error(entry.line, what, "write the number of the account")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn config(text: &str) -> ConfigText {
        ConfigText::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_note_is_read() {
        let text = "[externalId \"username:jdoe\"]\n\taccountId = 1003407\n\temail = jdoe@example.com\n\tpassword = x\n";
        let (external_id, problems) = ExternalId::read(&config(text));
        assert_eq!(problems, []);
        let external_id = external_id.unwrap();
        assert_eq!(external_id.key.as_username(), Some("jdoe"));
        assert_eq!(external_id.account.get(), 1_003_407);
        assert_eq!(
            external_id.email.as_ref().map(AccountEmail::as_str),
            Some("jdoe@example.com")
        );
        let mut written = ConfigText::default();
        external_id.write(&mut written).unwrap();
        assert_eq!(written.as_str(), text);
    }

    #[test]
    fn problems_have_lines_and_ways_out() {
        let problems = |text: &str| {
            let (_, problems) = ExternalId::read(&config(text));
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            problems("x = 1\n"),
            ["there is no `externalId` section; write `[externalId \"<scheme>:<id>\"]`"]
        );
        assert_eq!(
            problems(
                "[externalId \"username:J\"]\nacountId = 5\nemail = j\npassword\n[externalId \"x:y\"]\naccountId = 5\n[z]\nk=1\n"
            ),
            [
                "line 5: there is a second `externalId` section; write each external ID into its own note",
                "line 2: unknown key `acountId`; did you mean `accountId`?",
                "line 8: unknown section `z`; use one of `externalId`",
                "line 1: `username:J` is not an external ID; use lower-case letters, digits, `.`, `_`, `@`, `+` and `-`, \
                 with a letter or digit first and last",
                "line 1: `accountId` is missing; write the number of the account",
                "line 3: `email`: `j` is not an e-mail address such as `john@example.com`; \
                 correct the address, or remove the line",
                "line 4: `password` has no value; write `password = value`, or remove the line",
            ]
        );
        for number in ["0", "05", "1k", "-1", "", "2147483648"] {
            let (external_id, problems) = ExternalId::read(&config(&format!(
                "[externalId \"x:y\"]\naccountId = {number}\n"
            )));
            assert_eq!(external_id, None);
            assert!(
                problems[0]
                    .to_string()
                    .ends_with("write the number of the account"),
                "{problems:?}"
            );
        }
        assert!(problems("[externalId]\naccountId = 5\n")[0].contains("`` is not an external ID"));
    }

    #[test]
    fn another_external_id_is_not_added_to_a_note() {
        let mut text = config("[externalId \"x:y\"]\naccountId = 5\n");
        let (external_id, _) = ExternalId::read(&text);
        let mut external_id = external_id.unwrap();
        external_id.key = "x:z".parse().unwrap();
        assert!(external_id.write(&mut text).is_err());
        assert_eq!(text.as_str(), "[externalId \"x:y\"]\naccountId = 5\n");
    }

    fn any_id(key: &'static str) -> impl Strategy<Value = ExternalId> {
        let email = proptest::option::of("[a-c]{1,3}@[a-c]{1,3}\\.de");
        let password = proptest::option::of("[a-c:#\" ]{1,9}");
        (1..100_u32, email, password).prop_map(|(account, email, password)| ExternalId {
            key: key.parse().unwrap(),
            account: AccountId::new(account).unwrap(),
            email: email.map(|email| email.parse().unwrap()),
            password: password.map(StoredPassword::new),
        })
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn what_was_written_is_read(first in any_id("ldap:a\"b"), second in any_id("ldap:a\"b")) {
            let mut text = config("# mine\n");
            first.write(&mut text).unwrap();
            text.add(KeyPath::within("externalId", "ldap:a\"b", "other"), "1").unwrap();
            second.write(&mut text).unwrap();
            let (read, _) = ExternalId::read(&text);
            prop_assert_eq!(read, Some(second));
            prop_assert!(text.as_str().starts_with("# mine\n") && text.as_str().contains("\tother = 1\n"));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(\\[externalId( \"[a-b:]{1,3}\")?\\]\n|accountId ?=? ?[0-9]{0,2}\n|email = [a@.]{0,4}\n|.{0,9}\n){0,5}") {
            if let Ok(text) = ConfigText::parse(text.as_bytes()) {
                drop(ExternalId::read(&text));
            }
        }
    }
}
