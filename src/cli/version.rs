//! `lockkeeper version`.

use clap::{ArgMatches, Command};

use crate::kit::term::{ExitResult, ExitStatus, Terminal};

pub(super) fn command() -> Command {
    Command::new("version").about("Show the version")
}

pub(super) fn run(_: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    terminal.line(format_args!("lockkeeper {}", version()))?;
    Ok(ExitStatus::Success)
}

/// Returns `0.2.0`, followed by the commit if `LOCKKEEPER_COMMIT` was set for the build.
pub(super) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("LOCKKEEPER_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} (commit {})", commit.get(..7).unwrap_or(commit)),
        None => version.to_owned(),
    }
}
