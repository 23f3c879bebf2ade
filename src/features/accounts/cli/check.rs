//! `lockkeeper accounts check` and `lockkeeper reindex accounts`.

use std::path::PathBuf;

use anyhow::bail;
use serde::Serialize;

use super::super::all_users::AllUsers;
use super::super::check::{CheckedCopy, RefProblem};
use super::super::copy::AccountsCopy;
use super::super::git::{ACCOUNTS_DIR, cache_faults};
use super::{ServerFlags, cli_actor, counted, note_no_accounts, print_json, read_copy};
use crate::kit::term::database::open as open_database;
use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, Terminal};

/// Number of times that a reindex begins again because accounts with wrong rows change.
const REINDEX_ATTEMPTS: usize = 5;
/// Number of refs that a reindex names because their tables stay as they are. The errors name all.
const NAMED_REFS: usize = 10;

#[derive(clap::Args)]
pub(in crate::features::accounts) struct CheckAccountsArgs {
    /// Check a copy of All-Users instead: a directory, as `git clone --mirror` makes it
    #[arg(long = "git", value_name = "DIR")]
    copy: Option<PathBuf>,
    #[command(flatten)]
    flags: ServerFlags,
}

/// Result of a check.
#[derive(Serialize)]
struct CheckJson<'a> {
    accounts: usize,
    errors: usize,
    warnings: usize,
    /// Number of repositories for git clients that were compared. `None`: a copy has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    caches: Option<usize>,
    problems: &'a [RefProblem],
}

impl CheckAccountsArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let format = self.flags.format;
        if let Some(dir) = &self.copy {
            let copy = read_copy(dir)?;
            let status = report(&copy, &CheckedCopy::of_copy(&copy), None, format, terminal)?;
            note_no_accounts(&copy, terminal);
            return Ok(status);
        }
        let storage = self.flags.database.storage()?;
        let users = AllUsers::new(open_database(&storage).await?, "localhost");
        let state = users.branches_and_tables().await?;
        let mut checked = CheckedCopy::of_server(&state.copy);
        checked.index(&state.copy, &state.tables);
        // A change stays known, so those that the stars of that moment could name are among them.
        let seen = users.store().change_numbers().await?;
        checked.unseen_changes(&state.copy, &seen);
        let (caches, faults) = cache_faults(&users, &storage.data_dir).await?;
        checked.caches(&faults);
        let status = report(&state.copy, &checked, Some(caches), format, terminal)?;
        if caches > 0 && !format.is_json() {
            let dir = storage.data_dir.join(ACCOUNTS_DIR);
            let caches = counted(caches, "cache");
            terminal.note(format!("Compared {caches} in {}.", dir.display()));
        }
        Ok(status)
    }
}

/// Prints the problems of a copy, and the number of caches that were compared.
fn report(
    copy: &AccountsCopy,
    checked: &CheckedCopy,
    caches: Option<usize>,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    if format.is_json() {
        let (errors, warnings) = checked.counts();
        let json = CheckJson {
            accounts: copy.users.len(),
            errors,
            warnings,
            caches,
            problems: &checked.problems,
        };
        print_json(&json, terminal)?;
    } else {
        print_problems(copy, checked, terminal)?;
    }
    Ok(if checked.errors().next().is_none() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Prints a line for each problem of a copy, and their number.
pub(super) fn print_problems(
    copy: &AccountsCopy,
    checked: &CheckedCopy,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    for problem in &checked.problems {
        terminal.line(problem)?;
    }
    let (errors, warnings) = checked.counts();
    terminal.note(format!(
        "{}: {}, {}.",
        counted(copy.users.len(), "account"),
        counted(errors, "error"),
        counted(warnings, "warning")
    ));
    Ok(())
}

/// Result of making tables again.
#[derive(Serialize)]
struct ReindexJson<'a> {
    accounts: usize,
    /// Number of accounts whose tables were written.
    written: usize,
    /// Number of accounts that changed during each attempt, so that their tables may still be wrong.
    left: usize,
    /// Refs that cannot be read, so that their tables stayed as they were.
    kept: Vec<String>,
    problems: &'a [RefProblem],
}

/// Makes the tables of accounts again.
pub(super) async fn reindex(
    users: &AllUsers,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (mut written, mut attempt) = (0, 1);
    let (state, reindexed) = loop {
        let state = users.branches_and_tables().await?;
        let reindexed = users.reindex(&cli_actor(), &state).await?;
        written += reindexed.written;
        if reindexed.left == 0 || attempt == REINDEX_ATTEMPTS {
            break (state, reindexed);
        }
        attempt += 1;
    };
    let checked = CheckedCopy::of_server(&state.copy);
    let is_sound = checked.errors().next().is_none();
    let accounts = state.copy.users.len() + state.copy.unreadable.len();
    if format.is_json() {
        let json = ReindexJson {
            accounts,
            written,
            left: reindexed.left,
            kept: reindexed.kept.iter().map(ToString::to_string).collect(),
            problems: &checked.problems,
        };
        print_json(&json, terminal)?;
    }
    if reindexed.left > 0 {
        bail!(
            "some accounts with wrong tables were changed during each attempt; run the command again"
        );
    }
    let status = if is_sound {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    };
    if format.is_json() {
        return Ok(status);
    }
    let all = counted(accounts, "account");
    // An account that changed in between is counted once for each attempt, and one without a branch is not among all.
    let rebuilt = format!(
        "Rebuilt the tables of {} (accounts in total: {accounts}).",
        counted(written, "account")
    );
    if is_sound {
        terminal.note(if written == 0 {
            format!("The tables of {all} agree with the branches. Nothing was changed.")
        } else {
            rebuilt
        });
        return Ok(status);
    }
    print_problems(&state.copy, &checked, terminal)?;
    let names = reindexed.kept.iter().take(NAMED_REFS);
    let mut kept: Vec<String> = names.map(ToString::to_string).collect();
    if let Some(more) = reindexed.kept.len().checked_sub(NAMED_REFS + 1) {
        kept.push(counted(more + 1, "other ref"));
    }
    let kept = match kept.as_slice() {
        [] => String::new(),
        kept => format!(
            " What cannot be read left its tables as they were: {}.",
            kept.join(", ")
        ),
    };
    terminal.note(format!(
        "{rebuilt}{kept} Correct the errors in the branches."
    ));
    Ok(status)
}
