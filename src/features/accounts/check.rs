//! Applies every rule to a copy of `All-Users`.

use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::findings::{
    AccountFindings, Problem, Severity, judge_external_ids, judge_notes, judge_user_branch,
};
use lockkeeper_accounts::preferences::Preferences;
use lockkeeper_accounts::refs::AllUsersRef;
use lockkeeper_accounts::ssh_keys::KeyRules;

use super::copy::AccountsCopy;

/// Smallest RSA keys that are accepted.
const KEYS: KeyRules = KeyRules { min_rsa_bits: 2048 };

/// Problems of a copy.
pub(super) struct CheckedCopy {
    /// One line for each problem, by ref: `<ref>: error: <file>:<line>: <problem>; <way out>`.
    pub(super) lines: Vec<String>,
    /// Number of errors. The others are warnings.
    pub(super) errors: usize,
}

impl CheckedCopy {
    /// Checks everything that can be seen without knowing who pushed it.
    pub(super) fn of(copy: &AccountsCopy) -> Self {
        let mut checked = Self {
            lines: Vec::new(),
            errors: 0,
        };
        for (name, problem) in &copy.bad_refs {
            checked.add_problem(name, problem);
        }
        checked.defaults(copy);
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
        self.errors += findings.of(Severity::Error).count();
        for severity in [Severity::Error, Severity::Warning] {
            let lines = findings.of(severity);
            self.lines
                .extend(lines.map(|line| format!("{name}: {line}")));
        }
    }

    fn add_problem(&mut self, name: &str, problem: &Problem) {
        self.errors += usize::from(problem.severity == Severity::Error);
        self.lines.push(format!("{name}: error: {problem}"));
    }
}
