//! `lockkeeper accounts`: changes accounts in the database, and reads copies of `All-Users`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::findings::Severity;
use lockkeeper_accounts::objects::CommitPerson;

use super::actions::{NewAccount, PropertyChanges, read_email};
use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::check::CheckedCopy;
use super::copy::AccountsCopy;
use super::git::{ACCOUNTS_DIR, cache_faults};
use super::import::ImportAccountsError;
use super::store::{AccountRow, MOST_ACCOUNTS};
use super::view::{AccountJson, AccountsJson};
use super::web_accounts::{WebAccountsImport, import_web_accounts};
use crate::git::LocalCopy;
use crate::kit::term::database::open as open_database;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, actor, block_on,
    safe,
};
use crate::model::Cause;

/// Maximum number of commits that a history shows.
const MOST_COMMITS: usize = 1_000;
/// Number of characters of a commit that are printed, and that must be given at least.
const SHORT_ID: usize = 12;
const SHORTEST_ID: usize = 4;

/// Keep accounts of people in Git
#[derive(clap::Parser)]
pub(super) enum AccountsArgs {
    /// Show every account
    ///
    /// Without --git, the accounts of the server: a line for each, also with --json. A copy is one JSON document.
    List {
        /// Accounts of a copy of All-Users: a directory, as `git clone --mirror` makes it
        #[arg(long = "git", value_name = "DIR")]
        copy: Option<PathBuf>,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
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
    Check {
        /// Check a copy of All-Users instead: a directory, as `git clone --mirror` makes it
        #[arg(long = "git", value_name = "DIR")]
        copy: Option<PathBuf>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
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
        database: DatabaseFlags,
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
        database: DatabaseFlags,
    },
}

/// Subcommands on the accounts of the server.
#[derive(clap::Subcommand)]
pub(super) enum ServerAccounts {
    /// Show an account with its external IDs
    Show {
        #[command(flatten)]
        account: AccountFlag,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Create an account
    ///
    /// Prints its number.
    ///
    /// Exit code 1: a name or address belongs to another account, and the message says to which one; or there is no such
    /// group.
    Create {
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
        database: DatabaseFlags,
    },
    /// Show the groups of accounts, add or remove a member
    ///
    /// Without a flag, prints a line for each group, or for this one, with its members and the groups that it includes.
    /// The rules that say what a group may do are in refs/meta/config of All-Users, with these groups (docs/accounts.md).
    ///
    /// Exit code 1: there is no such group or account, or the account to remove is no member.
    Groups {
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
        database: DatabaseFlags,
    },
    /// Change properties of an account
    ///
    /// An empty value removes a property.
    Set {
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
        database: DatabaseFlags,
    },
    /// Let an account sign in again
    Activate {
        #[command(flatten)]
        account: AccountFlag,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Lock an account out
    Deactivate {
        #[command(flatten)]
        account: AccountFlag,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Give an account another external ID
    Link {
        #[command(flatten)]
        account: AccountFlag,
        /// The external ID, as in github:583231, mailto:john@example.com or username:jdoe
        #[arg(value_name = "SCHEME:ID")]
        external_id: String,
        /// E-mail address of the external ID. `mailto:` has its own
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Take an external ID away from an account
    Unlink {
        #[command(flatten)]
        account: AccountFlag,
        /// The external ID, as `show` prints it
        #[arg(value_name = "SCHEME:ID")]
        external_id: String,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Generate an HTTP password for git and the API
    ///
    /// Prints it. It replaces an older one, and cannot be shown again. The account needs a user name.
    Password {
        #[command(flatten)]
        account: AccountFlag,
        /// Remove the password instead
        #[arg(long)]
        remove: bool,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show, add or delete SSH keys of an account
    ///
    /// Without a flag, prints a line for each key: its number and the key. A number is never given again.
    Keys {
        #[command(flatten)]
        account: AccountFlag,
        /// Key to add, in the format of OpenSSH. Prints its number
        #[arg(long, value_name = "KEY", conflicts_with = "delete")]
        add: Option<String>,
        /// Number of a key to delete
        #[arg(long, value_name = "NUMBER")]
        delete: Option<usize>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show the commits of an account, newest first
    History {
        #[command(flatten)]
        account: AccountFlag,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Make an earlier state of an account the newest one
    ///
    /// The files of the branch become those of the commit, in a new commit. External IDs and SSH keys stay as they are, an
    /// inactive account stays inactive, and an address that the account has no more is left out.
    Restore {
        #[command(flatten)]
        account: AccountFlag,
        /// Commit of the account, as `history` prints it
        #[arg(value_name = "COMMIT")]
        commit: String,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Join two accounts of one person
    ///
    /// External IDs, SSH keys, watches, stars and memberships of the first account move to the second one, in one update.
    /// So the second one gets the rights of the first. That one stays, inactive. It keeps its user name if the second one
    /// has one.
    ///
    /// Exit code 1: one of them is inactive, because its person would be let in by the other one.
    Merge {
        /// Account to empty: number, user name or e-mail address
        #[arg(value_name = "FROM")]
        from: String,
        /// Account that gets everything
        #[arg(value_name = "INTO")]
        into: String,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Remove an account with its external IDs and stars
    ///
    /// The account must be inactive. Its number is never given again; old states stay in the database and in copies.
    ///
    /// An inactive account keeps its user of a forge locked out. Without the account, commands of that user are carried out
    /// again, as those of everybody without an account.
    ///
    /// Exit code 1: the account is active.
    Delete {
        #[command(flatten)]
        account: AccountFlag,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Find accounts
    ///
    /// Words match the beginning of a word of the name, the beginning of the user name or of an address, or the number.
    /// name:TEXT, email:TEXT and username:TEXT match these alone, is:inactive finds inactive accounts, limit:NUMBER ends
    /// the list, and a minus in front of a condition turns it around.
    Query {
        /// Query, as in: john -email:john@old.example.com
        #[arg(value_name = "QUERY", allow_hyphen_values = true)]
        query: String,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
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
        database: DatabaseFlags,
    },
}

impl SubcommandArgs for ReindexArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let Self::Accounts { database } = self;
        block_on(async { reindex(&open(&database).await?, terminal).await })?
    }
}

/// Account that a subcommand is about.
#[derive(clap::Args)]
pub(super) struct AccountFlag {
    /// Number, user name or e-mail address
    #[arg(value_name = "ACCOUNT")]
    account: String,
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

impl SubcommandArgs for AccountsArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Check {
                copy: Some(copy), ..
            } => {
                let copy = read_copy(&copy)?;
                let status = report(&copy, &CheckedCopy::of(&copy), terminal)?;
                note_no_accounts(&copy, terminal);
                Ok(status)
            }
            Self::Check {
                copy: None,
                database,
            } => block_on(check_server(&database, terminal))?,
            Self::List {
                copy: Some(copy),
                format,
                ..
            } => list_copy(&read_copy(&copy)?, format, terminal),
            Self::List {
                copy: None,
                format,
                database,
            } => block_on(async { list(&open(&database).await?, format, terminal).await })?,
            Self::OfServer(accounts) => block_on(accounts.run(terminal))?,
            Self::Import {
                source: AccountsSource::Git { dir, database },
            } => block_on(async { import(&open(&database).await?, &dir, terminal).await })?,
            Self::Import {
                source: AccountsSource::WebAccounts { file, database },
            } => block_on(async { web_accounts(&open(&database).await?, &file, terminal).await })?,
        }
    }
}

async fn open(database: &DatabaseFlags) -> anyhow::Result<AllUsers> {
    Ok(AllUsers::new(database.open().await?, "localhost"))
}

impl ServerAccounts {
    async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let users = open(self.database()).await?;
        let may_take_rights = matches!(
            self,
            Self::Groups { .. }
                | Self::Deactivate { .. }
                | Self::Delete { .. }
                | Self::Merge { .. }
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
                    terminal.note(error.to_string());
                    Ok(ExitStatus::Failure)
                }
                Ok(error) => Err(error.into()),
                Err(error) => Err(error),
            },
        }
    }

    fn database(&self) -> &DatabaseFlags {
        match self {
            Self::Show { database, .. }
            | Self::Create { database, .. }
            | Self::Groups { database, .. }
            | Self::Set { database, .. }
            | Self::Activate { database, .. }
            | Self::Deactivate { database, .. }
            | Self::Link { database, .. }
            | Self::Unlink { database, .. }
            | Self::Password { database, .. }
            | Self::Keys { database, .. }
            | Self::History { database, .. }
            | Self::Restore { database, .. }
            | Self::Merge { database, .. }
            | Self::Delete { database, .. }
            | Self::Query { database, .. } => database,
        }
    }

    async fn act(self, users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
        let by = cli_actor();
        match self {
            Self::Show {
                account, format, ..
            } => {
                let row = account.find(users).await?;
                let account = users.json(&row).await?;
                if format.is_json() {
                    let json = serde_json::to_string(&account);
                    terminal.line(json.context("the account could not be written as JSON")?)?;
                } else {
                    terminal.line(account.line())?;
                    for line in account.external_id_lines() {
                        terminal.line(line)?;
                    }
                }
            }
            Self::Create {
                username,
                full_name,
                email,
                external_ids,
                groups,
                ..
            } => {
                let keys = external_ids.iter().map(|key| read_key(key));
                let new = NewAccount {
                    username: username
                        .as_deref()
                        .map(ExternalIdKey::username)
                        .transpose()
                        .map_err(AccountsError::Invalid)?,
                    password: None,
                    full_name,
                    email: email
                        .as_deref()
                        .map(read_email)
                        .transpose()
                        .map_err(AccountsError::Invalid)?,
                    external_ids: keys.collect::<Result<_, _>>()?,
                    ssh_key: None,
                    groups,
                };
                let number = users.create(&by, &new).await?;
                terminal.line(number.to_string())?;
            }
            Self::Groups {
                group,
                add,
                remove,
                new,
                ..
            } => match (group, add, remove) {
                (Some(group), Some(account), _) => {
                    let number = AccountFlag { account }.find(users).await?.number;
                    let added = users.add_to_group(&by, number, &group, new).await;
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
                (group, ..) => list_groups(users, group.as_deref(), terminal).await?,
            },
            Self::Set {
                account,
                full_name,
                preferred_email,
                status,
                ..
            } => {
                if full_name.is_none() && preferred_email.is_none() && status.is_none() {
                    bail!("say what to change: --full-name, --preferred-email or --status");
                }
                let changes = PropertyChanges {
                    full_name,
                    preferred_email,
                    status,
                };
                let number = account.find(users).await?.number;
                users.set_properties(&by, number, &changes).await?;
            }
            Self::Activate { account, .. } => {
                let number = account.find(users).await?.number;
                users.set_active(&by, number, true).await?;
            }
            Self::Deactivate { account, .. } => {
                let number = account.find(users).await?.number;
                users.set_active(&by, number, false).await?;
            }
            Self::Link {
                account,
                external_id,
                email,
                ..
            } => {
                let key = read_key(&external_id)?;
                let email = match email.as_deref() {
                    None if key.scheme() == "mailto" => Some(key.id()),
                    given => given,
                };
                let email = email.map(read_email).transpose();
                let email = email.map_err(AccountsError::Invalid)?;
                let number = account.find(users).await?.number;
                users.link(&by, number, &key, email.as_ref()).await?;
            }
            Self::Unlink {
                account,
                external_id,
                ..
            } => {
                let number = account.find(users).await?.number;
                let key = read_key(&external_id)?;
                users.unlink(&by, number, &[key]).await?;
            }
            Self::Password {
                account, remove, ..
            } => {
                let number = account.find(users).await?.number;
                if remove {
                    users.remove_password(&by, number).await?;
                } else {
                    let password = users.generate_password(&by, number).await?;
                    terminal.line(password.expose())?;
                }
            }
            Self::Keys {
                account,
                add,
                delete,
                ..
            } => {
                let row = account.find(users).await?;
                if let Some(key) = add {
                    let number = users.add_ssh_key(&by, row.number, &key).await?;
                    terminal.line(number.to_string())?;
                } else if let Some(number) = delete {
                    if !users.delete_ssh_key(&by, row.number, number).await? {
                        bail!(
                            "the account has no SSH key with the number {number}; `lockkeeper accounts keys` shows all"
                        );
                    }
                } else {
                    for line in users.json(&row).await?.ssh_key_lines() {
                        terminal.line(line)?;
                    }
                }
            }
            Self::Merge { from, into, .. } => {
                let [from, into] = [from, into].map(|account| AccountFlag { account });
                let (from, into) = (from.find(users).await?, into.find(users).await?);
                if from.number == into.number {
                    bail!("both names are of account {}", into.number);
                }
                users.merge(&by, from.number, into.number).await?;
            }
            Self::Delete { account, .. } => {
                let row = account.find(users).await?;
                if row.active {
                    bail!(
                        "account {0} is active; `lockkeeper accounts deactivate {0}` comes first, and can be undone",
                        row.number
                    );
                }
                let account = users.json(&row).await?;
                users.delete(&by, row.number).await?;
                terminal.note(format!("Deleted {}, with:", account.line()));
                for line in account.external_id_lines() {
                    terminal.note(line);
                }
            }
            Self::Restore {
                account, commit, ..
            } => {
                let number = account.find(users).await?.number;
                let commits = users.history(number, usize::MAX).await?;
                let mut named = commits
                    .iter()
                    .filter(|known| known.id.to_string().starts_with(&commit));
                match (named.next(), named.next()) {
                    (Some(known), None) if commit.len() >= SHORTEST_ID => {
                        users.restore(&by, number, known.id).await?;
                    }
                    _ => bail!(
                        "`{}` is not the beginning of one commit of the account, with {SHORTEST_ID} characters or more; \
                         `lockkeeper accounts history` shows all",
                        safe(&commit)
                    ),
                }
            }
            Self::Query { query, format, .. } => {
                let mut skip = 0;
                loop {
                    let rows = users.search(&query, skip).await?;
                    if rows.is_empty() {
                        break;
                    }
                    print_rows(&rows, format, terminal)?;
                    skip += MOST_ACCOUNTS;
                }
            }
            Self::History { account, .. } => {
                let number = account.find(users).await?.number;
                let mut commits = users.history(number, MOST_COMMITS + 1).await?;
                let is_cut_off = commits.len() > MOST_COMMITS;
                commits.truncate(MOST_COMMITS);
                for commit in commits {
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
            }
        }
        Ok(ExitStatus::Success)
    }
}

/// Prints a line for each group, or for one: its name, its members, and the groups that it includes.
async fn list_groups(
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
        let mut parts = Vec::new();
        for account in groups.members_of(name) {
            let row = users.store().account_get(account).await?;
            let username = row.and_then(|row| row.username);
            let username = username.map(|name| format!(" {name}")).unwrap_or_default();
            parts.push(format!("{account}{username}"));
        }
        parts.extend(groups.includes_of(name).map(|name| format!("group {name}")));
        let members = if parts.is_empty() {
            "no members".to_owned()
        } else {
            parts.join(", ")
        };
        terminal.line(safe(&format!("{name}: {members}")))?;
    }
    Ok(())
}

fn read_copy(dir: &std::path::Path) -> anyhow::Result<AccountsCopy> {
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

async fn list(users: &AllUsers, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let rows = all_rows(users).await?;
    print_rows(&rows, format, terminal)?;
    if rows.is_empty() && !format.is_json() {
        terminal.note("There are no accounts. `lockkeeper accounts create USERNAME` makes one.");
    }
    Ok(ExitStatus::Success)
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

/// Says why a copy may have no accounts.
fn note_no_accounts(copy: &AccountsCopy, terminal: &mut Terminal<'_>) {
    if copy.users.is_empty() {
        terminal.note(
            "The copy has no accounts: it has no ref such as refs/users/56/1000856. A plain `git clone` leaves these out; \
             `git clone --mirror` does not.",
        );
    }
}

async fn check_server(database: &DatabaseFlags, terminal: &mut Terminal<'_>) -> ExitResult {
    let storage = database.storage()?;
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

/// Number of times that a reindex begins again because accounts with wrong rows change.
const REINDEX_ATTEMPTS: usize = 5;
/// Number of refs that a reindex names because their tables stay as they are. The errors name all.
const NAMED_REFS: usize = 10;

async fn reindex(users: &AllUsers, terminal: &mut Terminal<'_>) -> ExitResult {
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

async fn import(
    users: &AllUsers,
    dir: &std::path::Path,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let repository = LocalCopy::open(dir)?;
    let copy = AccountsCopy::of(&repository);
    let checked = CheckedCopy::of_used(&copy);
    if checked.errors().next().is_some() {
        report(&copy, &checked, terminal)?;
        terminal.note("Nothing was imported. Correct the errors in the copy first.");
        return Ok(ExitStatus::Failure);
    }
    match users.import(&cli_actor(), &repository, &copy).await {
        Ok(imported) => {
            for line in checked.of_severity(Severity::Unusable) {
                terminal.line(line)?;
            }
            for (name, why) in imported.left_out {
                terminal.line(format!("{}: left out: {}", safe(&name), safe(&why)))?;
            }
            for line in checked.of_severity(Severity::Warning) {
                terminal.line(line)?;
            }
            terminal.note(format!(
                "Imported {}.",
                counted(imported.accounts, "account")
            ));
            Ok(ExitStatus::Success)
        }
        Err(error @ (ImportAccountsError::NotEmpty(_) | ImportAccountsError::NoAccounts)) => {
            terminal.note(error.to_string());
            Ok(ExitStatus::Failure)
        }
        Err(error) => Err(error.into()),
    }
}

async fn web_accounts(
    users: &AllUsers,
    file: &std::path::Path,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match import_web_accounts(users, &cli_actor(), file).await? {
        WebAccountsImport::Done { text, created } => {
            let status = terminal.shown(&text);
            terminal.note(format!(
                "Created {}. Write the text above to {}; running servers then read it.",
                counted(created, "account"),
                file.display()
            ));
            Ok(status)
        }
        WebAccountsImport::Refused(problems) => {
            // The output is the new file, so a refusal is none.
            for problem in problems {
                terminal.note(format!("{}: {}", file.display(), safe(&problem)));
            }
            terminal.note("Nothing was imported. Correct these lines first.");
            Ok(ExitStatus::Failure)
        }
    }
}

/// Prints the problems of a copy.
fn report(copy: &AccountsCopy, checked: &CheckedCopy, terminal: &mut Terminal<'_>) -> ExitResult {
    for (_, line) in &checked.lines {
        terminal.line(line)?;
    }
    let errors = checked.errors().count();
    let warnings = checked.lines.len() - errors;
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

pub(super) fn counted(many: usize, what: &str) -> String {
    let plural = if many == 1 { "" } else { "s" };
    format!("{many} {what}{plural}")
}
