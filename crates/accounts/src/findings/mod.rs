//! Problems of pushed data. A refused push prints each of them as a line with the file, the line and the way out.

mod judge;

use std::fmt;

pub use self::judge::{
    MAX_BRANCH_FILES, judge_access, judge_defaults, judge_external_ids, judge_notes,
    judge_user_branch,
};
use crate::text::shown;

/// Consequence of a problem for a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The push is refused.
    Error,
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
        }
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
        });
        self.0.extend(found);
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
        self.of(Severity::Error).next().is_none()
    }

    /// Returns the errors or the warnings.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        let findings = self.0.iter();
        findings.filter(move |finding| finding.problem.severity == severity)
    }

    /// Returns the lines that a push prints, errors first, each with file, line and way out.
    pub fn lines(&self) -> Vec<String> {
        let all = self.of(Severity::Error).chain(self.of(Severity::Warning));
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
        let Problem {
            severity,
            line,
            what,
            fix,
        } = &self.problem;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.file)?;
        if let Some(line) = line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {what}; {fix}")
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
}
