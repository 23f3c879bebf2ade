//! `lockkeeper accounts (history | restore)`.

use anyhow::bail;

use super::super::all_users::AllUsers;
use super::super::view::AccountCommitJson;
use super::{AccountArgs, AccountFlag, ServerFlags, cli_actor, print_changed, print_json};
use crate::kit::term::{ExitResult, ExitStatus, Terminal, safe};

/// Maximum number of commits that a history shows.
const MOST_COMMITS: usize = 1_000;
/// Number of characters of a commit that are printed, and that must be given at least.
const SHORT_ID: usize = 12;
const SHORTEST_ID: usize = 4;

/// Prints a line for each commit of an account, newest first.
pub(super) async fn history(
    args: &AccountArgs,
    users: &AllUsers,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let number = args.account.find(users).await?.number;
    let mut commits = users.history(number, MOST_COMMITS + 1).await?;
    let is_cut_off = commits.len() > MOST_COMMITS;
    commits.truncate(MOST_COMMITS);
    for commit in &commits {
        if args.flags.format.is_json() {
            print_json(&AccountCommitJson::new(commit), terminal)?;
            continue;
        }
        let at = commit.at.format("%Y-%m-%d %H:%M:%S");
        terminal.line(format!(
            "{}  {at} UTC  {}  {}",
            commit.id.to_hex_with_len(SHORT_ID),
            safe(&commit.author),
            safe(&commit.message)
        ))?;
    }
    if is_cut_off {
        terminal.note(format!(
            "Older commits are left out after {MOST_COMMITS}; a copy has all of them (docs/accounts.md)."
        ));
    }
    Ok(ExitStatus::Success)
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct RestoreArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// Commit of the account, as `history` prints it
    #[arg(value_name = "COMMIT")]
    commit: String,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl RestoreArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let number = self.account.find(users).await?.number;
        let commits = users.history(number, usize::MAX).await?;
        let mut named = commits
            .iter()
            .filter(|known| known.id.to_string().starts_with(&self.commit));
        match (named.next(), named.next()) {
            (Some(known), None) if self.commit.len() >= SHORTEST_ID => {
                users.restore(&cli_actor(), number, known.id).await?;
                print_changed(users, number, self.flags.format, terminal).await
            }
            _ => bail!(
                "`{}` is not the beginning of one commit of the account, with {SHORTEST_ID} characters or more; \
                 `lockkeeper accounts history` shows all",
                safe(&self.commit)
            ),
        }
    }
}
