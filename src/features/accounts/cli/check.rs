//! `lockkeeper accounts check` and `lockkeeper reindex accounts`.

use std::path::PathBuf;

use anyhow::bail;

use super::super::all_users::AllUsers;
use super::super::check::CheckedCopy;
use super::super::copy::AccountsCopy;
use super::super::git::{ACCOUNTS_DIR, cache_faults};
use super::{cli_actor, counted, note_no_accounts, read_copy};
use crate::kit::term::database::open as open_database;
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, Terminal};

/// Number of times that a reindex begins again because accounts with wrong rows change.
const REINDEX_ATTEMPTS: usize = 5;
/// Number of refs that a reindex names because their tables stay as they are. The errors name all.
const NAMED_REFS: usize = 10;

#[derive(clap::Args)]
pub(in crate::features::accounts) struct CheckArgs {
    /// Check a copy of All-Users instead: a directory, as `git clone --mirror` makes it
    #[arg(long = "git", value_name = "DIR")]
    copy: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl CheckArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        if let Some(dir) = &self.copy {
            let copy = read_copy(dir)?;
            let status = report(&copy, &CheckedCopy::of(&copy), terminal)?;
            note_no_accounts(&copy, terminal);
            return Ok(status);
        }
        let storage = self.database.storage()?;
        let users = AllUsers::new(open_database(&storage).await?, "localhost");
        let state = users.whole_state().await?;
        let mut checked = CheckedCopy::of_server(&state.copy);
        checked.index(&state.copy, &state.tables);
        // A change stays known, so those that the stars of that moment could name are among them.
        let seen = users.store().change_numbers().await?;
        checked.unseen_changes(&state.copy, &seen);
        let (caches, faults) = cache_faults(&users, &storage.data_dir).await?;
        checked.caches(&faults);
        let status = report(&state.copy, &checked, terminal)?;
        if caches > 0 {
            let dir = storage.data_dir.join(ACCOUNTS_DIR);
            let caches = counted(caches, "cache");
            terminal.note(format!("Compared {caches} in {}.", dir.display()));
        }
        Ok(status)
    }
}

/// Prints the problems of a copy.
pub(super) fn report(
    copy: &AccountsCopy,
    checked: &CheckedCopy,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    for problem in &checked.problems {
        terminal.line(problem)?;
    }
    let errors = checked.errors().count();
    let warnings = checked.problems.len() - errors;
    terminal.note(format!(
        "{}: {}, {}.",
        counted(copy.users.len(), "account"),
        counted(errors, "error"),
        counted(warnings, "warning")
    ));
    Ok(if errors == 0 {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Makes the tables of accounts again.
pub(super) async fn reindex(users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
    let mut written = 0;
    for _ in 0..REINDEX_ATTEMPTS {
        let state = users.whole_state().await?;
        let reindexed = users.reindex(&cli_actor(), &state).await?;
        written += reindexed.written;
        if reindexed.left > 0 {
            continue;
        }
        let again = counted(written, "account");
        let all = state.copy.users.len() + state.copy.unreadable.len();
        let all = counted(all, "account");
        let checked = CheckedCopy::of_server(&state.copy);
        if checked.errors().next().is_none() {
            terminal.note(if written == 0 {
                format!("The tables of {all} agree with the branches. Nothing was changed.")
            } else {
                format!("Made the tables of {again} again, of {all} in total.")
            });
            return Ok(ExitStatus::Success);
        }
        report(&state.copy, &checked, terminal)?;
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
            "Made the tables of {again} again, of {all} in total.{kept} Correct the errors in the branches."
        ));
        return Ok(ExitStatus::Failure);
    }
    bail!("some accounts with wrong tables were changed during each attempt; run the command again")
}
