//! Everything that subcommands share: their output, their exit codes, the settings they read and the database they
//! open.

mod args;
pub(crate) mod config_files;
pub(crate) mod database;
pub(crate) mod environment;
pub(crate) mod settings_file;
mod terminal;
mod text;

use std::fmt::Display;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

pub(crate) use args::{OutputFormat, ReasonFlag, reason};
pub(crate) use database::DatabaseFlags;
pub(crate) use terminal::Terminal;
pub(crate) use text::{safe, time};

use crate::config::access::Identity;
use crate::model::Actor;

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

/// Arguments of a subcommand, with the work that they request. Their doc comments are its help.
pub(crate) trait SubcommandArgs: clap::Parser {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult;
}

/// A subcommand of the program, as a value for lists of subcommands.
pub(crate) struct Subcommand {
    pub name: &'static str,
    command: fn() -> Command,
    run: fn(&ArgMatches, &mut Terminal<'_>) -> ExitResult,
}

impl Subcommand {
    /// Creates the subcommand `lockkeeper NAME` with these arguments.
    pub const fn of<A: SubcommandArgs>(name: &'static str) -> Self {
        Self {
            name,
            command: A::command,
            run: |matches, terminal| match A::from_arg_matches(matches) {
                Ok(args) => args.run(terminal),
                Err(error) => Ok(terminal.usage(&error.render().to_string())),
            },
        }
    }

    /// Returns the definition for the parser.
    pub fn command(&self) -> Command {
        (self.command)()
            .name(self.name)
            .disable_help_subcommand(true)
            // A missing subcommand is an error, and its message is not the whole help.
            .arg_required_else_help(false)
    }

    /// Runs the subcommand with the arguments that the parser found.
    pub fn run(&self, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
        (self.run)(matches, terminal)
    }
}

/// Returns the person who runs the program, for the audit log.
pub(crate) fn actor() -> Actor {
    Identity::Cli(environment::user()).actor()
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
