//! Everything that subcommands share: their output, their exit codes, the settings they read and the database they
//! open.

pub(crate) mod database;
pub(crate) mod environment;
pub(crate) mod settings_file;
mod terminal;
mod text;

use std::fmt::Display;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

pub(crate) use terminal::Terminal;
pub(crate) use text::{safe, time};

use crate::config::access::Identity;
use crate::model::{Actor, Reason};

/// Result of a subcommand. An error is shown with its causes and means exit code 1.
pub(crate) type ExitResult = anyhow::Result<ExitStatus>;

/// Exit code of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Success,
    Failure,
    Usage,
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        match exit {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::Failure => Self::FAILURE,
            ExitStatus::Usage => Self::from(2),
        }
    }
}

/// Invalid arguments or configuration. A subcommand that fails with this error ends with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

impl Usage {
    /// Describes the problem in one or several lines.
    pub fn new(problem: impl Display) -> Self {
        Self(format!("error: {problem}\n"))
    }
}

/// A subcommand with its arguments and its function.
pub(crate) struct Subcommand {
    pub name: &'static str,
    pub command: fn() -> Command,
    pub run: fn(&ArgMatches, &mut Terminal<'_>) -> ExitResult,
}

/// Returns the person who runs the program, for the audit log.
pub(crate) fn actor() -> Actor {
    Identity::Cli(environment::user()).actor()
}

/// Reads the reason of a change, which must not be empty.
pub(crate) fn reason(text: &str) -> Result<Reason, Usage> {
    let read = Reason::read(text).map_err(|error| Usage::new(format_args!("--reason: {error}")))?;
    read.ok_or_else(|| Usage::new("--reason: Give a short reason"))
}

/// Runs a future to its end on a new runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    use anyhow::Context as _;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    Ok(runtime
        .context("cannot start the threads of the program")?
        .block_on(future))
}
