//! `lockkeeper accounts groups`.

use anyhow::bail;

use super::super::all_users::{AccountsError, AllUsers};
use super::{AccountFlag, cli_actor};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, Terminal, safe};

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
    pub(super) database: DatabaseFlags,
}

impl GroupsArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let by = cli_actor();
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
            }
            (Some(group), _, Some(account)) => {
                let number = AccountFlag { account }.find(users).await?.number;
                if !users.remove_from_group(&by, number, &group).await? {
                    bail!(
                        "account {number} is no member of `{}` by its own line; `lockkeeper accounts groups` shows all",
                        safe(&group)
                    );
                }
            }
            (group, ..) => list(users, group.as_deref(), terminal).await?,
        }
        Ok(ExitStatus::Success)
    }
}

/// Prints a line for each group, or for one: its name, its members, and the groups that it includes.
async fn list(
    users: &AllUsers,
    only: Option<&str>,
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
        terminal.line(users.group(&access, name).await?.line())?;
    }
    Ok(())
}
