//! `lockkeeper accounts (list | show | query)`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::super::all_users::AllUsers;
use super::super::copy::AccountsCopy;
use super::super::store::{AccountRow, MOST_ACCOUNTS};
use super::super::view::{AccountJson, AccountsJson};
use super::{AccountFlag, note_no_accounts, open, read_copy};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct ListArgs {
    /// Accounts of a copy of All-Users: a directory, as `git clone --mirror` makes it
    #[arg(long = "git", value_name = "DIR")]
    copy: Option<PathBuf>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl ListArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        if let Some(dir) = &self.copy {
            return list_copy(&read_copy(dir)?, self.format, terminal);
        }
        let rows = all_rows(&open(&self.database).await?).await?;
        print_rows(&rows, self.format, terminal)?;
        if rows.is_empty() && !self.format.is_json() {
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
            let json = serde_json::to_string(&account);
            terminal.line(json.context("an account could not be written as JSON")?)?;
        } else {
            terminal.line(account.line())?;
        }
    }
    Ok(())
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct ShowArgs {
    #[command(flatten)]
    account: AccountFlag,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    pub(super) database: DatabaseFlags,
}

impl ShowArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let row = self.account.find(users).await?;
        let account = users.json(&row).await?;
        if self.format.is_json() {
            let json = serde_json::to_string(&account);
            terminal.line(json.context("the account could not be written as JSON")?)?;
        } else {
            terminal.line(account.line())?;
            for line in account.external_id_lines() {
                terminal.line(line)?;
            }
        }
        Ok(ExitStatus::Success)
    }
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct QueryArgs {
    /// Query, as in: john -email:john@old.example.com
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    query: String,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    pub(super) database: DatabaseFlags,
}

impl QueryArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let mut skip = 0;
        loop {
            let rows = users.search(&self.query, skip).await?;
            if rows.is_empty() {
                return Ok(ExitStatus::Success);
            }
            print_rows(&rows, self.format, terminal)?;
            skip += MOST_ACCOUNTS;
        }
    }
}
