//! Accounts of the pages and the API that are limited to owners: the file of `--web-accounts-file`.
//!
//! ```text
//! # One line for each account. Blanks separate the words, so a password has no blanks.
//! user=kim owners=net,dns allow=plan,apply,discard password=correct-horse-battery-staple
//! user=watch owners=net allow=none password=…
//! user=jdoe owners=dns allow=plan account=1000001
//! ```
//!
//! `account=` stands for the HTTP password of that account in Git (`features::accounts`), which the person can change.
//! A line names the number of the account and never its user name, because people choose their own user names.
//!
//! The account of `--web-username` stays the account for the whole server. A limited account may do an action only if
//! both `--web-allow` and its own `allow` list it. A line without `allow` permits no action. All actions are limited
//! to the repositories, applications and credentials of its owners (`authz`).

use std::collections::BTreeSet;
use std::fmt;

use super::{Action, InvalidWebRule, WebRules};
use crate::model::{AccountId, InvalidNumber, InvalidOwnerName, OwnerName};
use crate::secret::Secret;

/// An account that is limited to owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAccount {
    /// Name of the user.
    pub name: String,
    /// Owners whose repositories, applications and credentials the account can use. There is at least one.
    pub owners: BTreeSet<OwnerName>,
    /// Actions of the account, on top of the rules for all pages. `None` stands for a line without `allow`: the
    /// account changes nothing.
    pub allow: Option<WebRules>,
    /// Proof that a visitor is this user.
    pub proof: WebProof,
}

/// Proof that a visitor is a user of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebProof {
    /// The password in the line of the file.
    Password(Secret),
    /// The HTTP password of this account in Git.
    Account(AccountId),
}

impl WebAccount {
    /// Returns true if the account's own line allows the action.
    pub fn may(&self, action: Action) -> bool {
        self.allow.as_ref().is_some_and(|own| own.allows(action))
    }

    /// Formats the owners for messages: `` `net` and `dns` ``.
    pub fn owners_quoted(&self) -> String {
        let names: Vec<String> = self.owners.iter().map(|name| format!("`{name}`")).collect();
        names.join(" and ")
    }
}

/// Part of the server that a user can reach on the pages and in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessScope<'a> {
    /// The whole server, without a limit to owners.
    Whole,
    /// Everything that belongs to the owners of this account.
    Limited(&'a WebAccount),
    /// Nothing: there is a file of accounts, and it does not list this one. An account can be removed from the file
    /// before a job that it requested runs.
    Unknown,
}

/// All limited accounts, and the name of the account for the whole server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebAccounts {
    /// `None`: there is no file, and nobody is limited.
    main: Option<String>,
    limited: Vec<WebAccount>,
}

/// The file of accounts cannot be used. The message never repeats a text that may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct InvalidAccounts {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// Mistake in this line.
    pub fault: AccountFault,
}

/// A mistake in the line of an account, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountFault {
    /// A word is not `key=value`, or its key is unknown.
    #[error(
        "word {0} does not begin with user=, owners=, allow=, password= or account=; a password must not contain blanks"
    )]
    Word(usize),
    /// A key is there twice.
    #[error("`{0}=` is given twice")]
    Twice(&'static str),
    /// A required key is missing.
    #[error("`{0}=` is missing")]
    Missing(&'static str),
    /// The name of the user is invalid.
    #[error("the user name must have 1 to {max} characters without `:`", max = WebAccounts::LONGEST_NAME)]
    User,
    /// Another account has the same name.
    #[error("another account has the same user name")]
    Known,
    /// Another line has the same account in Git, so that one password would have two sets of rights.
    #[error("another line has the same `account=`")]
    SameAccount,
    /// The name is that of the account for the whole server.
    #[error("this name is --web-username, the account for the whole server; choose another name")]
    Main,
    /// The name of an owner is invalid.
    #[error(transparent)]
    Owner(#[from] InvalidOwnerName),
    /// A word of `allow` is not an action.
    #[error("`allow`: {0}: {fix}", fix = .0.fix())]
    Allow(#[from] InvalidWebRule),
    /// The line has two ways to sign in, or none.
    #[error("write either `password=` or `account=`, the number of an account (docs/accounts.md)")]
    Proof,
    /// The number of an account is invalid.
    #[error("`account`: {0}")]
    Account(#[from] InvalidNumber),
    /// The password is too easy to guess.
    #[error("the password has fewer than {min} characters", min = WebAccounts::SHORTEST_PASSWORD)]
    Password,
    /// The file has too many accounts.
    #[error("there are more than {max} accounts", max = WebAccounts::MOST)]
    TooMany,
}

impl WebAccounts {
    /// Maximum number of accounts. It keeps the check of a password fast.
    pub const MOST: usize = 500;
    /// Maximum number of accounts that a warning names.
    const MOST_NAMED: usize = 20;
    /// Maximum length of a user name, in characters.
    pub const LONGEST_NAME: usize = 64;
    /// Minimum length of a password, in characters. It is not hashed, so the length is what protects it.
    pub const SHORTEST_PASSWORD: usize = 16;

    /// Parses the file. `main` is the name of the account for the whole server.
    pub fn parse(text: &str, main: &str) -> Result<Self, InvalidAccounts> {
        let mut accounts = Self {
            main: Some(main.to_owned()),
            limited: Vec::new(),
        };
        for (line, text) in (1..).zip(text.lines().map(str::trim)) {
            if !text.is_empty() && !text.starts_with('#') {
                let account = read(text).and_then(|account| accounts.admissible(account));
                accounts
                    .limited
                    .push(account.map_err(|fault| InvalidAccounts { line, fault })?);
            }
        }
        Ok(accounts)
    }

    fn admissible(&self, account: WebAccount) -> Result<WebAccount, AccountFault> {
        if self.main.as_ref() == Some(&account.name) {
            return Err(AccountFault::Main);
        }
        if self.limited.iter().any(|known| known.name == account.name) {
            return Err(AccountFault::Known);
        }
        let same = |known: &WebAccount| {
            matches!(account.proof, WebProof::Account(_)) && known.proof == account.proof
        };
        if self.limited.iter().any(same) {
            return Err(AccountFault::SameAccount);
        }
        if self.limited.len() >= Self::MOST {
            Err(AccountFault::TooMany)
        } else {
            Ok(account)
        }
    }

    /// Parses a newer text of the same file.
    pub fn read_again(&self, text: &str) -> Result<Self, InvalidAccounts> {
        Self::parse(text, self.main.as_deref().unwrap_or_default())
    }

    /// Returns warnings about the file for the administrator's log, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let silent = self
            .limited
            .iter()
            .filter(|account| account.allow.is_none());
        let names: Vec<&str> = silent.map(|account| account.name.as_str()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let (shown, more) = names.split_at(names.len().min(Self::MOST_NAMED));
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(" and {} more", more.len())
        };
        vec![format!(
            "Accounts without `allow=` in the file of --web-accounts-file are read-only: {}{more}. \
             Write the allowed actions, such as `allow=plan,apply,discard`, or `allow=all` for all actions of --web-allow. \
             To keep an account read-only without this warning, write `allow=none`",
            shown.join(", ")
        )]
    }

    /// Returns the account in Git whose HTTP password the user signs in with. `None` if there is no such user, or if
    /// their password is in the file.
    pub fn account_of(&self, name: &str) -> Option<AccountId> {
        let user = self.limited.iter().find(|user| user.name == name)?;
        match user.proof {
            WebProof::Account(account) => Some(account),
            WebProof::Password(_) => None,
        }
    }

    /// Returns true if somebody signs in with an account in Git.
    pub fn uses_accounts(&self) -> bool {
        let mut proofs = self.limited.iter().map(|user| &user.proof);
        proofs.any(|proof| matches!(proof, WebProof::Account(_)))
    }

    /// Returns the limited accounts.
    pub fn limited(&self) -> &[WebAccount] {
        &self.limited
    }

    /// Returns the part of the server that the user can reach. Without a file, every user of the pages can reach the
    /// whole server. An empty file is different: an account that was just removed must not gain access to everything.
    pub fn scope_of(&self, name: &str) -> AccessScope<'_> {
        if self.main.as_deref().is_none_or(|main| main == name) {
            return AccessScope::Whole;
        }
        self.limited
            .iter()
            .find(|account| account.name == name)
            .map_or(AccessScope::Unknown, AccessScope::Limited)
    }
}

/// The words of a line, before they are parsed.
#[derive(Default)]
struct LineWords<'a> {
    user: Option<&'a str>,
    owners: Option<&'a str>,
    allow: Option<&'a str>,
    password: Option<&'a str>,
    account: Option<&'a str>,
}

impl<'a> LineWords<'a> {
    fn split(line: &'a str) -> Result<Self, AccountFault> {
        let mut words = Self::default();
        for (at, word) in (1..).zip(line.split_whitespace()) {
            let (key, value) = word.split_once('=').ok_or(AccountFault::Word(at))?;
            let (name, place) = match key {
                "user" => ("user", &mut words.user),
                "owners" => ("owners", &mut words.owners),
                "allow" => ("allow", &mut words.allow),
                "password" => ("password", &mut words.password),
                "account" => ("account", &mut words.account),
                _ => return Err(AccountFault::Word(at)),
            };
            if place.replace(value).is_some() {
                return Err(AccountFault::Twice(name));
            }
        }
        Ok(words)
    }
}

fn read(line: &str) -> Result<WebAccount, AccountFault> {
    let words = LineWords::split(line)?;
    let name = words.user.ok_or(AccountFault::Missing("user"))?;
    let owners = words.owners.ok_or(AccountFault::Missing("owners"))?;
    if name.is_empty() || name.contains(':') || name.chars().count() > WebAccounts::LONGEST_NAME {
        return Err(AccountFault::User);
    }
    let proof = match (words.password, words.account) {
        (Some(password), None) if password.chars().count() < WebAccounts::SHORTEST_PASSWORD => {
            return Err(AccountFault::Password);
        }
        (Some(password), None) => WebProof::Password(Secret::new(password)),
        (None, Some(account)) => WebProof::Account(account.parse()?),
        (None, None) | (Some(_), Some(_)) => return Err(AccountFault::Proof),
    };
    let owners = owners
        .split(',')
        .map(OwnerName::new)
        .collect::<Result<BTreeSet<_>, _>>()?;
    let allow = words
        .allow
        .map(|list| WebRules::new(&list.split(',').collect::<Vec<_>>()))
        .transpose()?;
    Ok(WebAccount {
        name: name.to_owned(),
        owners,
        allow,
        proof,
    })
}

impl fmt::Display for WebAccounts {
    /// Writes the accounts and their owners for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, account) in self.limited.iter().enumerate() {
            let (comma, owners) = (
                if at == 0 { "" } else { ", " },
                Vec::from_iter(&account.owners),
            );
            let owners: Vec<&str> = owners.into_iter().map(OwnerName::as_str).collect();
            write!(f, "{comma}{}@{}", account.name, owners.join("+"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\n# comment\nuser=kim owners=Net,dns password=correct-horse-battery=1\n\n  \
                        allow=discard,sync password=0123456789abcdef owners=net user=watch\n";

    #[test]
    fn a_line_is_an_account_and_the_main_one_stays_the_whole_server() {
        let accounts = WebAccounts::parse(FILE, "ops").unwrap();
        assert_eq!(accounts.to_string(), "kim@dns+net, watch@net");
        let AccessScope::Limited(kim) = accounts.scope_of("kim") else {
            panic!("kim is limited")
        };
        assert_eq!(
            (kim.owners_quoted().as_str(), &kim.allow),
            ("`dns` and `net`", &None)
        );
        let password = Secret::new("correct-horse-battery=1");
        assert_eq!(kim.proof, WebProof::Password(password));
        assert!(
            !Action::ALL.iter().any(|action| kim.may(*action)),
            "who is given nothing may do nothing"
        );
        let AccessScope::Limited(watch) = accounts.scope_of("watch") else {
            panic!("watch is limited")
        };
        let allow = watch.allow.as_ref().unwrap();
        assert!(allow.allows(Action::Sync) && !allow.allows(Action::Owners));
        assert!(watch.may(Action::Sync) && !watch.may(Action::Owners));
        let all = WebAccounts::parse(
            "user=kim owners=net allow=all password=0123456789abcdef",
            "ops",
        )
        .unwrap();
        let AccessScope::Limited(kim) = all.scope_of("kim") else {
            panic!("kim is limited")
        };
        let given = Action::ALL.iter().filter(|action| !kim.may(**action));
        assert_eq!(given.collect::<Vec<_>>(), [&Action::Peers]);
        assert_eq!(all.warnings(), [""; 0]);
        insta::assert_snapshot!(accounts.warnings().join("\n"), @"Accounts without `allow=` in the file of --web-accounts-file are read-only: kim. Write the allowed actions, such as `allow=plan,apply,discard`, or `allow=all` for all actions of --web-allow. To keep an account read-only without this warning, write `allow=none`");
        assert_eq!(accounts.scope_of("ops"), AccessScope::Whole);
    }

    #[test]
    fn a_user_with_an_account_has_no_password_in_the_file() {
        let file =
            "user=kim owners=net account=1000001\nuser=lee owners=net password=0123456789abcdef";
        let accounts = WebAccounts::parse(file, "ops").unwrap();
        let account = AccountId::new(1_000_001);
        assert!(accounts.uses_accounts());
        assert_eq!(
            ["kim", "lee", "max", "ops"].map(|name| accounts.account_of(name)),
            [account, None, None, None]
        );
        assert!(!WebAccounts::parse(FILE, "ops").unwrap().uses_accounts());
    }

    #[test]
    fn who_is_no_account_reaches_nothing_unless_there_is_no_file() {
        for name in ["Kim", "", "somebody at the dashboard"] {
            assert_eq!(
                WebAccounts::parse(FILE, "ops").unwrap().scope_of(name),
                AccessScope::Unknown,
                "{name}"
            );
            assert_eq!(
                WebAccounts::parse("# none\n", "ops")
                    .unwrap()
                    .scope_of(name),
                AccessScope::Unknown,
                "{name}"
            );
            assert_eq!(
                WebAccounts::default().scope_of(name),
                AccessScope::Whole,
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_never_with_a_password() {
        const GOOD: &str = "user=kim owners=net password=0123456789abcdef";
        let told = |text: &str| WebAccounts::parse(text, "ops").unwrap_err().to_string();
        let lines = [
            "kim hunter2hunter2hunter2",
            "user=kim owners=net password=0123456789abcdef hunter2",
            "user=kim owners=net user=kim password=0123456789abcdef",
            "owners=net password=0123456789abcdef",
            "user=kim password=0123456789abcdef",
            "user=kim owners=net",
            "user=a:b owners=net password=0123456789abcdef",
            "user=ops owners=net password=0123456789abcdef",
            "user=kim owners=net, password=0123456789abcdef",
            "user=kim owners=net allow=aply password=0123456789abcdef",
            "user=kim owners=net password=hunter2",
            "user=kim owners=net account=jdoe",
            "user=kim owners=net account=1000001 password=0123456789abcdef",
        ];
        let all: Vec<String> = lines
            .iter()
            .map(|line| told(line))
            .chain([
                told(&format!("{GOOD}\n{GOOD}")),
                told("user=kim owners=net account=7\nuser=lee owners=dns account=7"),
            ])
            .collect();
        assert!(!all.join("").contains("hunter2"));
        insta::assert_snapshot!(all.join("\n"), @r#"
        line 1: word 1 does not begin with user=, owners=, allow=, password= or account=; a password must not contain blanks
        line 1: word 4 does not begin with user=, owners=, allow=, password= or account=; a password must not contain blanks
        line 1: `user=` is given twice
        line 1: `user=` is missing
        line 1: `owners=` is missing
        line 1: write either `password=` or `account=`, the number of an account (docs/accounts.md)
        line 1: the user name must have 1 to 64 characters without `:`
        line 1: this name is --web-username, the account for the whole server; choose another name
        line 1: "" is not the name of an owner: write 1 to 64 letters, digits, `.`, `-` or `_`, with a letter or digit first
        line 1: `allow`: `aply` is not an action: choose from plan, apply, unlock, unlock_any, discard, apply_lock, lease, sync, cancel, cancel_force, import, state_rm, approve_policies, version, owners, peers, or write `all`, which does not include `peers`, or `none`
        line 1: the password has fewer than 16 characters
        line 1: `account`: not a number from 1 to 2147483647 in plain digits without leading zeros
        line 1: write either `password=` or `account=`, the number of an account (docs/accounts.md)
        line 2: another account has the same user name
        line 2: another line has the same `account=`
        "#);
    }
}
