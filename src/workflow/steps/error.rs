//! Describes failed steps: the name of the step and the reason of its failure.

use std::fmt;
use std::time::Duration;

use super::multienv::MultienvError;
use crate::process::ProcessError;

/// Name of a step in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    /// Title of the step, such as `terraform init` or `run: make plan`.
    text: String,
    /// Number of the step, from 1, and name of the workflow; `None` for the built-in workflow.
    place: Option<(usize, String)>,
}

impl StepName {
    /// Maximum number of characters of a command that are shown.
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

/// Failure of one step.
#[derive(Debug)]
pub struct StepError {
    pub step: StepName,
    pub why: StepFailure,
    /// Output of this step and of the steps before it, as far as a comment may show it.
    pub output: String,
}

impl StepError {
    /// Creates the error of a step that was not begun, by its title.
    pub fn not_begun(step: &str, why: StepFailure) -> Self {
        Self {
            step: StepName::new(step, None),
            why,
            output: String::new(),
        }
    }

    /// Returns true if a program complains that the kernel denied it something.
    pub fn is_denied(&self) -> bool {
        // If namespaces are the boundary, paths that must not be changed are on a read-only file system.
        let words = [
            "ermission denied",
            "peration not permitted",
            "ead-only file system",
        ];
        words.iter().any(|words| self.output.contains(words))
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.step, self.why)
    }
}

impl std::error::Error for StepError {
    /// Returns the cause of the reason, because the reason itself is part of the text already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.why.source()
    }
}

/// Reason of a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepFailure {
    /// The tool or the command ended with an exit code other than 0.
    #[error("ended with exit code {}", .0.map_or_else(|| "unknown".to_owned(), |code| code.to_string()))]
    Code(Option<i32>),
    /// The program failed and seems to have reached a limit of runs.
    #[error(
        "ended with exit code {}. Its output suggests that it reached a limit: {limit}",
        .code.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
    )]
    Limit {
        code: Option<i32>,
        /// Description of the limit, with its setting.
        limit: String,
    },
    /// The run was cancelled.
    #[error("was {}", if *.killed { "interrupted, did not end in time, and was killed" } else { "stopped" })]
    Stopped {
        /// True if the program did not end in time after the interrupt.
        killed: bool,
    },
    /// The program exceeded the time limit of runs.
    #[error(
        "was {} because the run took longer than {} (`--run-timeout`)",
        if *.killed { "interrupted, did not end in time, and was killed" } else { "stopped" }, span(*.after)
    )]
    TimedOut {
        /// Time limit of the run.
        after: Duration,
        /// True if the program did not end in time after the interrupt.
        killed: bool,
    },
    /// The output of `multienv` cannot be parsed as variables.
    #[error("printed output that cannot be parsed as variables")]
    Variables(#[source] MultienvError),
    /// The output is too long for the value of a variable.
    #[error("printed more than {0} bytes, the limit for the value of a variable")]
    Long(u64),
    /// The tool ended with exit code 0 but did not report its result.
    #[error("ended with exit code 0 but did not report `{0}`, so its result is not known")]
    Unreported(&'static str),
    /// The file of variables is not a regular file, or lies behind a link.
    #[error(
        "was not run: `{0}` is a symbolic link, lies behind one, or is not a regular file. Replace it with a regular \
         file, or remove it"
    )]
    VarFile(String),
    /// The tool's own file with the selected workspace is not a small regular file.
    #[error(
        "was not run: the file `environment` in the directory of the tool, which names the workspace, is a symbolic \
         link, lies behind one, or is not a small text file. Remove it"
    )]
    WorkspaceFile(#[source] std::io::Error),
    /// The environment profile of the project is not among those that the server read at its start.
    #[error(
        "was not started: the server did not find the environment profile `{0}` at its start. An administrator must \
         restart Lockkeeper"
    )]
    Profile(String),
    /// The comment has an argument that is not passed to the tool.
    #[error("was not run: {0}")]
    Argument(String),
    /// No step has written a plan file.
    #[error("needs a plan file, but no step wrote `$PLANFILE`")]
    NoPlan,
    /// The step `policy_check` is in another stage.
    #[error(
        "runs only in the stage `policy_check`. Move the step there, or remove it from the workflow"
    )]
    OtherStage,
    /// The program could not be run.
    #[error("could not be run")]
    Process(#[source] ProcessError),
    /// A file operation on the disk of this server failed.
    #[error("failed because of an error on the disk of this server")]
    Disk(#[source] std::io::Error),
}

/// Formats a time as an administrator would write it: `90 s`, `5 min`, `2 h`.
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
