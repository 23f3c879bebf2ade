//! Problems of pushed data. A refused push prints each of them as a line with the file, the line and the way out.

mod check;

use std::fmt;

use sha1::{Digest as _, Sha1};

pub use self::check::{
    MAX_BRANCH_FILES, check_access, check_defaults, check_external_ids, check_notes,
    check_user_branch, check_user_branch_alone,
};
use crate::text::shown;

/// Consequence of a problem for a push, and for accounts that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The push is refused, and so is an import.
    Error,
    /// The part has no effect. A push that adds it is refused. An import leaves it as it is, and it may stay.
    Unusable,
    /// The push is accepted, and the line is printed.
    Warning,
}

/// A problem of a file, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Consequence of the problem for a push.
    pub severity: Severity,
    /// Line of the file, counted from 1. `None` stands for the whole file.
    pub line: Option<usize>,
    /// The mistake, in a few words.
    pub what: String,
    /// The way out, in a few words.
    pub fix: String,
    /// Number that is above a limit, if that is the problem.
    pub number: Option<usize>,
}

impl Problem {
    /// Creates an error, which refuses the push.
    pub fn error(
        line: impl Into<Option<usize>>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            line: line.into(),
            what: what.into(),
            fix: fix.into(),
            number: None,
        }
    }

    /// Creates an error about a number above a limit.
    pub fn limit(number: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            number: Some(number),
            ..Self::error(None, what, fix)
        }
    }

    /// Makes an error a problem of a part that has no effect.
    pub(crate) fn into_unusable(self) -> Self {
        let severity = match self.severity {
            Severity::Error => Severity::Unusable,
            severity @ (Severity::Unusable | Severity::Warning) => severity,
        };
        Self { severity, ..self }
    }

    /// Creates a warning, which only prints a line.
    pub fn warning(
        line: impl Into<Option<usize>>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(line, what, fix)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}; {}", self.what, self.fix)
    }
}

impl std::error::Error for Problem {}

/// A problem and the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path in the tree, or the name of a note.
    pub file: String,
    /// The mistake and the way out.
    pub problem: Problem,
    /// Hash of the line, which can have a password.
    line_hash: Option<[u8; 20]>,
}

impl Finding {
    /// Returns file, line, mistake and way out, without the severity.
    pub fn text(&self) -> String {
        let Problem {
            line, what, fix, ..
        } = &self.problem;
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}: {what}; {fix}", self.file)
    }

    /// Returns true if the problem was there before: the same one of the same line, or a number that was as large.
    fn was(&self, old: &Self) -> bool {
        let is_same = match (self.problem.number, old.problem.number) {
            (Some(number), Some(before)) => number <= before && self.problem.fix == old.problem.fix,
            _ => self.problem.what == old.problem.what && self.line_hash == old.line_hash,
        };
        is_same && self.file == old.file
    }
}

/// All problems of a push, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountFindings(Vec<Finding>);

impl AccountFindings {
    /// Maximum number of printed lines. Nobody reads more at once.
    pub const MAX_LINES: usize = 50;

    /// Adds problems of a file.
    pub fn add(&mut self, file: &str, problems: impl IntoIterator<Item = Problem>) {
        let found = problems.into_iter().map(|problem| Finding {
            file: shown(file),
            problem,
            line_hash: None,
        });
        self.0.extend(found);
    }

    /// Adds problems of a file with this content.
    pub fn add_in(
        &mut self,
        file: &str,
        content: &[u8],
        problems: impl IntoIterator<Item = Problem>,
    ) {
        let first = self.0.len();
        self.add(file, problems);
        let added = &mut self.0[first..];
        if added.is_empty() {
            return;
        }
        let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
        for finding in added {
            let index = finding.problem.line.and_then(|line| line.checked_sub(1));
            let line = index.and_then(|index| lines.get(index));
            finding.line_hash = line.map(|line| Sha1::digest(line.trim_ascii()).into());
        }
    }

    /// Makes warnings of unusable parts that were there before. `old` are the findings of the state before. Each of them
    /// excuses one part.
    #[must_use]
    pub fn except_old(mut self, old: &Self) -> Self {
        let mut excuses: Vec<&Finding> = old.of(Severity::Unusable).collect();
        for finding in &mut self.0 {
            if finding.problem.severity == Severity::Unusable
                && let Some(at) = excuses.iter().position(|old| finding.was(old))
            {
                excuses.remove(at);
                finding.problem.severity = Severity::Warning;
            }
        }
        self
    }

    /// Names the branch in front of each file, for a push that concerns several.
    #[must_use]
    pub fn on_branch(mut self, branch: &str) -> Self {
        for finding in &mut self.0 {
            finding.file = format!("{branch}: {}", finding.file);
        }
        self
    }

    /// Returns true if nothing refuses the push. There can still be warnings.
    pub fn is_accepted(&self) -> bool {
        self.refusals().next().is_none()
    }

    /// Returns everything that refuses the push.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        let findings = self.0.iter();
        findings.filter(|finding| finding.problem.severity != Severity::Warning)
    }

    /// Returns the findings with this severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        let findings = self.0.iter();
        findings.filter(move |finding| finding.problem.severity == severity)
    }

    /// Returns the lines that a push prints, errors first, each with file, line and way out.
    pub fn lines(&self) -> Vec<String> {
        let all = self.refusals().chain(self.of(Severity::Warning));
        let mut lines: Vec<String> = all.take(Self::MAX_LINES).map(ToString::to_string).collect();
        let left_out = self.0.len() - lines.len();
        if left_out > 0 {
            lines.push(format!("… and {left_out} more; correct these first"));
        }
        lines
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.problem.severity {
            Severity::Error | Severity::Unusable => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_printed_before_warnings_and_not_without_end() {
        let mut findings = AccountFindings::default();
        findings.add("a", [Problem::warning(2, "odd", "correct it")]);
        assert!(findings.is_accepted());
        findings.add("b\n", [Problem::error(None, "wrong", "correct it")]);
        assert!(!findings.is_accepted());
        assert_eq!(
            findings.lines(),
            [
                "error: b\u{fffd}: wrong; correct it",
                "warning: a:2: odd; correct it"
            ]
        );
        findings.add("c", vec![Problem::error(1, "wrong", "correct it"); 60]);
        let lines = findings.lines();
        assert_eq!(lines.len(), 51);
        assert_eq!(lines[50], "… and 12 more; correct these first");
    }
    #[test]
    fn what_was_unusable_before_may_stay() {
        let unusable = |line: Option<usize>, what: &str| {
            Problem::error(line, what, "correct it").into_unusable()
        };
        let many = |number: usize| {
            let what = format!("there are {number}");
            Problem::limit(number, what, "keep at most 5").into_unusable()
        };
        let of = |content: &str, problems: Vec<Problem>| {
            let mut findings = AccountFindings::default();
            findings.add_in("a", content.as_bytes(), problems);
            findings
        };
        let old = of(
            "x\n  bad  \n",
            vec![unusable(Some(2), "wrong"), many(7), unusable(None, "whole")],
        );
        assert!(!old.is_accepted());
        assert_eq!(old.lines()[0], "error: a:2: wrong; correct it");
        let checked = |content: &str, problems| of(content, problems).except_old(&old);
        // The line has moved, and the number is smaller.
        let moved = checked(
            "bad\n",
            vec![unusable(Some(1), "wrong"), many(6), unusable(None, "whole")],
        );
        assert!(moved.is_accepted());
        assert_eq!(
            moved.lines(),
            [
                "warning: a:1: wrong; correct it",
                "warning: a: there are 6; keep at most 5",
                "warning: a: whole; correct it",
            ]
        );
        for (content, problem) in [
            ("worse\n", unusable(Some(1), "wrong")),
            ("bad\n", unusable(Some(1), "wrong in another way")),
            ("bad\n", Problem::error(1, "wrong", "correct it")),
            ("", many(8)),
        ] {
            assert!(
                !checked(content, vec![problem.clone()]).is_accepted(),
                "{problem:?}"
            );
        }
        // Each one excuses one.
        let twice = vec![unusable(Some(1), "wrong"), unusable(Some(2), "wrong")];
        assert_eq!(checked("bad\nbad\n", twice).refusals().count(), 1);
        let mut elsewhere = AccountFindings::default();
        elsewhere.add("b", [unusable(None, "whole")]);
        assert!(!elsewhere.except_old(&old).is_accepted());
    }
}
