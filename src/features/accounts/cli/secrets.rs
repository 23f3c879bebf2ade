//! `lockkeeper accounts (password | keys)`: everything that an account signs in with.

use anyhow::bail;

use super::super::all_users::AllUsers;
use super::{AccountFlag, cli_actor};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, Terminal};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct PasswordArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// Remove the password instead
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    pub(super) database: DatabaseFlags,
}

impl PasswordArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let by = cli_actor();
        let number = self.account.find(users).await?.number;
        if self.remove {
            users.remove_password(&by, number).await?;
        } else {
            let password = users.generate_password(&by, number).await?;
            terminal.line(password.expose())?;
        }
        Ok(ExitStatus::Success)
    }
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct KeysArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// Key to add, in the format of OpenSSH. Prints its number
    #[arg(long, value_name = "KEY", conflicts_with = "delete")]
    add: Option<String>,
    /// Number of a key to delete
    #[arg(long, value_name = "NUMBER")]
    delete: Option<usize>,
    #[command(flatten)]
    pub(super) database: DatabaseFlags,
}

impl KeysArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let by = cli_actor();
        let row = self.account.find(users).await?;
        if let Some(key) = &self.add {
            let number = users.add_ssh_key(&by, row.number, key).await?;
            terminal.line(number.to_string())?;
        } else if let Some(number) = self.delete {
            if !users.delete_ssh_key(&by, row.number, number).await? {
                bail!(
                    "the account has no SSH key with the number {number}; `lockkeeper accounts keys` shows all"
                );
            }
        } else {
            for key in users.ssh_keys(&row).await? {
                terminal.line(key.line())?;
            }
        }
        Ok(ExitStatus::Success)
    }
}
