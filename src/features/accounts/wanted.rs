//! Rows that the tables of accounts should have.
//!
//! They are made from everything that can be read. A branch, an external ID or a star that cannot be read must not keep
//! the rows of others from being made again, and nobody may be let in by a guess. So its own rows stay as they are:
//!
//! | Cannot be read | Stays as it is |
//! |---|---|
//! | a branch, or its `account.config` | row and watches of the account; external IDs and addresses, but for those that it has lost |
//! | an external ID | its row, and addresses of its account that nobody else has |
//! | all external IDs | rows of all external IDs and addresses. Names, states and watches follow the branches |
//! | a star | its labels |
//!
//! An address on external IDs of several accounts stays with that one of them that has it in the tables.

use std::collections::{BTreeMap, BTreeSet};

use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_accounts::blobs::StarLabels;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey, NoteName};
use lockkeeper_accounts::findings::Severity;
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};

use super::copy::AccountsCopy;
use super::import::indexed;
use super::stars::{IndexedStars, SharedLabels};
use super::store::{AccountIndex, AccountRow, IndexedAccount, WrittenTables};

/// Rows that the tables should have.
pub(super) struct WantedTables {
    pub(super) accounts: BTreeMap<AccountId, IndexedAccount>,
    pub(super) stars: IndexedStars,
    /// Refs that cannot be read, at least not all of them, so that some rows stay as they are.
    pub(super) kept: BTreeSet<AllUsersRef>,
}

impl WantedTables {
    /// Makes the rows of a copy. `tables` are of the same moment, and have those rows that stay.
    pub(super) fn of(copy: &AccountsCopy, tables: &AccountIndex) -> Self {
        let mut names = WantedNames::of(copy, tables);
        let rows = tables.accounts.iter().map(|row| (row.number, row));
        let rows: BTreeMap<AccountId, &AccountRow> = rows.collect();
        let mut wanted = Self {
            accounts: BTreeMap::new(),
            stars: IndexedStars::new(),
            kept: BTreeSet::new(),
        };
        if names.is_incomplete {
            wanted.kept.insert(AllUsersRef::ExternalIds);
        }
        let mut shared = SharedLabels::default();
        for (name, tip) in &tables.refs {
            match name.parse() {
                Ok(AllUsersRef::User(account)) => {
                    let own = names.by_account.remove(&account).unwrap_or_default();
                    let branch = copy.users.get(&account);
                    let made = branch.map(|branch| indexed(account, *tip, branch, &own.ids, copy));
                    if let Some(Ok(made)) = made {
                        wanted.accounts.insert(account, own.of(made));
                        continue;
                    }
                    wanted.kept.insert(AllUsersRef::User(account));
                    if let Some(row) = rows.get(&account) {
                        let stays = own.without_new(account, tables).of_row(row, tables);
                        wanted.accounts.insert(account, stays);
                    }
                }
                Ok(AllUsersRef::StarredChange(change, account)) => {
                    let star = (account, change);
                    let labels = if let Some(labels) = readable_labels(copy, star) {
                        Some(shared.share(labels.into_set()))
                    } else {
                        let name = AllUsersRef::StarredChange(change, account);
                        wanted.kept.insert(name);
                        tables.stars.get(&star).cloned()
                    };
                    wanted.stars.extend(labels.map(|labels| (star, labels)));
                }
                _ => {}
            }
        }
        wanted
    }
}

/// Returns the labels of a star of an account that exists.
fn readable_labels(copy: &AccountsCopy, star: (AccountId, ChangeNumber)) -> Option<StarLabels> {
    let labels = copy.stars.get(&star).filter(|_| copy.has_account(star.0))?;
    StarLabels::parse(labels).ok()
}

/// External IDs and addresses that the tables should have.
#[derive(Default)]
struct WantedNames {
    by_account: BTreeMap<AccountId, NamesOfAccount>,
    /// True if some rows stay as they are.
    is_incomplete: bool,
}

/// External IDs of an account with the blobs of their notes, and its addresses.
#[derive(Default)]
struct NamesOfAccount {
    /// External IDs from which the row of the account is made, sorted by key: the first user name is that of the account.
    ids: Vec<ExternalId>,
    notes: Vec<(ExternalIdKey, ObjectId)>,
    emails: Vec<AccountEmail>,
}

impl WantedNames {
    fn of(copy: &AccountsCopy, tables: &AccountIndex) -> Self {
        let Ok(notes) = &copy.notes else {
            return Self::of_tables(tables);
        };
        let mut names = Self::default();
        // Names of notes that say nothing, accounts with such a note, and the accounts of each address.
        let mut unreadable: BTreeSet<NoteName> = BTreeSet::new();
        let mut incomplete: BTreeSet<AccountId> = BTreeSet::new();
        let mut emails: BTreeMap<String, (AccountEmail, BTreeSet<AccountId>)> = BTreeMap::new();
        for (name, content) in notes {
            let text = ConfigText::parse(content).ok();
            let (id, problems) = text.map_or((None, Vec::new()), |text| ExternalId::read(&text));
            match id {
                // Of an account that does not exist: it takes nothing from others.
                Some(id) if id.key.note_name() == *name && !copy.has_account(id.account) => {}
                Some(id) if id.key.note_name() == *name => {
                    if problems
                        .iter()
                        .any(|problem| problem.severity == Severity::Error)
                    {
                        incomplete.insert(id.account);
                    }
                    if let Some(email) = &id.email {
                        let of = emails
                            .entry(email.key())
                            .or_insert_with(|| (email.clone(), BTreeSet::new()));
                        of.1.insert(id.account);
                    }
                    names.add(id, GitObject::new(Kind::Blob, content.clone()).id);
                }
                other => {
                    unreadable.insert(*name);
                    // The note under the right name decides, if there is one.
                    let key = other.map(|id| id.key.note_name());
                    unreadable.extend(key.filter(|key| !notes.contains_key(key)));
                }
            }
        }
        for (key, (account, note)) in &tables.external_ids {
            if let Ok(key) = key.parse::<ExternalIdKey>()
                && unreadable.contains(&key.note_name())
            {
                incomplete.insert(*account);
                names.keep(key, *account, *note);
            }
        }
        names.is_incomplete = !unreadable.is_empty() || !incomplete.is_empty();
        for (key, owner) in &tables.emails {
            if !emails.contains_key(key)
                && incomplete.contains(owner)
                && let Ok(email) = key.parse()
            {
                names.keep_email(email, *owner);
            }
        }
        for (key, (email, claimants)) in emails {
            let owner = if claimants.len() == 1 {
                claimants.first()
            } else {
                names.is_incomplete = true;
                let present = tables.emails.get(&key);
                present.filter(|owner| claimants.contains(owner))
            };
            if let Some(owner) = owner {
                names
                    .by_account
                    .entry(*owner)
                    .or_default()
                    .emails
                    .push(email);
            }
        }
        for own in names.by_account.values_mut() {
            own.ids.sort_by(|a, b| a.key.cmp(&b.key));
        }
        names
    }

    /// Returns what the tables have, because nobody knows what they should have.
    fn of_tables(tables: &AccountIndex) -> Self {
        let mut names = Self {
            is_incomplete: true,
            ..Self::default()
        };
        for (key, (account, note)) in &tables.external_ids {
            if let Ok(key) = key.parse() {
                names.keep(key, *account, *note);
            }
        }
        for (key, account) in &tables.emails {
            if let Ok(email) = key.parse() {
                names.keep_email(email, *account);
            }
        }
        names
    }

    /// Keeps the row of an address.
    fn keep_email(&mut self, email: AccountEmail, account: AccountId) {
        let own = self.by_account.entry(account).or_default();
        // The external ID that has it is not known, and does not matter for the row of the account.
        if let Ok(key) = format!("mailto:{}", email.as_str()).parse() {
            own.ids.push(ExternalId {
                key,
                account,
                email: Some(email.clone()),
                password: None,
            });
        }
        own.emails.push(email);
    }

    fn add(&mut self, id: ExternalId, note: ObjectId) {
        let own = self.by_account.entry(id.account).or_default();
        own.notes.push((id.key.clone(), note));
        own.ids.push(id);
    }

    /// Keeps the row of an external ID.
    fn keep(&mut self, key: ExternalIdKey, account: AccountId, note: ObjectId) {
        let id = ExternalId {
            key,
            account,
            email: None,
            password: None,
        };
        self.add(id, note);
    }
}

impl NamesOfAccount {
    /// Gives these names to rows that were made from a branch.
    fn of(self, made: IndexedAccount) -> IndexedAccount {
        IndexedAccount {
            external_ids: self.notes,
            emails: self.emails,
            ..made
        }
    }

    /// Leaves out names that the account does not have in the tables.
    fn without_new(mut self, account: AccountId, tables: &AccountIndex) -> Self {
        let has = |key: &str| {
            let row = tables.external_ids.get(key);
            row.is_some_and(|(owner, _)| *owner == account)
        };
        self.ids.retain(|id| has(id.key.as_str()));
        self.notes.retain(|(key, _)| has(key.as_str()));
        self.emails
            .retain(|email| tables.emails.get(&email.key()) == Some(&account));
        self
    }

    /// Gives these names to an account whose other rows stay as they are.
    fn of_row(self, row: &AccountRow, tables: &AccountIndex) -> IndexedAccount {
        let username = self.ids.iter().find_map(|id| id.key.as_username());
        let username = username.map(str::to_owned);
        self.of(IndexedAccount {
            row: AccountRow {
                username,
                ..row.clone()
            },
            external_ids: Vec::new(),
            emails: Vec::new(),
            watches: tables.watches.get(&row.number).cloned().unwrap_or_default(),
            written: WrittenTables::ALL,
        })
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::super::copy::UserBranch;
    use super::*;
    use crate::git::BranchHistory;

    const KIM: u32 = 5;
    const LEE: u32 = 6;

    fn account(number: u32) -> AccountId {
        AccountId::new(number).unwrap()
    }

    fn id(digit: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[digit; 20])
    }

    fn name_of(key: &str) -> NoteName {
        key.parse::<ExternalIdKey>().unwrap().note_name()
    }

    /// Returns a copy with both accounts, their files and these notes, each under the name of a key.
    fn copy(config: &str, notes: &[(&str, &str)]) -> AccountsCopy {
        let branch = |config: &str| UserBranch {
            tip: id(1),
            files: [("account.config".to_owned(), config.as_bytes().to_vec())].into(),
            history: BranchHistory {
                began_at: DateTime::UNIX_EPOCH,
                merge: None,
            },
        };
        let notes = notes.iter();
        let notes = notes.map(|(key, text)| (name_of(key), text.as_bytes().to_vec()));
        AccountsCopy {
            users: [(account(KIM), branch(config)), (account(LEE), branch(""))].into(),
            unreadable: BTreeSet::new(),
            defaults: BTreeMap::new(),
            notes: Ok(notes.collect()),
            has_external_ids: true,
            access: None,
            stars: BTreeMap::new(),
            sequence: None,
            bad_refs: Vec::new(),
        }
    }

    /// Returns tables in which both accounts exist, with these external IDs and addresses.
    fn tables(ids: &[(&str, u32)], emails: &[(&str, u32)]) -> AccountIndex {
        let row = |number: u32, full_name: &str| AccountRow {
            number: account(number),
            full_name: Some(full_name.to_owned()),
            preferred_email: None,
            status: None,
            active: true,
            username: None,
            registered_at: DateTime::UNIX_EPOCH,
            commit: id(1),
        };
        let names = [KIM, LEE].map(|number| AllUsersRef::User(account(number)).to_string());
        let ids = ids.iter();
        let emails = emails.iter();
        AccountIndex {
            refs: names.map(|name| (name, id(1))).into(),
            accounts: vec![row(KIM, "Kim in the tables"), row(LEE, "Lee in the tables")],
            external_ids: ids
                .map(|(key, owner)| ((*key).to_owned(), (account(*owner), id(2))))
                .collect(),
            emails: emails
                .map(|(email, owner)| ((*email).to_owned(), account(*owner)))
                .collect(),
            ..AccountIndex::default()
        }
    }

    /// Returns the external IDs and addresses of each account, and whether some of them stay as they are.
    fn names(copy: &AccountsCopy, tables: &AccountIndex) -> (Vec<String>, bool) {
        let wanted = WantedTables::of(copy, tables);
        let lines = wanted.accounts.iter().map(|(account, own)| {
            let ids = own.external_ids.iter().map(|(key, note)| {
                let kept = if *note == id(2) { " kept" } else { "" };
                format!("{}{kept}", key.as_str())
            });
            let emails = own.emails.iter().map(|email| email.as_str().to_owned());
            let mut all: Vec<String> = ids.chain(emails).collect();
            all.sort();
            format!("{account}: {}", all.join(", "))
        });
        let lines = lines.collect();
        (lines, wanted.kept.contains(&AllUsersRef::ExternalIds))
    }

    fn note(key: &str, owner: u32, email: &str) -> String {
        let email = if email.is_empty() {
            String::new()
        } else {
            format!("\temail = {email}\n")
        };
        format!("[externalId \"{key}\"]\n\taccountId = {owner}\n{email}")
    }

    #[test]
    fn notes_that_can_be_read_decide() {
        let text = note("x:1", KIM, "Kim@example.com");
        let copy = copy("", &[("x:1", &text)]);
        let tables = tables(
            &[("x:1", LEE), ("x:2", LEE)],
            &[("kim@example.com", LEE), ("lee@example.com", LEE)],
        );
        let expected = ["5: Kim@example.com, x:1", "6: "].map(str::to_owned);
        assert_eq!(names(&copy, &tables), (expected.to_vec(), false));
    }

    #[test]
    fn a_note_that_cannot_be_read_keeps_its_row_and_addresses_that_nobody_else_has() {
        let text = note("x:2", LEE, "b@example.com");
        let copy = copy("", &[("x:1", "[externalId"), ("x:2", &text)]);
        let tables = tables(
            &[("x:1", KIM), ("x:3", KIM), ("x:2", KIM)],
            &[
                ("a@example.com", KIM),
                ("b@example.com", KIM),
                ("c@example.com", LEE),
            ],
        );
        let expected = ["5: a@example.com, x:1 kept", "6: b@example.com, x:2"].map(str::to_owned);
        assert_eq!(names(&copy, &tables), (expected.to_vec(), true));
    }

    #[test]
    fn a_note_under_a_wrong_name_gives_nobody_an_external_id() {
        let text = note("x:1", LEE, "lee@example.com");
        let copy = copy("", &[("x:9", &text)]);
        let nothing = ["5: ", "6: "].map(str::to_owned);
        let none = tables(&[], &[]);
        assert_eq!(names(&copy, &none), (nothing.to_vec(), true));
        // Somebody who has it keeps it.
        let held = tables(&[("x:1", KIM)], &[]);
        let expected = ["5: x:1 kept", "6: "].map(str::to_owned);
        assert_eq!(names(&copy, &held), (expected.to_vec(), true));
    }

    #[test]
    fn an_address_of_two_accounts_stays_where_it_is() {
        let (one, two) = (
            note("x:1", KIM, "a@example.com"),
            note("x:2", LEE, "A@example.com"),
        );
        let copy = copy("", &[("x:1", &one), ("x:2", &two)]);
        for (owner, expected) in [
            (KIM, ["5: a@example.com, x:1", "6: x:2"]),
            (LEE, ["5: x:1", "6: a@example.com, x:2"]),
            // Neither of them.
            (7, ["5: x:1", "6: x:2"]),
        ] {
            let tables = tables(&[], &[("a@example.com", owner)]);
            let (lines, is_incomplete) = names(&copy, &tables);
            let lines: Vec<String> = lines.iter().map(|line| line.to_lowercase()).collect();
            assert_eq!(
                (lines, is_incomplete),
                (expected.map(str::to_owned).to_vec(), true)
            );
        }
    }

    #[test]
    fn an_address_that_is_none_keeps_those_of_its_account() {
        let text = note("x:1", KIM, "nonsense");
        let copy = copy("", &[("x:1", &text)]);
        let tables = tables(&[], &[("a@example.com", KIM), ("b@example.com", LEE)]);
        let expected = ["5: a@example.com, x:1", "6: "].map(str::to_owned);
        assert_eq!(names(&copy, &tables), (expected.to_vec(), true));
    }

    #[test]
    fn an_account_whose_file_cannot_be_read_keeps_its_row_and_gets_no_new_name() {
        let (one, two) = (note("username:kim", KIM, ""), note("x:2", KIM, ""));
        let copy = copy("[account", &[("username:kim", &one), ("x:2", &two)]);
        let tables = tables(&[("username:kim", KIM), ("x:3", KIM)], &[]);
        let wanted = WantedTables::of(&copy, &tables);
        assert!(wanted.kept.contains(&AllUsersRef::User(account(KIM))));
        let kim = &wanted.accounts[&account(KIM)];
        assert_eq!(kim.row.full_name.as_deref(), Some("Kim in the tables"));
        assert_eq!(kim.row.username.as_deref(), Some("kim"));
        let expected = ["5: username:kim", "6: "].map(str::to_owned);
        assert_eq!(names(&copy, &tables), (expected.to_vec(), false));
        let lee = &wanted.accounts[&account(LEE)];
        assert_eq!(lee.row.full_name, None);
    }
}
