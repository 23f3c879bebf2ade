//! What every subcommand needs: where it writes, how it ends, the settings it reads and the database it opens.

pub(crate) mod database;
pub(crate) mod environment;
pub(crate) mod settings_file;
mod terminal;
mod text;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

pub(crate) use terminal::Terminal;
pub(crate) use text::{safe, time};

/// How a subcommand ends; an error is shown with its causes and means exit code 1.
pub(crate) type Outcome = anyhow::Result<Exit>;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Failure,
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Usage => Self::from(2),
        }
    }
}

/// One subcommand.
pub(crate) struct Subcommand {
    pub name: &'static str,
    pub command: fn() -> Command,
    pub run: fn(&ArgMatches, &mut Terminal<'_>) -> Outcome,
}

/// Runs something that waits.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    use anyhow::Context as _;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    Ok(runtime
        .context("cannot start the threads of the program")?
        .block_on(future))
}
