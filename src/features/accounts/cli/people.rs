//! `lockkeeper accounts (list | show | query)`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::super::all_users::AllUsers;
use super::super::copy::AccountsCopy;
use super::super::store::{AccountRow, MOST_ACCOUNTS};
use super::super::view::{AccountJson, AccountsJson};
use super::{AccountArgs, ServerFlags, note_no_accounts, print_json, read_copy};
use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, Terminal};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct ListAccountsArgs {
    /// Accounts of a copy of All-Users: a directory, as `git clone --mirror` makes it
    #[arg(long = "git", value_name = "DIR")]
    copy: Option<PathBuf>,
    #[command(flatten)]
    flags: ServerFlags,
}

impl ListAccountsArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let format = self.flags.format;
        if let Some(dir) = &self.copy {
            return list_copy(&read_copy(dir)?, format, terminal);
        }
        let rows = all_rows(&self.flags.open().await?).await?;
        print_rows(&rows, format, terminal)?;
        if rows.is_empty() && !format.is_json() {
            terminal
                .note("There are no accounts. `lockkeeper accounts create USERNAME` makes one.");
        }
        Ok(ExitStatus::Success)
    }
}

fn list_copy(copy: &AccountsCopy, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let accounts = AccountsJson::of(copy);
    if format.is_json() {
        let json = serde_json::to_string_pretty(&accounts);
        terminal.line(json.context("the accounts could not be written as JSON")?)?;
        return Ok(ExitStatus::Success);
    }
    for line in accounts.lines() {
        terminal.line(line)?;
    }
    note_no_accounts(copy, terminal);
    Ok(ExitStatus::Success)
}

async fn all_rows(users: &AllUsers) -> anyhow::Result<Vec<AccountRow>> {
    let mut rows: Vec<AccountRow> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.number.get());
        let more = users.store().account_list(after).await?;
        if more.is_empty() {
            return Ok(rows);
        }
        rows.extend(more);
    }
}

fn print_rows(
    rows: &[AccountRow],
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> anyhow::Result<()> {
    for account in rows.iter().map(AccountJson::of_row) {
        if format.is_json() {
            print_json(&account, terminal)?;
        } else {
            terminal.line(account.line())?;
        }
    }
    Ok(())
}

/// Prints an account with its external IDs.
pub(super) async fn show(
    args: &AccountArgs,
    users: &AllUsers,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let row = args.account.find(users).await?;
    let account = users.json(&row).await?;
    if args.flags.format.is_json() {
        print_json(&account, terminal)?;
    } else {
        terminal.line(account.line())?;
        for line in account.external_id_lines() {
            terminal.line(line)?;
        }
    }
    Ok(ExitStatus::Success)
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct QueryArgs {
    /// Query, as in: john -email:john@old.example.com
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    query: String,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl QueryArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let mut skip = 0;
        loop {
            let rows = users.search(&self.query, skip).await?;
            if rows.is_empty() {
                return Ok(ExitStatus::Success);
            }
            print_rows(&rows, self.flags.format, terminal)?;
            skip += MOST_ACCOUNTS;
        }
    }
}
