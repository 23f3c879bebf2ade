//! `lockkeeper accounts` and `lockkeeper reindex`: change accounts in the database, and read copies of `All-Users`.
//!
//! | File | Content |
//! |--|--|
//! | `people.rs` | `list`, `show`, `query` |
//! | `changes.rs` | `create`, `set`, `activate`, `deactivate`, `link`, `unlink`, `merge`, `delete` |
//! | `groups.rs` | `groups` |
//! | `secrets.rs` | `password`, `keys` |
//! | `history.rs` | `history`, `restore` |
//! | `check.rs` | `check`, `reindex accounts` |
//! | `import.rs` | `import` |

mod changes;
mod check;
mod groups;
mod history;
mod import;
mod people;
mod secrets;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::objects::CommitPerson;
use lockkeeper_accounts::refs::AccountId;
use serde::Serialize;

use self::changes::{CreateArgs, LinkArgs, MergeArgs, SetArgs, UnlinkArgs};
use self::check::CheckAccountsArgs;
use self::groups::GroupsArgs;
use self::history::RestoreArgs;
use self::people::{ListAccountsArgs, QueryArgs};
use self::secrets::{KeysArgs, PasswordArgs};
use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::copy::AccountsCopy;
use super::store::AccountRow;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, actor, block_on,
};
use crate::model::Cause;

/// Keep accounts of people in Git
#[derive(clap::Parser)]
pub(super) enum AccountsArgs {
    /// Show every account
    ///
    /// Without --git, the accounts of the server: a line for each, also with --json. A copy is one JSON document.
    List(ListAccountsArgs),
    #[command(flatten)]
    OfServer(ServerAccounts),
    /// Fill a server that has no accounts
    Import {
        #[command(subcommand)]
        source: AccountsSource,
    },
    /// Check all accounts by every rule that a push has to follow
    ///
    /// Without --git, the accounts of the server, the tables that are derived from them, and the repositories for git clients
    /// in the data directory, if it has some. Prints a line for each problem: ref, file, line and the way out. Ends with exit
    /// code 1 if there are errors; warnings alone are no failure.
    Check(CheckAccountsArgs),
}

/// Source of an import.
#[derive(clap::Subcommand)]
pub(super) enum AccountsSource {
    /// A copy of All-Users, of another server of this kind or of Gerrit
    ///
    /// Checks the copy first, as `check --git` does. With errors, nothing is imported. All accounts are imported at once,
    /// with their history, external IDs and stars, or none. Refs that this version has no use for are named and left out.
    ///
    /// Exit code 1: the copy has errors, or the server already has accounts.
    Git {
        /// Directory of the copy, as `git clone --mirror` makes it
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        flags: ServerFlags,
    },
    /// The users of the file of --web-accounts-file
    ///
    /// Each user with a password there becomes an account with the same user name and the same password. Prints the text
    /// for the file, with account=NUMBER in place of password=: the users sign in as before and have the rights of their
    /// line, and can change their password.
    ///
    /// Exit code 1: a line cannot be imported; the message says why. Nothing is imported then.
    WebAccounts {
        /// Path of the file of --web-accounts-file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        flags: ServerFlags,
    },
}

/// Subcommands on the accounts of the server.
#[derive(clap::Subcommand)]
pub(super) enum ServerAccounts {
    /// Show an account with its external IDs
    Show(AccountArgs),
    /// Create an account
    ///
    /// Prints its number.
    ///
    /// Exit code 1: a name or address belongs to another account, and the message says to which one; or there is no such
    /// group.
    Create(CreateArgs),
    /// Show the groups of accounts, add or remove a member
    ///
    /// Without a flag, prints a line for each group, or for this one, with its members and the groups that it includes.
    /// The rules that say what a group may do are in refs/meta/config of All-Users, with these groups (docs/accounts.md).
    ///
    /// Exit code 1: there is no such group or account, or the account to remove is no member.
    Groups(GroupsArgs),
    /// Change properties of an account
    ///
    /// An empty value removes a property.
    Set(SetArgs),
    /// Let an account sign in again
    Activate(AccountArgs),
    /// Lock an account out
    Deactivate(AccountArgs),
    /// Give an account another external ID
    Link(LinkArgs),
    /// Take an external ID away from an account
    Unlink(UnlinkArgs),
    /// Generate an HTTP password for git and the API
    ///
    /// Prints it. It replaces an older one, and cannot be shown again. The account needs a user name.
    Password(PasswordArgs),
    /// Show, add or delete SSH keys of an account
    ///
    /// Without a flag, prints a line for each key: its number and the key. A number is never given again.
    Keys(KeysArgs),
    /// Show the commits of an account, newest first
    History(AccountArgs),
    /// Make an earlier state of an account the newest one
    ///
    /// The files of the branch become those of the commit, in a new commit. External IDs and SSH keys stay as they are, an
    /// inactive account stays inactive, and an address that the account has no more is left out.
    Restore(RestoreArgs),
    /// Join two accounts of one person
    ///
    /// External IDs, SSH keys, watches, stars and memberships of the first account move to the second one, in one update.
    /// So the second one gets the rights of the first. That one stays, inactive. It keeps its user name if the second one
    /// has one.
    ///
    /// Exit code 1: one of them is inactive, because its person would be let in by the other one.
    Merge(MergeArgs),
    /// Remove an account with its external IDs and stars
    ///
    /// The account must be inactive. Its number is never given again; old states stay in the database and in copies.
    ///
    /// An inactive account keeps its user of a forge locked out. Without the account, commands of that user are carried out
    /// again, as those of everybody without an account.
    ///
    /// Exit code 1: the account is active.
    Delete(AccountArgs),
    /// Find accounts
    ///
    /// Words match the beginning of a word of the name, the beginning of the user name or of an address, or the number.
    /// name:TEXT, email:TEXT and username:TEXT match these alone, is:inactive finds inactive accounts, limit:NUMBER ends
    /// the list, and a minus in front of a condition turns it around.
    Query(QueryArgs),
}

/// Make tables again that are derived from something else
#[derive(clap::Parser)]
pub(super) enum ReindexArgs {
    /// Make the tables of accounts again, from their branches
    ///
    /// Servers may run meanwhile. Errors in branches, external IDs and stars are named. The tables of what cannot be read
    /// stay as they are, and all others are made again.
    ///
    /// Exit code 1: there are errors in branches, external IDs or stars.
    Accounts {
        #[command(flatten)]
        flags: ServerFlags,
    },
}

/// Account of a server.
#[derive(clap::Args)]
pub(super) struct AccountArgs {
    #[command(flatten)]
    account: AccountFlag,
    #[command(flatten)]
    flags: ServerFlags,
}

/// Flags of each subcommand on the accounts of a server.
#[derive(clap::Args)]
pub(super) struct ServerFlags {
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Account that a subcommand is about.
#[derive(clap::Args)]
struct AccountFlag {
    /// Number, user name or e-mail address
    #[arg(value_name = "ACCOUNT")]
    account: String,
}

impl SubcommandArgs for AccountsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::List(args) => block_on(args.run(terminal))?,
            Self::OfServer(accounts) => block_on(accounts.run(terminal))?,
            Self::Import { source } => block_on(source.run(terminal))?,
            Self::Check(args) => block_on(args.run(terminal))?,
        }
    }
}

impl SubcommandArgs for ReindexArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let Self::Accounts { flags } = self;
        block_on(async { check::reindex(&flags.open().await?, flags.format, terminal).await })?
    }
}

impl AccountsSource {
    async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Git { dir, flags } => {
                import::git(&flags.open().await?, &dir, flags.format, terminal).await
            }
            Self::WebAccounts { file, flags } => {
                import::web_accounts(&flags.open().await?, &file, flags.format, terminal).await
            }
        }
    }
}

impl ServerAccounts {
    async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let users = self.flags().open().await?;
        let may_take_rights = matches!(
            self,
            Self::Groups(_) | Self::Deactivate(_) | Self::Delete(_) | Self::Merge(_)
        );
        // A damaged access control must not keep anybody from locking an account out.
        let had_administrator = may_take_rights && users.has_administrator().await.unwrap_or(false);
        match self.act(&users, terminal).await {
            Ok(status) => {
                if had_administrator && matches!(users.has_administrator().await, Ok(false)) {
                    terminal.note(
                        "No active account administrates the server any more. Only the user of --web-basic-auth does; \
                         `lockkeeper accounts groups Administrators --add ACCOUNT` makes another administrator.",
                    );
                }
                Ok(status)
            }
            // What the person can correct is no failure of the program.
            Err(error) => match error.downcast::<AccountsError>() {
                Ok(error) if error.is_refusal() => {
                    terminal.note(format_args!("error: {error}"));
                    Ok(ExitStatus::Failure)
                }
                Ok(error) => Err(error.into()),
                Err(error) => Err(error),
            },
        }
    }

    fn flags(&self) -> &ServerFlags {
        match self {
            Self::Create(args) => &args.flags,
            Self::Groups(args) => &args.flags,
            Self::Set(args) => &args.flags,
            Self::Show(args)
            | Self::Activate(args)
            | Self::Deactivate(args)
            | Self::History(args)
            | Self::Delete(args) => &args.flags,
            Self::Link(args) => &args.flags,
            Self::Unlink(args) => &args.flags,
            Self::Password(args) => &args.flags,
            Self::Keys(args) => &args.flags,
            Self::Restore(args) => &args.flags,
            Self::Merge(args) => &args.flags,
            Self::Query(args) => &args.flags,
        }
    }

    async fn act(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Show(args) => people::show(&args, users, terminal).await,
            Self::Create(args) => args.run(users, terminal).await,
            Self::Groups(args) => args.run(users, terminal).await,
            Self::Set(args) => args.run(users, terminal).await,
            Self::Activate(args) => changes::set_active(&args, users, true, terminal).await,
            Self::Deactivate(args) => changes::set_active(&args, users, false, terminal).await,
            Self::Link(args) => args.run(users, terminal).await,
            Self::Unlink(args) => args.run(users, terminal).await,
            Self::Password(args) => args.run(users, terminal).await,
            Self::Keys(args) => args.run(users, terminal).await,
            Self::History(args) => history::history(&args, users, terminal).await,
            Self::Restore(args) => args.run(users, terminal).await,
            Self::Merge(args) => args.run(users, terminal).await,
            Self::Delete(args) => changes::delete(&args, users, terminal).await,
            Self::Query(args) => args.run(users, terminal).await,
        }
    }
}

impl AccountFlag {
    async fn find(&self, users: &AllUsers) -> anyhow::Result<AccountRow> {
        match users.find(&self.account).await? {
            Some(row) => Ok(row),
            None => bail!(
                "no account has the number, user name or address `{}`; `lockkeeper accounts list` shows all",
                self.account
            ),
        }
    }
}

impl ServerFlags {
    async fn open(&self) -> anyhow::Result<AllUsers> {
        Ok(AllUsers::new(self.database.open().await?, "localhost"))
    }
}

/// Account or key as it was before it was deleted.
#[derive(Serialize)]
struct DeletedJson<T> {
    #[serde(flatten)]
    was: T,
    deleted: bool,
}

impl<T> DeletedJson<T> {
    fn new(was: T) -> Self {
        Self { was, deleted: true }
    }
}

/// Prints a value as a line of JSON.
fn print_json(value: &impl Serialize, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    let json = serde_json::to_string(value);
    terminal.line(json.context("the outcome could not be written as JSON")?)?;
    Ok(())
}

/// Prints a changed account in the same way as `show`. As text, a change prints nothing.
async fn print_changed(
    users: &AllUsers,
    number: AccountId,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    if format.is_json() {
        let row = newest_row(users, number).await?;
        print_json(&users.json(&row).await?, terminal)?;
    }
    Ok(ExitStatus::Success)
}

/// Returns an account as it is after a change.
async fn newest_row(users: &AllUsers, number: AccountId) -> Result<AccountRow, AccountsError> {
    let row = users.store().account_get(number).await?;
    row.ok_or(AccountsError::NoAccount(number))
}

fn read_copy(dir: &Path) -> anyhow::Result<AccountsCopy> {
    AccountsCopy::read(dir)
        .with_context(|| format!("the accounts in {} could not be read", dir.display()))
}

fn read_key(text: &str) -> Result<ExternalIdKey, AccountsError> {
    text.parse().map_err(AccountsError::Invalid)
}

fn cli_actor() -> AccountsActor {
    let actor = actor();
    AccountsActor {
        author: CommitPerson::new(&actor.login, &format!("{}@localhost", actor.login)),
        cause: Cause::new(actor, ""),
        expected: None,
        signed_in: None,
    }
}

/// Says why a copy may have no accounts.
fn note_no_accounts(copy: &AccountsCopy, terminal: &mut Terminal<'_>) {
    if copy.users.is_empty() {
        terminal.note(
            "The copy has no accounts: it has no ref such as refs/users/56/1000856. A plain `git clone` leaves these out; \
             `git clone --mirror` does not.",
        );
    }
}

pub(super) fn counted(many: usize, what: &str) -> String {
    let plural = if many == 1 { "" } else { "s" };
    format!("{many} {what}{plural}")
}
