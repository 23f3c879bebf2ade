//! Applies every rule to a copy of `All-Users`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::findings::{
    AccountFindings, Problem, Severity, check_access, check_defaults, check_external_ids,
    check_notes, check_user_branch, check_user_branch_alone,
};
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};
use lockkeeper_accounts::ssh_keys::KeyRules;
use serde::Serialize;

use super::copy::AccountsCopy;
use super::git::ACCOUNTS_DIR;
use super::search::AccountWords;
use super::stars::{IndexedStars, changed_stars};
use super::store::{AccountIndex, AccountRow, IndexedAccount};
use super::view::AccountJson;
use super::wanted::WantedTables;
use crate::kit::web::text::shown;

/// Smallest RSA keys that are accepted.
pub(super) const KEYS: KeyRules = KeyRules { min_rsa_bits: 2048 };

/// Way out if tables and branches differ.
const REINDEX: &str = "run `lockkeeper reindex accounts`, and report this, because it is a defect";

/// Maximum number of stars on unseen changes that have a line each.
const NAMED_STARS: usize = 20;

/// Word for what an import leaves out.
const LEFT_OUT: &str = "left out";

/// Problem of a ref, which is printed as `<ref>: error: <file>:<line>: <problem>; <way out>`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RefProblem {
    #[serde(rename = "ref")]
    name: String,
    #[serde(skip)]
    severity: Severity,
    /// Severity as people read it. A part without effect is a warning of a check, and an import leaves it out.
    #[serde(rename = "severity")]
    word: &'static str,
    /// File, line, mistake and way out.
    text: String,
}

impl RefProblem {
    /// Creates the problem of a ref that an import leaves out.
    pub(super) fn left_out(name: String, text: String) -> Self {
        Self {
            name,
            severity: Severity::Unusable,
            word: LEFT_OUT,
            text,
        }
    }
}

impl fmt::Display for RefProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.word, self.text)
    }
}

/// Problems of a copy.
pub(super) struct CheckedCopy {
    pub(super) problems: Vec<RefProblem>,
    /// Word for a part that has no effect.
    unusable: &'static str,
}

impl CheckedCopy {
    fn without_problems(unusable: &'static str) -> Self {
        Self {
            problems: Vec::new(),
            unusable,
        }
    }

    /// Checks everything that can be seen without knowing who pushed it. A part without effect is a warning, because an import
    /// leaves it where it is.
    pub(super) fn of(copy: &AccountsCopy) -> Self {
        Self::of_refs(copy, false)
    }

    /// Checks what an import cannot leave out: branches of accounts, external IDs and the sequence. Parts without effect are
    /// called left out.
    pub(super) fn of_used(copy: &AccountsCopy) -> Self {
        let mut checked = Self::of_refs(copy, true);
        checked.completeness(copy);
        checked
    }

    /// Checks a copy that somebody has made.
    pub(super) fn of_copy(copy: &AccountsCopy) -> Self {
        let mut checked = Self::of(copy);
        checked.completeness(copy);
        checked
    }

    /// Checks the accounts of the server. A copy that is only read needs no sequence.
    pub(super) fn of_server(copy: &AccountsCopy) -> Self {
        let mut checked = Self::of(copy);
        let name = AllUsersRef::AccountSequence.to_string();
        let is_bad = copy.bad_refs.iter().any(|(bad, _)| *bad == name);
        if let Some(highest) = copy.highest_account()
            && copy.sequence.is_none()
            && !is_bad
        {
            let what = format!("there is no next number, but account {highest} exists");
            let fix = "push a number above those of all accounts that there were";
            checked.add_problem(&name, &Problem::error(None, what, fix));
        }
        checked
    }

    fn of_refs(copy: &AccountsCopy, is_import: bool) -> Self {
        let mut checked = Self::without_problems(if is_import { LEFT_OUT } else { "warning" });
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

    /// Nobody can sign in without external IDs. A copy without their ref was made by somebody who may not read it.
    fn completeness(&mut self, copy: &AccountsCopy) {
        if !copy.has_external_ids && copy.highest_account().is_some() {
            let what = "the copy has accounts, but not their external IDs";
            let fix = "make it as the user of `--web-basic-auth`, or as an account with the capability `accessDatabase`";
            let name = AllUsersRef::ExternalIds.to_string();
            self.add_problem(&name, &Problem::error(None, what, fix));
        }
    }

    fn defaults(&mut self, copy: &AccountsCopy) {
        let findings = check_defaults(&copy.defaults);
        self.add(&AllUsersRef::UserDefault.to_string(), &findings);
    }

    fn access(&mut self, copy: &AccountsCopy) {
        if let Some(files) = &copy.access {
            let findings = check_access(files, |account| copy.has_account(account));
            self.add(&AllUsersRef::Config.to_string(), &findings);
        }
    }

    fn external_ids(&mut self, copy: &AccountsCopy) {
        let findings = match &copy.notes {
            Ok(notes) => {
                let notes = notes.iter().map(|(name, text)| (*name, text.as_slice()));
                check_external_ids(notes, |account| copy.has_account(account))
            }
            Err(faults) => check_notes(faults),
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
                let (what, fix) = if copy.has_account(highest) {
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

    /// Returns the problems with this severity.
    pub(super) fn of_severity(&self, severity: Severity) -> impl Iterator<Item = &RefProblem> {
        let problems = self.problems.iter();
        problems.filter(move |problem| problem.severity == severity)
    }

    /// Returns the errors. All other problems are warnings.
    pub(super) fn errors(&self) -> impl Iterator<Item = &RefProblem> {
        self.of_severity(Severity::Error)
    }

    /// Returns the numbers of errors and of warnings.
    pub(super) fn counts(&self) -> (usize, usize) {
        let errors = self.errors().count();
        (errors, self.problems.len() - errors)
    }

    /// Checks nothing but the rows of the database.
    pub(super) fn of_tables(copy: &AccountsCopy, tables: &AccountIndex) -> Self {
        let mut checked = Self::without_problems("warning");
        checked.index(copy, tables);
        checked
    }

    /// Compares the rows of the database with the branches and external IDs that they were made from. Rows that come from
    /// something unreadable are not checked.
    pub(super) fn index(&mut self, copy: &AccountsCopy, tables: &AccountIndex) {
        let WantedTables {
            mut accounts,
            stars,
            kept,
        } = WantedTables::of(copy, tables);
        self.external_id_rows(&accounts, &kept, tables);
        self.star_rows(&stars, tables);
        let fix = REINDEX;
        for row in &tables.accounts {
            let name = AllUsersRef::User(row.number).to_string();
            let what = match accounts.remove(&row.number) {
                None => "the database has a row without a branch",
                Some(account) if !properties_agree(&account.row, row) => {
                    "the row in the database has other properties than the branch"
                }
                // Everything that is not in the row is read from this commit.
                Some(account) if account.row.commit != row.commit => {
                    "the row in the database names another commit than the branch"
                }
                Some(account) if !watches_agree(&account, tables) => {
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
            let name = AllUsersRef::User(*account);
            if !kept.contains(&name) {
                let what = "the database has words or watches of an account without a row";
                self.add_problem(&name.to_string(), &Problem::error(None, what, fix));
            }
        }
        for account in accounts.keys() {
            let name = AllUsersRef::User(*account).to_string();
            let what = "the database has no row for this branch";
            self.add_problem(&name, &Problem::error(None, what, fix));
        }
    }

    fn external_id_rows(
        &mut self,
        accounts: &BTreeMap<AccountId, IndexedAccount>,
        kept: &BTreeSet<AllUsersRef>,
        tables: &AccountIndex,
    ) {
        let (mut keys, mut emails) = (BTreeMap::new(), BTreeMap::new());
        for (number, account) in accounts {
            emails.extend(account.emails.iter().map(|email| (email.key(), *number)));
            let ids = account.external_ids.iter();
            keys.extend(ids.map(|(key, note)| (key.as_str().to_owned(), (*number, *note))));
        }
        // Nobody knows what an account should have that has neither a row nor a readable branch.
        let is_known = |owner: &AccountId| {
            accounts.contains_key(owner) || !kept.contains(&AllUsersRef::User(*owner))
        };
        let name = AllUsersRef::ExternalIds.to_string();
        let mut add = |what: &str, text: &str| {
            let what = format!("{what} in the database differs: `{}`", shown(text));
            self.add_problem(&name, &Problem::error(None, what, REINDEX));
        };
        for key in differing(&keys, &tables.external_ids) {
            let row = tables.external_ids.get(&key);
            if keys.contains_key(&key) || row.is_none_or(|(owner, _)| is_known(owner)) {
                add("an external ID", &key);
            }
        }
        for email in differing(&emails, &tables.emails) {
            let row = tables.emails.get(&email);
            if emails.contains_key(&email) || row.is_none_or(is_known) {
                add("an address", &email);
            }
        }
    }

    fn star_rows(&mut self, stars: &IndexedStars, tables: &AccountIndex) {
        for star in changed_stars(&tables.stars, stars) {
            let name = star.name().to_string();
            let what = "the labels in the database differ from the ref";
            self.add_problem(&name, &Problem::error(None, what, REINDEX));
        }
    }

    /// Warns of stars on changes that the server has never seen. An import from another server can bring a million.
    pub(super) fn unseen_changes(&mut self, copy: &AccountsCopy, seen: &HashSet<ChangeNumber>) {
        let unseen = copy.stars.keys();
        let mut unseen = unseen.filter(|(_, change)| !seen.contains(change));
        let fix = "another change may get the number, so remove the star";
        for (account, change) in unseen.by_ref().take(NAMED_STARS) {
            let name = AllUsersRef::StarredChange(*change, *account).to_string();
            let what = format!("the server has never seen change {change}");
            self.add_problem(&name, &Problem::warning(None, what, fix));
        }
        let more = unseen.count();
        if more > 0 {
            let what = format!("further stars on changes that the server has never seen: {more}");
            let problem = Problem::warning(None, what, fix);
            self.add_problem("refs/starred-changes/", &problem);
        }
    }

    /// Adds the repositories of a data directory that differ from the database, with the reasons.
    pub(super) fn caches(&mut self, faults: &[(String, String)]) {
        for (name, why) in faults {
            let fix = "the server there removes it within an hour, and makes it again for the next request";
            let problem = Problem::error(None, why, fix);
            self.add_problem(&format!("{ACCOUNTS_DIR}/{name}"), &problem);
        }
    }

    fn users(&mut self, copy: &AccountsCopy) {
        let external_ids = copy.external_ids();
        for (account, branch) in &copy.users {
            let name = AllUsersRef::User(*account).to_string();
            let ids = external_ids.get(account).map_or(&[][..], Vec::as_slice);
            let findings = match &copy.notes {
                Ok(_) => check_user_branch(&branch.files, ids, KEYS),
                Err(_) => check_user_branch_alone(&branch.files, KEYS),
            };
            self.add(&name, &findings);
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
                self.add_text(name, severity, finding.text());
            }
        }
    }

    fn add_problem(&mut self, name: &str, problem: &Problem) {
        self.add_text(name, problem.severity, problem.to_string());
    }

    fn add_text(&mut self, name: &str, severity: Severity, text: String) {
        let word = match severity {
            Severity::Error => "error",
            Severity::Unusable => self.unusable,
            Severity::Warning => "warning",
        };
        self.problems.push(RefProblem {
            name: name.to_owned(),
            severity,
            word,
            text,
        });
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
    if !copy.has_account(account) {
        let what = format!("account {account} does not exist");
        problems.push(Problem::error(None, what, "remove the ref"));
    }
    problems
}

/// Returns true if a row has the properties that it should have.
fn properties_agree(wanted: &AccountRow, row: &AccountRow) -> bool {
    AccountJson::of_row(wanted).has_properties_of(&AccountJson::of_row(row))
}

/// Returns true if the watched projects in the database are those of the branch.
fn watches_agree(wanted: &IndexedAccount, tables: &AccountIndex) -> bool {
    let rows = tables.watches.get(&wanted.row.number);
    rows.map_or(wanted.watches.is_empty(), |rows| *rows == wanted.watches)
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
