//! `lockkeeper version`.

use crate::kit::term::{ExitResult, ExitStatus, SubcommandArgs, Terminal};

/// Show the version of this program
#[derive(clap::Parser)]
pub(super) struct VersionArgs;

impl SubcommandArgs for VersionArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        terminal.line(format_args!("lockkeeper {}", version()))?;
        Ok(ExitStatus::Success)
    }
}

/// Returns `0.2.0`, followed by the commit if `LOCKKEEPER_COMMIT` was set for the build.
pub(super) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("LOCKKEEPER_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} (commit {})", commit.get(..7).unwrap_or(commit)),
        None => version.to_owned(),
    }
}
