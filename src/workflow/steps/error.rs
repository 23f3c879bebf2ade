//! Why a step did not end well, and which one it was.

use std::fmt;
use std::time::Duration;

use super::multienv::MultienvError;
use crate::process::ProcessError;

/// A step as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    /// `terraform init`, `run: make plan`.
    text: String,
    /// Its number from 1, and the workflow, unless that is the built-in one.
    place: Option<(usize, String)>,
}

impl StepName {
    /// Of source code no more is shown.
    const MAX_CHARS: usize = 80;

    pub(in crate::workflow) fn new(text: &str, place: Option<(usize, String)>) -> Self {
        let first = text.trim().lines().next().unwrap_or_default();
        let is_all = first == text.trim() && first.chars().count() <= Self::MAX_CHARS;
        let shown: String = first
            .chars()
            .take(Self::MAX_CHARS)
            .map(|c| if c == '`' { '\'' } else { c })
            .collect();
        let text = if is_all {
            shown
        } else {
            format!("{}…", shown.trim_end())
        };
        Self { text, place }
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)?;
        match &self.place {
            Some((number, workflow)) => write!(f, " (step {number} of the workflow `{workflow}`)"),
            None => Ok(()),
        }
    }
}

/// A step that did not end well.
#[derive(Debug)]
pub struct StepError {
    /// Which.
    pub step: StepName,
    /// Why.
    pub why: StepFailure,
    /// What it and the steps before it printed, as far as a comment may show it.
    pub output: String,
}

impl StepError {
    /// A built-in step that was not begun.
    pub fn not_begun(step: &str, why: StepFailure) -> Self {
        Self {
            step: StepName::new(step, None),
            why,
            output: String::new(),
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.step, self.why)
    }
}

impl std::error::Error for StepError {
    /// What is behind the reason; the reason is part of the text already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.why.source()
    }
}

/// Why a step did not end well.
#[derive(Debug, thiserror::Error)]
pub enum StepFailure {
    /// The tool or the command said no.
    #[error("ended with exit code {}", .0.map_or_else(|| "unknown".to_owned(), |code| code.to_string()))]
    Code(Option<i32>),
    /// It failed, and seems to have reached a limit of runs.
    #[error(
        "ended with exit code {}, and what it printed looks as if it had reached a limit: {limit}",
        .code.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
    )]
    Limit {
        /// The exit code.
        code: Option<i32>,
        /// The limit and its setting.
        limit: String,
    },
    /// It was told to stop.
    #[error("was {}", if *.killed { "interrupted, did not end in time, and was killed" } else { "stopped" })]
    Stopped {
        /// It did not end in time after the interrupt.
        killed: bool,
    },
    /// It took longer than it may.
    #[error(
        "was {} because the run took longer than {} (`--run-timeout`)",
        if *.killed { "interrupted, did not end in time, and was killed" } else { "stopped" }, span(*.after)
    )]
    TimedOut {
        /// How long it may take.
        after: Duration,
        /// It did not end in time after the interrupt.
        killed: bool,
    },
    /// What it printed are no variables.
    #[error("printed no variables that can be understood")]
    Variables(#[source] MultienvError),
    /// What it printed is too much for a variable.
    #[error("printed more than the {0} bytes that the value of a variable may have")]
    Long(u64),
    /// The tool ended well without a word of what it was to do.
    #[error("ended with exit code 0 and did not report `{0}`, so what it did is not known")]
    Unreported(&'static str),
    /// A file of variables that is not what it seems.
    #[error(
        "was not run: `{0}` is a symbolic link, lies behind one, or is no regular file. Put a regular file there or remove it"
    )]
    VarFile(String),
    /// The tool's own note of the workspace is not what it seems.
    #[error(
        "was not run: the file `environment` in the directory of the tool, which names the workspace, is a symbolic link, \
         lies behind one, or is no small text. Remove it"
    )]
    WorkspaceFile(#[source] std::io::Error),
    /// The environment profile of the project is not one of those that the server read at its start.
    #[error(
        "was not begun: the server did not find the environment profile `{0}` at its start. Whoever runs Lockkeeper has to \
         restart it"
    )]
    Profile(String),
    /// An argument of the comment that is not handed on.
    #[error("was not run: {0}")]
    Argument(String),
    /// There is no plan to go on with.
    #[error("needs a plan file, and no step has written `$PLANFILE`")]
    NoPlan,
    /// This version does not know how to do it.
    #[error("is not available in this version of Lockkeeper: take the step out of the workflow")]
    NotAvailable,
    /// It could not be run at all.
    #[error("could not be run")]
    Process(#[source] ProcessError),
    /// This server's disk.
    #[error("could not be done on this server's disk")]
    Disk(#[source] std::io::Error),
}

/// `90 s`, `5 min`, `2 h`: as an operator would write it.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_named_by_its_first_line_and_its_place() {
        let place = || Some((2, "custom".to_owned()));
        for (text, place, expected) in [
            ("terraform plan", None, "`terraform plan`"),
            (
                "run: make plan",
                place(),
                "`run: make plan` (step 2 of the workflow `custom`)",
            ),
            ("run: \n", None, "`run:`"),
            ("\n  set -e\n  make\n", None, "`set -e…`"),
            ("echo `date`", None, "`echo 'date'`"),
        ] {
            assert_eq!(StepName::new(text, place).to_string(), expected);
        }
        let long = StepName::new(&"é".repeat(200), None).to_string();
        assert_eq!(long.chars().count(), StepName::MAX_CHARS + 3);
    }
}
