//! `lockkeeper accounts (password | keys)`: everything that an account signs in with.

use anyhow::bail;
use serde::Serialize;

use super::super::all_users::AllUsers;
use super::super::view::AccountJson;
use super::{
    AccountFlag, DeletedJson, ServerFlags, cli_actor, newest_row, print_changed, print_json,
};
use crate::kit::term::{ExitResult, ExitStatus, Terminal};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct PasswordArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// Remove the password instead
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

/// Generated password of an account.
#[derive(Serialize)]
struct PasswordJson<'a> {
    /// The account, without what belongs to it, such as external IDs.
    #[serde(flatten)]
    account: AccountJson,
    password: &'a str,
}

impl PasswordArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let by = cli_actor();
        let row = self.account.find(users).await?;
        if self.remove {
            users.remove_password(&by, row.number).await?;
            return print_changed(users, row.number, self.flags.format, terminal).await;
        }
        let password = users.generate_password(&by, row.number).await?;
        // Nothing more is read here: if that failed, nobody would know the password.
        if self.flags.format.is_json() {
            let json = PasswordJson {
                account: AccountJson::of_row(&row),
                password: password.expose(),
            };
            print_json(&json, terminal)?;
        } else {
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
    pub(super) flags: ServerFlags,
}

impl KeysArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let (by, is_json) = (cli_actor(), self.flags.format.is_json());
        let row = self.account.find(users).await?;
        if let Some(line) = &self.add {
            let number = users.add_ssh_key(&by, row.number, line).await?;
            if is_json {
                let row = newest_row(users, row.number).await?;
                let key = users.ssh_key(&row, number).await?;
                print_json(&key, terminal)?;
            } else {
                terminal.line(number.to_string())?;
            }
        } else if let Some(number) = self.delete {
            let key = users.ssh_key(&row, number).await?;
            if !users.delete_ssh_key(&by, row.number, number).await? {
                bail!(
                    "the account has no SSH key with the number {number}; `lockkeeper accounts keys` shows all"
                );
            }
            if is_json {
                print_json(&key.map(DeletedJson::new), terminal)?;
            }
        } else {
            for key in users.ssh_keys(&row).await? {
                if is_json {
                    print_json(&key, terminal)?;
                } else {
                    terminal.line(key.line())?;
                }
            }
        }
        Ok(ExitStatus::Success)
    }
}
