//! `lockkeeper accounts (create | set | activate | deactivate | link | unlink | merge | delete)`.

use anyhow::bail;
use lockkeeper_accounts::external_ids::ExternalIdKey;

use super::super::actions::{NewAccount, PropertyChanges, read_email};
use super::super::all_users::{AccountsError, AllUsers};
use super::{
    AccountArgs, AccountFlag, DeletedJson, ServerFlags, cli_actor, print_changed, print_json,
    read_key,
};
use crate::kit::term::{ExitResult, ExitStatus, Terminal};

#[derive(clap::Args)]
pub(in crate::features::accounts) struct CreateArgs {
    /// User name, for git and the API. It is kept in lower case
    #[arg(value_name = "USERNAME")]
    username: Option<String>,
    /// Name of the person
    #[arg(long, value_name = "TEXT")]
    full_name: Option<String>,
    /// E-mail address, which becomes the preferred one
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Name by which the account is known elsewhere, as in github:583231. May be given several times
    #[arg(long = "link", value_name = "SCHEME:ID")]
    external_ids: Vec<String>,
    /// Group to become a member of, as in Administrators. May be given several times
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl CreateArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let keys = self.external_ids.iter().map(|key| read_key(key));
        let new = NewAccount {
            username: self
                .username
                .as_deref()
                .map(ExternalIdKey::username)
                .transpose()
                .map_err(AccountsError::Invalid)?,
            password: None,
            full_name: self.full_name,
            email: self
                .email
                .as_deref()
                .map(read_email)
                .transpose()
                .map_err(AccountsError::Invalid)?,
            external_ids: keys.collect::<Result<_, _>>()?,
            ssh_key: None,
            groups: self.groups,
        };
        let number = users.create(&cli_actor(), &new).await?;
        let format = self.flags.format;
        if !format.is_json() {
            terminal.line(number.to_string())?;
        }
        print_changed(users, number, format, terminal).await
    }
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct SetArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// Name of the person
    #[arg(long, value_name = "TEXT")]
    full_name: Option<String>,
    /// Preferred e-mail address, which must be on an external ID of the account
    #[arg(long, value_name = "ADDRESS")]
    preferred_email: Option<String>,
    /// Text about the person's state, as in "OOO until Monday"
    #[arg(long, value_name = "TEXT")]
    status: Option<String>,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl SetArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        if self.full_name.is_none() && self.preferred_email.is_none() && self.status.is_none() {
            bail!("say what to change: --full-name, --preferred-email or --status");
        }
        let number = self.account.find(users).await?.number;
        let changes = PropertyChanges {
            full_name: self.full_name,
            preferred_email: self.preferred_email,
            status: self.status,
        };
        users.set_properties(&cli_actor(), number, &changes).await?;
        print_changed(users, number, self.flags.format, terminal).await
    }
}

/// Activates or deactivates an account.
pub(super) async fn set_active(
    args: &AccountArgs,
    users: &AllUsers,
    active: bool,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let number = args.account.find(users).await?.number;
    users.set_active(&cli_actor(), number, active).await?;
    print_changed(users, number, args.flags.format, terminal).await
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct LinkArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// The external ID, as in github:583231, mailto:john@example.com or username:jdoe
    #[arg(value_name = "SCHEME:ID")]
    external_id: String,
    /// E-mail address of the external ID. `mailto:` has its own
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl LinkArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let key = read_key(&self.external_id)?;
        let email = match self.email.as_deref() {
            None if key.scheme() == "mailto" => Some(key.id()),
            given => given,
        };
        let email = email.map(read_email).transpose();
        let email = email.map_err(AccountsError::Invalid)?;
        let number = self.account.find(users).await?.number;
        let by = cli_actor();
        users.link(&by, number, &key, email.as_ref()).await?;
        print_changed(users, number, self.flags.format, terminal).await
    }
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct UnlinkArgs {
    #[command(flatten)]
    account: AccountFlag,
    /// The external ID, as `show` prints it
    #[arg(value_name = "SCHEME:ID")]
    external_id: String,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl UnlinkArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let number = self.account.find(users).await?.number;
        let key = read_key(&self.external_id)?;
        users.unlink(&cli_actor(), number, &[key]).await?;
        print_changed(users, number, self.flags.format, terminal).await
    }
}

#[derive(clap::Args)]
pub(in crate::features::accounts) struct MergeArgs {
    /// Account to empty: number, user name or e-mail address
    #[arg(value_name = "FROM")]
    from: String,
    /// Account that gets everything
    #[arg(value_name = "INTO")]
    into: String,
    #[command(flatten)]
    pub(super) flags: ServerFlags,
}

impl MergeArgs {
    pub(super) async fn run(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let [from, into] = [self.from, self.into].map(|account| AccountFlag { account });
        let (from, into) = (from.find(users).await?, into.find(users).await?);
        if from.number == into.number {
            bail!("both names are of account {}", into.number);
        }
        let by = cli_actor();
        users.merge(&by, from.number, into.number).await?;
        print_changed(users, into.number, self.flags.format, terminal).await
    }
}

/// Deletes an inactive account, and says what it was.
pub(super) async fn delete(
    args: &AccountArgs,
    users: &AllUsers,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let row = args.account.find(users).await?;
    if row.active {
        bail!(
            "account {0} is active; `lockkeeper accounts deactivate {0}` comes first, and can be undone",
            row.number
        );
    }
    let account = users.json(&row).await?;
    users.delete(&cli_actor(), row.number).await?;
    if args.flags.format.is_json() {
        print_json(&DeletedJson::new(account), terminal)?;
        return Ok(ExitStatus::Success);
    }
    terminal.note(format!("Deleted {}, with:", account.line()));
    for line in account.external_id_lines() {
        terminal.note(line);
    }
    Ok(ExitStatus::Success)
}
