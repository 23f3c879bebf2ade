//! `lockkeeper accounts (list | check)`: the accounts in a copy of `All-Users`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::check::CheckedCopy;
use super::copy::AccountsCopy;
use super::view::AccountsJson;
use crate::kit::term::{ExitResult, ExitStatus, SubcommandArgs, Terminal};

/// Read accounts of people in a copy of All-Users
#[derive(clap::Parser)]
pub(super) enum AccountsArgs {
    /// Show every account of a copy
    List {
        #[command(flatten)]
        copy: CopyFlags,
        /// As one JSON document, with everything that the copy says about each account
        #[arg(long)]
        json: bool,
    },
    /// Check a copy by every rule that a push has to follow
    ///
    /// Prints a line for each problem: ref, file, line and the way out. Ends with exit code 1 if there are errors;
    /// warnings alone are no failure.
    Check {
        #[command(flatten)]
        copy: CopyFlags,
    },
}

/// Repository on this machine that a subcommand reads.
#[derive(clap::Args)]
pub(super) struct CopyFlags {
    /// Directory of a git repository with the refs of All-Users, as `git clone --mirror` makes it
    #[arg(long = "git", value_name = "DIR")]
    dir: PathBuf,
}

impl CopyFlags {
    fn read(&self) -> anyhow::Result<AccountsCopy> {
        AccountsCopy::read(&self.dir)
            .with_context(|| format!("the accounts in {} could not be read", self.dir.display()))
    }
}

impl SubcommandArgs for AccountsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::List { copy, json } => list(&copy.read()?, json, terminal),
            Self::Check { copy } => check(&copy.read()?, terminal),
        }
    }
}

fn list(copy: &AccountsCopy, as_json: bool, terminal: &mut Terminal<'_>) -> ExitResult {
    let accounts = AccountsJson::of(copy);
    if as_json {
        let json = serde_json::to_string_pretty(&accounts);
        terminal.line(json.context("the accounts could not be written as JSON")?)?;
        return Ok(ExitStatus::Success);
    }
    for line in accounts.lines() {
        terminal.line(line)?;
    }
    if copy.users.is_empty() {
        terminal.note("The copy has no accounts: it has no ref such as refs/users/56/1000856.");
    }
    Ok(ExitStatus::Success)
}

fn check(copy: &AccountsCopy, terminal: &mut Terminal<'_>) -> ExitResult {
    let checked = CheckedCopy::of(copy);
    for line in &checked.lines {
        terminal.line(line)?;
    }
    let warnings = checked.lines.len() - checked.errors;
    terminal.note(format!(
        "{} accounts: {} errors, {warnings} warnings.",
        copy.users.len(),
        checked.errors
    ));
    Ok(if checked.errors == 0 {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}
