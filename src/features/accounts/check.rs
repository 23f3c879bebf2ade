//! Applies every rule to a copy of `All-Users`.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::findings::{
    AccountFindings, Problem, Severity, judge_access, judge_defaults, judge_external_ids,
    judge_notes, judge_user_branch,
};
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
pub(super) struct CheckedCopy {
    /// One line for each problem, by ref: `<ref>: error: <file>:<line>: <problem>; <way out>`.
    pub(super) lines: Vec<(Severity, String)>,
    /// Word for a part that has no effect.
    unusable: &'static str,
}

impl CheckedCopy {
    fn without_lines(unusable: &'static str) -> Self {
        Self {
            lines: Vec::new(),
            unusable,
        }
    }

    /// Checks everything that can be seen without knowing who pushed it. A part without effect is a warning, because an import
    /// leaves it where it is.
    pub(super) fn of(copy: &AccountsCopy) -> Self {
        Self::of_refs(copy, false)
    }

    /// Checks what an import cannot leave out: branches of accounts, external IDs and the sequence. The lines of parts without
    /// effect say that they were left out.
    pub(super) fn of_used(copy: &AccountsCopy) -> Self {
        Self::of_refs(copy, true)
    }

    fn of_refs(copy: &AccountsCopy, is_import: bool) -> Self {
        let mut checked = Self::without_lines(if is_import { "left out" } else { "warning" });
        for (name, problem) in &copy.bad_refs {
            if !is_import || name.parse::<AllUsersRef>().is_ok_and(is_needed) {
                checked.add_problem(name, problem);
            }
        }
        checked.defaults(copy);
        if !is_import {
            checked.access(copy);
        }
        checked.external_ids(copy);
        checked.sequence(copy);
        if !is_import {
            checked.stars(copy);
        }
        checked.users(copy);
        checked
    }

    fn defaults(&mut self, copy: &AccountsCopy) {
        let findings = judge_defaults(&copy.defaults);
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
        let problem = match (AccountSequence::parse(content), copy.highest_number()) {
            (Err(problem), _) => Some(problem),
            (Ok(AccountSequence(next)), Some(highest)) if next <= highest => {
                let (what, fix) = if copy.users.contains_key(&highest) {
                    ("exists", "write a number above all accounts")
                } else {
                    (
                        "has an external ID, which a new account would get",
                        "write a number above it, or remove its external IDs",
                    )
                };
                let what = format!("the next number is {next}, but account {highest} {what}");
                Some(Problem::error(None, what, fix))
            }
            (Ok(_), _) => None,
        };
        if let Some(problem) = problem {
            self.add_problem(&AllUsersRef::AccountSequence.to_string(), &problem);
        }
    }

    fn stars(&mut self, copy: &AccountsCopy) {
        for ((account, change), labels) in &copy.stars {
            let name = AllUsersRef::StarredChange(*change, *account).to_string();
            for problem in star_problems(copy, *account, labels) {
                self.add_problem(&name, &problem);
            }
        }
    }

    /// Returns the lines with this severity.
    pub(super) fn of_severity(&self, severity: Severity) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter();
        lines.filter_map(move |(is, line)| (*is == severity).then_some(line.as_str()))
    }

    /// Returns the lines of errors. The others are warnings.
    pub(super) fn errors(&self) -> impl Iterator<Item = &str> {
        self.of_severity(Severity::Error)
    }

    /// Checks nothing but the rows of the database.
    pub(super) fn of_tables(copy: &AccountsCopy, tables: &AccountIndex) -> Self {
        let mut checked = Self::without_lines("warning");
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
                // Nothing depends on it, and a history is never rewritten.
                let what = format!("the commit {merge} is a merge");
                let fix = "the history is that of its first parent";
                self.add_problem(&name, &Problem::warning(None, what, fix));
            }
        }
    }

    fn add(&mut self, name: &str, findings: &AccountFindings) {
        for severity in [Severity::Error, Severity::Unusable, Severity::Warning] {
            for finding in findings.of(severity) {
                self.add_line(name, severity, &finding.text());
            }
        }
    }

    fn add_problem(&mut self, name: &str, problem: &Problem) {
        self.add_line(name, problem.severity, &problem.to_string());
    }

    fn add_line(&mut self, name: &str, severity: Severity, text: &str) {
        let word = match severity {
            Severity::Error => "error",
            Severity::Unusable => self.unusable,
            Severity::Warning => "warning",
        };
        let line = format!("{name}: {word}: {text}");
        self.lines.push((severity, line));
    }
}

/// Returns true if nothing can be imported without this ref, if it is there.
fn is_needed(name: AllUsersRef) -> bool {
    match name {
        AllUsersRef::User(_)
        | AllUsersRef::UserDefault
        | AllUsersRef::ExternalIds
        | AllUsersRef::AccountSequence => true,
        AllUsersRef::UserSelf | AllUsersRef::Config | AllUsersRef::StarredChange(..) => false,
    }
}

/// Lists the problems of the labels that an account gave a change.
pub(super) fn star_problems(
    copy: &AccountsCopy,
    account: AccountId,
    labels: &[u8],
) -> Vec<Problem> {
    let mut problems: Vec<Problem> = StarLabels::parse(labels).err().into_iter().collect();
    if !copy.users.contains_key(&account) {
        let what = format!("account {account} does not exist");
        problems.push(Problem::error(None, what, "remove the ref"));
    }
    problems
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
