//! Problems of pushed data. A refused push prints each of them as a line with the file, the line and the way out.

use std::fmt;

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
