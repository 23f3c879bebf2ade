//! Turns the users of the file of `--web-accounts-file` into accounts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use lockkeeper_accounts::external_ids::{ExternalIdKey, HashedPassword, StoredPassword};
use lockkeeper_accounts::refs::AccountId;

use super::actions::{CHOSEN_PASSWORD_COST, NewAccount};
use super::all_users::{AccountsActor, AllUsers, check_new_username};
use crate::config::access::{WebAccount, WebAccounts, WebProof};
use crate::seal::private_text;

/// Result of an import.
pub(super) enum WebAccountsImport {
    /// The text for the file, and how many accounts are new.
    Done { text: String, created: usize },
    /// Nothing was imported, for these reasons.
    Refused(Vec<String>),
}

/// A user of the file who signs in with a password from it.
struct WebUserLine {
    /// Line of the file, counted from 1.
    line: usize,
    username: ExternalIdKey,
    password: StoredPassword,
    /// Account that has this name and this password already, from an import that was interrupted.
    account: Option<AccountId>,
}

/// Gives every user with a password in the file an account with the same user name and the same password. Checks all
/// lines before it creates the first account.
pub(super) async fn import_web_accounts(
    users: &AllUsers,
    by: &AccountsActor,
    file: &Path,
) -> anyhow::Result<WebAccountsImport> {
    let text = private_text(file, "replace its passwords")
        .with_context(|| format!("the users of {} could not be read", file.display()))?;
    let read = match WebAccounts::parse(&text, "") {
        Ok(read) => read,
        Err(error) => return Ok(WebAccountsImport::Refused(vec![error.to_string()])),
    };
    let mut people: Vec<WebUserLine> = Vec::new();
    let mut refused = Vec::new();
    for ((line, _), user) in user_lines(&text).zip(read.limited()) {
        match person(users, line, user).await? {
            Ok(Some(person)) => match people.iter().find(|p| p.username == person.username) {
                Some(first) => refused.push(format!(
                    "line {line}: the name differs only in case from the one in line {}; rename one of them",
                    first.line
                )),
                None => people.push(person),
            },
            Ok(None) => {}
            Err(why) => refused.push(format!("line {line}: {why}")),
        }
    }
    if !refused.is_empty() {
        return Ok(WebAccountsImport::Refused(refused));
    }
    let (mut numbers, mut created) = (BTreeMap::new(), 0);
    for person in people {
        let number = if let Some(account) = person.account {
            account
        } else {
            created += 1;
            let new = NewAccount {
                username: Some(person.username),
                password: Some(person.password),
                ..NewAccount::default()
            };
            users.create(by, &new).await?
        };
        numbers.insert(person.line, number);
    }
    Ok(WebAccountsImport::Done {
        text: with_accounts(&text, &numbers),
        created,
    })
}

/// Returns the lines with users, counted from 1.
fn user_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with('#'))
}

/// Returns the account to create for a user, or why there can be none. `None`: the user has an account.
async fn person(
    users: &AllUsers,
    line: usize,
    user: &WebAccount,
) -> anyhow::Result<Result<Option<WebUserLine>, String>> {
    let WebProof::Password(password) = &user.proof else {
        return Ok(Ok(None));
    };
    let username = ExternalIdKey::username(&user.name)
        .and_then(|username| check_new_username(&user.name).map(|()| username));
    let username = match username {
        Ok(username) => username,
        Err(problem) => return Ok(Err(problem.to_string())),
    };
    let known = users.external_id(&username).await?;
    let password = password.expose().to_owned();
    let stored = known.as_ref().and_then(|id| id.password.clone());
    let hashing = tokio::task::spawn_blocking(move || {
        let known = stored.and_then(|stored| stored.decode().ok());
        let is_known = known.is_some_and(|known| known.verify(&password));
        let hashed = HashedPassword::new(&password, CHOSEN_PASSWORD_COST, rand::random());
        (is_known, hashed)
    });
    let (is_known, hashed) = hashing.await?;
    let Some(hashed) = hashed else {
        let most = HashedPassword::MAX_BYTES;
        return Ok(Err(format!(
            "the password of an account has at most {most} bytes; choose a shorter one"
        )));
    };
    if let Some(id) = &known {
        let row = users.store().account_get(id.account).await?;
        if row.is_some_and(|row| !row.active) {
            return Ok(Err(format!(
                "account {0} has this user name and is inactive; activate it with `lockkeeper accounts activate {0}`, or \
                 remove the line",
                id.account
            )));
        }
    }
    if let Some(id) = known.as_ref().filter(|_| !is_known) {
        let account = id.account;
        let other = if id.password.is_some() {
            "another"
        } else {
            "no"
        };
        return Ok(Err(format!(
            "account {account} has this user name and {other} password; if it is the same person, write \
             `account={account}` in place of the password"
        )));
    }
    Ok(Ok(Some(WebUserLine {
        line,
        username,
        password: hashed.to_stored(),
        account: known.map(|id| id.account),
    })))
}

/// Writes `account=` in place of `password=`, and leaves everything else alone.
fn with_accounts(text: &str, numbers: &BTreeMap<usize, AccountId>) -> String {
    let lines = (1..).zip(text.lines()).map(|(at, line)| {
        let mut words = line.split_whitespace();
        let password = words.find(|word| word.starts_with("password="));
        match (numbers.get(&at), password) {
            (Some(account), Some(password)) => {
                // The same text can be a part of another word.
                let start = password.as_ptr().addr() - line.as_ptr().addr();
                let (before, rest) = line.split_at(start);
                format!("{before}account={account}{}", &rest[password.len()..])
            }
            _ => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_passwords_of_those_with_an_account_are_replaced() {
        let text = "# password=none\n user=xpassword=1  password=1 owners=net\nuser=lee owners=net account=7\n";
        let numbers = BTreeMap::from([(2, AccountId::FIRST)]);
        assert_eq!(
            with_accounts(text, &numbers),
            "# password=none\n user=xpassword=1  account=1000000 owners=net\nuser=lee owners=net account=7\n"
        );
        let lines: Vec<usize> = user_lines(text).map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 3]);
    }
}
