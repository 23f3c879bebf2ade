//! Applies every rule to a copy of `All-Users`.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::findings::{
    AccountFindings, Problem, Severity, judge_access, judge_external_ids, judge_notes,
    judge_user_branch,
};
use lockkeeper_accounts::preferences::Preferences;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};
use lockkeeper_accounts::ssh_keys::KeyRules;
use lockkeeper_accounts::watches::Watches;

use super::copy::{AccountsCopy, UserBranch};
use super::search::AccountWords;
use super::stars::changed_stars;
use super::store::{AccountIndex, AccountRow, watched_projects};
use super::view::AccountJson;
use crate::kit::web::text::shown;

/// Smallest RSA keys that are accepted.
pub(super) const KEYS: KeyRules = KeyRules { min_rsa_bits: 2048 };

/// Way out if tables and branches differ.
const REINDEX: &str = "run `lockkeeper reindex accounts`, and report this, because it is a defect";

/// Problems of a copy.
#[derive(Default)]
pub(super) struct CheckedCopy {
    /// One line for each problem, by ref: `<ref>: error: <file>:<line>: <problem>; <way out>`.
    pub(super) lines: Vec<(Severity, String)>,
}

impl CheckedCopy {
    /// Checks everything that can be seen without knowing who pushed it.
    pub(super) fn of(copy: &AccountsCopy) -> Self {
        Self::of_refs(copy, |_| true)
    }

    /// Checks what an import uses: not refs that `All-Users` does not have, and not an access control that this version
    /// cannot read.
    pub(super) fn of_used(copy: &AccountsCopy) -> Self {
        let mut checked = Self::of_refs(copy, |name| name.parse::<AllUsersRef>().is_ok());
        let config = format!("{}: ", AllUsersRef::Config);
        checked.lines.retain(|(_, line)| !line.starts_with(&config));
        checked
    }

    fn of_refs(copy: &AccountsCopy, counts: impl Fn(&str) -> bool) -> Self {
        let mut checked = Self::default();
        for (name, problem) in copy.bad_refs.iter().filter(|(name, _)| counts(name)) {
            checked.add_problem(name, problem);
        }
        checked.defaults(copy);
        checked.access(copy);
        checked.external_ids(copy);
        checked.sequence(copy);
        checked.stars(copy);
        checked.users(copy);
        checked
    }

    fn defaults(&mut self, copy: &AccountsCopy) {
        let Some(file) = copy.defaults.get(Preferences::FILE) else {
            return;
        };
        let problems = match ConfigText::parse(file) {
            Ok(text) => Preferences::read(&text).1,
            Err(problem) => vec![problem],
        };
        let mut findings = AccountFindings::default();
        findings.add(Preferences::FILE, problems);
        self.add(&AllUsersRef::UserDefault.to_string(), &findings);
    }

    fn access(&mut self, copy: &AccountsCopy) {
        if let Some(files) = &copy.access {
            let findings = judge_access(files, |account| copy.users.contains_key(&account));
            self.add(&AllUsersRef::Config.to_string(), &findings);
        }
    }

    fn external_ids(&mut self, copy: &AccountsCopy) {
        let findings = match &copy.notes {
            Ok(notes) => {
                let notes = notes.iter().map(|(name, text)| (*name, text.as_slice()));
                judge_external_ids(notes, |account| copy.users.contains_key(&account))
            }
            Err(faults) => judge_notes(faults),
        };
        self.add(&AllUsersRef::ExternalIds.to_string(), &findings);
    }

    fn sequence(&mut self, copy: &AccountsCopy) {
        let Some(content) = &copy.sequence else {
            return;
        };
        let highest = copy.users.keys().next_back();
        let problem = match (AccountSequence::parse(content), highest) {
            (Err(problem), _) => Some(problem),
            (Ok(AccountSequence(next)), Some(highest)) if next <= *highest => Some(Problem::error(
                None,
                format!("the next number is {next}, but account {highest} exists"),
                "write a number above all accounts",
            )),
            (Ok(_), _) => None,
        };
        if let Some(problem) = problem {
            self.add_problem(&AllUsersRef::AccountSequence.to_string(), &problem);
        }
    }

    fn stars(&mut self, copy: &AccountsCopy) {
        for ((account, change), labels) in &copy.stars {
            let name = AllUsersRef::StarredChange(*change, *account).to_string();
            if let Err(problem) = StarLabels::parse(labels) {
                self.add_problem(&name, &problem);
            }
            if !copy.users.contains_key(account) {
                let what = format!("account {account} does not exist");
                self.add_problem(&name, &Problem::error(None, what, "remove the ref"));
            }
        }
    }

    /// Returns the lines of errors. The others are warnings.
    pub(super) fn errors(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter();
        lines.filter_map(|(severity, line)| (*severity == Severity::Error).then_some(line.as_str()))
    }

    /// Checks nothing but the rows of the database.
    pub(super) fn of_tables(copy: &AccountsCopy, tables: &AccountIndex) -> Self {
        let mut checked = Self::default();
        checked.index(copy, tables);
        checked
    }

    /// Compares the rows of the database with the branches and external IDs that they were made from.
    pub(super) fn index(&mut self, copy: &AccountsCopy, tables: &AccountIndex) {
        let external_ids = copy.external_ids();
        let mut branches: BTreeMap<AccountId, AccountJson> = copy
            .users
            .iter()
            .map(|(account, branch)| {
                let ids = external_ids.get(account).map_or(&[][..], Vec::as_slice);
                let UserBranch { files, history, .. } = branch;
                let json = AccountJson::new(*account, files, history.began_at, ids, Vec::new());
                (*account, json)
            })
            .collect();
        self.external_id_rows(copy, tables);
        self.star_rows(copy, tables);
        let fix = REINDEX;
        for row in &tables.accounts {
            let name = AllUsersRef::User(row.number).to_string();
            let what = match branches.remove(&row.number) {
                None => "the database has a row without a branch",
                Some(branch) if !branch.has_properties_of(&AccountJson::of_row(row)) => {
                    "the row in the database has other properties than the branch"
                }
                // Everything that is not in the row is read from this commit.
                Some(_)
                    if copy.users.get(&row.number).map(|branch| branch.tip) != Some(row.commit) =>
                {
                    "the row in the database names another commit than the branch"
                }
                Some(_) if !watches_agree(copy, tables, row.number) => {
                    "the watches in the database differ from the branch"
                }
                Some(_) if !words_agree(tables, row) => {
                    "the words in the database, by which searches find the account, differ from its properties"
                }
                Some(_) => continue,
            };
            self.add_problem(&name, &Problem::error(None, what, fix));
        }
        let known: BTreeSet<AccountId> = tables.accounts.iter().map(|row| row.number).collect();
        let others = tables.words.keys().chain(tables.watches.keys());
        let others: BTreeSet<&AccountId> = others.filter(|of| !known.contains(*of)).collect();
        for account in others {
            let name = AllUsersRef::User(*account).to_string();
            let what = "the database has words or watches of an account without a row";
            self.add_problem(&name, &Problem::error(None, what, fix));
        }
        for account in branches.keys() {
            let name = AllUsersRef::User(*account).to_string();
            let what = "the database has no row for this branch";
            self.add_problem(&name, &Problem::error(None, what, fix));
        }
    }

    fn external_id_rows(&mut self, copy: &AccountsCopy, tables: &AccountIndex) {
        let (mut keys, mut emails) = (BTreeMap::new(), BTreeMap::new());
        for (note, id) in copy.read_notes() {
            emails.extend(id.email.as_ref().map(|email| (email.key(), id.account)));
            keys.insert(id.key.as_str().to_owned(), (id.account, note));
        }
        let name = AllUsersRef::ExternalIds.to_string();
        let mut add = |what: &str, text: &str| {
            let what = format!("{what} in the database differs: `{}`", shown(text));
            self.add_problem(&name, &Problem::error(None, what, REINDEX));
        };
        for key in differing(&keys, &tables.external_ids) {
            add("an external ID", &key);
        }
        for email in differing(&emails, &tables.emails) {
            add("an address", &email);
        }
    }

    fn star_rows(&mut self, copy: &AccountsCopy, tables: &AccountIndex) {
        for star in changed_stars(&tables.stars, &copy.read_stars()) {
            let name = star.name().to_string();
            let what = "the labels in the database differ from the ref";
            self.add_problem(&name, &Problem::error(None, what, REINDEX));
        }
    }

    fn users(&mut self, copy: &AccountsCopy) {
        let external_ids = copy.external_ids();
        for (account, branch) in &copy.users {
            let name = AllUsersRef::User(*account).to_string();
            let ids = external_ids.get(account).map_or(&[][..], Vec::as_slice);
            self.add(&name, &judge_user_branch(&branch.files, ids, KEYS));
            if let Some(merge) = branch.history.merge {
                let what = format!("the commit {merge} is a merge");
                let fix = "rebase the branch, so that each commit has one parent";
                self.add_problem(&name, &Problem::error(None, what, fix));
            }
        }
    }

    fn add(&mut self, name: &str, findings: &AccountFindings) {
        for severity in [Severity::Error, Severity::Warning] {
            let lines = findings.of(severity);
            self.lines
                .extend(lines.map(|line| (severity, format!("{name}: {line}"))));
        }
    }

    fn add_problem(&mut self, name: &str, problem: &Problem) {
        self.lines
            .push((problem.severity, format!("{name}: error: {problem}")));
    }
}

/// Returns true if the watched projects in the database are those of the branch.
fn watches_agree(copy: &AccountsCopy, tables: &AccountIndex, account: AccountId) -> bool {
    let branch = copy.users.get(&account);
    let file = branch.and_then(|branch| branch.files.get(Watches::FILE));
    let rows = tables.watches.get(&account).cloned().unwrap_or_default();
    rows == watched_projects(file)
}

/// Returns true if the words in the database are those of the row, which is compared with the branch.
fn words_agree(tables: &AccountIndex, row: &AccountRow) -> bool {
    let words = tables.words.get(&row.number).cloned().unwrap_or_default();
    words == AccountWords::of(row)
}

/// Returns the keys that only one has, or that have another value there.
fn differing<T: PartialEq>(
    left: &BTreeMap<String, T>,
    right: &BTreeMap<String, T>,
) -> BTreeSet<String> {
    let keys = left.keys().chain(right.keys());
    keys.filter(|key| left.get(*key) != right.get(*key))
        .cloned()
        .collect()
}
