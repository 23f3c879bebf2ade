//! `lockkeeper accounts groups`.

use anyhow::bail;

use super::super::all_users::{AccountsError, AllUsers};
use super::{AccountFlag, ServerFlags, cli_actor, print_json};
use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, Terminal, safe};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct GroupsArgs {
    /// Group to show, to add the account to, or to remove it from
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// Account to add: number, user name or e-mail address
    #[arg(long, value_name = "ACCOUNT", group = "change", requires = "group")]
    add: Option<String>,
    /// Account to remove: number, user name or e-mail address
    #[arg(long, value_name = "ACCOUNT", group = "change", requires = "group")]
    remove: Option<String>,
    /// Begin the group with this member if there is none of this name
    #[arg(long, requires = "add")]
    new: bool,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl GroupsArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let (by, format) = (cli_actor(), self.flags.format);
        match (self.group, self.add, self.remove) {
            (Some(group), Some(account), _) => {
                let number = AccountFlag { account }.find(users).await?.number;
                let added = users.add_to_group(&by, number, &group, self.new).await;
                match added {
                    // The way out for those who push the file.
                    Err(AccountsError::Invalid(problem))
                        if problem.to_string().ends_with("add it to groups.config") =>
                    {
                        bail!(
                            "there is no group `{}`; add `--new` to create it",
                            safe(&group)
                        );
                    }
                    added => added?,
                }
                print_changed(users, &group, format, terminal).await?;
            }
            (Some(group), _, Some(account)) => {
                let number = AccountFlag { account }.find(users).await?.number;
                if !users.remove_from_group(&by, number, &group).await? {
                    bail!(
                        "account {number} is no member of `{}` by its own line; `lockkeeper accounts groups` shows all",
                        safe(&group)
                    );
                }
                print_changed(users, &group, format, terminal).await?;
            }
            (group, ..) => list(users, group.as_deref(), format, terminal).await?,
        }
        Ok(ExitStatus::Success)
    }
}

/// Prints a line for each group, or for one: its name, its members, and the groups that it includes.
async fn list(
    users: &AllUsers,
    only: Option<&str>,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> anyhow::Result<()> {
    let access = users.access().await?;
    let groups = access.control.groups();
    if let Some(name) = only {
        groups.check(name).map_err(AccountsError::Invalid)?;
    }
    for name in groups
        .names()
        .filter(|name| only.is_none_or(|only| only == *name))
    {
        let group = users.group(&access, name).await?;
        if format.is_json() {
            print_json(&group, terminal)?;
        } else {
            terminal.line(group.line())?;
        }
    }
    Ok(())
}

/// Prints a changed group as JSON. As text, a change prints nothing.
async fn print_changed(
    users: &AllUsers,
    name: &str,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> anyhow::Result<()> {
    if format.is_json() {
        // It has no members if its last one is gone, and the group with them.
        let group = users.group(&users.access().await?, name).await?;
        print_json(&group, terminal)?;
    }
    Ok(())
}
